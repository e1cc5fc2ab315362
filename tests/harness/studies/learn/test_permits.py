"""The client's own limit is named where requests waited for it."""

from __future__ import annotations

import asyncio
import heapq
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from sfusion.fakes.sandbox import FakeSandbox
from sfusion.harness.core.logs.reading import read_records
from sfusion.harness.lab.scenarios import parse_scenarios
from sfusion.harness.lab.worlds.virtual_time import run_virtually
from sfusion.harness.studies.learn.attempts import timed_requests
from sfusion.harness.studies.learn.draft import scenario_text
from sfusion.harness.studies.learn.knowledge import experiment
from sfusion.harness.studies.learn.learned import learn
from sfusion.harness.studies.learn.permits import find_permit_waits
from sfusion_tools import event_log
from sfusion_tools.outcome import Outcome
from sfusion_tools.record import Call
from sfusion_tools.sandbox import call_log
from sfusion_tools.sandbox_fusion_tools import SandboxFusionTool
from tests.cases import every
from tests.harness.studies.learn.records import call
from tests.harness.studies.made_calls import attempt_at, call_at


def limited(limit: int, count: int, late: float) -> list[Call]:
    """Twice as many callers as permits, so each call waits as long as it runs; ends are noticed
    ``late``."""
    calls = []
    for n in range(count):
        began = 1e9 + n // limit * 0.2 + n % limit * 0.01
        attempt = attempt_at(0.2, 0.2 + late, "http://sandbox", 200, "ok", waited=0.2)
        calls.append(replace(call(n, began - 0.2, 0.4 + late), attempts=[attempt]))
    return calls


def test_a_client_that_waits_for_its_own_permits_is_the_cause() -> None:
    learned = learn(limited(4, 400, 0.00001))
    assert learned.client["rate_limit"][0] == 4
    assert learned.headline == "rate_limit"
    says = (
        "limited by the client's own rate_limit 4: 50% of the time is waits for a "
        "permit; or by a server that is"
    )
    assert learned.causes[0].says.startswith(
        says
    )  # with always the same load, this log does not tell
    assert learned.causes[0].evidence.startswith(
        "400 of 400 requests waited for a permit, 0.2 s each"
    )


def test_requests_that_wait_because_many_fail_are_not_the_main_cause() -> None:
    calls = limited(4, 400, 0.0)
    for n in range(0, 400, 3):
        failed = replace(calls[n].attempts[0], status=502, outcome=Outcome.SANDBOX_ERROR)
        calls[n] = replace(calls[n], outcome=Outcome.SANDBOX_ERROR, attempts=[failed])
    assert [one.kind for one in learn(calls).causes] == ["status_502", "rate_limit"]


def served(limits: dict[str, int], callers: dict[str, int], calls: int = 400) -> list[Call]:
    """A production of several processes: each key of ``limits`` lets so many requests through, of
    the processes whose names begin with it."""
    draw = random.Random(1)
    ready = [(draw.random(), process) for process, count in callers.items() for _ in range(count)]
    heapq.heapify(ready)
    ends: dict[str, list[float]] = {limiter: [0.0] * limit for limiter, limit in limits.items()}
    made = []
    for number in range(calls):
        began, process = heapq.heappop(ready)
        own = ends[next(limiter for limiter in limits if process.startswith(limiter))]
        sent = max(began, heapq.heappop(own))
        took = draw.lognormvariate(-1.2, 0.5)
        heapq.heappush(own, sent + took)
        heapq.heappush(ready, (sent + took + draw.expovariate(5), process))
        attempt = attempt_at(sent, took, "http://sandbox", 200, "ok", waited=sent - began)
        done = call_at(f"c{number}", began, sent + took - began, "client", "ok", process, [attempt])
        made.append(done)
    return sorted(made, key=lambda one: one.began)


OF_EACH = {"a": 4, "b": 4, "c": 4, "d": 4}
BUSY = {"a": 12, "b": 12, "c": 12, "d": 12}


@every(
    (
        (OF_EACH, BUSY, (4, 16), "4 in each of 4 processes (16 in all)"),
        (OF_EACH, {**BUSY, "d": 1}, (4, 16), "4 in each of 4 processes (16 in all)"),
        ({"a": 2, "b": 5}, {"a": 9, "b": 9}, (2, 7), "2 to 5 in each of 2 processes (7 in all)"),
        (dict.fromkeys(BUSY, 1), BUSY, (4, 4), "1 in each of 4 processes (4 in all)"),
        ({"a": 4}, {"a": 12}, (1, 4), "4"),
        ({"": 16}, BUSY, (1, 16), "16"),
        ({"": 16}, {**BUSY, "d": 1}, (1, 16), "16"),
        ({"": 1}, BUSY, (1, 1), "1"),
    ),
    str,
)
def test_processes_with_limiters_of_their_own_are_told_from_those_that_share_one(
    case: tuple[dict[str, int], dict[str, int], tuple[int, int], str],
) -> None:
    """Also where one of them has few callers, and so permits to spare."""
    limits, callers, (processes, limit), says = case
    learned = learn(served(limits, callers))
    assert (learned.processes, learned.client["rate_limit"][0]) == (processes, limit)
    (cause,) = [one for one in learned.causes if one.kind == "rate_limit"]
    assert cause.says.startswith(f"limited by the client's own rate_limit {says}: ")


def test_processes_that_were_started_again_count_once() -> None:
    before = served(OF_EACH, BUSY)
    later = max(one.ended for one in before) + 10_000.0
    after = [replace(one, began=one.began + later, worker=f"{one.worker}2") for one in before]
    learned = learn([*before, *after])
    assert (learned.processes, learned.client["rate_limit"][0]) == (4, 16)


@every(((12, 16, "3 in each of"), (24, 16, "6 in each of"), (6, 8, "1 in each of")), str)
def test_an_experiment_names_the_limit_of_each_process(case: tuple[int, int, str]) -> None:
    limit, in_flight, says = case
    assert f"with rate_limit {says} 4 processes (if" in experiment(limit, in_flight, 1, 4)


def test_an_experiment_with_processes_that_have_one_permit_each() -> None:
    assert "with 3 of 4 processes, rate_limit 1 in each (if" in experiment(3, 4, 1, 4)
    assert "with rate_limit 2 in each of 4 processes (if" in experiment(6, 4, 1, 4)


def test_the_learned_scenario_names_total_and_processes() -> None:
    learned = learn(served(OF_EACH, BUSY))
    assert "with rate_limit 3 in each of 4 processes (if" in learned.knowledge.unknown
    assert "with rate_limit 3 in each of 4 processes (if" in learned.doubted("").knowledge.unknown
    text = scenario_text(learned, "x", "x")
    words = " ".join(text.replace("#", "").split())
    assert "this is the total of 4 processes, each with a limiter of its own" in words
    (cell,) = parse_scenarios(text)
    assert cell.observed is not None
    assert (cell.stated_limit, cell.observed.processes) == (16, 4)


def limiters_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Call]:
    """The event logs of four tools with a limiter of their own, as four processes have them."""
    monkeypatch.setattr(event_log, "tells_real_time", lambda loop: True)
    names = ("a", "b", "c", "d")

    async def go() -> None:
        loop = asyncio.get_running_loop()
        monkeypatch.setattr(call_log, "time", SimpleNamespace(time=lambda: 1e9 + loop.time()))
        draw = random.Random(1)
        async with FakeSandbox(executor="scripted") as sandbox:

            async def caller(tool: SandboxFusionTool, name: str) -> None:
                for number in range(6):
                    seconds = draw.lognormvariate(-1.2, 0.5)
                    code = f"# sfusion:call={name}-{number} seconds={seconds:.3f}"
                    await tool.execute("t", {"code": code}, call_id=f"{name}-{number}")

            made = []
            for name in names:
                config = {
                    "sandbox_fusion_url": sandbox.url,
                    "limiter": "local",
                    "limiter_name": f"{tmp_path}-{name}",
                    "rate_limit": 4,
                    "event_log": str(tmp_path / f"{name}.ndjson"),
                }
                tool = SandboxFusionTool(config)
                made += [caller(tool, f"{name}{number}") for number in range(10)]
            await asyncio.gather(*made)

    run_virtually(go())
    event_log.flush_event_logs()
    for name in names:
        for record in read_records(sorted(tmp_path.glob(f"{name}.*"))):
            yield replace(record, worker=name)


def test_tools_with_local_limiters_are_processes_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = sorted(limiters_of_their_own(tmp_path, monkeypatch), key=lambda call: call.began)
    assert len(calls) == 240
    learned = learn(calls)
    assert (learned.processes, learned.client["rate_limit"][0]) == (4, 16)
    assert "rate_limit 4 in each of 4 processes (16 in all)" in learned.causes[0].says


def test_waits_in_vain_are_a_part_of_the_share() -> None:
    requests = timed_requests(limited(4, 40, 0.0), 1e9, 1e9 + 10.0)
    waits = find_permit_waits(requests)
    assert waits is not None
    assert waits.share == pytest.approx(0.5)
    waits = find_permit_waits(requests, [2.0] * 4)
    assert waits is not None
    assert (waits.share, waits.without) == (pytest.approx(2 / 3), 4)
