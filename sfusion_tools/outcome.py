"""How a call ended: one closed type used by client, tool, verdict and report.

It also knows what an HTTP status says about it.
"""

from __future__ import annotations

from enum import StrEnum


class Outcome(StrEnum):
    """How one call ended. The first four are the program's doing, the others usually are not.

    A program that crashes its server, or runs longer than its client waits, does end as one of the
    others. A loss that the model can cause must be scored like a failure, or it is learned;
    see docs/learning.md.
    """

    OK = "ok"
    """The program exited with code 0."""
    PROGRAM_ERROR = "program_error"
    """The program exited with another code, or was killed by a signal."""
    PROGRAM_TIMEOUT = "program_timeout"
    """The sandbox stopped the program at its time limit."""
    COMPILE_ERROR = "compile_error"
    """The program did not compile, or did not compile in time."""

    THROTTLED = "throttled"
    """The last attempt got a 429, or no permit was granted in time."""
    SANDBOX_ERROR = "sandbox_error"
    """The sandbox was reached but failed itself: SandboxError, a missing compiler, 5xx."""
    UNREACHABLE = "unreachable"
    """There was no connection, or it was lost before the answer was complete."""
    TRANSPORT_TIMEOUT = "transport_timeout"
    """There was no complete answer within the time of the attempt or of the whole call."""
    BAD_RESPONSE = "bad_response"
    """The answer is not one of a sandbox.

    It is not JSON, truncated, too large, without output, or refuses the request.
    """
    BAD_ARGUMENTS = "bad_arguments"
    """The model's arguments could not be used; nothing was sent."""
    CANCELLED = "cancelled"
    """The caller gave up."""

    @classmethod
    def of_status(cls, status: int | None, *, client_gone: bool = False) -> Outcome | None:
        """Return how a request ended as far as its HTTP status tells.

        None for 200: the body of the answer decides. This is the only such table. 499 is what nginx
        writes when the client left: why it left is not in its log, so the request counts as
        cancelled. A request without a status got no answer. If a fake or a proxy saw that the
        client left before (``client_gone``), the client has most likely waited as long as it was
        willing to.
        """
        match status:
            case None:
                return cls.TRANSPORT_TIMEOUT if client_gone else cls.UNREACHABLE
            case 200:
                return None
            case 429:
                return cls.THROTTLED
            case 499:
                return cls.CANCELLED
        return cls.SANDBOX_ERROR if status >= 500 else cls.BAD_RESPONSE

    is_from_program: bool
    """True if the outcome says something about the program, so that a model can learn from it."""
    is_infrastructure: bool
    """True if the outcome says nothing about the model's text: leave the sample out of the loss and
    of its group's baseline."""


_PROGRAMS = Outcome.OK, Outcome.PROGRAM_ERROR, Outcome.PROGRAM_TIMEOUT, Outcome.COMPILE_ERROR
for _outcome in Outcome:
    _outcome.is_from_program = _outcome in _PROGRAMS
    _outcome.is_infrastructure = _outcome not in (*_PROGRAMS, Outcome.BAD_ARGUMENTS)

OUTCOMES = {outcome.value: outcome for outcome in Outcome}
PROGRAM_OUTCOMES = frozenset(outcome.value for outcome in _PROGRAMS)
FAILURES = frozenset(
    outcome.value
    for outcome in Outcome
    if outcome.is_infrastructure and outcome is not Outcome.CANCELLED
)
"""How calls end for which neither the program, nor the model, nor the caller is to blame."""
CAUSABLE = frozenset({Outcome.UNREACHABLE, Outcome.SANDBOX_ERROR, Outcome.TRANSPORT_TIMEOUT})
"""The failures that a program can cause. It cannot cause a 429."""
