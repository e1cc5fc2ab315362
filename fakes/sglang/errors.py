"""What the fake engine raises.

::

    FakeSGLangError
    ├── BadValue (ValueError)       the request cannot be served as it is: 400
    ├── Refused                     the engine turned the request away: a status of its own, such as 503
    ├── EngineDown                  the engine is not running: crashed, or not started yet
    ├── NothingToSay                the policy has no words for what was asked: a mistake in a test, not in a client
    └── BadScript (ValueError)      a script file that cannot be read
"""

from __future__ import annotations


class FakeSGLangError(Exception):
    """Anything that the fake engine raises on purpose."""


class BadValue(FakeSGLangError, ValueError):
    """The request cannot be served as it is; sglang raises a plain ValueError in its place."""


class Refused(FakeSGLangError):
    """The engine turned the request away with an HTTP status."""

    def __init__(self, message: str, status: int = 503) -> None:
        super().__init__(message)
        self.status = status


class EngineDown(FakeSGLangError):
    """The engine is not running."""


class NothingToSay(FakeSGLangError):
    """The policy has no words for what was asked."""


class BadScript(FakeSGLangError, ValueError):
    """A script file that cannot be read."""
