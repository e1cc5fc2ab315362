"""What a call leaves in the queue of the event log."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest

from sfusion_tools import event_log
from sfusion_tools.event_log import EventLogSettings, open_event_log
from sfusion_tools.outcome import Outcome
from sfusion_tools.record import Attempt
from sfusion_tools.sandbox.call_log import CallLog
from sfusion_tools.sandbox.program import Program
from sfusion_tools.sandbox.result import CallResult

PROGRAM = Program("print(1)" * 100)
ATTEMPT = Attempt(1, "http://10.0.0.1", Outcome.OK, 200, "", True, waited=1.5, seconds=0.5)


def log_of(folder: Path, include: tuple[Any, ...]) -> tuple[CallLog, event_log.EventLog]:
    settings = EventLogSettings(path=str(folder / "events.ndjson"), include=include)
    return CallLog(settings), open_event_log(settings)


@pytest.mark.parametrize(("include", "kept"), [((), 2), (("code",), 1)])
def test_calls_beyond_the_bound_of_the_queue_are_dropped(tmp_path, monkeypatch, include, kept):
    monkeypatch.setattr(event_log, "MOST_QUEUED", event_log.LINE)
    calls, log = log_of(tmp_path, include)
    for _ in range(2):
        for _ in range(5):
            calls.ended(log, CallResult("c1", Outcome.OK, attempts=[ATTEMPT]), PROGRAM)
        log.flush()
    (path,) = tmp_path.iterdir()
    assert (len(path.read_text().splitlines()), log.dropped) == (2 * kept, 2 * (5 - kept))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_that_goes_on_with_the_loop_of_its_parent_writes_its_calls(tmp_path):
    calls, log = log_of(tmp_path, ())

    async def call() -> None:
        loop = asyncio.get_running_loop()
        known, found = calls.known
        found = found if known() is loop else calls.enter(loop)
        assert found is log
        calls.ended(log, CallResult("c1", Outcome.OK, attempts=[ATTEMPT]), PROGRAM)

    with asyncio.Runner() as runner:
        runner.run(call())
        pid = os.fork()
        if pid == 0:
            try:
                runner.run(call())
                os._exit(0 if log._thread is not None else 1)
            finally:
                os._exit(2)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0, (
            "nobody writes what the child queues"
        )


@pytest.mark.parametrize("include", [(), ("code",)])
def test_a_call_without_an_attempt_says_how_long_it_waited(tmp_path, include):
    calls, log = log_of(tmp_path, include)
    for attempts in ([], [ATTEMPT]):
        calls.ended(
            log, CallResult("c1", Outcome.THROTTLED, attempts=attempts, waited=1.5), PROGRAM
        )
    log.flush()
    (path,) = tmp_path.iterdir()
    without, having = map(json.loads, path.read_text().splitlines())
    assert (without["waited"], without["attempts"]) == (1.5, [])
    assert "waited" not in having
    assert having["attempts"][0]["waited"] == 1.5


@pytest.mark.parametrize(
    ("ran", "read"), [(True, "may have run, but its output is lost."), (False, "did not run.")]
)
def test_a_failure_is_written_with_what_the_model_read_and_an_answer_without(tmp_path, ran, read):
    calls, log = log_of(tmp_path, ())
    lost = Attempt(1, "http://10.0.0.1", Outcome.UNREACHABLE, may_have_run=ran, seconds=0.5)
    for outcome, attempt in (
        (Outcome.UNREACHABLE, lost),
        (Outcome.OK, ATTEMPT),
        (Outcome.CANCELLED, lost),
    ):
        calls.ended(log, CallResult("c1", outcome, attempts=[attempt]), PROGRAM)
    log.flush()
    (path,) = tmp_path.iterdir()
    failed, answered, cancelled = map(json.loads, path.read_text().splitlines())
    assert failed["read"].startswith("[code_interpreter] This is not output of a program")
    assert failed["read"].endswith(f"The code {read}")
    assert not {"read"} & (answered.keys() | cancelled.keys())
