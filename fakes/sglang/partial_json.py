"""Reads incomplete JSON: open strings and brackets are closed, and incomplete pairs dropped."""

from __future__ import annotations

import json
import re
from typing import Any

__all__ = ["BrokenJson", "partial_json"]

_SPACE = re.compile(r"[ \t\r\n]*")
_SCALAR = re.compile(r"[^\s,\]}]*")
_STRING = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_CHARACTERS = re.compile(r"(?:[^\\]|\\[^u]|\\u[0-9a-fA-F]{4})*", re.DOTALL)
_HALF_ESCAPE = re.compile(r"\\(?:u[0-9a-fA-F]{0,3})?\Z")
_WORDS = {"null": None, "true": True, "false": False, "NaN": float("nan"), "Infinity": float("inf")}


class BrokenJson(ValueError):
    """Raised for a text that cannot be the beginning of JSON."""


class _Open(Exception):
    """Raised at the end of the text inside a value; holds what was read of it, if that counts."""

    def __init__(self, value: Any = None, *, counts: bool = True) -> None:
        super().__init__()
        self.value = value
        self.counts = counts


def partial_json(text: str, *, strings: bool) -> tuple[Any, int, bool]:
    """Return the value at the beginning of ``text``, where it ends, and whether it is complete.

    Without ``strings``, an incomplete string does not count.
    """
    begin = _skip(text, 0)
    try:
        value, end = json.JSONDecoder().raw_decode(text, begin)
        return value, end, True
    except ValueError:
        pass
    try:
        _value(text, begin, strings)
    except _Open as unfinished:
        if unfinished.counts:
            return unfinished.value, len(text), False
    raise BrokenJson(text[:40])


def _skip(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    return match.end() if match else at


def _value(text: str, at: int, strings: bool) -> tuple[Any, int]:
    at = _skip(text, at)
    if at >= len(text):
        raise _Open(counts=False)
    match text[at]:
        case "{":
            return _object(text, at + 1, strings)
        case "[":
            return _array(text, at + 1, strings)
        case '"':
            return _string(text, at, strings)
        case _:
            return _scalar(text, at)


def _string(text: str, at: int, strings: bool) -> tuple[str, int]:
    closed = _STRING.match(text, at)
    if closed is not None:
        return _decoded(closed[0]), closed.end()
    if not strings:
        raise _Open(counts=False)
    inside = text[at + 1 :].rstrip()
    whole = _CHARACTERS.match(inside)
    if whole is not None and _HALF_ESCAPE.match(inside, whole.end()):
        inside = whole[0]
    raise _Open(_decoded(f'"{inside}"'))


def _decoded(literal: str) -> str:
    try:
        return str(json.loads(literal))
    except ValueError as error:
        raise BrokenJson(literal[:40]) from error


def _scalar(text: str, at: int) -> tuple[Any, int]:
    match = _SCALAR.match(text, at)
    word = match[0] if match else ""
    end = at + len(word)
    if end < len(text):
        try:
            return json.loads(word), end
        except ValueError as error:
            raise BrokenJson(word) from error
    for name, value in _WORDS.items():
        if name.startswith(word):
            raise _Open(value)
    while word:
        try:
            raise _Open(json.loads(word))
        except ValueError:
            word = word[:-1]
    raise BrokenJson(text[at : at + 20])


def _array(text: str, at: int, strings: bool) -> tuple[list[Any], int]:
    items: list[Any] = []
    while True:
        at = _skip(text, at)
        if at >= len(text):
            raise _Open(items)
        if text[at] == "]":
            return items, at + 1
        try:
            item, at = _value(text, at, strings)
        except _Open as unfinished:
            raise _Open([*items, unfinished.value] if unfinished.counts else items) from None
        items.append(item)
        at = _separator(text, at, "]", items)


def _object(text: str, at: int, strings: bool) -> tuple[dict[str, Any], int]:
    pairs: dict[str, Any] = {}
    while True:
        at = _skip(text, at)
        if at >= len(text):
            raise _Open(pairs)
        if text[at] == "}":
            return pairs, at + 1
        if text[at] != '"':
            raise BrokenJson(text[at : at + 20])
        try:
            key, at = _string(text, at, strings)
        except _Open:
            raise _Open(pairs) from None
        at = _skip(text, at)
        if at >= len(text):
            raise _Open(pairs)
        if text[at] != ":":
            raise BrokenJson(text[at : at + 20])
        try:
            value, at = _value(text, at + 1, strings)
        except _Open as unfinished:
            raise _Open({**pairs, key: unfinished.value} if unfinished.counts else pairs) from None
        pairs[key] = value
        at = _separator(text, at, "}", pairs)


def _separator(text: str, at: int, closing: str, so_far: Any) -> int:
    at = _skip(text, at)
    if at >= len(text):
        raise _Open(so_far)
    if text[at] == ",":
        return at + 1
    if text[at] == closing:
        return at
    raise BrokenJson(text[at : at + 20])
