"""Sampling parameters: their validation, and where they end a generation."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

from sfusion_tools.tokenizers import Tokenizer

from ..errors import BadValue, SlowPattern
from ..faults.pattern import check_pattern, find
from .json_schema import validator
from .protocol import Finish

_MAX_NEW_TOKENS = 128
"""The longest answer to a request that sets no limit: sglang's own default."""


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """The parameters that affect the fake; the others are only validated."""

    max_new_tokens: int | None = _MAX_NEW_TOKENS
    min_new_tokens: int = 0
    stop: tuple[str, ...] = ()
    stop_token_ids: frozenset[int] = frozenset()
    stop_regex: tuple[str, ...] = ()
    n: int = 1
    ignore_eos: bool = False
    no_stop_trim: bool = False
    skip_special_tokens: bool = True
    json_schema: str | None = None

    @classmethod
    def read(cls, given: Mapping[str, Any] | None, vocab_size: int) -> SamplingParams:
        """Read the parameters of a request, with the checks of sglang."""
        given = given or {}
        unknown = [name for name in given if name not in _NAMES]
        if unknown:
            # sglang passes them to a constructor, and this is the message of Python then.
            raise BadValue(
                f"SamplingParams.__init__() got an unexpected keyword argument '{unknown[0]}'"
            )

        _check(given, vocab_size)
        schema = given.get("json_schema")
        if schema is not None:
            validator(schema if isinstance(schema, str) else repr(schema))
        return cls(
            max_new_tokens=given.get("max_new_tokens", _MAX_NEW_TOKENS),
            min_new_tokens=given.get("min_new_tokens") or 0,
            stop=_texts(given.get("stop")),
            stop_token_ids=frozenset(given.get("stop_token_ids") or ()),
            stop_regex=_patterns(given.get("stop_regex")),
            n=given.get("n") or 1,
            ignore_eos=bool(given.get("ignore_eos")),
            no_stop_trim=bool(given.get("no_stop_trim")),
            skip_special_tokens=given.get("skip_special_tokens", True) is not False,
            json_schema=schema,
        )


_NAMES = frozenset(field.name for field in fields(SamplingParams)) | {
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "frequency_penalty",
    "presence_penalty",
    "repetition_penalty",
    "regex",
    "ebnf",
    "structural_tag",
    "spaces_between_special_tokens",
    "sampling_seed",
    "logit_bias",
    "custom_params",
    "beam_width",
    "stream_interval",
}
"""All parameters that sglang knows."""


@dataclass(frozen=True, slots=True)
class SampledText:
    """The sampled ids of a generation, its visible text, and why it ended."""

    ids: tuple[int, ...]
    text: str
    finish: Finish


def end(text: str, params: SamplingParams, tokenizer: Tokenizer, room: int) -> SampledText:
    """End a text at the end-of-sequence token, a stop or a limit, whichever comes first."""
    limit = room if params.max_new_tokens is None else min(params.max_new_tokens, room)
    ids = _model_ids(text, params, tokenizer, limit)
    cut = _first_stop_token(ids, params, tokenizer.eos_token_id, limit)

    if params.stop or params.stop_regex:
        found = _first_stop_text(tokenizer.decode(ids[:cut]), params)
        if found is not None:
            return _ended_by_text(tokenizer.decode(ids), found, params, tokenizer)

    skip = params.skip_special_tokens
    if cut < limit:
        sampled = tuple(ids[: cut + 1])
        shown_ids = sampled if params.no_stop_trim else sampled[:-1]
        shown = tokenizer.decode(shown_ids, skip_special_tokens=skip)
        return SampledText(sampled, shown, Finish("stop", matched=ids[cut]))

    sampled = tuple(ids[:limit])
    shown = tokenizer.decode(sampled, skip_special_tokens=skip)
    # Hold back half a character, like a detokenizer.
    shown = shown.removesuffix("\ufffd")
    return SampledText(sampled, shown, Finish("length", length=len(sampled)))


def _model_ids(text: str, params: SamplingParams, tokenizer: Tokenizer, limit: int) -> list[int]:
    """Return what the model would sample: the text and its end, or more if it must continue."""
    eos = tokenizer.eos_token_id
    ids = [*tokenizer.encode(text), eos]
    wanted = limit if params.ignore_eos else min(params.min_new_tokens, limit)
    if len(ids) > wanted:
        return ids

    # A model that must continue past its end does so; ours repeats itself.
    body = [token for token in ids if token != eos] or tokenizer.encode(" ")
    repeated = [body[at % len(body)] for at in range(wanted)]
    return [*repeated, eos]


def _first_stop_token(ids: list[int], params: SamplingParams, eos: int, limit: int) -> int:
    """Return the place of the first token that ends the generation; ``limit`` if there is none."""
    stops = set(params.stop_token_ids)
    if not params.ignore_eos:
        stops.add(eos)
    for at in range(params.min_new_tokens, min(len(ids), limit)):
        if ids[at] in stops:
            return at
    return limit


def _ended_by_text(
    text: str, found: _StopText, params: SamplingParams, tokenizer: Tokenizer
) -> SampledText:
    """End a text behind a stop string, which is shown only if the request wants it."""
    shown = text[: found.end] if params.no_stop_trim else text[: found.start]
    ids = tuple(tokenizer.encode(text[: found.end]))
    return SampledText(ids, shown, Finish("stop", matched=found.stop))


class _StopText(NamedTuple):
    """Where a stop ends and begins in a text, and which it is; the one that ends first wins."""

    end: int
    start: int
    stop: str


def _first_stop_text(text: str, params: SamplingParams) -> _StopText | None:
    """Return the first stop string or pattern in a text."""
    found: list[_StopText] = []
    for stop in params.stop:
        start = text.find(stop)
        if start >= 0 and stop:
            found.append(_StopText(start + len(stop), start, stop))
    for pattern in params.stop_regex:
        try:
            span = find(pattern, text)
        except SlowPattern as error:
            raise BadValue(f"stop_regex: {error}") from error
        if span is None:
            continue
        start, stop_end = span
        if stop_end > start:
            found.append(_StopText(stop_end, start, pattern))
    return min(found, default=None)


def _texts(value: Any) -> tuple[str, ...]:
    """Return a parameter that may be a string, several or none."""
    if value is None:
        return ()
    if isinstance(value, str):
        return (value,)
    return tuple(value)


def _patterns(value: Any) -> tuple[str, ...]:
    try:
        return tuple(check_pattern(pattern) for pattern in _texts(value))
    except ValueError as error:
        raise BadValue(f"stop_regex: {error}") from error


_RULES: tuple[tuple[str, Callable[[float], bool], str], ...] = (
    ("temperature", lambda it: math.isfinite(it) and it >= 0, "be a non-negative finite number"),
    ("top_p", lambda it: 0 < it <= 1, "be in (0, 1]"),
    ("min_p", lambda it: 0 <= it <= 1, "be in [0, 1]"),
    ("top_k", lambda it: it == -1 or it >= 1, "be -1 (disable) or at least 1"),
    ("frequency_penalty", lambda it: -2 <= it <= 2, "be in [-2, 2]"),
    ("presence_penalty", lambda it: -2 <= it <= 2, "be in [-2, 2]"),
    ("repetition_penalty", lambda it: 0 < it <= 2, "be in (0, 2] (1.0 = no penalty)"),
)


"""Parameters, what their values must fulfil, and how sglang's message says it."""
_GRAMMARS = ("json_schema", "regex", "ebnf", "structural_tag")


def _check(given: Mapping[str, Any], vocab_size: int) -> None:
    """Refuse what sglang refuses, with its messages and in its order."""
    for name, fits, rule in _RULES:
        value = given.get(name)
        if value is not None and not fits(value):
            raise BadValue(f"{name} must {rule}, got {value}.")
    _check_lengths(given)
    for token in given.get("logit_bias") or ():
        if not 0 <= int(token) < vocab_size:
            raise BadValue(f"logit_bias must has keys in [0, {vocab_size - 1}], got {token}.")

    grammars = [name for name in _GRAMMARS if given.get(name) is not None]
    if len(grammars) > 1:
        raise BadValue("Only one of json_schema, regex, ebnf, or structural_tag can be set.")


def _check_lengths(given: Mapping[str, Any]) -> None:
    """Refuse limits of the answer's length that contradict each other."""
    least = given.get("min_new_tokens") or 0
    if least < 0:
        raise BadValue(f"min_new_tokens must be in [0, max_new_tokens], got {least}.")
    most = given.get("max_new_tokens", _MAX_NEW_TOKENS)
    if most is not None and most < 0:
        raise BadValue(f"max_new_tokens must be at least 0, got {most}.")
    if most is not None and least > most:
        raise BadValue(f"min_new_tokens must be in [0, max_new_tokens({most})], got {least}.")
