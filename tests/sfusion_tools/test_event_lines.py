"""The form of event lines: that of usual calls, which are formatted in one go, and of all
others."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from sfusion_tools.event_lines import LINE_OPENING, call_line
from sfusion_tools.outcome import Outcome
from sfusion_tools.record import Attempt

BEGAN = 1763247764.106332


def attempt(**facts: Any) -> Attempt:
    usual = {
        "status": 200,
        "waited": 0.0,
        "seconds": 0.25,
        "after": 0.125,
        "execution_time": 0.0625,
    }
    fixed = {"number": 1, "detail": "", "may_have_run": True, "sent": 300, "received": 420}
    return Attempt(
        **{"endpoint": "http://10.0.0.1:8080", "outcome": Outcome.OK, **fixed, **usual, **facts}
    )


def line(
    *attempts: Attempt,
    call: str = "c1",
    began: float = BEGAN,
    outcome: Any = Outcome.OK,
    **rest: Any,
) -> bytes:
    return call_line("client", "node7-4711", call, began, 0.5, outcome, attempts, **rest)


def test_a_line_has_all_that_is_known_of_the_call():
    refused = attempt(
        outcome=Outcome.THROTTLED,
        status=429,
        waited=1.5,
        execution_time=None,
        retry_after=2.5,
        after=0.0,
        received=0,
        fault='a "rule"',
    )
    text = line(refused, attempt(fault='a "rule"'), more=',"code":"é"')
    assert text.startswith(LINE_OPENING)
    assert text.endswith(b"\n")
    answered = {
        "sandbox": "http://10.0.0.1:8080",
        "outcome": "ok",
        "status": 200,
        "after": 0.125,
        "seconds": 0.25,
    }
    sizes = {"waited": 0, "sent": 300, "received": 420}
    one = answered | sizes | {"run_seconds": 0.0625, "fault": 'a "rule"'}
    other = {
        "outcome": "throttled",
        "status": 429,
        "after": 0.0,
        "waited": 1.5,
        "received": 0,
        "retry_after": 2.5,
    }
    known = {
        "event_log": 1,
        "source": "client",
        "worker": "node7-4711",
        "call": "c1",
        "began": BEGAN,
        "seconds": 0.5,
    }
    assert json.loads(text) == known | {
        "outcome": "ok",
        "code": "é",
        "attempts": [
            {key: value for key, value in one.items() if key != "run_seconds"} | other,
            one,
        ],
    }


@pytest.mark.parametrize(
    ("attempts", "rest"),
    [
        ([attempt()], {}),
        ([attempt(waited=0.25)], {}),
        ([attempt(status=None, outcome=Outcome.CANCELLED)], {}),
        ([attempt()], {"outcome": Outcome.CANCELLED}),
        ([attempt(retry_after=2.5)], {}),
        ([attempt(execution_time=None)], {}),
        ([attempt(fault="slow")], {}),
        ([attempt(), attempt()], {}),
        ([], {}),
    ],
)
def test_a_usual_line_has_the_form_of_all_others(attempts, rest):
    """A line with something more to say never is a usual one."""
    more = b',"more":1'
    before, after = line(*attempts, **rest, more=more.decode()).split(more)
    assert line(*attempts, **rest) == before + after


@pytest.mark.parametrize("more", ["", ',"more":1'])
@pytest.mark.parametrize(
    "call", ["c1", "", 'a "b" \\ \n', "é", "\u0663", "\u2028", "\ud800", "%d", "a" * 1000]
)
def test_every_id_is_quoted(call, more):
    assert json.loads(line(attempt(), call=call, more=more))["call"] == call


def test_unknown_outcomes_are_null():
    for text in (line(attempt(), outcome=None), line(attempt(outcome=None)), line(outcome=None)):
        data = json.loads(text)
        assert None in (data["outcome"], *[one["outcome"] for one in data["attempts"]])


@pytest.mark.parametrize("began", [0.0, 0.5, 1763247764.9999998, 1763247765.0, 1e12 + 0.25])
def test_the_time_is_that_of_the_call_to_a_microsecond(began):
    assert json.loads(line(attempt(), began=began))["began"] == pytest.approx(
        began, rel=0, abs=1.01e-6
    )


@pytest.mark.parametrize("began", [math.nan, math.inf, -math.inf, -1.5])
def test_a_time_that_cannot_be_written_makes_no_line(began):
    with pytest.raises(ValueError, match="no call began in second"):
        line(attempt(), began=began)
