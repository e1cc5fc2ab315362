"""Logs made by hand, for tests."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

from sfusion.harness.studies.learn.survey import Survey
from sfusion_tools.record import Call
from tests.harness.studies.made_calls import attempt_at, call_at


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
) -> Call:
    """Return a call with one attempt that ended like the call."""
    attempt = attempt_at(began, seconds, sandbox, status, outcome, retry_after=retry_after)
    return call_at(f"c{number}", began, seconds, source, outcome, "w", (attempt,))


def write_log(path: Path, calls: Iterable[Call]) -> Path:
    """Write an event log."""
    names = {"endpoint": "sandbox", "execution_time": "run_seconds"}
    with path.open("w") as file:
        for one in calls:
            data = {
                key: value
                for key, value in asdict(one).items()
                if value is not None and key != "timed"
            }
            data["attempts"] = [
                {names.get(key, key): value for key, value in attempt.items() if value is not None}
                for attempt in data["attempts"]
            ]
            file.write(json.dumps({"event_log": 1, **data}) + "\n")
    return path


def survey(calls: Iterable[Call]) -> Survey:
    """Return the survey of a whole log."""
    made = Survey()
    for one in calls:
        made.add(one)
    return made
