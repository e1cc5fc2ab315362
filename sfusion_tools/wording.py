"""Small parts of sentences."""

from __future__ import annotations


def counted(number: int, noun: str) -> str:
    """Return the number with its noun: ``1 call``, ``2 calls``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
