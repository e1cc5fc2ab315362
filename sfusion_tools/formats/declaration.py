"""The names and markers of a format, which parsers need for their messages."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from typing import ClassVar

__all__ = ["Declaration"]


class Declaration(ABC):
    name: ClassVar[str]
    aliases: ClassVar[tuple[str, ...]] = ()
    marks: ClassVar[tuple[re.Pattern[str], ...]] = ()
    """Patterns that show that a text tries to make a call in this format, including common misspellings of its
    markers. Families that share a marker declare the same pattern."""

    @property
    @abstractmethod
    def example(self) -> str:
        """How to write a call, as shown to the model."""
