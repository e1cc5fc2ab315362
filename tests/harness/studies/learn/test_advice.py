"""The advice that follows from a log: what was measured on a real Sandbox Fusion, and a part of the
round trips.

``python -m benchmarks.advice_round_trips`` makes all of them.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.advice_round_trips import productions, round_trip, sweep
from sfusion.harness.lab.promises import RunEvents
from sfusion.harness.lab.runs.runner import run_one, run_scenario
from sfusion.harness.lab.runs.tasks import Task
from sfusion.harness.lab.scenarios import parse_scenarios
from sfusion.harness.studies.learn.attempts import TimedAttempt
from sfusion.harness.studies.learn.check import check
from sfusion.harness.studies.learn.draft import scenario_text
from sfusion.harness.studies.learn.knowledge import limit_to_try, limits_seen
from sfusion.harness.studies.learn.learned import Learned, learn
from sfusion.harness.studies.look.digest import Digest
from sfusion.harness.studies.look.overview import overview
from sfusion_tools.record import Attempt, Call
from tests.cases import every
from tests.harness.studies.learn.records import write_log
from tests.harness.studies.learn.test_learn_command import sfusion
from tests.harness.studies.made_calls import attempt_at, call_at

VALUES = "tools.rate_limit=4,16"
PART = ("06 cores, right", "23 quota, pausing")
PART_VALUES = "tools.rate_limit=2,4,16"
MEASURED: dict[str, Any] = {
    "tools": {"rate_limit": 16, "default_timeout": 6},
    "load": {"calls": 250, "concurrency": 32, "program": {"seconds": {"lognormal": [0.3, 0.6]}}},
}


def played(**data: Any) -> list[Call]:
    (result,) = run_scenario(
        {"scenario": "x", "about": "x", "promises": ["every_call_ends_once"], **data}, check=False
    )
    return list(RunEvents(result.journal).records)


def advised(learned: Learned) -> tuple[Any, str]:
    """What is recommended for a learned scenario, and the last line of the sweep."""
    (cell,) = parse_scenarios(scenario_text(learned, "learned", "a log"))
    result = sweep(cell, 1, values=VALUES)
    return None if result.overall is None else result.overall[
        0
    ], result.headline + "; " + "; ".join(result.sentences())


@pytest.mark.parametrize("kind", PART)
def test_the_advice_from_a_log_is_that_for_its_production(kind: str) -> None:
    (production,) = (one for one in productions() if one.name == kind)
    found = round_trip(production, 1, None, PART_VALUES)
    assert found.verdict in ("same", "neighbour"), found


def test_a_server_that_was_always_equally_full_is_not_blamed_on_the_client() -> None:
    learned = learn(played(**MEASURED, sandbox={"model": {"kind": "unbounded", "cores": 2}}))
    assert "or by a server that is full with as many" in learned.causes[0].says
    value, says = advised(learned)
    assert value is None
    assert says.startswith("tools.rate_limit: cannot tell")
    assert "with rate_limit 12 (if as many calls end per second, go on by a quarter" in says
    assert "sfusion doctor URL --sweep --log EVENTS" in says
    assert learned.knowledge.unknown in scenario_text(learned, "x", "x").replace("\n    ", " ")


def played_before_and_after(pause: float, **sandbox: Any) -> list[Call]:
    """The production, and after a pause again with fewer in flight, as an experiment."""
    before = played(**MEASURED, sandbox=sandbox)
    fewer = {**MEASURED["tools"], "rate_limit": limit_to_try(16)}
    begin = max(call.ended for call in before) + pause
    after = played(**{**MEASURED, "tools": fewer}, seed=9, sandbox=sandbox)
    later = [replace(call, began=call.began + begin, call=f"{call.call}b") for call in after]
    return [*before, *later]


@every(({"cores": 2}, {}), str)
def test_the_experiment_that_is_proposed_tells(model: dict[str, Any]) -> None:
    """The production runs on with a quarter less in flight: a server that was full does as much."""
    log = played_before_and_after(0.0, model={"kind": "unbounded", **model})
    learned = learn(log)
    known = learned.knowledge
    if model:
        assert (known.least, known.most) == (12, 16)
        assert known.unknown.startswith("in this log 12 in flight did as much as 16")
        assert "with rate_limit 9" in known.unknown
        value, says = advised(learned)
        assert value == 16, "the least of 4 and 16 that the log tells about"
        assert "16 is the lowest value here that did as much in the log" in says
    else:
        assert "the server was not full with them" in known.unknown
        assert "with rate_limit 24" in known.unknown


def test_limits_before_and_after_a_night_are_compared(tmp_path: Path) -> None:
    """The scenario is that of one side; which one, does not matter."""
    log = played_before_and_after(40_000.0, model={"kind": "unbounded", "cores": 2})
    file = write_log(tmp_path / "events.ndjson", log)
    told = sfusion("learn", file, "--to", tmp_path / "x.yaml")[1]
    assert "250 of 500 calls, the stretch of" in told
    assert "in this log 12 in flight did as much as 16" in told
    assert "run 1 minute with rate_limit 9" in told


@every((0.0, 240.0, 40_000.0), str)
def test_what_the_log_compared_is_recommended_whatever_the_simulation_says(
    pause: float, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("compared")
    log = played_before_and_after(pause, model={"kind": "unbounded", "cores": 2})
    file = write_log(folder / "events.ndjson", log)
    learned = folder / "x.yaml"
    sfusion("learn", file, "--to", learned)
    values = "tools.rate_limit=8,12,16"
    code, swept, _ = sfusion("sweep", learned, "--vary", values, "--seeds", "1")
    assert code == 0, swept
    assert swept.splitlines()[-1] == "tools.rate_limit: 12"


def requests_held_to(
    limits: Sequence[int], each: int = 240, pause: float = 1e5
) -> list[TimedAttempt]:
    """Requests of which so many are under way, and the others wait for a permit, after pauses."""
    found: list[TimedAttempt] = []
    start = 0.0
    for limit in limits:
        for number in range(each):
            began = start + number / limit
            waited = 1.0 if number >= limit else 0.0
            sent = Attempt(1, outcome="ok", seconds=0.999, waited=waited)
            found.append(TimedAttempt(began, began + 0.999, "answered", sent))
        start = found[-1].ended + pause
    return found


@every(range(1, 65), str)
def test_an_experiment_is_another_limit(limit: int) -> None:
    other = limit_to_try(limit)
    seen = limits_seen(requests_held_to((limit, other)))
    assert [one.limit for one in seen] == sorted((limit, other))
    for one in seen:
        assert one.per_second == pytest.approx(one.limit, rel=0.1), "a pause is no time of work"
    assert limit == 1 or other > limit / 2


def test_a_pause_in_the_middle_of_a_part_is_no_time_of_work() -> None:
    requests = requests_held_to((16, 12), pause=240)
    for skipped in (1, 7, 12):
        rates = [one.per_second for one in limits_seen(requests[skipped:])]
        assert rates == pytest.approx([12, 16], rel=0.1)


def test_the_same_server_in_steps_shows_its_cores() -> None:
    load = {**MEASURED["load"], "steps": 5, "step_pause": 1}
    learned = learn(
        played(**{**MEASURED, "load": load}, sandbox={"model": {"kind": "unbounded", "cores": 2}})
    )
    assert learned.headline == "contention"
    assert learned.sandboxes[0].slowness.model["cores"] == pytest.approx(2, rel=0.5)
    assert advised(learned)[0] == 4
    assert not [one for one in learned.programs if one.outcome == "program_timeout"]


def test_a_cost_for_each_start_is_learned_although_all_requests_met_the_same_load() -> None:
    learned = learn(
        played(**MEASURED, sandbox={"model": {"kind": "unbounded", "cores": 2, "spawn_cost": 0.3}})
    )
    assert learned.headline == "spawn"
    assert learned.sandboxes[0].slowness.model["spawn_cost"] == pytest.approx(0.3, rel=0.05)
    assert advised(learned)[0] == 4


def saturated(calls: int = 250, limit: int = 16, seed: int = 5) -> list[Call]:
    """As logged on the real server: requests take 4.6 s by the median, and their programs run for 1
    s of them."""
    draw, free, ends = random.Random(seed), [0.0] * 4, [0.0] * limit
    found = []
    for number in range(calls):
        ends.sort()
        began = ends[0]
        free.sort()
        run = min(draw.lognormvariate(0.0, 0.6), 6.0 + abs(draw.gauss(0, 0.8)))
        start = max(began, free[0]) + draw.uniform(0.05, 0.15)
        free[0] = ends[0] = start + run
        outcome = "program_timeout" if run >= 6.0 else "ok"
        made = attempt_at(began, start + run - began, "s", 200, outcome, began, execution_time=run)
        found.append(call_at(f"c{number}", 0.0, start + run, "client", outcome, "w", (made,)))
    return found


def test_a_queue_before_the_programs_is_the_server_s_and_not_the_programs_own_time() -> None:
    learned = learn(saturated())
    assert learned.headline == "queue"
    assert learned.sandboxes[0].slowness.model == {"kind": "queue", "workers": 4}
    assert learned.programs[0].seconds is not None
    assert learned.programs[0].seconds.median == pytest.approx(1.0, rel=0.2)
    assert advised(learned)[0] == 4


def stuck(calls: int = 400, limit: int = 32, since: int = 190) -> list[Call]:
    """As logged on the real server behind a shell that hung: from some call on, no program ended
    before its time limit."""
    draw, ends = random.Random(3), [0.0] * limit
    found = []
    for number in range(calls):
        ends.sort()
        began = ends[0]
        run = 10.0 if number >= since else draw.lognormvariate(1.5, 0.4)
        outcome = "program_timeout" if run >= 10.0 else "ok"
        ends[0] = began + run + 0.1
        made = attempt_at(began, run + 0.1, "s", 200, outcome, began, execution_time=run)
        found.append(call_at(f"c{number}", 0.0, ends[0], "client", outcome, "w", (made,)))
    return found


@every((190, 330), str)
def test_no_number_comes_from_a_log_in_which_many_programs_were_stopped(since: int) -> None:
    learned = learn(stuck(since=since))
    value, says = advised(learned)
    assert value is None, says
    assert "of the programs ran into their time limit: the log does not tell whether" in says
    assert "with rate_limit 24 (if as many calls end per second, go on by a quarter" in says


def test_the_time_limit_of_programs_is_read_from_how_long_they_ran() -> None:
    ran = [6.0, 6.1, 6.4, 7.0, 8.7]
    calls = []
    for n in range(40):
        began = 10.0 * n
        took = 9.0 + n % 7
        end = "program_timeout"
        attempt = attempt_at(began, took, "s", 200, end, execution_time=ran[n % 5])
        made = call_at(f"c{n}", began, took, outcome=end, worker="w", attempts=(attempt,))
        calls.append(made)
    assert learn(calls).client["default_timeout"][0] == 6


def test_failures_that_lose_calls_come_before_a_quota_that_only_slows() -> None:
    learned = learn(
        played(
            tools={"rate_limit": 16, "max_attempts": 2},
            sandbox={
                "model": {"kind": "quota", "in_flight": 4, "retry_after": 0.5},
                "faults": [
                    {"name": "e", "between": [10, 60], "probability": 0.6, "what": {"status": 500}}
                ],
            },
            load={
                "calls": 180,
                "concurrency": 16,
                "program": {"seconds": {"lognormal": [0.3, 0.4]}},
            },
        )
    )
    assert [cause.kind for cause in learned.causes][:2] == ["status_500_burst", "quota"]


def test_sandboxes_that_are_down_together_are_one_cause() -> None:
    events = [{"at": 4, "crash": f"sandbox-{number}", "seconds": 3} for number in (1, 2, 3)]
    load = {"calls": 150, "concurrency": 12, "program": {"seconds": {"lognormal": [0.3, 0.4]}}}
    learned = learn(
        played(tools={"rate_limit": 12}, sandbox={"instances": 3}, events=events, load=load)
    )
    down = [cause for cause in learned.causes if cause.kind == "crash"]
    assert [cause.says.partition(":")[0] for cause in down] == ["all 3 sandboxes"]
    assert learned.headline == "crash"


def limited(limits: tuple[int, ...], each: int = 60, **rates: float) -> list[Call]:
    """Calls that wait for permits of one limit after the other; the server answers two per second
    for each, or at most what ``at_16``, say, states."""
    found, now, number = [], 0.0, 0
    for limit in limits:
        rate = min(limit / 0.5, rates.get(f"at_{limit}", math.inf))
        for place in range(each):
            began = now + place / rate
            took = limit / rate
            made = attempt_at(began, took, "s", 200, "ok", 1.0, execution_time=0.5)
            found.append(
                call_at(f"c{number}", began - 1.0, took + 1.0, "client", "ok", "w", (made,))
            )
            number += 1
        now += each / rate + limit / rate
    return found


def test_where_a_log_shows_several_limits_throughput_is_compared_at_each() -> None:
    learned = learn(limited((4, 16, 4, 16)))
    assert [(one.limit, round(one.per_second)) for one in learned.limits] == [(4, 8), (16, 32)]
    rows = {row.name: row for row in check(learned, scenario_text(learned, "x", "x")).rows}
    assert rows["per second at rate_limit 4"].agrees
    assert learn(limited((8, 8))).limits == ()


def test_what_is_in_flight_at_a_pace_is_no_limit() -> None:
    """More are there by chance at times; that more per second end then shows nothing."""
    (production,) = (one for one in productions() if one.name == "58 pace, wide")
    calls = RunEvents(run_one(Task(production.scenario, "sim")).journal).records
    learned = learn(calls)
    assert learned.client["requests_per_second"][0] == pytest.approx(16, rel=0.05)
    assert learned.limits == ()


def test_where_more_in_flight_did_less_no_more_are_recommended() -> None:
    """A server that loses much to more programs than it has cores."""
    learned = learn(limited((8, 4), each=150, at_8=2.5, at_4=4.0))
    value, says = advised(learned)
    assert value == 4
    assert "in this log 4 in flight did more than 7 (4 and 2.5 calls per second while" in says
    assert "with rate_limit 3 (if as many" in says


def test_a_scenario_in_which_another_limit_is_the_best_is_far_from_its_log() -> None:
    learned = learn(limited((8, 4), each=120, at_8=2.5, at_4=4.0))
    checked = check(learned, scenario_text(learned, "x", "x"))
    off = [row for row in checked.rows if row.name.startswith("per second at") and not row.agrees]
    assert off
    assert all(row.is_far for row in off)
    assert off[0].name in checked.doubt


def test_where_cores_are_vague_and_programs_are_stopped_no_number_is_given() -> None:
    """Two cores, 32 in flight, and programs that are stopped after 5 s because of that."""
    learned = learn(
        played(
            tools={"rate_limit": 32, "default_timeout": 5},
            load={**MEASURED["load"], "concurrency": 48},
            sandbox={"model": {"kind": "unbounded", "cores": 2}},
        )
    )
    assert learned.figures.share("program_timeout") > 0.02
    value, says = advised(learned)
    assert value is None, says
    assert "with rate_limit 24" in says


KILLED, BACK = 21.0, 41.0


def outage() -> list[Call]:
    """A server is killed and started again; calls wait for permits for up to 13 s, and are then
    refused at once."""
    found = []
    for number in range(600):
        began = number * 0.1
        granted = began + (13.0 if began >= KILLED - 13 else 0.0)
        is_down = KILLED <= granted < BACK
        took = 0.01 if is_down else 0.3
        outcome = "unreachable" if is_down else "ok"
        made = attempt_at(granted, took, "s", None if is_down else 200, outcome, granted - began)
        found.append(
            call_at(f"c{number}", began, granted + took - began, "client", outcome, "w", (made,))
        )
    return found


def test_an_outage_stands_where_attempts_failed_and_refusals_are_not_fast_answers() -> None:
    digest = Digest()
    for call in outage():
        digest.add(call)
    found = overview(digest)
    worse, better = (turn for turn in found.turns if turn.what == "failed")
    assert (worse.at, better.at) == (pytest.approx(KILLED, abs=0.5), pytest.approx(BACK, abs=0.5))
    assert not [turn for turn in found.turns if turn.what == "duration" and not turn.worse]
    assert found.sandboxes[0].p50 == pytest.approx(0.3, rel=0.02)


@every((True, False), str)
def test_what_the_model_read_is_quoted_as_it_was(may_have_run: bool) -> None:
    read = (
        "The code may have run, but its output is lost."
        if may_have_run
        else "The code did not run."
    )
    digest = Digest()
    digest.add(
        call_at(
            "c",
            1.0,
            2.0,
            "client",
            "unreachable",
            "w",
            (attempt_at(1.0, 2.0, "s", None, "unreachable"),),
            read=read,
        )
    )
    assert overview(digest).read == [("unreachable", 1, read)]
    plain = Digest()
    plain.add(call_at("c", 1.0, 2.0, "client", "unreachable", "w"))
    assert "run" not in overview(plain).read[0][2].rpartition(")")[2]
