"""The errors of the fakes.

FakeError
├── FaultError (ValueError)         a fault rule cannot be used as written
├── SlowPattern                     a regular expression takes too long to search
├── SandboxSetupError (ValueError)  a fake sandbox or a fault proxy cannot be set up as asked
│   ├── CassetteError               a cassette cannot be read or served
│   ├── NoProgramRuns               the python executor cannot run any program on this machine
│   ├── UnsafeBindError             it would run code for strangers, and nobody allowed that
│   └── BadUpstream                 the address to forward to is unusable, or the proxy's own
├── SandboxFull                     a sandbox with a life cycle has no room for a file
├── WireError (RuntimeError)        the server cannot be started or used as asked
│   ├── PortTaken                   another process listens on the address
│   └── BrokenStream                the source of an answer ended before the answer did
└── FakeSGLangError                 the fake engine refuses
    ├── BadValue (ValueError)       the request cannot be served as it is: 400
    ├── EngineRefused               the engine turned the request away with a status, such as 503
    ├── EngineDown                  the engine is not running: crashed, or not started yet
    ├── NothingToSay                the policy has no reply to the prompt: a mistake in a test
    └── BadScript (ValueError)      a script file cannot be read
"""

from __future__ import annotations

from typing import ClassVar


class FakeError(Exception):
    """Base of every error that a fake raises on purpose."""

    exit_code: ClassVar[int] = 2


class FaultError(FakeError, ValueError):
    """Raised for a rule that cannot be used.

    The message names the rule, what was found and what was expected.
    """


class SlowPattern(FakeError):
    """Raised when a search for a regular expression was given up; the message names it."""


class SandboxSetupError(FakeError, ValueError):
    """Raised when a fake sandbox or a fault proxy cannot be set up as asked."""


class CassetteError(SandboxSetupError):
    """Raised when a cassette cannot be read or served."""


class NoProgramRuns(SandboxSetupError):
    """Raised when the python executor cannot run any program on this machine."""

    exit_code: ClassVar[int] = 3


class UnsafeBindError(SandboxSetupError):
    """Raised when a fake would run code for anyone who reaches it, and nobody allowed that."""


class BadUpstream(SandboxSetupError):
    """Raised when the upstream is not the address of an HTTP server, or is the proxy itself."""


class SandboxFull(FakeError):
    """Raised when a file cannot be kept; the message says what the limits are."""


class WireError(FakeError, RuntimeError):
    """Raised when a server cannot be started or used as asked."""


class PortTaken(WireError):
    """Raised when another process listens on the address."""


class BrokenStream(WireError):
    """Raised when an answer in transit cannot be completed.

    The client must see that it ends too early.
    """


class FakeSGLangError(FakeError):
    """Base of the fake engine's errors."""


class BadValue(FakeSGLangError, ValueError):
    """Raised for a request that cannot be served; sglang itself raises a plain ValueError."""


class EngineRefused(FakeSGLangError):
    """Raised when the engine turns a request away with an HTTP status."""

    def __init__(self, message: str, status: int = 503) -> None:
        super().__init__(message)
        self.status = status


class EngineDown(FakeSGLangError):
    """Raised when the engine is not running."""


class NothingToSay(FakeSGLangError):
    """Raised when the policy has no reply to the prompt."""


class BadScript(FakeSGLangError, ValueError):
    """Raised for a script file that cannot be read."""
