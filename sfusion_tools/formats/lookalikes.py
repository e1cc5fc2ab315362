"""Finds text that looks like a tool call or like a tool's reply but was not parsed as one."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Sequence

MARKS: dict[re.Pattern[str], list[str]] = {}
"""The marks of all formats and which formats have each; filled as they are found."""

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
_UNTAGGED = "The text contains what looks like a tool call without its markers; it was not made."


def lookalikes(
    pieces: Sequence[tuple[int, str]], form: str, tools: Sequence[str]
) -> Iterator[tuple[str, str, int, str]]:
    """Yield kind, message, position and excerpt of an invented reply and of the first thing that
    looks like a call.

    ``pieces`` is the text outside of calls and outside of the thinking, each with its position in
    the whole text.
    """
    text = "".join(piece for _, piece in pieces)
    if _INVISIBLE.search(text):
        places = [at for at, char in enumerate(text) if not _INVISIBLE.match(char)]
        # Models copy invisible characters into names and markers.
        for kind, message, at, excerpt in lookalikes(
            [(0, "".join(text[at] for at in places))], form, tools
        ):
            yield kind, message, position_in(pieces, places[at]), excerpt
        return
    reply = _REPLY.search(text)
    if reply:
        yield (
            "invented_reply",
            (
                "The text contains a made-up tool reply. Stop after the calls and wait for the "
                "real reply."
            ),
            position_in(pieces, reply.start()),
            _excerpt(text, reply.start()),
        )
    for kind, message, at in _calls(text, form, tools):
        yield kind, message, position_in(pieces, at), _excerpt(text, at)
        return


def _calls(text: str, form: str, tools: Sequence[str]) -> Iterator[tuple[str, str, int]]:
    for mark, owners in MARKS.items() if _any_mark(len(MARKS)).search(text) else ():
        if found := mark.search(text):
            *most, last = owners
            named = f"{', '.join(most)} or {last}" if most else last
            whose = (
                "do not match this format"
                if form in owners
                else f"belong to {named}, not to {form}"
            )
            yield (
                "stray_marker",
                f"The text contains markers of a tool call that {whose}, so no call was made.",
                found.start(),
            )
    if found := _OTHERS.search(text):
        message = (
            "The text contains a tool call in a form that does not belong to "
            f"{form}, so no call was made."
        )
        yield "stray_marker", message, found.start()
    if found := _OBJECT.search(text) or _REACT.search(text):
        yield "untagged_call", _UNTAGGED, found.start()
    if found := _FENCE.search(text):
        message = "The text contains fenced code and no tool call; code in a fence is not run."
        yield "fenced_code", message, found.start()
    if tools and (found := _bare(tuple(tools)).search(text)):
        yield "untagged_call", _UNTAGGED, found.start("line")
    if tools and (found := _named(tuple(tools)).search(text)):
        yield "untagged_call", _UNTAGGED, found.start()


@functools.cache
def _any_mark(size: int) -> re.Pattern[str]:
    """Match any of the marks, of which there are so many: most texts have none."""
    del size
    return re.compile("|".join(mark.pattern for mark in MARKS), re.IGNORECASE)


@functools.lru_cache(maxsize=64)
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


@functools.lru_cache(maxsize=64)
def _named(tools: tuple[str, ...]) -> re.Pattern[str]:
    """Match the name of a tool where a broken object has it."""
    return re.compile(rf"""["']?name["']?\s*+:\s*+["'](?:{"|".join(map(re.escape, tools))})\b""")


def _excerpt(text: str, at: int) -> str:
    return text[at : at + 80].split("\n", 1)[0]


def position_in(pieces: Sequence[tuple[int, str]], at: int) -> int:
    for offset, piece in pieces:
        if at < len(piece):
            return offset + at
        at -= len(piece)
    return at
