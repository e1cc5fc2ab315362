"""What programs do, as journals keep it: texts with ``{call}``, ``{canary}`` and ``{fill:N}``,
and what they mean."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

from ...fakes.sandbox.program import fill, passed_on
from .facts.canary import token
from .facts.truth import Ending, ProgramTruth

PRINTS = "{canary}"
"""What a program prints if a file does not say it."""
TRACEBACK = "Traceback (most recent call last):\n"
WARNING = "{warning}\n"
REPEATED = "repeated"
"""The name of every call of repeated code."""
_RUN = re.compile(r"(.)\1{63,}", re.DOTALL)
_STREAMS = ("stdout", "stderr")
_PIECE = 40
"""Characters of the shortest part of a stream that is worth a reference."""
_LONGEST_KEPT = 2000
"""Characters of a text of a program that a journal keeps, before ``{fill:N}`` is written out."""
_ENDINGS: dict[Any, Ending] = {
    "ok": "exited", "program_error": "exited", "program_timeout": "stopped", "compile_error": "not_compiled",
}  # fmt: skip


def truth_of(intent: dict[str, Any], call: str, *, whole: bool = False) -> ProgramTruth | None:
    """Return what the program of an intent does when nothing goes wrong; None if the journal does
    not say it all.

    ``whole``: with what it wrote and the server does not pass on.
    """
    kind, name = intent.get("kind"), REPEATED if "mark" in intent else call
    if kind not in _ENDINGS or "partial" in intent or "size" in intent:
        return None
    early, prints, errors = (
        fill(named(intent.get(key, ""), name)) for key in ("early", "prints", "errors")
    )
    if "prints" not in intent and kind in ("ok", "program_error"):
        prints = named(PRINTS, name)
    stdout, stderr = early + (prints if kind != "program_timeout" else ""), errors
    if not whole and not intent.get("whole"):
        stdout, stderr = passed_on(stdout), passed_on(stderr)
    return ProgramTruth(
        stdout, stderr, intent.get("exit", 1 if kind == "program_error" else 0), _ENDINGS[kind]
    )


Pieces = list[str | list[Any]]
"""A long text: parts of the program's streams, ``[stream, start, end]``, and what else is in it,
where many of one character are ``[character, count]``."""


def packed(text: str, truth: ProgramTruth) -> Pieces | None:
    """Return the pieces of a text, so that a journal holds all of it; None if too much of it is
    not the program's."""
    pieces: Pieces = []
    at = begun = literal = 0
    while at < len(text):
        piece, size = _piece(text, at, truth)
        if piece is None:
            at, literal = at + 1, literal + 1
            if literal > _LONGEST_KEPT:
                return None
        else:
            pieces += [text[begun:at], piece]
            at = begun = at + size
    return [one for one in (*pieces, text[begun:]) if one]


def _piece(text: str, at: int, truth: ProgramTruth) -> tuple[list[Any] | None, int]:
    """Return the piece that begins at this place of a text, and its length."""
    if (run := _RUN.match(text, at)) is not None:
        return [run[1], len(run[0])], len(run[0])
    for name in _STREAMS:
        stream = getattr(truth, name)
        start = stream.find(text[at : at + _PIECE]) if len(text) - at >= _PIECE else -1
        if start >= 0:
            size, most = _PIECE, min(len(stream) - start, len(text) - at)
            while size < most:
                middle = (size + most + 1) // 2
                same = stream[start : start + middle] == text[at : at + middle]
                size, most = (middle, most) if same else (size, middle - 1)
            return [name, start, start + size], size
    return None, 0


def unpacked(pieces: Pieces, truth: ProgramTruth) -> str:
    found = []
    for one in pieces:
        if isinstance(one, str):
            found.append(one)
        else:
            found.append(
                one[0] * one[1] if len(one) == 2 else getattr(truth, one[0])[one[1] : one[2]]
            )
    return "".join(found)


def named(text: str, name: str) -> str:
    """Write out ``{call}``, ``{canary}`` and ``{warning}``."""
    if "{" not in text:
        return text
    if "{canary}" in text or "{warning}" in text:
        text = text.replace("{canary}", canary(name)).replace("{warning}", _words(name)[3])
    return text.replace("{call}", name)


def canary(name: str) -> str:
    """Return lines that only this call prints: words at both ends and in the middle, blanks, and
    more than ASCII."""
    first, middle, last, _ = _words(name)
    end = "\n" if last < first else ""  # not every output ends with its line
    return f"{first} {name}\n  {middle} é漢\n\n{last}{end}"


@lru_cache(maxsize=4096)
def _words(name: str) -> tuple[str, ...]:
    """Return the four words of a call: one and the same, turned, which takes less time than
    four."""
    word = token(name)
    letters = word[2:-2]
    return tuple(f"Zq{letters[turn:]}{letters[:turn]}qZ" for turn in (0, 3, 6, 8))


def kept(texts: dict[str, str]) -> dict[str, Any]:
    """Return the texts that are not empty; ``partial`` says that one is not kept as a whole."""
    found: dict[str, Any] = {}
    for key, text in texts.items():
        if text:
            found[key] = text[:_LONGEST_KEPT]
            if len(text) > _LONGEST_KEPT:
                found["partial"] = True
    return found
