"""A scenario in which the same things fail at another time does not behave like the log."""

from __future__ import annotations

import random

import pytest

from sfusion.harness.studies.learn.check import Checked, check
from sfusion.harness.studies.learn.course import CourseDifference, compare_courses, course_of
from sfusion.harness.studies.learn.draft import scenario_text
from sfusion.harness.studies.learn.learned import Learned, learn
from sfusion_tools.record import Call
from tests.harness.studies.learn.records import call


def with_failures(first: int, last: int) -> list[Call]:
    """Ten calls per second for half a minute; those from one number to another fail."""
    draw = random.Random(1)
    calls = []
    for number in range(300):
        began = 1e9 + 0.1 * number
        seconds = draw.uniform(0.1, 0.3)
        if first <= number < last:
            calls.append(call(number, began, seconds, outcome="sandbox_error", status=502))
        else:
            calls.append(call(number, began, seconds))
    return calls


def marked(checked: Checked) -> set[str]:
    return {row.name for row in checked.rows if not row.agrees}


def checked_with(learned: Learned, old: str = "", new: str = "") -> Checked:
    text = scenario_text(learned, "learned", "a test")
    assert old in text
    return check(learned, text.replace(old, new))


def test_failures_at_another_time_are_noticed() -> None:
    learned = learn(with_failures(100, 140))
    assert marked(checked_with(learned)) == set()
    moved = checked_with(learned, "between: [9.95, 13.9]", "between: [19.95, 23.9]")
    assert not moved.agrees
    assert marked(moved) == {"times of sandbox_error", "times of failed requests"}, "only the times"
    (row,) = (row for row in moved.rows if row.name == "times of sandbox_error")
    assert (row.log, row.difference, row.bound) == ("half by 11.9 s", "100.0 points", "36 points")


def test_an_outage_at_another_time_is_noticed() -> None:
    calls = [call(number, 1e9 + 0.1 * number) for number in range(300)]
    for number in range(100, 140):
        began = calls[number].began
        calls[number] = call(number, began, 0.01, outcome="unreachable", status=None)
    learned = learn(calls)
    assert learned.headline == "crash"
    text = scenario_text(learned, "x", "a test")
    (event,) = (line for line in text.splitlines() if "crash: sandbox" in line)
    assert "times of failed requests" not in marked(checked_with(learned))
    moved = checked_with(learned, event, event.replace("at: 10", "at: 20"))
    assert "times of failed requests" in marked(moved)


@pytest.mark.parametrize(("by", "agrees"), [(0.0, True), (1.2, True), (4.0, False)])
def test_failures_may_be_earlier_or_later_by_a_twentieth_of_the_time(
    by: float, agrees: bool
) -> None:
    later = int(10 * by)
    log = course_of(with_failures(100, 140))
    run = course_of(with_failures(100 + later, 140 + later))
    assert _of_the_calls(compare_courses(log, run)).agrees is agrees
    assert _of_the_calls(compare_courses(run, log)).agrees is agrees


def test_a_run_in_which_nothing_fails_differs() -> None:
    log = course_of(with_failures(100, 140))
    quiet = course_of(with_failures(0, 0))
    found = _of_the_calls(compare_courses(log, quiet))
    assert (found.run_half, found.agrees) == (None, False)


def test_few_failures_say_nothing_about_their_time() -> None:
    few = course_of(with_failures(100, 107))
    assert compare_courses(few, course_of(with_failures(200, 207))) == []


def _of_the_calls(found: list[CourseDifference]) -> CourseDifference:
    (difference,) = (one for one in found if one.kind == "sandbox_error")
    return difference
