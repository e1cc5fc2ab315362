"""Logs made by hand, for tests."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

from sfusion.harness.studies.look import LoggedAttempt, LoggedCall


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
) -> LoggedCall:
    """Return a call with one attempt that ended like the call."""
    attempt = LoggedAttempt(began, seconds, sandbox, status, outcome, retry_after=retry_after)
    return LoggedCall(f"c{number}", began, seconds, source, outcome, "w", (attempt,))


def write_log(path: Path, calls: Iterable[LoggedCall]) -> Path:
    """Write an event log."""
    with path.open("w") as file:
        for one in calls:
            data = {key: value for key, value in asdict(one).items() if value is not None and key != "timed"}
            data["attempts"] = [
                {key: value for key, value in attempt.items() if value is not None and key != "began"}
                | {"after": attempt["began"] - one.began}
                for attempt in data["attempts"]
            ]
            file.write(json.dumps({"event_log": 1, **data}) + "\n")
    return path
