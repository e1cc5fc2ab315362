"""The expressions of ``-k``, with pytest's grammar, which is Python's.

They consist of words, `and`, `or`, `not` and parentheses.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable

from ..errors import BadOption

_WORD = re.compile(r"[^\s()]+")
_OPERATORS = ("and", "or", "not")
_PARTS = (ast.Expression, ast.BoolOp, ast.And, ast.Or, ast.UnaryOp, ast.Not, ast.Name, ast.Load)


def _as_name(word: re.Match[str]) -> str:
    """A name that is as long as a word, which may contain anything, and stands in its place."""
    return word[0] if word[0] in _OPERATORS else "_" * len(word[0])


def read_keyword(text: str) -> Callable[[str], bool]:
    """Read an expression.

    A word matches the names that contain it, in upper or lower case. No word matches all.
    """
    if not text.strip():
        return lambda name: True
    line = " ".join(text.split())
    try:
        tree = ast.parse(_WORD.sub(_as_name, line), mode="eval")
    except (SyntaxError, RecursionError, MemoryError):
        tree = None
    if tree is None or not all(isinstance(node, _PARTS) for node in ast.walk(tree)):
        raise BadOption(
            f"-k {text!r}: expected words, joined by `and`, `or`, `not` and parentheses"
        )
    expression = tree.body

    def holds(node: ast.expr, name: str) -> bool:
        match node:
            case ast.BoolOp(ast.And(), parts):
                return all(holds(part, name) for part in parts)
            case ast.BoolOp(_, parts):
                return any(holds(part, name) for part in parts)
            case ast.UnaryOp(_, part):
                return not holds(part, name)
        return line[node.col_offset : node.end_col_offset].lower() in name

    return lambda name: holds(expression, name.lower())
