"""Decodes complete values: strict JSON, or its Python spelling."""

from __future__ import annotations

import ast
import json
import math
import warnings
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from .jsontext import SURROGATE, DuplicateKeyError, Flaw, TooDeepError, loads
from .pytext import ADJACENT, adjacent_strings, spelt_breaks

__all__ = ["NOT_PYTHON", "decode_json", "decode_object", "decode_python", "evaluate", "is_json_tree"]

NOT_PYTHON = Flaw("bad_literal", "it is neither JSON nor a Python literal")

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


def decode_python(text: str) -> Any:
    """Return the value of a Python literal that JSON could express, or the flaw for which there is none."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            code = text.strip()
            tree = ast.parse(code, mode="eval")
            if adjacent_strings(code) is not None:
                return ADJACENT
            if "\r" in code:
                tree = ast.parse(spelt_breaks(code)[0], mode="eval")
            return evaluate(tree.body)
    except DuplicateKeyError as twice:
        return Flaw("duplicate_key", f"it has the key {twice} twice; write every key once")
    except (ValueError, SyntaxError, MemoryError, RecursionError, Warning, TypeError):
        return NOT_PYTHON


def evaluate(node: ast.expr, names: Mapping[str, Any] = MappingProxyType({})) -> Any:
    """Return the value of a literal; raises DuplicateKeyError, ValueError or TypeError if JSON has no such value."""
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
    key = ast.literal_eval(node) if node else None
    if not isinstance(key, str) or not is_json_tree(key):
        raise ValueError("dict keys must be strings")
    return key


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
