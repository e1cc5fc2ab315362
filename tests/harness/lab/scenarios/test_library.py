"""The bundled scenarios: their promises hold, each of them can fail, and they cover verl's original
design.

The incidents have a test module of their own.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sfusion.harness.lab.promises import PROMISES, check_promises
from sfusion.harness.lab.scenarios import Scenario, bundled_folder, read_scenarios
from sfusion.harness.lab.scenarios.reading import in_folder
from sfusion.harness.lab.worlds import sim
from sfusion_tools.limiter import LimiterCore
from sfusion_tools.rollout import RolloutLimits

INCIDENTS = in_folder(bundled_folder() / "incidents")
SCENES = sorted((bundled_folder() / "judge").glob("judge-episode-*.yaml"))
EPISODES = in_folder(bundled_folder() / "lifecycle") + SCENES
"""Which client breaks each of them: tests/harness/lab/worlds/test_episodes.py, and
tests/harness/trial/test_episode_trials.py for those of judge."""
FILES = [path for path in in_folder(bundled_folder()) if path not in (*INCIDENTS, *EPISODES)]


class Barren(LimiterCore):
    """Never grants a permit."""

    def _grant(self, now: float) -> None:
        return

    def next_deadline(self, now: float) -> float:
        return max(super().next_deadline(now), now + 1.0)


def not_held(scenario: Scenario, **options: Any) -> list[str]:
    journal = sim.run(scenario, **options)
    return [
        f"{one.promise}: {one.sentence}"
        for one in check_promises(journal, scenario.promises)
        if not one.held
    ]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_bundled_scenario_breaks_when_the_code_is_broken(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cell = read_scenarios(path)[0]
    if not_held(cell, core=Barren):
        return
    # Scenarios that do not depend on permits depend on the limits of a trajectory or on time.
    monkeypatch.setattr(sim, "bounds_of", lambda scenario: RolloutLimits())
    assert not_held(cell.changed(horizon="10s"))


def test_there_are_enough_scenarios_and_each_has_an_about() -> None:
    assert len(FILES) >= 28
    for path in FILES + INCIDENTS + EPISODES:
        first = read_scenarios(path)[0]
        assert first.scenario == path.stem
        assert len(first.about) > 40


def test_the_cases_of_verls_original_design_are_covered() -> None:
    names = {path.stem for path in FILES + INCIDENTS + EPISODES}
    for word in (
        "single-node",
        "multi-node",
        "rotten-raise",
        "rotten-exit",
        "rotten-hang",
        "rotten-killed",
        "rotten-garbage",
        "oversize-prompt",
        "oversize-response",
        "oversize-tool-text",
        "oversize-model",
        "throttled-gateway",
        "crash-and-restart",
        "wedged-sandbox",
        "slow-degradation",
        "worker-death",
        "limiter-death",
        "cancel-storm",
    ):
        assert word in names


def test_every_promise_that_is_not_implied_is_used_by_some_scenario() -> None:
    used = {
        promise.name
        for path in FILES + INCIDENTS + EPISODES
        for promise in read_scenarios(path)[0].promises
    }
    assert {name for name, cls in PROMISES.items() if not cls.implied} <= used
