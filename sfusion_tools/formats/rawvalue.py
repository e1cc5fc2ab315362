"""Values that a format writes as raw text: what they mean follows from the tool's schema.

A parameter that is declared to be a string is its text, whatever the text looks like. Anything else is JSON (or the
Python spelling of it). Without a declaration, text that is JSON is a value and any other text is a string.
"""

from __future__ import annotations

import json
from typing import Any

from .jsontext import Flaw, Loaded, dump
from .literal import decode_json, decode_python

__all__ = ["read_value", "write_value"]


def read_value(text: str, types: frozenset[str], parameter: str) -> Loaded | Flaw:
    """The value that ``text`` has for a parameter of these declared types."""
    if types == {"string"}:
        return Loaded(text)
    known, value = decode_json(text.strip())
    if known and (not types or _fits(value, types)):
        return Loaded(value)
    if types:
        known, value = decode_python(text)
        if known and _fits(value, types):
            return Loaded(value)
    if not types or "string" in types:
        return Loaded(text)
    shown = json.dumps(text[:40], ensure_ascii=False)
    return Flaw("bad_value", f"its parameter {parameter} has to be {' or '.join(sorted(types))}, and {shown} is not")


def write_value(value: Any, types: frozenset[str]) -> str:
    """The text that ``read_value`` reads as ``value``, as far as there is one."""
    if isinstance(value, str):
        read = read_value(value, types, "")
        if isinstance(read, Loaded) and read.value == value:
            return value
    return dump(value)


def _fits(value: Any, types: frozenset[str]) -> bool:
    match value:
        case None:
            return True
        case bool():
            return "boolean" in types
        case int():
            return bool(types & {"integer", "number"})
        case float():
            return "number" in types
        case str():
            return "string" in types
        case list():
            return "array" in types
        case _:
            return "object" in types
