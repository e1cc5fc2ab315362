"""Finds the end of a bracketed piece of Python in a text that is still arriving."""

from __future__ import annotations

import ast
import re
import warnings

from .jsontext import ENOUGH, TOO_DEEP, Flaw
from .text_reader import Scan, TextReader

__all__ = [
    "ADJACENT",
    "UNBALANCED",
    "adjacent_strings",
    "scan_brackets",
    "spelt_breaks",
    "stray_escapes",
    "without_strings",
]

_CODE = re.compile(r"""[^'"()\[\]{}]+""")
_PLAIN = {quote: re.compile(rf"[^{quote}\\]+") for quote in "'\""}
_PAIRS = {"(": ")", "[": "]", "{": "}"}
_LITERAL = re.compile(
    r"""(?s)(?<![A-Za-z])([A-Za-z]*+)"""
    r"""('''(?:[^'\\]|\\.|'(?!''))*+'''|\"\"\"(?:[^"\\]|\\.|"(?!""))*+\"\"\"|'(?:[^'\\]|\\.)*+'|"(?:[^"\\]|\\.)*+")"""
)
_BREAK = re.compile(r"\\(?:\r\n|.)|\r\n?|\n", re.DOTALL)
"""An escape or a line break."""
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_KNOWN = set("\n\\'\"abfnrtvxNuU01234567")
_CONTROLS = set("abfnrtvxNuU01234567")

_GAP = re.compile(r"(?:\s|\\\r?\n|#[^\n]*)*+")

ADJACENT = Flaw(
    "adjacent_strings",
    "two strings stand side by side, which may be one string with a quote in it; "
    "escape the quotes inside a string, or write a single string",
)
"""Python joins such strings and so drops the quotes between them."""
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


def adjacent_strings(code: str) -> str | None:
    """Return how Python would join strings in the code: "joined", or "ambiguous" if one string may have been meant.

    That is so if nothing is between two of them, or if what is between the outer quotes is itself a program:
    ``'print(' '.join(words))'``. None if there are no such strings.
    """
    runs: list[list[re.Match[str]]] = []
    touch = False
    end = -1
    for match in _LITERAL.finditer(code):
        if match.start() == end:
            runs[-1].append(match)
            touch = touch or runs[-1][-2].end() == end
        else:
            runs.append([match])
        gap = _GAP.match(code, match.end())
        end = gap.end() if gap else match.end()
    joined = [code[run[0].end(1) + 1 : run[-1].end() - 1] for run in runs if len(run) > 1]
    if not joined:
        return None
    return "ambiguous" if touch or any(map(_is_program, joined)) else "joined"


def _is_program(text: str) -> bool:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ast.parse(text.replace("\\n", "\n").replace("\\t", "\t"))
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return False
    return True


def without_strings(code: str) -> str:
    return _LITERAL.sub("", code)


def spelt_breaks(code: str) -> tuple[str, bool]:
    """Write the line breaks inside of strings as escapes where Python would refuse them or drop the ``\\r``.

    Return also whether there was one in a single-line string, where Python allows none.
    """
    raw_break = False

    def spelt(match: re.Match[str]) -> str:
        nonlocal raw_break
        prefix, literal = match[1], match[2]
        quote = literal[:3] if literal.startswith(("'''", '"""')) else literal[0]
        if "r" in prefix.lower():
            if len(quote) == 1 or "\r" not in literal:
                return match[0]
            inner = literal[3:-3].replace("\\", "\\\\").replace(quote[0], "\\" + quote[0])
            prefix, literal = re.sub("[rR]", "", prefix), f"{quote}{inner}{quote}"
        if len(quote) == 3:
            return prefix + _BREAK.sub(_carriage_return, literal)
        if all(found[0] == "\\" for found in _BREAK.findall(literal)):
            return match[0]
        raw_break = True
        return prefix + _BREAK.sub(_one_line, literal)

    return _LITERAL.sub(spelt, code), raw_break


def _carriage_return(found: re.Match[str]) -> str:
    text = found[0]
    if text[0] != "\\":
        return text.replace("\r", "\\r")
    # A backslash before a line break removes it, also before \r\n.
    return "\\\n" if text[1] == "\r" else text


def _one_line(found: re.Match[str]) -> str:
    text = found[0]
    if text[0] == "\\":
        if text[1] not in "\r\n":
            return text
        text = "\\" + text
    return text.replace("\r", "\\r").replace("\n", "\\n")
