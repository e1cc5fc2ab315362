"""Multi-turn rollouts in a world: the fake engine, the real driver, the worker's tool."""

from __future__ import annotations

from harness.scenarios.model import Scenario
from harness.worlds.recorder import Recorder
from harness.worlds.worker import Worker


async def run_rollouts(scenario: Scenario, workers: list[Worker], recorder: Recorder) -> None:
    """Run all trajectories of a scenario."""
