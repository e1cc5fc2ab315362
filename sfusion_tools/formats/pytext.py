"""Finds the end of a bracketed piece of Python in a text that is still arriving."""

from __future__ import annotations

import re

from .jsontext import ENOUGH, TOO_DEEP, Flaw
from .text_reader import Scan, TextReader

__all__ = ["UNBALANCED", "scan_brackets", "stray_escapes", "without_raw_breaks"]

_CODE = re.compile(r"""[^'"()\[\]{}]+""")
_PLAIN = {quote: re.compile(rf"[^{quote}\\]+") for quote in "'\""}
_PAIRS = {"(": ")", "[": "]", "{": "}"}
_LITERAL = re.compile(
    r"""(?s)(?<![A-Za-z])([A-Za-z]*+)"""
    r"""('''.*?(?<!\\)'''|\"\"\".*?(?<!\\)\"\"\"|'(?:[^'\\]|\\.)*+'|"(?:[^"\\]|\\.)*+")"""
)
_RAW_BREAK = re.compile(r"(?<!\\)\n")
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_KNOWN = set("\n\\'\"abfnrtvxNuU01234567")
_CONTROLS = set("abfnrtvxNuU01234567")


UNBALANCED = Flaw("unbalanced", "its brackets or quotes do not match")


def scan_brackets(reader: TextReader) -> Scan[str | Flaw]:
    """Read from an opening bracket to its closing one, or as far as the brackets and the strings close correctly.

    A bracket that was open when an earlier scan failed fails at the same place, so its text is not read again.
    """
    known = reader.notes.get((scan_brackets, reader.offset))
    if known is not None:
        reader.seek(known)
        return UNBALANCED
    parts: list[str] = []
    opened: list[int] = []
    closed, deepest = yield from _brackets(reader, parts, opened)
    if deepest > ENOUGH:
        return TOO_DEEP
    if not closed:
        reader.notes.update({(scan_brackets, start): reader.offset for start in opened})
        return UNBALANCED
    return "".join(parts)


def _brackets(reader: TextReader, parts: list[str], opened: list[int]) -> Scan[tuple[bool, int]]:
    """Return whether all brackets are closed, and how many were open at most; ``opened`` is where the others begin."""
    stack: list[str] = []
    deepest = 0
    while True:
        parts.append((yield from reader.run(_CODE)))
        char = yield from reader.peek()
        if not char:
            return False, deepest
        if char in "'\"":
            text = yield from _string(reader, char)
            if text is None:
                return False, deepest
            parts.append(text)
            continue
        if char in _PAIRS:
            stack.append(_PAIRS[char])
            opened.append(reader.offset)
            deepest = max(deepest, len(stack))
        elif stack.pop() != char:
            return False, deepest
        else:
            opened.pop()
        parts.append(reader.take(1))
        if not stack:
            return True, deepest


def _string(reader: TextReader, quote: str) -> Scan[str | None]:
    triple = yield from reader.sees(quote * 3)
    closing = quote * 3 if triple else quote
    plain = _PLAIN[quote]
    parts = [reader.take(len(closing))]
    while True:
        parts.append((yield from reader.run(plain)))
        char = yield from reader.peek()
        if char == "\\":
            pair = yield from reader.peek(2)
            parts.append(reader.take(2))
            if len(pair) < 2:
                return None
        elif char == quote:
            if (yield from reader.accept(closing)):
                parts.append(closing)
                return "".join(parts)
            parts.append(reader.take(1))
        else:
            return None


def stray_escapes(code: str) -> tuple[str, bool]:
    """Return the first backslash in a string that escapes nothing, and whether the string also has real escapes."""
    for prefix, literal in _LITERAL.findall(code):
        if "r" in prefix.lower():
            continue
        pairs = _ESCAPE.findall(literal)
        strays = [pair for pair in pairs if pair not in _KNOWN]
        if strays:
            return "\\" + strays[0], any(pair in _CONTROLS for pair in pairs)
    return "", False


def without_raw_breaks(code: str) -> str:
    """Escape the line breaks inside of single-line strings, where they cannot mean anything else."""

    def spelt(match: re.Match[str]) -> str:
        prefix, literal = match[1], match[2]
        if not _RAW_BREAK.search(literal) or literal.startswith(("'''", '"""')) or "r" in prefix.lower():
            return match[0]
        return prefix + literal.replace("\r", "\\r").replace("\\\n", "\\\\\\n").replace("\n", "\\n")

    return _LITERAL.sub(spelt, code)
