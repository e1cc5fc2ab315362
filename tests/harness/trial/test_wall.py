"""The stage on the wall clock: blocking clients are served, waits are shortened, what never ends is
left behind."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from typing import Any

import pytest
import requests
from sfusion.harness.trial.plan import SandboxEvent, Scene, TrialCall, TrialPlan
from sfusion.harness.trial.record import PlayedScene, Record
from sfusion.harness.trial.sandbox import CanaryExecutor
from sfusion.harness.trial.wall import WallStage

from sfusion.fakes.sandbox.protocol import RunCode, RunCodeAnswer
from sfusion.harness.lab.client import TrialAsk
from sfusion.harness.lab.facts.truth import ProgramTruth
from sfusion.harness.lab.shapes import shape_of
from sfusion.harness.trial import wall
from sfusion.harness.trial.trial import judge_record


def post(base_url: str, code: str) -> Any:
    return requests.post(f"{base_url}/run_code", json={"code": code, "language": "python"}).json()


async def blocking(base_url: str, code: str) -> Any:
    """Block the event loop for as long as the sandbox takes."""
    return post(base_url, code)


def patient(base_url: str, code: str) -> Any:
    """Wait as long as it is asked to."""
    while True:
        answer = requests.post(f"{base_url}/run_code", json={"code": code, "language": "python"})
        if answer.status_code == 200:
            return answer.json()
        time.sleep(float(answer.headers["Retry-After"]))


def ask(name: str, **more: Any) -> TrialCall:
    return TrialCall(TrialAsk(name, f"# sfusion:call={name}\n"), "ok", **more)


def play(
    target: Any, *calls: TrialCall, command: tuple[str, ...] = (), **more: Any
) -> tuple[Record, PlayedScene]:
    names = [one.ask.call for one in calls]
    shape = shape_of(target, command=command)
    seconds = 0.0 if shape.child else 5.0
    scene = Scene(
        "only",
        calls,
        {name: (ProgramTruth(f"{name}\n", seconds=seconds),) for name in names},
        **more,
    )
    record = WallStage(
        TrialPlan(0, (scene,)), shape.make, child=shape.child, divide=shape.divide
    ).play()
    return record, record.scenes["only"]


def test_a_client_that_blocks_its_loop_is_served_and_its_waits_are_short() -> None:
    _, played = play(blocking, ask("c0", at=0.1), ask("c1", at=0.1))
    assert sorted(call.told.fields["stdout"] for call in played.calls if call.told) == [
        "c0\n",
        "c1\n",
    ]
    assert played.ended - played.began >= 10.0  # one program after the other
    assert {sent.status for sent in played.requests} == {200}


def test_sleeping_clients_are_shortened_too_and_see_the_time_pass() -> None:
    limited = {"name": "busy", "first_attempts": 1, "what": {"status": 429, "retry_after": 6.0}}
    _, played = play(patient, ask("one"), faults=(limited,))
    first, second = played.requests
    assert first.ended is not None
    assert second.at - first.ended >= 6.0


def never_ended(record: Record) -> list[str]:
    return [
        one.sentence
        for one in judge_record(record)
        if one.state == "broken" and one.promise == "ends_in_time"
    ]


def test_a_hanging_attempt_never_ends_and_a_retrying_client_is_only_left_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(wall, "_PATIENCE", 0.5)
    record, played = play(
        post, ask("stuck"), faults=({"name": "hang", "call": "stuck", "what": "hang"},)
    )
    assert [(call.ended_at, call.told) for call in played.calls] == [(None, None)]
    assert (played.scene.horizon, record.left_out) == (5.0, {})
    assert never_ended(record) == ["stuck: had not ended after 5 s"]
    lock = threading.Lock()  # the call that finds out its shape keeps it

    def leaking(base_url: str, code: str) -> Any:
        lock.acquire()
        return post(base_url, code)

    record, played = play(leaking, ask("waits"))
    assert [call.ended_at for call in played.calls] == [None]
    assert never_ended(record) == ["waits: had not ended after 5 s, and had sent nothing"]
    later = {"name": "busy", "what": {"status": 503, "retry_after": 100.0}}
    record, played = play(patient, ask("waits"), faults=(later,))
    assert (played.calls, played.requests) == ([], [])
    assert record.left_out == {"waits": "had not ended after 5 s, and was left behind"}


def test_a_sandbox_can_crash_and_the_clock_of_the_client_can_jump() -> None:
    seen: list[float] = []

    def clock(base_url: str, code: str) -> str:
        seen.append(time.time())
        try:
            return str(post(base_url, code)["run_result"]["stdout"])
        except requests.ConnectionError:
            return "down"

    events = (
        SandboxEvent(0.0, "crash"),
        SandboxEvent(2.0, "restart"),
        SandboxEvent(2.0, "clock_jump", seconds=3600.0),
    )
    _, played = play(clock, ask("early", at=1.0), ask("late", at=4.0), events=events)
    assert [call.told.text for call in played.calls if call.told] == ["down", "late\n"]
    assert seen[-1] - seen[-2] > 3600.0


def test_a_command_without_the_protocol_is_followed_by_its_first_request() -> None:
    loud = (
        "import os, time, urllib.request as r, urllib.error as e\n"
        'for body in (b\'{"code": "1", "language": "python"}\',) * 2:\n'
        "    try: r.urlopen(r.Request(os.environ['SANDBOX_FUSION_URL'] + '/run_code', body,"
        " {'Content-Type': 'application/json'})); break\n"
        "    except e.HTTPError: pass\n"
    )
    limited = {
        "name": "one",
        "call": "one",
        "first_attempts": 1,
        "what": {"status": 429, "retry_after": 1.0},
    }
    record, played = play(
        None, ask("one"), ask("untouched"), command=(sys.executable, "-c", loud), faults=(limited,)
    )
    assert record.takes == frozenset()
    assert [(sent.mark, sent.status) for sent in played.requests] == [("one", 429), ("one", 200)]
    assert [call.ask.call for call in played.calls] == ["one"]


@pytest.mark.parametrize(
    ("seconds", "broken"), [(7.0, set()), (3.0, {"programs_waited_for", "returns"})]
)
def test_a_sandbox_that_is_late_accuses_only_a_client_that_would_not_have_waited_for_a_punctual_one(
    seconds: float, broken: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run_code = CanaryExecutor.run_code

    async def late(self: CanaryExecutor, request: RunCode) -> RunCodeAnswer:
        await asyncio.sleep(20.0)
        return await run_code(self, request)

    def asks(base_url: str, code: str) -> Any:
        body = {"code": code, "language": "python"}
        return requests.post(f"{base_url}/run_code", json=body, timeout=seconds).json()

    shape = shape_of(asks)
    monkeypatch.setattr(CanaryExecutor, "run_code", late)
    scene = Scene("only", (ask("slow"),), {"slow": (ProgramTruth("done\n", seconds=5.0),)})
    verdicts = judge_record(WallStage(TrialPlan(0, (scene,)), shape.make).play())
    assert {one.promise for one in verdicts if one.state == "broken"} == broken


def test_the_tolerance_is_at_least_what_the_client_takes_for_a_plain_call() -> None:
    def busy(base_url: str, code: str) -> Any:
        began = time.thread_time()
        while time.thread_time() - began < 0.2:  # processor time: no clock makes it shorter
            pass
        return post(base_url, code)

    scene = Scene("programs", (ask("one"),), {"one": (ProgramTruth("done\n"),)})
    record = WallStage(TrialPlan(0, (scene,)), shape_of(busy).make).play()
    assert record.tolerance >= 0.2 * wall.SPEED
