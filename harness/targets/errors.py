"""What can be wrong with a real sandbox that was asked for.

TargetError
├── BadTarget        what was typed names no sandbox (also a ValueError); a command exits with 2
└── MissingTarget    something outside is not there: engine, image, address; a command exits with 3
"""

from __future__ import annotations


class TargetError(Exception):
    """Base of the errors about targets; the message is a sentence for whoever typed the target."""


class BadTarget(TargetError, ValueError):
    """Raised when a target, or an option of it, cannot mean anything."""


class MissingTarget(TargetError):
    """Raised when the target is clear and what it needs is not there, or does not work."""
