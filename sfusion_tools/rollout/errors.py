"""What can go wrong with a rollout request.

RolloutError
├── IllegalTransition    a step was taken that the request's state does not allow
├── EngineAnswerError    the engine's answer is not one of a generation engine
├── TemplateError        the chat template cannot be continued turn by turn
└── BadLimits            limits that contradict each other or themselves
"""

from __future__ import annotations

__all__ = ["BadLimits", "EngineAnswerError", "IllegalTransition", "RolloutError", "TemplateError"]


class RolloutError(Exception):
    """Base of this package's errors."""


class IllegalTransition(RolloutError):
    """A step was taken that the request's state does not allow."""


class EngineAnswerError(RolloutError):
    """The engine's answer lacks what every generation has."""


class TemplateError(RolloutError):
    """The tokenizer's template renders earlier turns differently once messages are added."""


class BadLimits(RolloutError, ValueError):
    """A limit is out of its range, or two limits contradict each other."""
