"""What can go wrong when a dump is opened.

ViewerError
└── NoDump    there is nothing to look at
"""

from __future__ import annotations

__all__ = ["NoDump", "ViewerError"]


class ViewerError(Exception):
    """Base of this package's errors."""


class NoDump(ViewerError):
    """The path holds no rollout dump."""
