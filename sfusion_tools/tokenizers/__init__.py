"""Tokenizers: a built-in byte-level one, and any Hugging Face tokenizer by path."""

from __future__ import annotations

from pathlib import Path
from typing import Any

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


def load_tokenizer(name: str | Path | None = None, **template_options: Any) -> Tokenizer:
    """Return the built-in tokenizer for None or ``bytes``, the Hugging Face tokenizer at that path otherwise.

    The options are for the chat template of the latter; the built-in one has none.
    """
    if name is not None and name != "bytes":
        return HfTokenizer(name, **template_options)
    if template_options:
        raise TokenizerError(f"the built-in tokenizer takes no template options, found {', '.join(template_options)}")
    return ByteTokenizer()
