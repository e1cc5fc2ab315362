"""Decodes values in strict JSON or in their Python spelling.

Also finds the end of a bracketed piece of Python.
"""

from __future__ import annotations

import ast
import itertools
import json
import math
import re
import warnings
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal

from .jsontext import ENOUGH, SURROGATE, TOO_DEEP, DuplicateKeyError, Flaw, TooDeepError, loads
from .text_reader import Scan, TextReader

NOT_PYTHON = Flaw("bad_literal", "it is neither JSON nor a Python literal")
NOT_PARSED = (SyntaxError, ValueError, MemoryError, RecursionError)
"""What Python's parser raises."""

_CODE = re.compile(r"""[^'"()\[\]{}]+""")
_PLAIN = {quote: re.compile(rf"[^{quote}\\]+") for quote in "'\""}
_PAIRS = {"(": ")", "[": "]", "{": "}"}
_LITERAL = re.compile(
    r"""(?s)(?<![A-Za-z])([A-Za-z]*+)("""
    r"""'''(?:[^'\\]|\\.|'(?!''))*+'''"""
    r"""|\"\"\"(?:[^"\\]|\\.|"(?!""))*+\"\"\""""
    r"""|'(?:[^'\\]|\\.)*+'"""
    r"""|"(?:[^"\\]|\\.)*+")"""
)
"""A string of Python: its prefix, and the rest with its quotes."""
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


def decode_json(text: str) -> tuple[bool, Any]:
    """Return whether ``text`` is one valid JSON value, and the value; raises TooDeepError."""
    try:
        return True, loads(text, strict=True)
    except TooDeepError:
        raise
    except (ValueError, RecursionError):
        return False, None


def parse_python(
    code: str, mode: str = "eval", *, warn: Literal["ignore", "error"] = "ignore"
) -> Any:
    """Parse Python without printing its warnings; raises one of NOT_PARSED."""
    with warnings.catch_warnings():
        warnings.simplefilter(warn)
        return ast.parse(code, mode=mode)


def decode_python(text: str) -> Any:
    """Return the value of a Python literal that JSON could express, or why there is none."""
    try:
        code = text.strip()
        tree = parse_python(code, warn="error")
        if adjacent_strings(code) is not None:
            return ADJACENT
        if "\r" in code:
            tree = parse_python(spelt_breaks(code)[0], warn="error")
        return evaluate(tree.body)
    except DuplicateKeyError as twice:
        return Flaw("duplicate_key", f"it has the key {twice} twice; write every key once")
    except (*NOT_PARSED, Warning, TypeError):
        return NOT_PYTHON


def evaluate(node: ast.expr, names: Mapping[str, Any] = MappingProxyType({})) -> Any:
    """Return the value of a literal.

    Raises DuplicateKeyError, ValueError or TypeError if JSON has no such value.
    """
    match node:
        case ast.Name(id=name) if name in names:
            return names[name]
        case ast.List(elts=elements):
            return [evaluate(element, names) for element in elements]
        case ast.Dict(keys=keys, values=values):
            found: dict[str, Any] = {}
            for key, value in zip(map(_key, keys), values, strict=True):
                if key in found:
                    raise DuplicateKeyError(json.dumps(key, ensure_ascii=False))
                found[key] = evaluate(value, names)
            return found
        case _:
            value = ast.literal_eval(node)
            if not is_json_tree(value):
                raise ValueError("not representable as JSON")
            return value


def _key(node: ast.expr | None) -> str:
    """Return the key of a dict, which must be a string."""
    key = ast.literal_eval(node) if node else None
    if not isinstance(key, str) or not is_json_tree(key):
        raise ValueError("dict keys must be strings")
    return key


def is_json_tree(value: Any) -> bool:
    """Return whether JSON can express the value without any conversion.

    Python must also be able to write it and read it again.
    """
    match value:
        case str():
            return value.isascii() or not SURROGATE.search(value)
        case None | bool():
            return True
        case int():
            return _has_digits(value)
        case float():
            return math.isfinite(value)
        case list():
            return all(map(is_json_tree, value))
        case dict():
            if not all(isinstance(key, str) and is_json_tree(key) for key in value):
                return False
            return all(map(is_json_tree, value.values()))
        case _:
            return False


def _has_digits(value: int) -> bool:
    """Return whether Python writes the integer: there is a limit of digits."""
    try:
        return bool(str(value))
    except ValueError:
        return False


def scan_brackets(reader: TextReader) -> Scan[str | Flaw]:
    """Read from an opening bracket to its closing one.

    If brackets or strings do not match, read as far as they do and return the flaw.
    """
    parts: list[str] = []
    closers: list[str] = []
    deepest = 0
    result: str | Flaw = UNBALANCED
    while True:
        parts.append((yield from reader.run(_CODE)))
        char = yield from reader.peek()
        if char in ("'", '"'):
            text = yield from _string(reader, char)
            if text is None:
                break
            parts.append(text)
        elif char in _PAIRS:
            closers.append(_PAIRS[char])
            deepest = max(deepest, len(closers))
            parts.append(reader.take(1))
        elif char and closers.pop() == char:
            parts.append(reader.take(1))
            if not closers:
                result = "".join(parts)
                break
        else:
            break
    return result if deepest <= ENOUGH else TOO_DEEP


def _string(reader: TextReader, quote: str) -> Scan[str | None]:
    """Read a string of Python; return None if it is not closed."""
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
    """Return the first backslash that escapes nothing, with the character after it.

    Return also whether the same string has real escapes.
    """
    for prefix, literal in _LITERAL.findall(code):
        if "r" in prefix.lower():
            continue
        pairs = _ESCAPE.findall(literal)
        strays = [pair for pair in pairs if pair not in _KNOWN]
        if strays:
            return "\\" + strays[0], any(pair in _CONTROLS for pair in pairs)
    return "", False


def adjacent_strings(code: str) -> str | None:
    """Return how Python would join strings that stand side by side; None if there are none.

    "joined", or "ambiguous" if one string may have been meant. That is so if nothing is between two
    of them, or if what is between the outer quotes is itself a program:
    ``'print(' '.join(words))'``.
    """
    rows = [row for row in _rows_of_strings(code) if len(row) > 1]
    if not rows:
        return None
    for row in rows:
        if any(left.end() == right.start() for left, right in itertools.pairwise(row)):
            return "ambiguous"
    for row in rows:
        first_quote = row[0].end(1)
        last_quote = row[-1].end() - 1
        if _is_program(code[first_quote + 1 : last_quote]):
            return "ambiguous"
    return "joined"


def _rows_of_strings(code: str) -> list[list[re.Match[str]]]:
    """Return the strings of the code, those with only a gap between them in one row."""
    rows: list[list[re.Match[str]]] = []
    gap_end = -1
    for match in _LITERAL.finditer(code):
        if match.start() == gap_end:
            rows[-1].append(match)
        else:
            rows.append([match])
        gap = _GAP.match(code, match.end())
        gap_end = gap.end() if gap else match.end()
    return rows


def _is_program(text: str) -> bool:
    """Return whether a text is Python when its escaped line breaks and tabs are real."""
    try:
        parse_python(text.replace("\\n", "\n").replace("\\t", "\t"), "exec")
    except NOT_PARSED:
        return False
    return True


def without_strings(code: str) -> str:
    return _LITERAL.sub("", code)


def spelt_breaks(code: str) -> tuple[str, bool]:
    """Write line breaks in strings as escapes where Python would refuse or change them.

    Return also whether there was one in a single-line string, where Python allows none.
    """
    raw_break = False

    def spelt(match: re.Match[str]) -> str:
        nonlocal raw_break
        prefix = match[1]
        literal = match[2]
        quote = literal[:3] if literal.startswith(("'''", '"""')) else literal[0]
        if "r" in prefix.lower():
            if len(quote) == 1 or "\r" not in literal:
                return match[0]
            inner = literal[3:-3].replace("\\", "\\\\").replace(quote[0], "\\" + quote[0])
            prefix = re.sub("[rR]", "", prefix)
            literal = f"{quote}{inner}{quote}"
        if len(quote) == 3:
            return prefix + _BREAK.sub(_carriage_return, literal)
        if all(found[0] == "\\" for found in _BREAK.findall(literal)):
            return match[0]
        raw_break = True
        return prefix + _BREAK.sub(_one_line, literal)

    return _LITERAL.sub(spelt, code), raw_break


def _carriage_return(found: re.Match[str]) -> str:
    """Write a ``\\r`` in a string of three quotes as an escape."""
    text = found[0]
    if text[0] != "\\":
        return text.replace("\r", "\\r")
    # A backslash before a line break removes it, also before \r\n.
    return "\\\n" if text[1] == "\r" else text


def _one_line(found: re.Match[str]) -> str:
    """Write a line break in a string of one quote as an escape."""
    text = found[0]
    if text[0] == "\\":
        if text[1] not in "\r\n":
            return text
        text = "\\" + text
    return text.replace("\r", "\\r").replace("\n", "\\n")
