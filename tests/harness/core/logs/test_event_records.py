"""What the tool writes about its calls, as the reader of event logs returns it."""

from __future__ import annotations

import asyncio
import json
import time
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from sfusion.fakes.sandbox import FakeSandbox
from sfusion.harness.core.logs.reading import read_records
from sfusion.harness.errors import LogError
from sfusion_tools.errors import GuardTripped
from sfusion_tools.event_log import flush_event_logs, this_worker
from sfusion_tools.sandbox_fusion_tools import SandboxFusionTool
from tests.harness.studies.made_calls import call_at
from tests.sfusion_tools.sandbox.helpers import in_virtual_time, until


def make(url: str, **config: Any) -> SandboxFusionTool:
    fast = {
        "limiter": "local",
        "limiter_name": uuid4().hex,
        "backoff_base": 0.001,
        "backoff_cap": 0.002,
    }
    return SandboxFusionTool({"sandbox_fusion_url": url, **fast, **config})


async def call(tool: SandboxFusionTool, call_id: str, **arguments: Any) -> None:
    await tool.execute("trajectory", arguments, call_id=call_id)


async def call_until_refused(tool: SandboxFusionTool, calls: int) -> None:
    for number in range(calls):
        with suppress(GuardTripped):
            await call(tool, f"c{number}", code="print(1)")


def lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for path in folder.iterdir() for line in path.read_text().splitlines()]


def test_every_call_is_in_the_log_with_its_attempts(tmp_path):
    async def run() -> str:
        faults = [{"first": 1, "what": {"status": 429, "retry_after": 0.001}}]
        async with FakeSandbox(executor="scripted", faults=faults) as sandbox:
            url = sandbox.url
            tool = make(
                url.replace("://", "://user:secret@"), event_log=str(tmp_path / "events.ndjson")
            )
            await call(tool, "c1", code="print(1)")
            await call(tool, 'a "quoted" \u2028 id', code="print(22)")
            await call(tool, "c3", program="print(3)")
        return url

    before = time.time()
    url = asyncio.run(run())
    records = list(read_records([tmp_path]))
    first, _, third = records
    assert [one.call for one in records] == ["c1", 'a "quoted" \u2028 id', "c3"]
    assert [one.outcome for one in records] == ["ok", "ok", "bad_arguments"]
    assert {one.worker for one in records} == {this_worker()}
    assert {one.source for one in records} == {"client"}
    assert all(before - 1 < one.began < time.time() + 1 and one.timed for one in records)
    refused, served = first.attempts
    assert (refused.status, refused.outcome, refused.retry_after, refused.execution_time) == (
        429,
        "throttled",
        0.001,
        None,
    )
    assert (served.status, served.outcome, served.retry_after) == (200, "ok", None)
    assert served.execution_time is not None
    assert refused.sent == served.sent > len("print(1)")
    assert served.received > refused.received > 0
    assert 0 <= refused.after <= served.after
    assert served.after + served.seconds <= first.seconds + 1e-5
    assert {one.endpoint for one in (refused, served)} == {url}
    assert (third.problem, third.attempts, third.seconds) == ("code is missing", [], 0.0)
    text = "".join(path.read_text() for path in tmp_path.iterdir())
    assert "print(" not in text
    assert "secret" not in text


def test_code_and_output_are_written_when_asked_for(tmp_path):
    async def run(path: Path, **more: Any) -> list[dict[str, Any]]:
        scripts = [{"pattern": r"6 \* 7", "prints": "42\n", "errors": "3\n"}]
        async with FakeSandbox(executor="scripted", scripts=scripts) as sandbox:
            tool = make(sandbox.url, event_log={"path": str(path / "events.ndjson"), **more})
            await call(tool, "c1", code="import sys; print(6 * 7); print(3, file=sys.stderr)")
            await call(tool, "c2", code=["print(1)"])
        flush_event_logs()
        return lines(path)

    ran, refused = asyncio.run(run(tmp_path / "both", include=["code", "output"]))
    assert (ran["code"], ran["language"]) == (
        "import sys; print(6 * 7); print(3, file=sys.stderr)",
        "python",
    )
    assert (ran["stdout"], ran["stderr"]) == ("42\n", "3\n")
    assert (refused["problem"], refused["message"][:25]) == (
        "code is not a string",
        "`code` must be a string, ",
    )
    ran, refused = asyncio.run(run(tmp_path / "output", include=["output"]))
    assert ran["stdout"] == "42\n"
    assert not {"code", "message"} & {*ran, *refused}


def test_a_call_that_is_cancelled_or_finds_no_sandbox_is_in_the_log(tmp_path):
    async def run() -> None:
        async with FakeSandbox(executor="scripted", faults=[{"what": "hang"}]) as sandbox:
            tool = make(sandbox.url, event_log=str(tmp_path))
            task = asyncio.create_task(call(tool, "cut", code="print(1)"))
            await until(lambda: sandbox.ledger.arrived)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        await call(
            make(sandbox.url, event_log=str(tmp_path), max_attempts=1), "down", code="print(1)"
        )

    asyncio.run(run())
    cut, down = read_records([tmp_path])
    assert (cut.call, cut.outcome, [one.outcome for one in cut.attempts]) == (
        "cut",
        "cancelled",
        ["cancelled"],
    )
    assert (down.call, down.outcome, down.attempts[0].status) == ("down", "unreachable", None)


def test_the_environment_switches_it_on_and_virtual_time_off(tmp_path, monkeypatch):
    monkeypatch.setenv("SFUSION_EVENT_LOG", str(tmp_path / "logs" / "calls.ndjson"))

    async def run() -> None:
        await call(make("http://127.0.0.1:9"), "c1", program="print(1)")

    in_virtual_time(run)
    flush_event_logs()
    assert not (tmp_path / "logs").exists()
    asyncio.run(run())
    assert [one.call for one in read_records([tmp_path / "logs"])] == ["c1"]


LINE = {
    "event_log": 1,
    "source": "server",
    "call": "c",
    "began": 5.0,
    "seconds": 1.0,
    "outcome": "ok",
    "attempts": [],
}


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"event_log": 2}, "a line of version 2; this sfusion reads version 1"),
        ({"began": None}, "began must be a number up to 1e+12, found None"),
        ({"began": "5"}, "began must be a number, found a text"),
        ({"began": True}, "began must be a number up to 1e+12, found True"),
        ({"seconds": 10**400}, "seconds must be a number up to 1e+12, found 1000"),
        ({"outcome": "fine"}, "outcome must be one of ok, program_error"),
        ({"outcome": ["ok"]}, "outcome must be one of ok, program_error"),
        ({"call": 7}, "call must be a text, found 7"),
        ({"attempts": {}}, "attempts must be a list of objects"),
        ({"attempts": [7]}, "attempts must be a list of objects"),
        ({"attempts": [{}]}, "after must be a number"),
        ({"seconds": -3}, "seconds must not be negative, found -3"),
        ({"waited": -0.5}, "waited must not be negative, found -0.5"),
        *(
            ({"attempts": [{"after": 0.0, key: -3}]}, f"{key} must not be negative, found -3")
            for key in ("after", "waited", "seconds", "retry_after", "run_seconds")
        ),
    ],
)
def test_a_wrong_line_is_refused_with_its_place(tmp_path, change, problem):
    path = tmp_path / "events.ndjson"
    path.write_text(f"{json.dumps(LINE)}\n{json.dumps({**LINE, **change})}\n{json.dumps(LINE)}\n")
    with pytest.raises(LogError) as error:
        list(read_records([path]))
    assert str(error.value).startswith(f"{path}:2: {problem}")
    problems: list[str] = []
    assert len(list(read_records([path], problems.append))) == 2
    assert problems == [str(error.value)]


@pytest.mark.parametrize("seconds", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_a_duration_that_is_not_finite_is_refused(tmp_path, seconds):
    path = tmp_path / "events.ndjson"
    good = '{"event_log":1,"began":5,"seconds":1}\n'
    path.write_text(good + good.replace(":1}", f":{seconds}}}"))
    problems: list[str] = []
    assert [call.seconds for call in read_records([path], problems.append)] == [1.0]
    assert len(problems) == 1


def test_a_journal_of_another_version_is_refused(tmp_path):
    path = tmp_path / "journal.ndjson"
    path.write_text('{"journal":1,"scenario":"old","cell":"","seed":1,"world":"sim"}\n')
    with pytest.raises(LogError, match="1: a journal of version 1; this sfusion reads version 2"):
        list(read_records([path]))


def test_a_line_may_leave_out_what_is_not_known(tmp_path):
    path = tmp_path / "events.ndjson"
    path.write_text('{"event_log":1,"began":5}\n')
    (call,) = read_records([path])
    assert asdict(call) == asdict(call_at("", 5.0, None, "client"))


@pytest.mark.parametrize("include", [[], ["code", "output"]])
def test_calls_that_the_guard_refuses_are_in_the_log(tmp_path, include):
    async def run() -> None:
        async with FakeSandbox(executor="scripted", faults=[{"what": {"status": 500}}]) as sandbox:
            event_log = {"path": str(tmp_path / "events.ndjson"), "include": include}
            guard = {"then": "fail", "window": 2, "min_calls": 2}
            await call_until_refused(
                make(sandbox.url, max_attempts=1, guard=guard, event_log=event_log), 4
            )

    asyncio.run(run())
    records = list(read_records([tmp_path]))
    assert [(one.call, one.outcome, one.refused, len(one.attempts)) for one in records] == [
        ("c0", "sandbox_error", "", 1),
        ("c1", "sandbox_error", "", 1),
        ("c2", "cancelled", "guard", 0),
        ("c3", "cancelled", "guard", 0),
    ]
    assert [one.get("code") for one in lines(tmp_path)] == [("print(1)" if include else None)] * 4


@pytest.mark.parametrize("status", [200, 401, 500])
def test_no_secret_of_the_config_reaches_the_log_or_the_metrics(tmp_path, status):
    """Also if the server, or a gateway before it, quotes the request in its answer."""

    async def run() -> dict[str, Any]:
        echo = {
            "status": status,
            "body": "no route /faas/T0KEN-path/ ?key=T0KEN-query T0KEN-header T0KEN-password",
        }
        async with FakeSandbox(
            executor="scripted", faults=[{"path": "/faas/T0KEN-path/run_code", "what": echo}]
        ) as sandbox:
            url = (
                sandbox.url.replace("://", "://user:T0KEN-password@")
                + "/faas/T0KEN-path/run_code?key=T0KEN-query"
            )
            log = {"path": str(tmp_path / "events.ndjson"), "include": ["code", "output"]}
            tool = make(url, event_log=log, headers={"X-Key": "T0KEN-header"}, max_attempts=1)
            return (await tool.execute("trajectory", {"code": "print(1)"}))[2] or {}

    metrics = asyncio.run(run())
    assert "no route" in metrics["message"]
    (written,) = lines(tmp_path)
    assert "T0KEN" not in json.dumps([metrics, written])
    assert written["attempts"][0]["sandbox"].count("/***-") == 1
