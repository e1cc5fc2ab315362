"""The result of a call: how it ended, what the program printed, and its attempts."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any

from sfusion_tools.outcome import Outcome
from sfusion_tools.record import Attempt


def new_call_id() -> str:
    """Return an id that no other call has, in any process."""
    return os.urandom(16).hex()


@dataclass(slots=True)
class CallResult:
    """How a call ended, with its attempts and times."""

    call_id: str
    outcome: Outcome
    message: str = ""
    """What went wrong, unless the program itself ended the call."""
    stdout: str = ""
    stderr: str = ""
    return_code: int | None = None
    execution_time: float | None = None
    files: dict[str, str] = field(default_factory=dict)
    attempts: list[Attempt] = field(default_factory=list)
    waited: float = 0.0
    """Seconds in the queue for permits."""
    backed_off: float = 0.0
    """Seconds spent waiting between attempts, without a permit."""
    seconds: float = 0.0
    """Seconds from the beginning of the call to its end."""
    proxy: str | None = None
    out_of_time: float | None = None
    """The limit for the whole call in seconds, if there was no time left for what comes next."""
    problem: str | None = None
    """What was wrong with arguments that could not be used, without quoting them."""
    trajectory: str | None = None
    """The trajectory that made the call, and the group of its siblings, if they are named."""
    group: str | None = None
    provoked: bool = False
    """Perhaps the program caused the failure: every attempt failed, while the same sandboxes gave
    other programs their results."""
    scored: bool = False
    """It is provoked, and the config says that such a call counts as a failed program."""

    @property
    def possible_executions(self) -> int:
        """How many times the program may have been executed."""
        return sum(attempt.may_have_run for attempt in self.attempts)

    def metrics(self) -> dict[str, Any]:
        """Return the numbers a trainer needs, as plain values."""
        attempts = self.attempts
        last = attempts[-1] if attempts else None
        executions = 0
        request_seconds = 0.0
        outcomes = []
        # One loop, because each comprehension would be a function more to call.
        for attempt in attempts:
            executions += attempt.may_have_run
            request_seconds += attempt.seconds or 0.0
            outcomes.append(attempt.kind)
        return {
            "call_id": self.call_id,
            "trajectory": self.trajectory,
            "group": self.group,
            "outcome": self.outcome._value_,  # unlike `value`, not a function of Python
            "infrastructure": self.outcome.is_infrastructure and not self.scored,
            "provoked": self.provoked,
            "message": self.message,
            "problem": self.problem,
            "attempts": len(attempts),
            "possible_executions": executions,
            "permit_wait_s": self.waited,
            "backoff_s": self.backed_off,
            "request_s": request_seconds,
            "total_s": self.seconds,
            "execution_s": self.execution_time,
            "return_code": self.return_code,
            "http_status": last.status if last else None,
            "attempt_outcomes": outcomes,
        }
