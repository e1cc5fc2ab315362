"""Findings: what broke and how. Two cases that break the same promise in the same way are one finding."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from sfusion.harness.lab.promises import Verdict
from sfusion.harness.lab.runs.result import RunResult
from sfusion.harness.search.shrink import Failure, failure_of, failures_of

LOGGED = "error_logged"
"""In place of a promise: tool, fake or harness logged an error, or raised where nobody could catch it."""


@dataclass(frozen=True, slots=True)
class HuntFinding:
    """One thing that broke in one run."""

    failure: Failure
    sentence: str


def findings_in(result: RunResult, logged: Iterable[str]) -> list[HuntFinding]:
    """Return what broke in a run, each failure once."""
    broken = {failure_of(one): one.sentence for one in reversed(result.verdicts) if one.state == "broken"}
    found = [HuntFinding(one, broken.get(one) or result.error or one.how) for one in failures_of(result)]
    errors = [
        str(one["text"]) for one in result.journal.events if one["event"] == "log" and one.get("level") == "error"
    ]
    told = {failure_of(Verdict(LOGGED, "broken", text)): text for text in [*errors, *logged]}
    return [*found, *(HuntFinding(failure, text) for failure, text in told.items())]
