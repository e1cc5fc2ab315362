"""Small parts of sentences."""

from __future__ import annotations


def counted(number: int, noun: str) -> str:
    """Return the number with its noun: ``1 call``, ``2 calls``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def many(number: int, noun: str) -> str:
    """Return a number that may be large with its noun: ``12,345 calls``."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
