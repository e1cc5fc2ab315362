"""Finds text that looks like a tool call or like a tool's reply but was not parsed as one."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Sequence
from typing import TypeAlias

Marks: TypeAlias = tuple[re.Pattern[str], ...]
MARKS: dict[re.Pattern[str], list[str]] = {}
"""The marks of all bundled formats and which formats have each; filled as they are found."""

_EXTRA = r"""["'](?:type|id|index)["']\s*+:\s*+(?:["'][^"'\n]{0,80}+["']|[0-9]{1,9}+)\s*+,\s*+"""
_OBJECT = re.compile(
    rf"""\{{\s*+(?:{_EXTRA}){{0,3}}["'](?:"""
    rf"""name["']\s*+:\s*+["'][^"'\n]*+["']\s*+,\s*+(?:{_EXTRA}){{0,3}}["'](?:arguments|parameters)"""
    r"""|(?:arguments|parameters)["']\s*+:\s*+[{"'\[]"""
    r"""|(?:tool|tool_name|action)["']\s*+:\s*+["'][^"'\n]*+["']\s*+,\s*+["'](?:args|arguments|\w{0,12}?input|param(?:eter)?s)"""
    r"""|function["']\s*+:\s*+(?:\{\s*+["']name["']|["'][^"'\n]*+["']\s*+,\s*+["'](?:arguments|parameters)))"""
)
_OTHERS = re.compile(
    r"<(?:\w+:)?(?:invoke|function_calls?|tool_use|tool_code|start_function_call|[|｜]tool_calls?[|｜]|｜DSML｜)\b"
    r"|<[|｜]tool_calls?[|｜]>|<｜DSML｜|\[TOOL_REQUEST\]"
    r"|\bfunctions\.\w++(?::[0-9]++)?\s*+[({]",
    re.IGNORECASE,
)
"""How models whose formats are not among ours write calls."""
_REACT = re.compile(r"^[ \t]*+Action:[ \t]*+\S[^\n]{0,200}+\s{1,20}Action Input:", re.MULTILINE)
_INVISIBLE = re.compile("[\u00ad\u200b-\u200f\u2060-\u2064\ufeff]")
_FENCE = re.compile(
    r"^[ \t]*```[ \t]*(?:py|python3?|tool_call|tool_code)[ \t]*$", re.MULTILINE | re.IGNORECASE
)
_REPLY = re.compile(
    r"<tool_response>|<\|tool_response\|?>|<｜tool▁outputs?▁begin｜>|\[TOOL_RESULTS\]|<\|observation\|>\s*\S"
)
_INVENTED = (
    "The text contains a made-up tool reply. Stop after the calls and wait for the real reply."
)
_UNTAGGED = "The text contains what looks like a tool call without its markers; it was not made."


def lookalikes(
    pieces: Sequence[tuple[int, str]], form: str, own: Marks, tools: Sequence[str]
) -> Iterator[tuple[str, str, int, str]]:
    """Yield an invented reply, and the first thing that looks like a call.

    Of each its kind, a message, its position and an excerpt. ``pieces`` is the text outside of
    calls and of the thinking, each with its position in the whole text; ``own`` are the marks of
    the format itself, which is not among ours if a file declares it.
    """
    text = "".join(piece for _, piece in pieces)
    if _INVISIBLE.search(text):
        # Models copy invisible characters into names and markers.
        places = [at for at, char in enumerate(text) if not _INVISIBLE.match(char)]
        visible = "".join(text[at] for at in places)
        for kind, message, at, excerpt in lookalikes([(0, visible)], form, own, tools):
            yield kind, message, position_in(pieces, places[at]), excerpt
        return

    reply = _REPLY.search(text)
    if reply:
        at = reply.start()
        yield "invented_reply", _INVENTED, position_in(pieces, at), _excerpt(text, at)
    for kind, message, at in _calls(text, form, own, tools):
        yield kind, message, position_in(pieces, at), _excerpt(text, at)
        return


def _calls(
    text: str, form: str, own: Marks, tools: Sequence[str]
) -> Iterator[tuple[str, str, int]]:
    """Yield kind, message and place of what looks like a call, the clearest first."""
    yield from _marked(text, form, own)
    found = _OTHERS.search(text)
    if found:
        message = (
            "The text contains a tool call in a form that does not belong to "
            f"{form}, so no call was made."
        )
        yield "stray_marker", message, found.start()
    found = _OBJECT.search(text) or _REACT.search(text)
    if found:
        yield "untagged_call", _UNTAGGED, found.start()
    found = _FENCE.search(text)
    if found:
        message = "The text contains fenced code and no tool call; code in a fence is not run."
        yield "fenced_code", message, found.start()
    if not tools:
        return
    found = _bare(tuple(tools)).search(text)
    if found:
        yield "untagged_call", _UNTAGGED, found.start("line")
    for pattern in (_named, _headed, _keyed):
        found = pattern(tuple(tools)).search(text)
        if found:
            yield "untagged_call", _UNTAGGED, found.start()


def _marked(text: str, form: str, own: Marks) -> Iterator[tuple[str, str, int]]:
    """Yield the marks of formats that a text contains."""
    marks = {mark: [form] for mark in own if mark not in MARKS}
    if _any_mark(len(MARKS)).search(text):
        marks |= MARKS
    for mark, owners in marks.items():
        found = mark.search(text)
        if found is None:
            continue
        if form in owners:
            whose = "do not match this format"
        else:
            *most, last = owners
            named = f"{', '.join(most)} or {last}" if most else last
            whose = f"belong to {named}, not to {form}"
        message = f"The text contains markers of a tool call that {whose}, so no call was made."
        yield "stray_marker", message, found.start()


@functools.cache
def _any_mark(size: int) -> re.Pattern[str]:
    """Match any of the marks: most texts have none.

    ``size`` is how many there are; a new pattern is made when there are more.
    """
    del size
    return re.compile("|".join(mark.pattern for mark in MARKS), re.IGNORECASE)


_KEPT = 64
"""How many sets of tools are remembered. Chosen: a training has one or a few."""


@functools.lru_cache(maxsize=_KEPT)
def _bare(tools: tuple[str, ...]) -> re.Pattern[str]:
    """Match a call without markers at the beginning of a line or below empty lines.

    White space is only entered at its beginning, so that a search does not read it again from each
    of its lines.
    """
    names = "|".join(map(re.escape, tools))
    begin = r"(?:\A|(?<!\s)[^\S\n]*+\n|(?=[\[({<]))(?P<line>[\[({<\]]?)"
    return re.compile(
        rf"{begin}\s*+(?:await\s++)?(?:{names})\s*+\(\s*+(?:\w++\s*+=|['\"\[{{]|\))", re.MULTILINE
    )


@functools.lru_cache(maxsize=_KEPT)
def _named(tools: tuple[str, ...]) -> re.Pattern[str]:
    """Match the name of a tool where a broken object has it."""
    names = "|".join(map(re.escape, tools))
    return re.compile(rf"""["']?name["']?\s*+:\s*+["'](?:{names})\b""")


@functools.lru_cache(maxsize=_KEPT)
def _headed(tools: tuple[str, ...]) -> re.Pattern[str]:
    """Match the name of a tool before an object of arguments, whose markers are broken."""
    names = "|".join(map(re.escape, tools))
    return re.compile(
        rf"""(?<![\w.])(?:{names})(?:>|[^\S\n]*+\n\s*+)?\{{\s*+["'][\w.-]{{1,80}}+["']\s*+:"""
    )


@functools.lru_cache(maxsize=_KEPT)
def _keyed(tools: tuple[str, ...]) -> re.Pattern[str]:
    """Match an object of arguments under the name of a tool, ``{"TOOL": {``."""
    names = "|".join(map(re.escape, tools))
    return re.compile(rf"""\{{\s*+["'](?:{names})["']\s*+:\s*+\{{""")


_EXCERPT = 80
"""Characters that a problem shows of its text. Chosen: a line of a terminal."""


def _excerpt(text: str, at: int) -> str:
    return text[at : at + _EXCERPT].split("\n", 1)[0]


def position_in(pieces: Sequence[tuple[int, str]], at: int) -> int:
    """Return where character ``at`` of the joined pieces is in the whole text."""
    for offset, piece in pieces:
        if at < len(piece):
            return offset + at
        at -= len(piece)
    return at
