"""What a log says about a call, whoever wrote the log."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LoggedAttempt:
    """One HTTP request. Times are unix seconds by the wall clock of whoever wrote them."""

    began: float
    seconds: float | None
    """None: its end was not seen."""
    sandbox: str = ""
    """The label of the endpoint, never a secret."""
    status: int | None = None
    outcome: str | None = None
    waited: float = 0.0
    """Seconds for a permit, before it began."""
    fault: str | None = None
    """The rule that struck, where a fake or a proxy wrote the log."""
    sent: int | None = None
    """Bytes of the request's body."""
    received: int | None = None
    """Bytes of the answer's body."""
    retry_after: float | None = None
    run_seconds: float | None = None
    """The execution time that the sandbox reported."""


@dataclass(frozen=True, slots=True)
class LoggedCall:
    """One tool call; where a log knows requests only, one request."""

    call: str
    began: float
    seconds: float | None
    """None: its end was not seen."""
    source: str
    """client, server, access (uvicorn, nginx) or dump (rollouts)."""
    outcome: str | None = None
    worker: str = ""
    attempts: tuple[LoggedAttempt, ...] = ()
    problem: str | None = None
    """What was wrong with a malformed tool call."""
    timed: bool = True
    """False: the log has no times, and ``began`` counts its lines, or the steps of a training."""
    waited: float = 0.0
    """Seconds for a permit, of a call without an attempt."""
    refused: str = ""
    """Who refused the call before anything was sent: the guard."""
