"""Which lines of a log make a call."""

from __future__ import annotations

from dataclasses import replace

from sfusion.harness.studies.learn.attempts import joined
from tests.harness.studies.learn.records import call


def test_calls_that_a_guard_refused_were_never_made() -> None:
    made, refused = (
        call(1, 1e9),
        replace(call(2, 1e9 + 1, 0.0, outcome="cancelled"), attempts=[], refused="guard"),
    )
    assert joined([made, refused]) == [made]
