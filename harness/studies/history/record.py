"""A record of one run: small enough to keep many, with what changes from commit to commit."""

from __future__ import annotations

import math
import subprocess
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from sfusion.harness.lab.figures import figures_of
from sfusion.harness.lab.promises.verdict import check_types
from sfusion.harness.lab.runs.result import RunResult
from sfusion_tools._version import __version__

_FIGURES = ("calls", "outcomes", "seconds", "throughput", "p50", "p95", "p99", "wait_p95", "attempts")


@dataclass(frozen=True, slots=True)
class HistoryRecord:
    run: int
    """Counted from 1 in the history of a scenario; the folder of an earlier run has this number as its name."""
    time: str
    """ISO 8601, UTC."""
    commit: str
    """What was checked out in the working directory; empty outside git."""
    sfusion: str
    world: str
    seed: int
    state: str
    journal_digest: str
    promises: dict[str, str] = field(default_factory=dict)
    """The state of each verdict."""
    figures: dict[str, Any] = field(default_factory=dict)
    broken: dict[str, Any] = field(default_factory=dict)
    """How each broken promise broke, without details; empty in records written before verdicts said so."""

    @classmethod
    def of_result(cls, result: RunResult, *, run: int, now: datetime, commit: str) -> HistoryRecord:
        figures = figures_of(result.journal).as_dict()
        return cls(
            run,
            now.astimezone(UTC).isoformat(timespec="seconds"),
            commit,
            __version__,
            result.task.world,
            result.task.scenario.seed,
            result.state,
            result.digest,
            {verdict.promise: verdict.state for verdict in result.verdicts},
            {key: figures[key] for key in (*_FIGURES, "refused", "wasted")},
            {one.promise: [one.how.kind, dict(one.how.identity)] for one in result.verdicts if one.state == "broken"},
        )

    @classmethod
    def from_dict(cls, data: Any) -> HistoryRecord:
        """Read a record as plain data; raise ValueError for anything else."""
        kinds = {"run": int, "time": str, "commit": str, "sfusion": str, "world": str, "seed": int, "state": str}
        kinds |= {"journal_digest": str, "promises": dict, "figures": dict}
        check_types(data, "a record", kinds)
        check_types(data := {"broken": {}, **data}, "a record", {"broken": dict})
        return cls(**{key: data[key] for key in (*kinds, "broken")})

    def number(self, name: str) -> float | None:
        """Return a figure; None if this record has no such number."""
        found = self.figures.get(name)
        return float(found) if isinstance(found, int | float) and math.isfinite(found) else None


def current_commit() -> str:
    """Return the short commit; empty outside a git repository.

    Whether files were changed is not asked: that would run what the configuration of a stranger's repository names.
    """
    command = ["git", "rev-parse", "--short=10", "--verify", "--quiet", "HEAD"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
