"""The tokens of the little model: digits, and whole pieces of text where a choice is made once."""

from __future__ import annotations

import re
from collections.abc import Sequence

ANSWER = "#### "
CALL = '<tool_call>\n{"name": "code_interpreter", "arguments": {"code": "print('
CALL_END = ')"}}\n</tool_call>'
RESULT = "\n<tool_response>\n"
RESULT_END = "\n</tool_response>\n"
UNKNOWN = "?"
"""The answer of a model that has none."""
END = "<end>"
OTHER = "<other>"
"""Stands for any text that has no tokens, such as what the tool says of a lost call."""
PAD = "<pad>"

TOKENS = (
    PAD,
    END,
    OTHER,
    *"0123456789",
    "*",
    ",",
    ")",
    "look(",
    "secret(",
    "=?\n",
    UNKNOWN,
    ANSWER,
    CALL,
    CALL_END,
    RESULT,
    RESULT_END,
)
ID = {token: place for place, token in enumerate(TOKENS)}

_LONGEST_FIRST = sorted(TOKENS, key=len, reverse=True)
_PIECES = re.compile("|".join(map(re.escape, _LONGEST_FIRST)) + "|(.)", re.DOTALL)


def encode(text: str) -> list[int]:
    """Return the tokens of a text; what has none becomes one `OTHER` for each run of it."""
    tokens: list[int] = []
    for piece in _PIECES.finditer(text):
        if piece[1] is None:
            tokens.append(ID[piece[0]])
        elif not tokens or tokens[-1] != ID[OTHER]:
            tokens.append(ID[OTHER])
    return tokens


def decode(tokens: Sequence[int]) -> str:
    """Return the text of tokens up to the end, without padding."""
    pieces: list[str] = []
    for token in tokens:
        if TOKENS[token] in (END, PAD):
            break
        pieces.append(TOKENS[token])
    return "".join(pieces)
