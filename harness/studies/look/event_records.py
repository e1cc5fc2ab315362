"""Lines of event logs, as ``sfusion_tools.event_lines`` writes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sfusion.harness.studies.look.record import LoggedAttempt, LoggedCall
from sfusion.harness.studies.look.values import BadLine, count, duration, name, number, outcome, sandbox_label
from sfusion_tools.event_lines import VERSION


def is_event_line(record: Mapping[str, Any]) -> bool:
    return "event_log" in record


def event_record(record: Mapping[str, Any]) -> LoggedCall:
    """Return the call of a line; raise BadLine."""
    if record["event_log"] != VERSION:
        raise BadLine(f"a line of version {record['event_log']!r}; this sfusion reads version {VERSION}")
    began = number(record, "began")
    attempts = record.get("attempts", [])
    if not isinstance(attempts, list) or not all(isinstance(one, dict) for one in attempts):
        raise BadLine("attempts must be a list of objects")
    return LoggedCall(
        name(record, "call"),
        began,
        duration(record, "seconds"),
        name(record, "source") or "client",
        outcome(record),
        name(record, "worker"),
        tuple([_attempt(one, began) for one in attempts]),
        name(record, "problem") or None,
        waited=duration(record, "waited") or 0.0,
        refused=name(record, "refused"),
    )


def _attempt(record: Mapping[str, Any], began: float) -> LoggedAttempt:
    return LoggedAttempt(
        began + number(record, "after"),
        duration(record, "seconds"),
        sandbox_label(record, "sandbox"),
        count(record, "status"),
        outcome(record),
        duration(record, "waited") or 0.0,
        name(record, "fault") or None,
        count(record, "sent"),
        count(record, "received"),
        duration(record, "retry_after"),
        duration(record, "run_seconds"),
    )
