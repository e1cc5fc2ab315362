"""Logs made by hand, for tests."""

from __future__ import annotations

from sfusion.harness.logs import AttemptRecord, CallRecord


def call(
    number: int,
    began: float,
    seconds: float | None = 0.2,
    *,
    outcome: str | None = "ok",
    status: int | None = 200,
    retry_after: float | None = None,
    sandbox: str = "http://sandbox",
    source: str = "client",
) -> CallRecord:
    """Return a call with one attempt that ended like the call."""
    attempt = AttemptRecord(began, seconds, sandbox, status, outcome, retry_after=retry_after)
    return CallRecord(f"c{number}", began, seconds, source, outcome, "w", (attempt,))
