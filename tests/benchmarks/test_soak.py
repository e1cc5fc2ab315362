"""The soak: a run is judged step by step, as if it were judged as a whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import server_soak
from benchmarks.ground import Ground
from benchmarks.soaking import PROMISES, play_in_steps
from sfusion.harness.core.journal import Journal
from sfusion.harness.lab.promises import check_promises
from sfusion.harness.lab.scenarios.model import Scenario

SCENARIO = {
    "scenario": "killed-at-the-end-of-a-step",
    "about": "A worker is killed shortly before a step ends.",
    "cluster": {"nodes": 1, "workers_per_node": 2},
    "tools": {"rate_limit": 4},
    "load": {
        "calls": 24,
        "concurrency": 4,
        "steps": 6,
        "step_pause": "1s",
        "program": {"seconds": "10s", "prints": "{call}\n"},
    },
    "promises": PROMISES,
}


@pytest.mark.parametrize("at", ["9s", "31s"])
def test_a_permit_that_is_out_at_the_end_of_a_step_is_judged_with_the_next_one(tmp_path, at):
    scenario = Scenario.from_data({**SCENARIO, "events": [{"at": at, "kill": "n1-w1"}]})
    found = play_in_steps(scenario, tmp_path / "journal.ndjson", 1, lambda milestone: None)
    assert [one.sentence for one in found.failed] == []
    assert found.calls == 24
    whole = Journal.read(tmp_path / "journal.ndjson")
    kinds = [event["event"] for event in whole.events]
    # The lease of the killed worker's permits ends after the step in which it was killed.
    died, expired = kinds.index("worker_died"), kinds.index("expired")
    assert died < expired
    assert "step_ended" in kinds[died:expired]
    assert not [one for one in check_promises(whole, scenario.promises) if one.failed]
    assert found.states["held"] > len(PROMISES)


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory is read from /proc")
def test_the_memory_of_a_server_is_measured_over_requests_that_are_all_new() -> None:
    requests = 400
    shown: list[server_soak.Point] = []
    with Ground() as ground:
        points = server_soak.soak(ground, "sglang", requests, shown.append)
    assert points == shown
    assert [point.requests for point in points] == list(range(20, requests + 1, 20))
    assert all(point.memory > 2**20 for point in points)


def test_growth_is_that_of_the_second_half() -> None:
    points = [
        server_soak.Point(requests=number, memory=min(number, 600) * 100, seconds=0.0)
        for number in range(0, 1001, 100)
    ]
    assert server_soak.growth_of(points) == 100 * 100 / 500
    sent = {
        server_soak.request_bytes(server, n) for server in server_soak.SERVERS for n in range(50)
    }
    assert len(sent) == 25 + 2 * 25  # fake and proxy are sent the same, and all ask for the pages
