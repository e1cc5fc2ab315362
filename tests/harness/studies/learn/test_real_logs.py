"""Event logs of a real Sandbox Fusion, built from its source, and what the server did per second
with other limits: ``python -m benchmarks.real_productions`` made both."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks.advice_round_trips import sweep
from sfusion.harness.core.logs.reading import read_records
from sfusion.harness.lab.scenarios import parse_scenarios
from sfusion.harness.studies.learn.attempts import joined
from sfusion.harness.studies.learn.draft import scenario_text
from sfusion.harness.studies.learn.learned import Learned, learn
from tests.cases import every

LOGS = Path(__file__).parent / "real_logs"
VALUES = "tools.rate_limit=2,4,8,16,32"
MEASURED: dict[str, tuple[float, ...]] = {
    "saturated": (9.86, 9.83, 9.65, 9.74, 9.70),
    "timeouts": (4.58, 4.50, 4.54, 4.40, 3.98),
    "limited-by-the-client": (2.54, 4.92, 9.39, 15.39, 18.40),
    "killed": (9.92, 9.86, 9.78, 9.80, 9.80),
    "mixed": (3.54, 6.59, 9.63, 9.97, 9.78),
    "front": (9.93, 9.93, 6.70, 6.86, 6.88),
}
"""Calls that ended ok per second with rate_limit 2, 4, 8, 16 and 32."""
EXPERIMENTS = {
    "saturated": 24,
    "timeouts": 24,
    "limited-by-the-client": 3,
    "killed": 6,
    "mixed": 12,
}
"""The rate_limit to try where the log does not tell enough, as docs/logs.md has it."""
HARMLESS = 0.9
"""The share of the best of them that a recommended value must reach."""


@cache
def learned_from(name: str) -> Learned:
    return learn(joined(read_records([LOGS / f"{name}.ndjson.gz"])))


@cache
def recommended(name: str) -> Any:
    """Return what a sweep of the learned scenario recommends; None if it cannot tell."""
    learned = learned_from(name)
    known = learned.knowledge
    if known.least == known.most:  # a sweep recommends nothing then
        return None
    (cell,) = parse_scenarios(scenario_text(learned, "learned", "a log"))
    result = sweep(cell, 1, values=VALUES)
    return None if result.overall is None else result.overall[0]


@every(tuple(MEASURED), str)
def test_a_log_gets_a_harmless_number_or_an_experiment(name: str) -> None:
    value = recommended(name)
    if value is None:
        unknown = learned_from(name).knowledge.unknown
        assert re.findall(r"to find out, run \d+ minutes? with rate_limit (\d+) ", unknown) == [
            str(EXPERIMENTS[name])
        ]
        return
    real = dict(zip((2, 4, 8, 16, 32), MEASURED[name], strict=True))
    assert real[value] >= HARMLESS * max(real.values())


def test_a_front_server_that_counts_connections_gets_a_number() -> None:
    assert learned_from("front").headline == "quota"
    assert recommended("front") == 4


def test_a_server_whose_cores_were_always_busy_is_not_called_idle() -> None:
    """Two cores had eight programs at a time, from the first call to the last."""
    unknown = learned_from("killed").knowledge.unknown
    assert "it does not tell whether the server was full" in unknown
    assert "crash" in [cause.kind for cause in learned_from("killed").causes]
