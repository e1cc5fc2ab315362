"""What can go wrong before a text is read.

FormatError (a SfusionError and a ValueError)
├── UnknownFormatError   there is no format of that name
└── RenderError          a call or a content that this format has no spelling for

A broken *text* is never an exception: it is data, see :class:`~sfusion_tools.formats.model.Problem`.
"""

from __future__ import annotations

from sfusion_tools.errors import SfusionError

__all__ = ["FormatError", "RenderError", "UnknownFormatError"]


class FormatError(SfusionError, ValueError):
    """Base of the errors of this package."""


class UnknownFormatError(FormatError):
    """Raised by ``get_format`` for a name that is in no registry."""


class RenderError(FormatError):
    """Raised by ``render`` when what it would write cannot be read back as it was meant."""
