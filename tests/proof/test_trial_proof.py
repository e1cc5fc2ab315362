"""The trial accuses no right tool and catches mistakes: the cheap part of ``python -m tests.proof
--trial``."""

from __future__ import annotations

import math

import pytest

from sfusion.harness.lab.promises import single_call_requests
from sfusion.harness.lab.promises.registry import OF_SINGLE_CALLS
from sfusion.harness.trial.trial import judge
from tests.proof import wall_tools
from tests.proof.mistake import UNSEEN
from tests.proof.mistakes import MISTAKES
from tests.proof.planted import PLANTED
from tests.proof.right_tools import RIGHT_TOOLS
from tests.proof.trial import OWN, SURVIVE, UNSEEN_CHANGES, Kind, TrialCase, cases, judged

BY_CHECK = {
    "no_duplicate_execution": ("step each call made twice", "programs"),
    "programs_waited_for": ("seconds tenth", "programs"),
    "retry_after_honoured": ("retry_after minus-one", "failures"),
    "in_flight_within_limit": ("rate_limit plus one", "limit"),
    "limit_used": ("permit kept a second longer", "limit"),
    "sent_in_order": ("the last waiter is served first", "limit"),
    "sandboxes_used": ("last sandbox only", "sandboxes"),
    "cancellation_ends_a_call": ("cancellation swallowed", "cancelled"),
    "metrics_are_true": ("metrics in one dict", "programs"),
    "outcomes": ("metrics.outcome always-throttled", "programs"),
    "no_secret_leaked": ("headers printed", "programs"),
    "tool_never_raises": ("raises-on-null", "failures"),
    "infra_never_scored": ("outage-scored-zero", "failures"),
    "nothing_left_behind": ("each call made again when it has ended", "programs"),
}
"""A mistake for each check that none of the planted ones breaks, and the scene that shows it."""


SNAPSHOT = "a timeout is told as 'No error'"
"""The one planted mistake that no fact shows, only the kept wordings of a whole trial."""
SHOWN_IN = {
    **dict.fromkeys(PLANTED, "programs"),
    "outages are told as 'Your program failed'": "failures",
    "the deadline is ignored": "patience",
    "a cut names what is left as if it were missing": "bounds",
    "a number of characters counts bytes": "bounds",
    "a refused request is sent again": "failures",
    "a 504 is sent again at once": "failures",
    "each attempt is waited for half as long": "patience",
    "the event loop sleeps between attempts": "patience",
    "calls are sent one after the other": "together",
    "the same program is sent once for calls at the same time": "wide",
    "more than 32 calls are turned away": "wide",
}
"""The scene that shows a planted mistake: a whole trial plays ten times as much. Those of ``python
-m tests.proof --trial`` are whole."""


@pytest.mark.parametrize("name", [*RIGHT_TOOLS, OWN])
def test_right_tools_are_not_accused(name: str) -> None:
    row = judged(TrialCase("right tool", name))
    assert (row.caught_by, row.sentence) == ((), "")


def _broken_on_the_wall(name: str, seed: int) -> set[str]:
    found = judge(wall_tools.WALL_TOOLS[name], scenes="failures", seed=seed)
    assert found.world == "wall"
    return {one.promise for one in found.verdicts if one.state == "broken"}


def test_failures_are_told_apart_on_the_wall_clock_too(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _broken_on_the_wall("httpx", 1) == set()
    monkeypatch.setattr(
        wall_tools, "_wait", lambda status, headers, number: 0.5 if number < 3 else 1 / 0
    )
    assert _broken_on_the_wall("threads", 2) >= {"retry_after_honoured"}


@pytest.mark.parametrize("name", wall_tools.WALL_MISTAKES)
def test_mistakes_of_clients_on_the_wall_clock_are_caught(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(single_call_requests, "_UNSEEN", math.inf)  # the machine may be busy
    row = judged(TrialCase("wrong on it", name))
    assert len(row.caught_by) == 1, row


@pytest.mark.timeout(300)
def test_the_planted_mistakes_are_caught_and_every_check_can_fail() -> None:
    whole = judged(TrialCase("planted", SNAPSHOT))
    assert whole.snapshot
    assert not whole.caught_by
    rows = {
        name: judged(TrialCase("planted", name), scene)
        for name, scene in SHOWN_IN.items()
        if name != SNAPSHOT
    }
    assert {name for name, row in rows.items() if not row.caught_by} == set()
    broken = {check for row in rows.values() for check in row.caught_by} | {"wordings_accepted"}
    broken |= {"score_follows_the_tests"}  # of reward functions: tests/harness/trial
    # Of advantage estimators: tests/harness/trial/test_estimators.py
    broken |= {"lost_samples_left_out", "no_lesson_without_siblings"}
    named = {name.removeprefix("step "): name for name in (one.name for one in cases(("drawn",)))}
    for check, (name, scene) in BY_CHECK.items():
        kind: Kind = "named" if name in MISTAKES else "drawn"
        row = judged(TrialCase(kind, named.get(name, name)), scene)
        assert check in row.caught_by, (check, name, row.caught_by)
        broken.add(check)
    assert {promise.name for promise in OF_SINGLE_CALLS} - broken == set()


def test_hundreds_of_mutations_are_drawn_and_few_of_them_are_excused() -> None:
    drawn = [one.name for one in cases(("drawn",))]
    assert len(set(drawn)) == len(drawn) >= 400
    assert set(SURVIVE) <= set(drawn)
    assert len(SURVIVE) <= 0.03 * len(drawn)
    assert set(UNSEEN) <= set(MISTAKES)
    assert set(UNSEEN_CHANGES) <= {one.name for one in cases(("change",))}
