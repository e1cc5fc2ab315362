"""Chooses the parsers of a server: our own, or imitations of sglang's."""

from __future__ import annotations

from typing import Literal

from sfusion.fakes.sglang.calls import ArrayParser, CallParser, OwnParser
from sfusion.fakes.sglang.dialects import dialect_of
from sfusion.fakes.sglang.quirks import QuirkParser
from sfusion.fakes.sglang.reasoning import PARSERS, Harmony, Reasoning
from sfusion_tools.errors import near
from sfusion_tools.formats import get_format

Quirks = Literal["sglang"] | None


def call_parser(name: str | None, quirks: Quirks = None) -> CallParser | None:
    """Return the parser of a format; without a name, calls stay in the text, as in sglang."""
    if name is None:
        return None
    if quirks == "sglang":
        return QuirkParser(get_format(name).name)
    return OwnParser(get_format(name))


def reasoning_parser(name: str | None, quirks: Quirks = None) -> Reasoning | Harmony | None:
    """Return the reasoning parser of a name; without one, thinking stays in the text."""
    if name is None:
        return None
    if name not in PARSERS:
        raise ValueError(f"There is no reasoning parser {name!r}: {near(name, PARSERS)}")
    return Harmony(waits=True) if name == "gpt-oss" and quirks == "sglang" else PARSERS[name]


def array_parser() -> CallParser:
    """Return the parser of the plain JSON that constrained decoding gives."""
    return ArrayParser()


def is_written_as_array(name: str | None) -> bool:
    """Return whether a forced call is a plain JSON array, because the format has no grammar."""
    return name is None or not dialect_of(name).has_grammar


def shown_name(name: str | None) -> str | None:
    """Return the name in ``/model_info``, where deprecated names are replaced."""
    return None if name is None else dialect_of(name).shown_name or get_format(name).name
