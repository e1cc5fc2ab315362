"""Promises about connections, each broken."""

from __future__ import annotations

import pytest

from sfusion.harness.lab.worlds import sim
from sfusion_tools.sandbox import public_transport as transport_module
from tests.harness.lab.promises.scenes import broken_in, scene, verdicts
from tests.proof.changes import closes_every_connection


def test_connections_reused() -> None:
    with closes_every_connection.applied():
        broken = broken_in(scene())
    assert set(broken) == {"connections_reused"}
    assert "opened connection" in broken["connections_reused"].sentence


def test_no_dead_connection_used(monkeypatch: pytest.MonkeyPatch) -> None:
    slow = scene(
        load={"calls": 4, "concurrency": 1, "think": "4900ms", "program": {"prints": "{call}\n"}}
    )
    assert verdicts(sim.run(slow))["no_dead_connection_used"].held
    monkeypatch.setattr(transport_module, "IDLE_SECONDS", 60.0)
    broken = broken_in(slow)
    assert set(broken) - {"throughput_at_least"} == {"no_dead_connection_used"}
    assert (
        "had been idle for 4.9 s; the sandbox closes it after 5 s"
        in broken["no_dead_connection_used"].sentence
    )
