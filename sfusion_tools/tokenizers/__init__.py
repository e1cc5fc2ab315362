"""Tokenizers: a built-in byte-level one, and any Hugging Face tokenizer by path."""

from __future__ import annotations

from pathlib import Path

from sfusion_tools.errors import TokenizerError, TokenizerNotFound, UnknownToken
from sfusion_tools.tokenizers.byte_level import ByteTokenizer
from sfusion_tools.tokenizers.chatml import tools_section
from sfusion_tools.tokenizers.hugging_face import HfTokenizer
from sfusion_tools.tokenizers.protocol import MessageLike, Tokenizer, ToolLike

__all__ = [
    "ByteTokenizer",
    "HfTokenizer",
    "MessageLike",
    "Tokenizer",
    "TokenizerError",
    "TokenizerNotFound",
    "ToolLike",
    "UnknownToken",
    "load_tokenizer",
    "tools_section",
]


def load_tokenizer(name: str | Path | None = None) -> Tokenizer:
    """Return the built-in tokenizer for None or ``bytes``, the Hugging Face tokenizer at that path otherwise."""
    return ByteTokenizer() if name is None or name == "bytes" else HfTokenizer(name)
