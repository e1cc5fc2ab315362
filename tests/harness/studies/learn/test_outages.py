"""An outage of one sandbox of several is seen by few requests, because the client goes to the
others."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from sfusion.harness.core.logs.reading import read_records
from sfusion.harness.lab.scenarios import parse_scenarios
from sfusion.harness.studies.learn.attempts import joined
from sfusion.harness.studies.learn.check import check
from sfusion.harness.studies.learn.draft import scenario_text
from sfusion.harness.studies.learn.learned import learn
from sfusion_tools.record import Call
from tests.harness.studies.learn.records import call


def two_sandboxes(lost: list[float], again: float) -> list[Call]:
    """The second one loses requests at some times, and is not used until somebody finds it well
    again."""
    calls = []
    for n in range(400):
        at = 0.05 * n
        name = "b" if n % 2 and not lost[0] <= at < again else "a"
        calls.append(call(n, 1e9 + at, 0.2, sandbox=f"http://{name}"))
    facts = {"outcome": "unreachable", "status": None, "sandbox": "http://b"}
    calls += [call(1000 + n, 1e9 + at, 0.01, **facts) for n, at in enumerate(lost)]  # type: ignore[arg-type]
    return sorted(calls, key=lambda one: one.began)


def test_failures_seconds_apart_without_an_answer_between_them_are_an_outage() -> None:
    learned = learn(two_sandboxes([5.0, 5.01, 8.0], again=11.0))
    assert learned.headline == "crash"
    (event,) = parse_scenarios(scenario_text(learned, "x", "a test"))[0].events
    assert (event.at, event.seconds) == (pytest.approx(5, abs=0.1), pytest.approx(4.5, abs=0.2))


def test_an_outage_that_lasts_until_the_log_ends_does_not_end_in_the_scenario() -> None:
    learned = learn(two_sandboxes([5.0, 5.01, 8.0, 13.0], again=math.inf))
    assert learned.causes[0].says == "down from 5.01 s to the end of the log"
    text = scenario_text(learned, "x", "a test")
    (event,) = parse_scenarios(text)[0].events
    assert (event.kind, event.seconds) == ("crash", None)
    checked = check(learned, text)
    assert checked.agrees, checked


def test_a_server_that_gives_no_answer_any_more_does_not_come_back() -> None:
    calls = [call(n, 1e9 + 0.1 * n, 0.2) for n in range(200)]
    calls += [
        call(n, 1e9 + 0.1 * n, 5.0, outcome="transport_timeout", status=None)
        for n in range(200, 300)
    ]
    learned = learn(calls)
    assert learned.headline == "wedge"
    (event,) = parse_scenarios(scenario_text(learned, "x", "a test"))[0].events
    assert (event.kind, event.seconds) == ("wedge", None)


def test_two_lost_requests_at_the_same_moment_are_not_an_outage() -> None:
    learned = learn(two_sandboxes([5.0, 5.01, 5.02], again=5.05))
    assert learned.headline == "lost_burst"


def test_a_restart_in_the_server_s_own_log_is_a_restart(tmp_path: Path) -> None:
    """Two commands run when it is killed: too few for an outage without the line of its start."""

    def line(at: float, text: str) -> str:
        when = f"2025-11-15T09:{int(at // 60):02}:{at % 60:09.6f}Z"
        return f"{when} [debug    ] {text} [sandbox.runners.base]\n"

    lines = []
    for number in range(100):
        at = 0.5 * number + (20 if number >= 50 else 0)
        lines.append((at, line(at, f"running command python /tmp/{number}.py")))
        if number not in (48, 49):
            ended = at + 0.7
            lines.append((ended, line(ended, f"stop running command python /tmp/{number}.py")))
    lines.append((44.0, "INFO:     Started server process [1]\n"))
    log = tmp_path / "server.log"
    log.write_text("".join(text for _, text in sorted(lines)))
    learned = learn(joined(read_records([log])))
    assert learned.headline == "crash"
    assert learned.causes[0].says.startswith("the server was restarted: down for 20.5 s")
    assert learned.causes[0].lost == pytest.approx(0.02)
    (event,) = parse_scenarios(scenario_text(learned, "x", "a test"))[0].events
    assert (event.at, event.seconds) == (pytest.approx(24.5), pytest.approx(20.5))
