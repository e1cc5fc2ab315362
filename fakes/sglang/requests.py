"""Splits a call of the engine into single requests, and checks it like sglang."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from sfusion_tools.tokenizers import Tokenizer

from ..errors import BadValue
from .generation import GenerateCall, GenerationRequest, Logprobs, decoded
from .sampling import SamplingParams

# sglang has no such bounds; without them one short request would keep the fake busy for hours.
# Chosen: far more than any training asks for.
_MOST_SAMPLES = 16_384
_MOST_LOGPROBS = 1024

CALL_OPTIONS = frozenset(field.name for field in fields(GenerateCall)) - {
    "messages",
    "tools",
    "constraint",
}
"""What a caller can set; the rest comes from a chat request."""


def requests_of(
    call: GenerateCall, tokenizer: Tokenizer, context_length: int
) -> list[GenerationRequest]:
    """Return the single requests of a call, ordered by ``index``; the engine adds missing ids."""
    prompts, is_batch = _prompts(call, tokenizer)
    if not prompts:
        raise BadValue("The batch has no prompt.")
    given = _spread(call.sampling_params, len(prompts), Mapping)
    samples = _samples_per_prompt(given)
    is_batch = is_batch or samples > 1
    rids = _rids(call.rid, len(prompts), samples, is_batch)
    logprobs = _logprobs(call, len(prompts))

    made: list[GenerationRequest] = []
    for number, (ids, text) in enumerate(prompts):
        params = given[number] or {}
        _check_length(ids, params, context_length)
        _check_vocabulary(ids, tokenizer)
        checked = SamplingParams.read(params, tokenizer.vocab_size)
        _check_logprobs(logprobs[number])
        for sample in range(samples):
            index = number * samples + sample
            request = GenerationRequest(
                call=call,
                rid=rids[index],
                ids=tuple(ids),
                prompt=text,
                params=checked,
                sampling=params,
                logprobs=logprobs[number],
                sample=sample,
                index=index if is_batch else None,
            )
            made.append(request)
    return made


def _samples_per_prompt(given: Sequence[Mapping[str, Any] | None]) -> int:
    """Return how many samples each prompt gets, which must be the same for all."""
    samples = _samples(given[0])
    if samples < 1:
        raise BadValue(f"n must be at least 1, got {samples}.")
    if samples * len(given) > _MOST_SAMPLES:
        raise BadValue(f"The fake generates at most {_MOST_SAMPLES:,} samples for one request.")
    if any(_samples(params) != samples for params in given):
        raise BadValue(
            "The parallel_sample_num should be the same for all samples in sample params."
        )
    return samples


def _logprobs(call: GenerateCall, count: int) -> list[Logprobs]:
    """Return the log probabilities that a call asks for, for each of its prompts."""
    wanted = _spread(call.return_logprob, count, bool)
    starts = _spread(call.logprob_start_len, count, int)
    tops = _spread(call.top_logprobs_num, count, int)
    token_ids = _id_lists(call.token_ids_logprob, count)

    made: list[Logprobs] = []
    for number in range(count):
        start = starts[number]
        logprobs = Logprobs(
            wanted=bool(wanted[number]),
            start=-1 if start is None else start,
            top=tops[number] or 0,
            token_ids=tuple(token_ids[number] or ()),
        )
        made.append(logprobs)
    return made


def _check_logprobs(logprobs: Logprobs) -> None:
    if logprobs.top > _MOST_LOGPROBS:
        raise BadValue(
            f"The fake returns at most {_MOST_LOGPROBS:,} log probabilities for a token."
        )


def _samples(params: Mapping[str, Any] | None) -> int:
    """Return how many samples the parameters of a prompt ask for."""
    wanted = (params or {}).get("n")
    return 1 if wanted is None else int(wanted)


def _prompts(
    call: GenerateCall, tokenizer: Tokenizer
) -> tuple[list[tuple[Sequence[int], str]], bool]:
    """Return the ids and the text of each prompt, and whether the call is a batch."""
    if call.text is None and call.input_ids is None:
        raise BadValue("Either text, input_ids or input_embeds should be provided.")
    if call.text is not None:
        is_batch = not isinstance(call.text, str)
        texts = [call.text] if isinstance(call.text, str) else list(call.text)
        return [(tokenizer.encode(text), text) for text in texts], is_batch

    given: Sequence[Any] = call.input_ids or ()
    if not given:
        raise BadValue("input_ids cannot be empty.")
    is_batch = not isinstance(given[0], int)
    rows: list[Sequence[int]] = list(given) if is_batch else [given]
    return [(row, decoded(row, tokenizer)) for row in rows], is_batch


def _spread(value: Any, count: int, kind: type) -> list[Any]:
    """Return a value for each prompt: the same for all, or those of a list."""
    if value is None or isinstance(value, kind):
        return [value] * count
    if len(value) != count:
        raise BadValue(
            f"The length of a list of parameters is {len(value)}, "
            f"but the batch has {count} prompts."
        )
    return list(value)


def _id_lists(value: Any, count: int) -> list[Any]:
    """Return a list of ids for each prompt: the same for all, or those of a list of lists."""
    if not value or isinstance(value[0], int):
        return [value] * count
    return _spread(value, count, str)


def _rids(rid: str | Sequence[str] | None, prompts: int, samples: int, is_batch: bool) -> list[str]:
    """Return the id of each sample; it is empty if the caller gave none."""
    if rid is None:
        return [""] * (prompts * samples)
    if isinstance(rid, str) and not is_batch:
        return [rid]
    if isinstance(rid, str):
        return [f"{rid}_{number}" for number in range(prompts * samples)]
    if len(rid) != prompts:
        raise BadValue(
            f"The specified rids length mismatch with the batch_size: {len(rid)} != {prompts}."
        )
    if samples == 1:
        return list(rid)
    return [f"{name}_{sample}" for name in rid for sample in range(samples)]


def _check_length(ids: Sequence[int], params: Mapping[str, Any], context_length: int) -> None:
    if len(ids) >= context_length:
        raise BadValue(
            f"The input ({len(ids)} tokens) is longer than the model's context length "
            f"({context_length} tokens)."
        )

    wanted = params.get("max_new_tokens")
    if isinstance(wanted, int) and len(ids) + wanted > context_length:
        raise BadValue(
            "Requested token count exceeds the model's maximum context length of "
            f"{context_length} tokens. "
            f"You requested a total of {len(ids) + wanted} tokens: {len(ids)} tokens from the "
            f"input messages and {wanted} tokens for the completion. "
            "Please reduce the number of tokens in the input messages or the completion to fit "
            "within the limit."
        )


def _check_vocabulary(ids: Sequence[int], tokenizer: Tokenizer) -> None:
    used = set(ids)
    if used and not 0 <= min(used) <= max(used) < tokenizer.vocab_size:
        raise BadValue(
            f"The input_ids {list(ids)} contains values greater than the vocab size "
            f"({tokenizer.vocab_size})."
        )
