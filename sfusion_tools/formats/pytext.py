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
    """Read from an opening bracket to its closing one, or as far as the brackets and the strings close correctly."""
    parts: list[str] = []
    stack: list[str] = []
    deepest = 0
    text: str | None
    while True:
        parts.append((yield from reader.run(_CODE)))
        char = yield from reader.peek()
        if char in ("'", '"'):
            text = yield from _string(reader, char)
            if text is not None:
                parts.append(text)
                continue
        elif char in _PAIRS:
            stack.append(_PAIRS[char])
            deepest = max(deepest, len(stack))
            parts.append(reader.take(1))
            continue
        elif char and stack.pop() == char:
            parts.append(reader.take(1))
            if stack:
                continue
            return "".join(parts) if deepest <= ENOUGH else TOO_DEEP
        return UNBALANCED if deepest <= ENOUGH else TOO_DEEP


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
