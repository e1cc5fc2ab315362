"""One generation as pure data: its steps, log probabilities, and output objects."""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sfusion_tools.tokenizers import Tokenizer

from .keyed_digest import Key, digest, draw, whole
from .protocol import Finish, JsonObject, Step
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
        """The keys for random draws: they depend on the prompt and the request's seed, not on when
        it arrives."""
        keys = digest(struct.pack(f"<{len(self.ids)}q", *self.ids)), self.sample
        seed = self.sampling.get("sampling_seed")
        return keys if seed is None else (*keys, seed)


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
        """Return how much of the text the first ``upto`` steps hold; of the steps, if there is no
        text."""
        sizes = [len(step.text) for step in self.steps]
        if not any(sizes):
            sizes = [1] * len(sizes)
        return sum(sizes[:upto]) / sum(sizes) if sizes else 1.0

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
    ids, text = ending.ids, ending.text
    steps: list[Step] = []
    shown = clean = 0
    last_is_stop = ending.finish.type == "stop" and isinstance(ending.finish.matched, int)
    body = ids[:-1] if last_is_stop else ids
    for start in range(0, len(body), interval):
        stop = min(start + interval, len(body))
        if stop == len(body):
            piece = text[shown:]
        else:
            piece = tokenizer.decode(ids[clean:stop], skip_special_tokens=skip_special_tokens)
            if piece.endswith("\ufffd") or not text.startswith(piece, shown):
                # Half a character, or a stop string that will be cut off: shown later, or never.
                piece = ""
            else:
                clean = stop
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
) -> JsonObject:
    """Return the output object after ``upto`` steps, with the finish reason if that was the last
    step."""
    done = generation.steps[:upto]
    ids = [number for step in done for number in step.ids]
    meta: JsonObject = {
        "id": request.rid,
        "finish_reason": None if latency is None else generation.finish.body(),
        "prompt_tokens": generation.prompt_tokens,
        "weight_version": weight_version,
        "num_retractions": 0,
    }
    if request.logprobs.wanted:
        meta |= _logprobs(request, [s for step in done for s in _pairs(step)], seed, tokenizer)
        meta["output_token_logprobs_length"] = len(ids)
    meta["reasoning_tokens"] = 0
    meta["completion_tokens"] = len(ids)
    meta["cached_tokens"] = generation.cached_tokens
    if latency is not None:
        meta["e2e_latency"] = latency
    body: JsonObject = {
        "text": "".join(step.text for step in done),
        "output_ids": ids,
        "meta_info": meta,
    }
    if request.call.return_prompt_token_ids:
        body["prompt_token_ids"] = list(request.ids)
    if request.index is not None:
        body["index"] = request.index
    return body


def _pairs(step: Step) -> list[tuple[int, float | None]]:
    known: Sequence[float | None] = step.logprobs or (None,) * len(step.ids)
    return list(zip(step.ids, known, strict=True))


def _logprobs(
    request: GenerationRequest,
    tokens: list[tuple[int, float | None]],
    seed: int,
    tokenizer: Tokenizer,
) -> JsonObject:
    want, keys = request.logprobs, request.keys

    def triple(logprob: float | None, number: int) -> list[Any]:
        return [
            logprob,
            number,
            decoded([number], tokenizer) if request.call.return_text_in_logprobs else None,
        ]

    def row(own: list[Any], *place: Key) -> list[list[Any]]:
        """The token itself and others, which share what is left of the probability; the most
        probable is first."""
        left = max(1.0 - math.exp(own[0]), 1e-17)  # so little that it does not change a sum of 1
        beyond = whole(1, max(tokenizer.vocab_size - want.top, 1), seed, *keys, "top", *place)
        others = [
            triple(
                math.floor((math.log(left) - rank * math.log(2)) * 1e6) / 1e6,
                (own[1] + beyond + rank) % tokenizer.vocab_size,
            )
            for rank in range(1, want.top)
        ]
        return sorted([own, *others], key=lambda one: -one[0])

    def named(at: int) -> list[list[Any]]:
        return [
            triple(chance_logprob(seed, *keys, at, number) - 5.0, number)
            for number in want.token_ids
        ]

    start = len(request.ids) if want.start < 0 else want.start
    inputs = list(enumerate(request.ids))[start:]
    body: JsonObject = {
        # The first token of a prompt has no predecessor, so it has no log probability.
        "input_token_logprobs": [
            triple(None if at == 0 else chance_logprob(seed, *keys, "input", at), number)
            for at, number in inputs
        ],
        "output_token_logprobs": [
            triple(chance_logprob(seed, *keys, at) if known is None else known, number)
            for at, (number, known) in enumerate(tokens)
        ],
    }
    if want.top > 0:
        known = zip(inputs, body["input_token_logprobs"], strict=True)
        body["input_top_logprobs"] = [
            None if at == 0 else row(own, "input", at) for (at, _), own in known
        ]
        body["output_top_logprobs"] = [
            row(own, at) for at, own in enumerate(body["output_token_logprobs"])
        ]
    if want.token_ids:
        body["input_token_ids_logprobs"] = [None if at == 0 else named(-at) for at, _ in inputs]
        body["output_token_ids_logprobs"] = [*map(named, range(len(tokens)))]
    return body


def chance_logprob(*keys: Key) -> float:
    """Return a log probability of a confident model: mostly near 0, sometimes far below."""
    return 0.0 - round(3.0 * draw(*keys, "logprob") ** 4, 6)


def decoded(ids: Sequence[int], tokenizer: Tokenizer) -> str:
    """Return the text of some tokens; nothing if there are no such tokens."""
    try:
        return tokenizer.decode(ids)
    except ValueError:
        return ""
