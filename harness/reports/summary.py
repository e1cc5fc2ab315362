"""The results of all runs as JSON."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

from sfusion.harness.lab.journal import Journal
from sfusion.harness.lab.promises.story import Story
from sfusion.harness.reports.run_report import RunReport, headline


def summary(runs: Sequence[RunReport]) -> dict[str, Any]:
    """Every run with its verdicts and the outcomes of its calls, as ``sfusion run --json`` writes them."""
    return {"summary": 1, "headline": headline(runs), "runs": [_run(run) for run in runs]}


def summary_json(runs: Sequence[RunReport]) -> str:
    return json.dumps(summary(runs), indent=2, default=str) + "\n"


def _run(run: RunReport) -> dict[str, Any]:
    calls = Story(Journal({}, list(run.events))).records
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
        "calls": len(calls),
        "outcomes": dict(sorted(Counter(call.kind for call in calls).items())),
        "directory": run.directory or None,
        "promises": [
            {"promise": one.promise, "state": one.state, "sentence": one.sentence, "evidence": list(one.evidence)}
            for one in run.verdicts
        ],
    }
