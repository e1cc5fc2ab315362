"""How a call ended: one closed type used by client, tool, verdict and report."""

from __future__ import annotations

from enum import StrEnum


class Outcome(StrEnum):
    """The ending of one call. The first four are the program's own doing, the others never are."""

    OK = "ok"
    """The program ran and exited with 0."""
    PROGRAM_ERROR = "program_error"
    """The program ran and exited with anything else, or was ended by a signal."""
    PROGRAM_TIMEOUT = "program_timeout"
    """The sandbox stopped the program when its time was over."""
    COMPILE_ERROR = "compile_error"
    """The program did not compile, or not in time."""

    THROTTLED = "throttled"
    """Turned away: 429 to the last attempt, or no permit within the time to wait for one."""
    SANDBOX_ERROR = "sandbox_error"
    """The sandbox was reached and failed by itself: SandboxError, a missing runtime, 5xx."""
    UNREACHABLE = "unreachable"
    """No connection, or one that was lost before the answer was complete."""
    TRANSPORT_TIMEOUT = "transport_timeout"
    """No complete answer in the time that the attempt, or the whole call, was given."""
    BAD_RESPONSE = "bad_response"
    """An answer came that is not one of a sandbox: no JSON, cut, oversized, refused request."""
    BAD_ARGUMENTS = "bad_arguments"
    """The model's arguments could not be used; nothing was sent."""
    CANCELLED = "cancelled"
    """The caller gave up."""

    @property
    def is_programs(self) -> bool:
        """True when the ending says something about the program, and so may be learned from."""
        return self in _PROGRAMS

    @property
    def is_infrastructure(self) -> bool:
        """True when the ending says nothing about the model's text: a trainer should mask it."""
        return self not in _PROGRAMS and self is not Outcome.BAD_ARGUMENTS


_PROGRAMS = frozenset({Outcome.OK, Outcome.PROGRAM_ERROR, Outcome.PROGRAM_TIMEOUT, Outcome.COMPILE_ERROR})
