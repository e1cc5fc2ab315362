"""The results of all runs as plain data, for programs."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

from sfusion.harness.reports.model import Run, headline
from sfusion.harness.reports.stories import stories


def summary(runs: Sequence[Run]) -> dict[str, Any]:
    """What ``sfusion run --json`` prints: every run with its promises and the outcomes of its calls."""
    return {"summary": 1, "headline": headline(runs), "runs": [_run(run) for run in runs]}


def summary_json(runs: Sequence[Run]) -> str:
    """The same as text."""
    return json.dumps(summary(runs), indent=2, default=str) + "\n"


def _run(run: Run) -> dict[str, Any]:
    told = stories(run.events)
    return {
        "scenario": run.scenario,
        "cell": run.cell,
        "world": run.world,
        **({"sandboxes": list(run.sandboxes)} if run.sandboxes else {}),
        "seed": run.seed,
        "state": run.state,
        "error": run.error or None,
        "seconds": run.seconds,
        "wall_seconds": run.wall_seconds,
        "calls": len(told),
        "outcomes": dict(sorted(Counter(story.outcome for story in told).items())),
        "directory": run.directory or None,
        "promises": [
            {"promise": one.promise, "state": one.state, "sentence": one.sentence, "evidence": list(one.evidence)}
            for one in run.verdicts
        ],
    }
