"""The names and markers of a format, which parsers need for their messages."""

from __future__ import annotations

import re
from typing import ClassVar

__all__ = ["Declaration"]


class Declaration:
    name: ClassVar[str]
    aliases: ClassVar[tuple[str, ...]] = ()
    marks: ClassVar[tuple[re.Pattern[str], ...]] = ()
    """Patterns that show that a text tries to make a call in this format, including common misspellings of its
    markers. Families that share a marker declare the same pattern."""

    @property
    def example(self) -> str:
        """How to write a call, as shown to the model."""
        raise NotImplementedError
