"""A pull request's run tries the first seed, the weekly run all of them."""

from __future__ import annotations

import pytest

from tests.seeds import with_seeds


@pytest.mark.parametrize(("examples", "tried"), [("same", [3]), ("random", [3, 5, 8])])
def test_other_seeds_are_for_the_weekly_run(
    monkeypatch: pytest.MonkeyPatch, examples: str, tried: list[int]
) -> None:
    monkeypatch.setenv("SFUSION_EXAMPLES", examples)
    _name, values = with_seeds(3, 5, 8).args
    assert [value.values for value in values] == [(seed,) for seed in tried]
    assert {mark.name for value in values for mark in value.marks} == {"other_seeds"}
