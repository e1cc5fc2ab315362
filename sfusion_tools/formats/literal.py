"""Decodes complete values: strict JSON, or its Python spelling."""

from __future__ import annotations

import ast
import math
import warnings
from typing import Any

from .jsontext import SURROGATE, TooDeepError, loads

__all__ = ["decode_json", "decode_object", "decode_python", "is_json_tree"]

_FEW_BITS = 2000
"""An integer of fewer bits can be written under any limit that Python accepts."""


def decode_json(text: str) -> tuple[bool, Any]:
    """Return whether ``text`` is one valid JSON value, and the value; raises TooDeepError."""
    try:
        return True, loads(text, strict=True)
    except TooDeepError:
        raise
    except (ValueError, RecursionError):
        return False, None


def decode_object(text: str) -> dict[str, Any] | None:
    """Return the JSON object that ``text`` encodes, or None; raises TooDeepError."""
    _, value = decode_json(text)
    return value if isinstance(value, dict) else None


def decode_python(text: str) -> tuple[bool, Any]:
    """Return whether ``text`` is a Python literal that JSON could express, and the value."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            value = ast.literal_eval(text.strip())
    except (ValueError, SyntaxError, MemoryError, RecursionError, Warning, TypeError):
        return False, None
    return (True, value) if is_json_tree(value) else (False, None)


def is_json_tree(value: Any) -> bool:
    """Return whether JSON can express the value without any conversion, and Python can write it and read it again."""
    match value:
        case str():
            return value.isascii() or not SURROGATE.search(value)
        case None | bool():
            return True
        case int():
            return value.bit_length() < _FEW_BITS or _has_digits(value)
        case float():
            return math.isfinite(value)
        case list():
            return all(map(is_json_tree, value))
        case dict():
            return all(isinstance(key, str) and is_json_tree(key) for key in value) and all(
                map(is_json_tree, value.values())
            )
        case _:
            return False


def _has_digits(value: int) -> bool:
    """Return whether the integer is below the limit of digits up to which Python writes and reads integers."""
    try:
        return bool(str(value))
    except ValueError:
        return False
