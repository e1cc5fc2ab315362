"""One generation as pure data: its steps, log probabilities, and output objects."""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sfusion_tools.tokenizers import Tokenizer

from .keyed_digest import Key, digest, draw, whole
from .protocol import EngineOutput, Finish, LogprobRow, MetaInfo, Step
from .rendering import Constraint
from .sampling import SampledText, SamplingParams
from .state import Known


@dataclass(frozen=True, slots=True)
class Logprobs:
    """The log probabilities that a request asks for."""

    wanted: bool = False
    start: int = -1
    top: int = 0
    token_ids: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class GenerateCall:
    """The arguments of one call of the engine, or of one ``/generate`` request."""

    text: str | Sequence[str] | None = None
    input_ids: Sequence[int] | Sequence[Sequence[int]] | None = None
    sampling_params: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None
    return_logprob: bool | Sequence[bool] | None = None
    logprob_start_len: int | Sequence[int] | None = None
    top_logprobs_num: int | Sequence[int] | None = None
    token_ids_logprob: Sequence[int] | Sequence[Sequence[int]] | None = None
    return_text_in_logprobs: bool = False
    stream: bool = False
    rid: str | Sequence[str] | None = None
    return_prompt_token_ids: bool = False
    messages: tuple[Mapping[str, Any], ...] = ()
    tools: tuple[Mapping[str, Any], ...] = ()
    constraint: Constraint = field(default_factory=Constraint)


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """One sample of one prompt of a call, validated."""

    call: GenerateCall
    rid: str
    ids: tuple[int, ...]
    prompt: str
    params: SamplingParams
    sampling: Mapping[str, Any]
    logprobs: Logprobs
    sample: int
    index: int | None

    @property
    def keys(self) -> tuple[Key, ...]:
        """The keys for random draws.

        They depend on the prompt and the request's seed, not on when the request arrives.
        """
        prompt = digest(struct.pack(f"<{len(self.ids)}q", *self.ids))
        seed = self.sampling.get("sampling_seed")
        if seed is None:
            return (prompt, self.sample)
        return (prompt, self.sample, seed)


@dataclass(frozen=True, slots=True)
class Generation:
    """The complete output for a request, step by step."""

    steps: tuple[Step, ...]
    finish: Finish
    prompt_tokens: int
    cached_tokens: int
    known: Known
    """What the prefix cache knew of the prompt."""
    error: Exception | None = None
    error_after: int = 0

    @property
    def tokens(self) -> int:
        """The number of sampled tokens."""
        return sum(len(step.ids) for step in self.steps)

    def share(self, upto: int) -> float:
        """Return how much of the text the first ``upto`` steps hold.

        Without any text, it is the share of the steps.
        """
        if not self.steps:
            return 1.0
        sizes = [len(step.text) for step in self.steps]
        if not any(sizes):
            sizes = [1] * len(sizes)
        return sum(sizes[:upto]) / sum(sizes)

    def until(self, tokens: int, finish: Finish) -> Generation:
        """Return this generation ended after ``tokens`` tokens."""
        kept: list[Step] = []
        for step in self.steps:
            if len(step.ids) > tokens:
                break
            tokens -= len(step.ids)
            kept.append(step)
        return replace(self, steps=tuple(kept), finish=finish, error=None)


@dataclass(slots=True)
class StreamProgress:
    """How much of the text of a call was generated, and how much of it was sent."""

    requests: int = 1
    shares: dict[int, float] = field(default_factory=dict)
    sent: float = 0.0

    @property
    def generated(self) -> float:
        return sum(self.shares.values()) / self.requests


def steps_of(
    ending: SampledText, tokenizer: Tokenizer, interval: int, skip_special_tokens: bool
) -> tuple[Step, ...]:
    """Split a generation into decoding steps; a character appears when its last token is there.

    The stop token at the end is a step of its own without text; a length limit is reached within
    the last text.
    """
    ids = ending.ids
    text = ending.text
    last_is_stop = ending.finish.type == "stop" and isinstance(ending.finish.matched, int)
    body = ids[:-1] if last_is_stop else ids

    steps: list[Step] = []
    shown = 0  # characters of the text that the steps hold
    decoded_ids = 0  # ids of these characters
    for start in range(0, len(body), interval):
        stop = min(start + interval, len(body))
        if stop == len(body):
            piece = text[shown:]
        else:
            new_ids = ids[decoded_ids:stop]
            piece = tokenizer.decode(new_ids, skip_special_tokens=skip_special_tokens)
            if piece.endswith("\ufffd") or not text.startswith(piece, shown):
                # Half a character, or a stop string that will be cut off: shown later, or never.
                piece = ""
            else:
                decoded_ids = stop
        steps.append(Step(piece, ids[start:stop]))
        shown += len(piece)

    if last_is_stop:
        steps.append(Step(text[shown:], ids[-1:]))
    return tuple(steps)


def output(
    request: GenerationRequest,
    generation: Generation,
    upto: int,
    *,
    seed: int,
    tokenizer: Tokenizer,
    weight_version: str,
    latency: float | None,
) -> EngineOutput:
    """Return the output object after ``upto`` steps.

    After the last step it has a finish reason, and the ``latency`` of the request is known.
    """
    done = generation.steps[:upto]
    ids = [token for step in done for token in step.ids]
    meta: MetaInfo = {
        "id": request.rid,
        "finish_reason": None if latency is None else generation.finish.body(),
        "prompt_tokens": generation.prompt_tokens,
        "weight_version": weight_version,
        "num_retractions": 0,
    }
    if request.logprobs.wanted:
        meta |= _LogprobRows(request, seed, tokenizer).body(_tokens(done))
        meta["output_token_logprobs_length"] = len(ids)
    meta["reasoning_tokens"] = 0
    meta["completion_tokens"] = len(ids)
    meta["cached_tokens"] = generation.cached_tokens
    if latency is not None:
        meta["e2e_latency"] = latency

    body: EngineOutput = {
        "text": "".join(step.text for step in done),
        "output_ids": ids,
        "meta_info": meta,
    }
    if request.call.return_prompt_token_ids:
        body["prompt_token_ids"] = list(request.ids)
    if request.index is not None:
        body["index"] = request.index
    return body


def _tokens(steps: Sequence[Step]) -> list[tuple[int, float | None]]:
    """Return the tokens of some steps, each with its log probability if the policy gave one."""
    tokens: list[tuple[int, float | None]] = []
    for step in steps:
        given: Sequence[float | None] = step.logprobs or (None,) * len(step.ids)
        tokens += zip(step.ids, given, strict=True)
    return tokens


_LEAST_PROBABILITY = 1e-17
"""What a certain token leaves for the others: so little that a sum of 1 does not change."""
_LOGPROB_DIGITS = 1e6
"""Log probabilities have six digits after the point. Chosen: more would only lengthen answers."""
_NAMED_TOKEN_PENALTY = 5.0
"""How far a token that a request asks about lies below a sampled one. Chosen: clearly below."""


class _LogprobRows:
    """Makes the log probabilities of a request; the same request always gets the same."""

    def __init__(self, request: GenerationRequest, seed: int, tokenizer: Tokenizer) -> None:
        self._request = request
        self._tokenizer = tokenizer
        # Computed once: they depend on the whole prompt, and every token draws with them.
        self._keys: tuple[Key, ...] = (seed, *request.keys)

    def body(self, tokens: Sequence[tuple[int, float | None]]) -> MetaInfo:
        """Return what ``meta_info`` says about the prompt and about the generated tokens."""
        wanted = self._request.logprobs
        start = len(self._request.ids) if wanted.start < 0 else wanted.start
        places = range(len(self._request.ids))[start:]
        inputs = [self._input(at) for at in places]
        outputs = [self._sampled(at, token, given) for at, (token, given) in enumerate(tokens)]
        body: MetaInfo = {"input_token_logprobs": inputs, "output_token_logprobs": outputs}

        if wanted.top > 0:
            body["input_top_logprobs"] = [
                self._top(own, "input", at) if at > 0 else None
                for at, own in zip(places, inputs, strict=True)
            ]
            body["output_top_logprobs"] = [self._top(own, at) for at, own in enumerate(outputs)]
        if wanted.token_ids:
            # Places in the prompt count down from 0, those in the answer up.
            body["input_token_ids_logprobs"] = [
                self._named(-at) if at > 0 else None for at in places
            ]
            body["output_token_ids_logprobs"] = [self._named(at) for at in range(len(tokens))]
        return body

    def _row(self, logprob: float | None, token: int) -> LogprobRow:
        text = None
        if self._request.call.return_text_in_logprobs:
            text = decoded([token], self._tokenizer)
        return [logprob, token, text]

    def _input(self, at: int) -> LogprobRow:
        """Return the row of a token of the prompt; the first has no log probability."""
        logprob = None
        if at > 0:
            logprob = chance_logprob(*self._keys, "input", at)
        return self._row(logprob, self._request.ids[at])

    def _sampled(self, at: int, token: int, given: float | None) -> LogprobRow:
        """Return the row of a generated token."""
        if given is None:
            given = chance_logprob(*self._keys, at)
        return self._row(given, token)

    def _top(self, own: LogprobRow, *place: Key) -> list[LogprobRow]:
        """Return the rows of a token and of others at its place, the most probable first.

        The others share what the token itself leaves of the probability, each half as probable as
        the one before.
        """
        own_logprob, own_token, _ = own
        vocabulary = self._tokenizer.vocab_size
        count = self._request.logprobs.top
        farthest = max(vocabulary - count, 1)
        distance = whole(1, farthest, *self._keys, "top", *place)
        left = math.log(max(1.0 - math.exp(own_logprob), _LEAST_PROBABILITY))

        rows = [own]
        for rank in range(1, count):
            logprob = math.floor((left - rank * math.log(2)) * _LOGPROB_DIGITS) / _LOGPROB_DIGITS
            rows.append(self._row(logprob, (own_token + distance + rank) % vocabulary))
        return sorted(rows, key=lambda row: -row[0])

    def _named(self, at: int) -> list[LogprobRow]:
        """Return the rows of the tokens that the request asks about."""
        rows: list[LogprobRow] = []
        for token in self._request.logprobs.token_ids:
            chance = chance_logprob(*self._keys, at, token)
            rows.append(self._row(chance - _NAMED_TOKEN_PENALTY, token))
        return rows


def chance_logprob(*keys: Key) -> float:
    """Return a log probability of a confident model: mostly near 0, sometimes far below.

    The shape is chosen: half of the values lie above -0.2, and none below -3.
    """
    return 0.0 - round(3.0 * draw(*keys, "logprob") ** 4, 6)


def decoded(ids: Sequence[int], tokenizer: Tokenizer) -> str:
    """Return the text of some tokens; nothing if there are no such tokens."""
    try:
        return tokenizer.decode(ids)
    except ValueError:
        return ""
