"""The parsers of a server: our own, or for ``quirks: sglang`` imitations of sglang's, with what they lose or cut.

    sglang_parse("hermes", text, tools)      # Extract(content, pieces): the non-streaming parse
    quirk_stream("hermes", tools)            # an object with feed(delta) and finish(reason): the streaming parse

How far both agree with the recordings is measured in tests/fakes/sglang/test_quirks.py and listed in
docs/tool-call-formats.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from sfusion.fakes.errors import BadValue
from sfusion.fakes.sglang.calls import CallParser, CallStream, Extract, OwnParser
from sfusion.fakes.sglang.dialects import dialect_of
from sfusion.fakes.sglang.quirk_text import QuirkError, ToolTable
from sfusion.fakes.sglang.reasoning import PARSERS, Harmony, Reasoning
from sfusion_tools.errors import near
from sfusion_tools.formats import get_format

__all__ = ["QuirkError", "QuirkParser", "quirk_stream", "sglang_parse"]


def sglang_parse(form: str, text: str, tools: Sequence[Any]) -> Extract:
    """Parse a whole text as sglang does; raises QuirkError where sglang's parser raises."""
    parse = dialect_of(form).parse
    if parse is None:
        raise _unrecorded(form)
    return parse(text, ToolTable.of(tools))


def quirk_stream(form: str, tools: Sequence[Any]) -> CallStream:
    """Return sglang's streaming parser of a format."""
    stream = dialect_of(form).stream
    if stream is None:
        raise _unrecorded(form)
    return stream(tools)


def _unrecorded(form: str) -> BadValue:
    return BadValue(f"The quirks of sglang's parser of {form} were never recorded; leave out quirks for this format.")


class QuirkParser:
    """Parses calls as sglang's own parser of that format does."""

    def __init__(self, form: str) -> None:
        self._form = form
        quirk_stream(form, ())

    def whole(self, text: str, tools: Sequence[Any], reason: str) -> Extract | None:
        """Parse a whole text; None where sglang leaves it as it is, also because its parser raised."""
        try:
            parsed = sglang_parse(self._form, text, tools)
        except QuirkError:
            return None
        return None if parsed.content == text and not parsed.pieces else parsed

    def stream(self, tools: Sequence[Any]) -> CallStream:
        return quirk_stream(self._form, tools)


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


def is_written_as_array(name: str | None) -> bool:
    """Return whether a forced call is a plain JSON array, because the format has no grammar."""
    return name is None or not dialect_of(name).has_grammar


def shown_name(name: str | None) -> str | None:
    """Return the name in ``/model_info``, where deprecated names are replaced."""
    return None if name is None else dialect_of(name).shown_name or get_format(name).name
