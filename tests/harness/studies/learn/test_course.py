"""A scenario in which the same things happen at another time does not behave like the log."""

from __future__ import annotations

import random

import pytest

from sfusion.harness.studies.learn.check import Checked, check
from sfusion.harness.studies.learn.draft import scenario_text
from sfusion.harness.studies.learn.figures import compare_courses, course_of
from sfusion.harness.studies.learn.learned import Learned, learn
from sfusion.harness.studies.look import Call
from tests.harness.studies.learn.records import call


def with_failures(first: int, last: int) -> list[Call]:
    draw = random.Random(1)
    failed = {"outcome": "sandbox_error", "status": 502}
    return [
        call(n, 1e9 + 0.1 * n, draw.uniform(0.1, 0.3), **(failed if first <= n < last else {}))  # type: ignore[arg-type]
        for n in range(300)
    ]


def out(checked: Checked) -> list[str]:
    return [row.name for row in checked.rows if not row.agrees]


def checked_with(learned: Learned, old: str = "", new: str = "") -> Checked:
    text = scenario_text(learned, "learned", "a test")
    assert old in text
    return check(learned, text.replace(old, new))


def test_failures_at_another_time_are_another_course() -> None:
    learned = learn(with_failures(100, 140))
    assert out(checked_with(learned)) == []
    moved = checked_with(learned, "between: [9.95, 13.9]", "between: [19.95, 23.9]")
    assert not moved.agrees
    assert {"course of sandbox_error", "course of failed requests"} <= set(out(moved))
    assert not {"ok", "sandbox_error", "p95 of a call"} & set(out(moved)), "the totals are the same"
    (row,) = (row for row in moved.rows if row.name == "course of sandbox_error")
    assert (row.log, row.difference, row.bound) == ("half by 11.9 s", "100.0 points", "36 points")


def test_an_outage_at_another_time_is_another_course() -> None:
    facts = {"outcome": "unreachable", "status": None, "seconds": 0.01}
    calls = [call(n, 1e9 + 0.1 * n, **(facts if 100 <= n < 140 else {})) for n in range(300)]  # type: ignore[arg-type]
    learned = learn(calls)
    assert learned.headline == "crash"
    (event,) = (line for line in scenario_text(learned, "x", "a test").splitlines() if "crash: sandbox" in line)
    moved = checked_with(learned, event, event.replace("at: 10", "at: 20"))
    assert "course of failed requests" in out(moved)


@pytest.mark.parametrize(("by", "agrees"), [(0.0, True), (1.2, True), (4.0, False)])
def test_a_course_may_be_earlier_or_later_by_a_twentieth_of_the_time(by: float, agrees: bool) -> None:
    log, run = with_failures(100, 140), with_failures(100 + int(10 * by), 140 + int(10 * by))
    rows = {row.name: row for row in compare_courses(course_of(log), course_of(run))}
    back = {row.name: row for row in compare_courses(course_of(run), course_of(log))}
    assert rows["course of sandbox_error"].agrees is agrees
    assert back["course of sandbox_error"].agrees is agrees
    assert rows["course of calls"].agrees


def test_what_never_happens_in_the_run_and_a_pause_in_the_log_are_other_courses() -> None:
    quiet = course_of(with_failures(0, 0))
    (row,) = (row for row in compare_courses(course_of(with_failures(100, 140)), quiet) if "sandbox" in row.name)
    assert (row.run, row.agrees) == ("none", False)
    pause = [call(n, 1e9 + 0.1 * n + (20 if n > 150 else 0)) for n in range(300)]
    assert [row.name for row in compare_courses(course_of(pause), quiet) if not row.agrees] == [
        "course of calls",
        "course of seconds of calls",
    ]
