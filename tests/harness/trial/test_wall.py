"""The stage on the wall clock: blocking clients are served, waits are shortened, what never ends is
left behind."""

from __future__ import annotations

import asyncio
import ctypes
import itertools
import math
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
import requests

from sfusion.fakes.sandbox.protocol import RunCode, RunCodeAnswer
from sfusion.harness.lab.promises import single_call_requests
from sfusion.harness.lab.scenarios.model import Scenario
from sfusion.harness.lab.shapes import shape_of
from sfusion.harness.lab.single_calls.suite import SuiteFacts, played_ends
from sfusion.harness.lab.worlds import clients_wall as wall
from sfusion.harness.lab.worlds.canary_sandbox import CanaryExecutor
from sfusion.harness.lab.worlds.clients_wall import WallTrial
from sfusion.harness.lab.worlds.lateness import Lateness
from sfusion.harness.trial.trial import PlayedScenes, check_facts, left_out
from tests.again import again


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


def scenario(*calls: dict[str, Any], name: str = "only", **more: Any) -> Scenario:
    about = "A test of the wall clock."
    return Scenario.from_data(
        {"scenario": name, "about": about, "load": {"each": [*calls]}, **more}
    )


def ask(**more: Any) -> dict[str, Any]:
    return {"prints": "{word}\n", "seconds": 5.0, **more}


def play(
    target: Any, *calls: dict[str, Any], command: tuple[str, ...] = (), **more: Any
) -> tuple[WallTrial, SuiteFacts]:
    trial = WallTrial(shape_of(target, command=command))
    found = trial.play([scenario(*calls, **more)])
    return trial, SuiteFacts([journal for _, journal in found])


def printed(facts: SuiteFacts) -> list[str]:
    """What the programs of the calls print."""
    return [call.truths[0].stdout for call in facts]


def test_a_client_that_blocks_its_loop_is_served_and_its_waits_are_short() -> None:
    _, facts = play(blocking, ask(at=0.1), ask(at=0.1))
    assert [call.returned.fields["stdout"] for call in facts if call.returned] == printed(facts)
    run = facts.runs[0]
    assert run.ended - run.began >= 10.0  # one program after the other
    assert {sent.status for sent in run.requests} == {200}


def test_sleeping_clients_are_shortened_too_and_see_the_time_pass() -> None:
    limited = {"first_attempts": 1, "what": {"status": 429, "retry_after": 6.0}}
    _, facts = play(patient, ask(fault=limited))
    first, second = facts.runs[0].requests
    assert first.ended is not None
    assert second.at - first.ended >= 6.0


def never_ended(facts: SuiteFacts) -> list[str]:
    return [
        one.sentence.partition(" [")[0]
        for one in check_facts(facts)
        if one.state == "broken" and one.promise == "deadline_honoured"
    ]


def test_a_hanging_attempt_never_ends_and_a_retrying_client_is_only_left_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(wall, "_PATIENCE", 0.5)
    trial, facts = play(post, ask(fault={"what": "hang"}))
    assert [(call.ended_at, call.returned) for call in facts] == [(None, None)]
    assert (facts.runs[0].horizon, trial.left_out) == (5.0, {})
    assert never_ended(facts) == ["call only c0001 had not ended after 5 s"]
    lock = threading.Lock()  # the call that finds out its shape keeps it

    def leaking(base_url: str, code: str) -> Any:
        lock.acquire()
        return post(base_url, code)

    _, facts = play(leaking, ask())
    assert [call.ended_at for call in facts] == [None]
    assert never_ended(facts) == ["call only c0001 had not ended after 5 s, and had sent nothing"]
    trial, facts = play(patient, ask(fault={"what": {"status": 503, "retry_after": 100.0}}))
    assert (facts.calls, facts.runs[0].requests) == ([], [])
    assert trial.left_out == {"only c0001": "had not ended after 5 s, and was left behind"}
    ends = next(one for one in check_facts(facts) if one.promise == "deadline_honoured")
    assert (ends.state, ends.how.kind) == ("unknown", "left_behind")


def test_a_sandbox_can_crash_and_the_clock_of_the_client_can_jump() -> None:
    seen: list[float] = []

    def clock(base_url: str, code: str) -> str:
        seen.append(time.time())
        try:
            return str(post(base_url, code)["run_result"]["stdout"])
        except requests.ConnectionError:
            return "down"

    # A busy machine is late: the first call has 2.9 real seconds to come while the sandbox is down.
    events = [{"at": 0.0, "crash": "sandbox", "seconds": 30.0}, {"at": 25.0, "clock_jump": 3600.0}]
    early = ask(at=1.0, together=True)
    late = ask(at=34.0, together=True)
    _, facts = play(clock, early, late, events=events)
    assert [call.returned.text for call in facts if call.returned] == ["down", printed(facts)[1]]
    assert seen[-1] - seen[-2] > 3600.0


def test_a_command_without_the_protocol_is_followed_by_its_first_request() -> None:
    loud = (
        "import os, time, urllib.request as r, urllib.error as e\n"
        'for body in (b\'{"code": "1", "language": "python"}\',) * 2:\n'
        "    try: r.urlopen(r.Request(os.environ['SANDBOX_FUSION_URL'] + '/run_code', body,"
        " {'Content-Type': 'application/json'})); break\n"
        "    except e.HTTPError: pass\n"
    )
    limited = {"first_attempts": 1, "what": {"status": 429, "retry_after": 1.0}}
    struck, untouched = ask(seconds=0.0, fault=limited), ask(seconds=0.0)
    _, facts = play(None, struck, untouched, command=(sys.executable, "-c", loud))
    assert facts.takes == frozenset()
    sent = [(request.mark, request.status) for request in facts.runs[0].requests]
    assert sent == [("c0001", 429), ("c0001", 200)]
    assert [call.call for call in facts] == ["c0001"]


@pytest.mark.parametrize(
    ("seconds", "broken"), [(7.0, set()), (3.0, {"programs_waited_for", "tool_never_raises"})]
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

    def played() -> SuiteFacts:
        return SuiteFacts([journal for _, journal in WallTrial(shape).play([scenario(ask())])])

    facts = again(played, until=lambda facts: not any(call.lagged for call in facts))
    verdicts = check_facts(facts)
    assert {one.promise for one in verdicts if one.state == "broken"} == broken


def test_the_tolerance_is_at_least_what_the_client_takes_for_a_plain_call() -> None:
    def busy(base_url: str, code: str) -> Any:
        began = time.thread_time()
        while time.thread_time() - began < 0.2:  # processor time: no clock makes it shorter
            pass
        return post(base_url, code)

    (_, journal), *_ = WallTrial(shape_of(busy)).play(
        [scenario(ask(seconds=0.0), name="judge-programs")]
    )
    assert SuiteFacts([journal]).tolerance >= 0.2 * wall.SPEED


def test_a_machine_that_stops_accuses_nobody_and_is_named() -> None:
    """A client that gives up after 3 s is right; the whole process stands still for longer."""
    stand_still = ctypes.PyDLL(None).usleep  # keeps the interpreter's lock
    calls = itertools.count()

    def lazily_importing(base_url: str, code: str) -> str:
        number = next(calls)
        try:
            answer = post(base_url, code)
        finally:
            if number == 2:
                stand_still(400_000)
        if number == 2:
            return "nobody knows whether it ran"
        return f"{answer['run_result']['stdout']}"

    shape = shape_of(lazily_importing)
    asks = [ask(seconds=0.0), ask(seconds=0.0), ask(end="may_have_run", fault={"what": "reset"})]
    played = PlayedScenes("wall")
    for scene, journal in WallTrial(shape).play([scenario(*asks)]):
        played.add(scene, journal)
    facts = SuiteFacts(played.journals)
    late = [call for call in facts if call.lagged]
    assert late
    assert not {call.call for call in late} & {call.call for call in played_ends(facts)}
    assert (
        "not judged; play again when it is idle" in left_out(shape, played, facts)["this machine"]
    )


def test_a_command_that_was_killed_does_not_fail_the_next_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stuck_once = (
        "import json, os, sys, time, urllib.request as r\n"
        "for line in sys.stdin:\n"
        "    ask = json.loads(line)\n"
        "    if ask['call'] == 'c0001': time.sleep(60)\n"
        "    body = json.dumps({'code': ask['code'], 'language': ask['language']}).encode()\n"
        "    sent = r.Request(os.environ['SANDBOX_FUSION_URL'] + '/run_code', body,"
        " {'Content-Type': 'application/json'})\n"
        "    told = json.load(r.urlopen(sent))['run_result']['stdout']\n"
        "    print(json.dumps({'call': ask['call'], 'text': told}), flush=True)\n"
    )
    monkeypatch.setattr(wall, "_PATIENCE", 2.0)
    asks = [ask(seconds=0.0, at=0.1), ask(seconds=0.0, at=0.1)]
    trial, facts = again(
        lambda: play(None, *asks, command=(sys.executable, "-c", stuck_once)),
        until=lambda played: "only c0002" not in played[0].left_out,
    )
    assert list(trial.left_out) == ["only c0001"]
    assert [call.returned.text for call in facts if call.returned] == printed(facts)


ANSWERS = (
    "import json, os, sys, time, urllib.request as r\n"
    "for line in sys.stdin:\n"
    "    ask = json.loads(line)\n"
    "    body = json.dumps({'code': ask['code'], 'language': ask['language']}).encode()\n"
    "    sent = r.Request(os.environ['SANDBOX_FUSION_URL'] + '/run_code', body,"
    " {'Content-Type': 'application/json'})\n"
    "    told = json.load(r.urlopen(sent))['run_result']['stdout']\n"
    "    if ask['call'] != SILENT:\n"
    "        print(json.dumps({'call': ask['call'], 'text': told}), flush=True)\n"
)


def noted_lags(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return the list that every look at how long the machine stood still will be added to."""
    lags: list[float] = []
    measured = Lateness.worst_since

    def noted(self: Lateness, stops: int) -> float:
        lags.append(measured(self, stops))
        return lags[-1]

    monkeypatch.setattr(Lateness, "worst_since", noted)
    return lags


def test_a_command_that_keeps_an_answer_to_itself_does_not_end_the_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mute = ANSWERS.replace("SILENT", "'c0001'")
    monkeypatch.setattr(wall, "_PATIENCE", 2.0)
    lags = noted_lags(monkeypatch)
    asks = [ask(seconds=0.0), ask(seconds=0.0)]
    trial, facts = again(
        lambda: play(None, *asks, command=(sys.executable, "-c", mute)),
        until=lambda played: any(lags) or not played[0].left_out,
    )
    if any(lags):  # then less is judged, and the trial says so
        assert list(trial.left_out) in ([], ["only c0001"])
        return
    assert trial.left_out == {}
    assert never_ended(facts) == ["call only c0001 had not ended after 2 s"]


def test_one_call_that_is_made_later_does_not_keep_the_others_together() -> None:
    """Four calls that take 9 s each, and one that a client makes a while later."""
    _, facts = play(post, *[ask(seconds=9.0)] * 4, ask(at=10.0, seconds=0.0))
    called = [call.asked_at for call in facts if call.planned.part.at == 0.0]
    ended = [call.ended_at for call in facts if call.planned.part.at == 0.0]
    assert len(called) == 4
    assert max(called) < min(end for end in ended if end is not None)


def test_calls_for_which_there_was_no_time_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wall, "LONGEST", 1.0)
    monkeypatch.setattr(wall, "_LAST", 0.2)
    trial, _ = play(post, *[ask(at=0.1)] * 5)
    assert trial.left_out["only"].endswith(" of 5 calls, as the time was over")


def again_and_again(pause: Callable[[], None] | None) -> Callable[[str, str], str]:
    def tries(base_url: str, code: str) -> str:
        for _ in range(4):
            answer = requests.post(
                f"{base_url}/run_code", json={"code": code, "language": "python"}
            )
            if answer.status_code == 200:
                return str(answer.json()["run_result"]["stdout"])
            if pause is not None:
                pause()
        return "busy"

    return tries


def elsewhere() -> None:
    """Pause in a thread that is joined, of which the caller's thread shows nothing."""
    waiting = threading.Thread(target=lambda: time.sleep(0.5))
    waiting.start()
    waiting.join()


@pytest.mark.parametrize(
    ("pause", "state"),
    [
        (None, "broken"),
        (lambda: time.sleep(0.2), "held"),
        (lambda: threading.Event().wait(0.2), "held"),
        (elsewhere, "held"),
    ],
)
def test_a_client_that_never_pauses_is_known_by_its_thread_not_by_time(
    pause: Callable[[], None] | None, state: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(single_call_requests, "_UNSEEN", math.inf)  # the machine may be busy
    busy = ask(end="throttled", fault={"what": {"status": 429}})
    _, facts = play(again_and_again(pause), busy, busy)
    found = [one for one in check_facts(facts) if one.promise == "retry_after_honoured"]
    assert {(one.state, one.how.kind if one.state == "broken" else "") for one in found} == {
        (state, "hammered" if state == "broken" else "")
    }
