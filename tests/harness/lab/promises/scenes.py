"""Small scenarios for tests: a base with changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sfusion.harness.core.journal import Journal
from sfusion.harness.lab.promises import PROMISES, Verdict, check_promises, read_promise
from sfusion.harness.lab.scenarios import Scenario
from sfusion.harness.lab.scenarios.reading import read_scenarios, scenario_files
from sfusion.harness.lab.worlds import sim

BASE: dict[str, Any] = {
    "scenario": "test",
    "about": "A scenario of the tests.",
    "cluster": {"nodes": 2, "workers_per_node": 1},
    "tools": {"rate_limit": 3},
    "load": {"calls": 24, "concurrency": 12, "program": {"seconds": "100ms", "prints": "{call}\n"}},
    "promises": ["every_call_ends_once"],
}


def _used_in_bundled_scenarios() -> dict[str, Any]:
    """Return the parameters with which the bundled scenarios use promises that require some."""
    found: dict[str, Any] = {}
    for scenario in (cell for file in scenario_files([]) for cell in read_scenarios(file)):
        for promise in scenario.written["promises"]:
            if isinstance(promise, dict):
                found.update(promise)
    return {name: given for name, given in found.items() if _requires_parameters(name)}


def _requires_parameters(name: str) -> bool:
    return any(field.is_required() for field in PROMISES[name].model_fields.values())


PARAMETERS: dict[str, Any] = {
    **_used_in_bundled_scenarios(),
    "outcomes": {"ok": "all"},
    "attempts_per_call": {"at_most": 6},
    "recovers_within": "10s",
    "throughput_at_least": 1,
}
"""Parameters of the promises that require one: those of a bundled scenario, unless tests here need
others."""

QUIET = ("outcomes", "recovers_within", "throughput_at_least")
"""Promises about the load itself, which need not hold in every scenario."""


ROLLOUTS: dict[str, Any] = {
    "load": None,
    "rollouts": {
        "count": 3,
        "turns": [
            {"say": "Compute.", "programs": [{"prints": "4\n", "seconds": "50ms"}]},
            {"say": "It is 4."},
        ],
    },
}

BUSY = {"faults": [{"first_attempts": 1, "what": {"status": 503}}]}


def scene(**changes: Any) -> Scenario:
    return Scenario.from_data({**BASE, **changes})


def rollout_scene(**changes: Any) -> Any:
    data = {**ROLLOUTS, **changes}
    return scene(
        **{key: value for key, value in data.items() if value is not None} | {"load": None}
    )


def all_promises(rollouts: bool = False) -> list[Any]:
    return [
        read_promise({name: PARAMETERS[name]} if name in PARAMETERS else name)
        for name, cls in PROMISES.items()
        if rollouts or not cls.of_rollouts
    ]


def verdicts(journal: Journal, *, rollouts: bool = False) -> dict[str, Verdict]:
    return {verdict.promise: verdict for verdict in check_promises(journal, all_promises(rollouts))}


def broken_in(scenario: Scenario, **options: Any) -> dict[str, Verdict]:
    """Run a scenario and return the verdicts on broken promises."""
    found = verdicts(sim.run(scenario, **options), rollouts=scenario.rollouts is not None)
    return {name: verdict for name, verdict in found.items() if verdict.state == "broken"}


Break = Callable[[Any], None]
