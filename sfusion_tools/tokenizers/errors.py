"""What can go wrong with a tokenizer.

TokenizerError
├── TokenizerUnavailable    the package that reads it is not installed
├── TokenizerNotFound       there is nothing usable at the path
└── UnknownToken            an id outside the vocabulary was to be decoded
"""

from __future__ import annotations

__all__ = ["TokenizerError", "TokenizerNotFound", "TokenizerUnavailable", "UnknownToken"]


class TokenizerError(Exception):
    """Base of this package's errors."""


class TokenizerUnavailable(TokenizerError):
    """A Hugging Face tokenizer was asked for, and ``transformers`` is not installed."""


class TokenizerNotFound(TokenizerError):
    """The path does not hold a tokenizer that can be loaded."""


class UnknownToken(TokenizerError, ValueError):
    """An id outside the vocabulary was to be decoded."""
