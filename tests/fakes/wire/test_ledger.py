"""The ledger of a server that runs for days."""

from __future__ import annotations

import pytest

from sfusion.fakes.recent_counts import LONGEST_NAME, RecentCounts
from sfusion.fakes.sglang import state
from sfusion.fakes.wire import ledger as ledger_module
from sfusion.fakes.wire.ledger import Ledger


def test_the_ledger_keeps_the_last_calls_and_counts_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger_module, "MOST_CALLS", 3)
    ledger = Ledger()
    for number in range(10):
        assert ledger.arrive(f"c{number}") == 1
    assert list(ledger.calls) == ["c7", "c8", "c9"]
    assert ledger.snapshot()["forgotten"] == 7
    assert ledger.arrive("c9") == 2
    ledger.leave("c1", 200)  # forgotten while it was in flight
    assert (ledger.arrived, ledger.in_flight, ledger.calls["c1"].statuses) == (11, 10, [200])


def test_requests_that_are_not_for_work_are_bounded_and_those_dropped_are_counted() -> None:
    ledger = Ledger()
    paths = [f"GET /page-{number}" for number in range(ledger_module.MOST_CALLS + 5)]
    assert {ledger.arrive_other(path) for path in paths} == {1}
    assert ledger.forgotten == 5
    assert ledger.arrive_other(paths[-1]) == 2
    assert ledger.arrive_other(paths[0]) == 1


def test_a_long_path_is_counted_by_its_digest() -> None:
    counts = RecentCounts(10)
    names = ["x" * 100_000 + end for end in "ab"]
    assert [counts.add(name) for name in [*names, *names]] == [1, 1, 2, 2]
    assert max(map(len, counts._counts)) <= LONGEST_NAME


def test_of_a_call_that_is_sent_again_and_again_the_last_statuses_are_kept() -> None:
    ledger = Ledger()
    extra = 7
    for number in range(ledger_module.MOST_STATUSES + extra):
        ledger.arrive("same")
        ledger.leave("same", 200 + number)
    assert len(ledger.calls["same"].statuses) == ledger_module.MOST_STATUSES
    assert ledger.calls["same"].statuses[0] == 200 + extra
    assert ledger.forgotten == extra


def test_the_prefix_cache_forgets_the_oldest_texts_and_of_a_text_the_end_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(state, "MOST_BLOCKS", 8)
    cache = state.PrefixCache()
    block = 16
    texts = [[number] * 4 * block for number in range(3)]
    for text in texts[:2]:
        cache.add(text, *cache.match(text))
    assert cache.match(texts[0])[0] == 4 * block  # used again, so the other is older
    half = texts[2][: 2 * block]
    cache.add(half, *cache.match(half))
    assert [cache.match(text)[0] // block for text in texts] == [4, 2, 2]
    assert cache.forgotten == 2
