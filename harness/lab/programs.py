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
    "ok": "exited",
    "program_error": "exited",
    "program_timeout": "stopped",
    "compile_error": "not_compiled",
}


def truth_of(intent: dict[str, Any], call: str, *, whole: bool = False) -> ProgramTruth | None:
    """Return what the program of an intent does when nothing goes wrong; None if the journal does
    not say it all.

    ``whole``: with what it wrote and the server does not pass on.
    """
    kind = intent.get("kind")
    if kind not in _ENDINGS or "partial" in intent or "size" in intent:
        return None
    name = REPEATED if "mark" in intent else call
    has_printed = kind in ("ok", "program_error")
    prints = intent.get("prints", PRINTS if has_printed else "")
    stdout = fill(named(intent.get("early", ""), name))
    if kind != "program_timeout":
        stdout += fill(named(prints, name))
    stderr = fill(named(intent.get("errors", ""), name))
    if not whole and not intent.get("whole"):
        stdout = passed_on(stdout)
        stderr = passed_on(stderr)
    code = intent.get("exit", 1 if kind == "program_error" else 0)
    return ProgramTruth(stdout, stderr, code, _ENDINGS[kind])


Pieces = list[str | list[Any]]
"""A long text: parts of the program's streams, ``[stream, start, end]``, and what else is in it,
where many of one character are ``[character, count]``."""


def packed(text: str, truth: ProgramTruth) -> Pieces | None:
    """Return the pieces of a text, so that a journal holds all of it; None if too much of it is
    not the program's."""
    pieces: Pieces = []
    at = 0
    begun = 0
    literal = 0
    while at < len(text):
        piece, size = _piece(text, at, truth)
        if piece is None:
            at += 1
            literal += 1
            if literal > _LONGEST_KEPT:
                return None
        else:
            pieces += [text[begun:at], piece]
            at += size
            begun = at
    pieces.append(text[begun:])
    return [piece for piece in pieces if piece]


def _piece(text: str, at: int, truth: ProgramTruth) -> tuple[list[Any] | None, int]:
    """Return the piece that begins at this place of a text, and its length."""
    run = _RUN.match(text, at)
    if run is not None:
        length = len(run[0])
        return [run[1], length], length
    if len(text) - at < _PIECE:
        return None, 0
    for name in _STREAMS:
        stream = getattr(truth, name)
        start = stream.find(text[at : at + _PIECE])
        if start >= 0:
            size = _common_length(stream, start, text, at)
            return [name, start, start + size], size
    return None, 0


def _common_length(stream: str, start: int, text: str, at: int) -> int:
    """Return how far two texts agree from these places on; at least ``_PIECE`` characters do."""
    size = _PIECE
    most = min(len(stream) - start, len(text) - at)
    while size < most:
        middle = (size + most + 1) // 2
        if stream[start : start + middle] == text[at : at + middle]:
            size = middle
        else:
            most = middle - 1
    return size


def unpacked(pieces: Pieces, truth: ProgramTruth) -> str:
    """Return the text of these pieces."""
    return "".join(_written_out(piece, truth) for piece in pieces)


def _written_out(piece: str | list[Any], truth: ProgramTruth) -> str:
    if isinstance(piece, str):
        return piece
    if len(piece) == 2:
        character, count = piece
        return str(character * count)
    stream, start, end = piece
    return str(getattr(truth, stream)[start:end])


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
