"""Whatever a log contains, what is learned from it is a valid scenario."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from sfusion.harness.lab.scenarios import parse_scenarios
from sfusion.harness.studies.learn.check import check
from sfusion.harness.studies.learn.draft import scenario_text
from sfusion.harness.studies.learn.learned import learn
from sfusion_tools.outcome import Outcome
from sfusion_tools.record import Call
from tests.harness.studies.learn.records import call
from tests.harness.studies.made_calls import attempt_at, call_at

START = 1_763_000_000.0


def several(count: int, **facts: object) -> list[Call]:
    draw = random.Random(3)
    return [call(n, START + 0.1 * n, draw.uniform(0.05, 0.4), **facts) for n in range(count)]  # type: ignore[arg-type]


def mixed_sandboxes() -> list[Call]:
    return [call(n, START + 0.1 * n, 0.2, sandbox=f"http://sandbox-{n}") for n in range(100)]


def jumping_clock() -> list[Call]:
    return sorted(
        [*several(40), call(99, START - 5e8), call(100, START + 5e8)], key=lambda one: one.began
    )


def unprintable() -> list[Call]:
    calls = several(15, sandbox="http://a\n- evil: {}\u2028#\x1b[31m") + several(
        15, sandbox="http://b\n- : x"
    )
    bad = [
        call_at(f"b{n}", START + n, 0.0, "client", "bad_arguments", problem="x: {y}\n  - 'z' \x07")
        for n in range(9)
    ]
    return sorted(calls + bad, key=lambda one: one.began)


def without_times() -> list[Call]:
    return [
        call_at(f"d{n}", float(n), None, "dump", "ok" if n % 5 else "unreachable", timed=False)
        for n in range(50)
    ]


LOGS = {
    "one call": several(1),
    "one failed call": several(1, outcome="unreachable", status=None),
    "ten lines": several(10),
    "only successes": several(200),
    "only refusals": several(60, outcome="throttled", status=429, retry_after=1.0),
    "only lost connections": several(60, outcome="unreachable", status=None),
    "only hangs": [
        call(n, START + n, 13.0, outcome="transport_timeout", status=None) for n in range(40)
    ],
    "only bad gateways": several(60, outcome="sandbox_error", status=502),
    "only malformed calls": [
        call_at(f"c{n}", START + n, 0.0, "client", "bad_arguments") for n in range(30)
    ],
    "only cancelled": several(30, outcome="cancelled", status=None),
    "only program timeouts": [
        call(n, START + n, 70.0, outcome="program_timeout") for n in range(30)
    ],
    "half never ended": several(30)
    + [call(n, START + 3 + n, None, outcome=None, status=None) for n in range(30)],
    "nothing ended": [call(n, START + n, None, outcome=None, status=None) for n in range(30)],
    "no attempts": [call_at(f"c{n}", START + n, 0.1, "client", "throttled") for n in range(30)],
    "a hundred sandboxes": mixed_sandboxes(),
    "all at the same time": [call(n, START, 0.2) for n in range(50)],
    "no durations": [call(n, START + n, None, outcome=None, source="access") for n in range(50)],
    "a clock that jumped": jumping_clock(),
    "unprintable texts": unprintable(),
    "no times": without_times(),
    "a server's log": several(80, source="server"),
    "durations of zero": [call(n, START + n, 0.0) for n in range(50)],
    "redirects and lost clients": several(30, outcome=None, status=302)
    + several(30, outcome=None, status=499),
}


@pytest.mark.parametrize("name", LOGS)
def test_a_strange_log_gives_a_valid_scenario(name: str) -> None:
    calls = sorted(LOGS[name], key=lambda one: one.began)
    learned = learn(calls)
    text = scenario_text(learned, "learned", "a strange log")
    (scenario,) = parse_scenarios(text)
    assert scenario.load is not None
    assert scenario.load.calls == len(calls)
    assert text.isascii() or "\u2028" not in text


RUN = ("only lost connections", "no times", "unprintable texts")


@pytest.mark.parametrize("name", RUN)
def test_the_scenario_of_a_strange_log_ends_its_calls_alike(name: str) -> None:
    learned = learn(LOGS[name])
    checked = check(learned, scenario_text(learned, "learned", "a strange log"))
    outcomes = [row for row in checked.rows if row.name in learned.figures.outcomes]
    assert outcomes
    assert all(row.agrees for row in outcomes), outcomes


def test_the_shares_of_programs_do_not_depend_on_what_failed_otherwise() -> None:
    calls = several(30) + several(50, outcome="sandbox_error", status=502)
    bad = [
        call_at(f"b{n}", START + n, 0.0, "client", "bad_arguments", problem="no code")
        for n in range(20)
    ]
    fine, malformed = learn(sorted(calls + bad, key=lambda one: one.began)).programs
    assert (fine.outcome, fine.share) == ("ok", 80)
    assert (malformed.outcome, malformed.share) == ("bad_arguments", 20)


def test_a_server_whose_client_left_early_lost_the_connection() -> None:
    """A client that gives up after 20 ms would have given up on all the others too."""
    calls = several(80, source="server")
    left = [
        call(100 + n, START + n, 0.02, outcome="transport_timeout", status=None, source="server")
        for n in range(8)
    ]
    learned = learn(sorted(calls + left, key=lambda one: one.began))
    assert learned.headline == "lost"
    assert "default_timeout" not in learned.client


def test_time_that_calls_spend_in_the_client_is_remarked() -> None:
    busy = [replace(one, seconds=(one.seconds or 0.0) + 0.3) for one in several(60)]
    (remark,) = learn(busy).remarks
    assert "calls took 0.3 s longer than their requests and waits" in remark


def test_a_log_of_both_sides_is_learned_from_the_side_of_the_client() -> None:
    calls = several(60) + several(60, source="server")
    learned = learn(sorted(calls, key=lambda one: one.began))
    assert learned.figures.calls == 60
    assert "60 records of servers are left out" in learned.remarks[-1]


@pytest.mark.parametrize("count", [600, 4000])
def test_a_steady_share_of_failures_is_a_rate_and_a_cluster_of_them_a_burst(count: int) -> None:
    draw = random.Random(5)
    calls = several(count)
    for place in range(count):
        if draw.random() < (0.8 if 0.3733 * count <= place < 0.5267 * count else 0.03):
            failed = attempt_at(0.0, 0.001, "http://sandbox", 502, "sandbox_error")
            calls[place] = replace(
                calls[place], outcome=Outcome.SANDBOX_ERROR, attempts=[failed], seconds=0.001
            )
    burst, rate = learn(calls).sandboxes[0].failures
    assert (burst.kind, rate.kind) == ("burst", "rate")
    assert burst.between is not None
    assert burst.between[0] == pytest.approx(0.03733 * count, abs=0.4)
    assert burst.between[1] == pytest.approx(0.05267 * count, abs=0.4)
    assert burst.rate == pytest.approx(0.8, abs=0.05)
    assert rate.rate == pytest.approx(0.03, abs=0.02)
