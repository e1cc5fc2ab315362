"""The ledger of a server that runs for days."""

from __future__ import annotations

import pytest

from sfusion.fakes.wire import ledger as ledger_module
from sfusion.fakes.wire.ledger import Ledger


def test_the_ledger_keeps_the_last_calls_and_counts_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger_module, "MOST_CALLS", 3)
    ledger = Ledger()
    for number in range(10):
        assert ledger.arrive(f"c{number}") == 1
    assert list(ledger.calls) == ["c7", "c8", "c9"]
    assert ledger.arrive("c9") == 2
    ledger.leave("c1", 200)  # forgotten while it was in flight
    assert (ledger.arrived, ledger.in_flight, ledger.calls["c1"].statuses) == (11, 10, [200])
