"""What a format declares about itself; the part of it that parsers need for their messages."""

from __future__ import annotations

import re
from typing import ClassVar

__all__ = ["Declaration"]


class Declaration:
    """Names and markers of a format."""

    name: ClassVar[str]
    aliases: ClassVar[tuple[str, ...]] = ()
    marks: ClassVar[tuple[re.Pattern[str], ...]] = ()
    """Markers, also misspelt ones, that show that a text tries to make a call in this format. Families that share
    a marker declare the same pattern."""

    @property
    def example(self) -> str:
        """How to write a call, as shown to the model."""
        raise NotImplementedError
