"""What can go wrong with a rollout request.

RolloutError
├── IllegalTransition    a step was taken that the request's state does not allow
└── BadLimits            limits that contradict each other or themselves
"""

from __future__ import annotations

__all__ = ["BadLimits", "IllegalTransition", "RolloutError"]


class RolloutError(Exception):
    """Base of this package's errors."""


class IllegalTransition(RolloutError):
    """A step was taken that the request's state does not allow."""


class BadLimits(RolloutError, ValueError):
    """A limit is out of its range, or two limits contradict each other."""
