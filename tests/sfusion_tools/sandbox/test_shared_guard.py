"""The guard in the tool: what is logged, what is raised, and who shares a guard."""

from __future__ import annotations

import asyncio
import pickle
import subprocess
import sys
import threading
from typing import Any
from uuid import uuid4

import pytest

from sfusion.fakes.sandbox import FakeSandbox
from sfusion_tools.errors import ConfigError, GuardTripped
from sfusion_tools.outcome import Outcome
from sfusion_tools.record import Attempt
from sfusion_tools.reward import score_sync
from sfusion_tools.sandbox import Program, SandboxClient
from sfusion_tools.sandbox.endpoints import redact
from sfusion_tools.sandbox.guard import PROBES, GuardedCall, GuardSettings, SandboxGuard
from sfusion_tools.sandbox.result import CallResult
from sfusion_tools.sandbox_fusion_tools import SandboxFusionTool
from tests.patience import PATIENCE
from tests.ports import closed_port
from tests.sfusion_tools.sandbox.helpers import in_virtual_time

SHORT = {"window": 10, "min_calls": 10, "probe_after": 30}
CODE = {"code": "print(1)"}
DOWN = {"what": {"status": 500}}


def make(sandbox: FakeSandbox | str | list[str], **guard: Any) -> SandboxFusionTool:
    url = sandbox.url if isinstance(sandbox, FakeSandbox) else sandbox
    fast = {"limiter": "local", "limiter_name": uuid4().hex, "max_attempts": 1}
    return SandboxFusionTool({"sandbox_fusion_url": url, **fast, "guard": {**SHORT, **guard}})


async def call(tool: SandboxFusionTool, times: int = 1) -> list[str]:
    """Make calls one after the other; return their outcomes, or the name of what they raised."""
    outcomes = []
    for _ in range(times):
        try:
            _, _, metrics = await tool.execute("instance", CODE)
        except GuardTripped as tripped:
            outcomes.append(type(tripped).__name__)
        else:
            assert metrics is not None
            outcomes.append(metrics["outcome"])
    return outcomes


def logged(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    return [
        (r.levelname, r.getMessage()) for r in caplog.records if r.name.endswith("sandbox.guard")
    ]


def test_it_says_once_loudly_that_the_sandbox_fails_and_once_that_it_works_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def go() -> tuple[str, int]:
        async with FakeSandbox(executor="scripted", faults=[DOWN]) as sandbox:
            tool = make(sandbox.url.replace("//", "//user:hunter2@") + "?token=hunter3")
            await call(tool, 30)
            assert len(logged(caplog)) == 1
            sandbox.clear_faults()
            await asyncio.sleep(30)
            assert await call(tool, 50) == ["ok"] * 50
            return sandbox.url, sandbox.ledger.arrived

    url, arrived = in_virtual_time(go)
    assert arrived == 80, "with then: warn every call is made"
    (level, text), (later, recovered) = logged(caplog)
    assert (level, later) == ("ERROR", "WARNING")
    assert "10 of the last 10 calls (100%, allowed 30%)" in text
    assert "10 sandbox_error" in text
    assert f"run: sfusion doctor {url}." in text
    assert recovered == f"guard: the sandbox works again: {url}"
    assert "hunter" not in text + recovered


def test_then_fail_ends_calls_with_an_error_until_probes_succeed() -> None:
    async def go() -> None:
        async with FakeSandbox(executor="scripted", faults=[{"first": 12, **DOWN}]) as sandbox:
            tool = make(sandbox, then="fail")
            assert await call(tool, 10) == ["sandbox_error"] * 9 + ["GuardTripped"]
            assert await call(tool, 20) == ["GuardTripped"] * 20
            assert sandbox.ledger.arrived == 10, "while it is open, nothing is sent"
            await asyncio.sleep(30)
            assert await call(tool, 20) == ["GuardTripped"] * 20
            assert sandbox.ledger.arrived == 12, "two probes failed, the others were not sent"
            await asyncio.sleep(30)
            assert await call(tool, 20) == ["ok"] * 20

    in_virtual_time(go)


def test_the_error_names_counts_and_the_doctor_command() -> None:
    async def go() -> None:
        async with FakeSandbox(faults=[DOWN]) as good, FakeSandbox(faults=[DOWN]) as bad:
            tool = make([good.url, bad.url], then="fail")
            await call(tool, 10)
            with pytest.raises(GuardTripped, match="sfusion doctor http://127") as tripped:
                await tool.execute("instance", CODE)
        text = str(tripped.value)
        assert f"5 at {good.url}" in text
        assert f"5 at {bad.url}" in text
        assert "This call was not made" in text
        assert str(pickle.loads(pickle.dumps(tripped.value))) == text

    in_virtual_time(go)


def test_the_error_names_no_command_for_an_address_that_is_masked() -> None:
    label = redact("http://h/t0ken")
    guard = SandboxGuard(GuardSettings(window=1, then="fail"), [label])
    attempt = Attempt(1, label, Outcome.UNREACHABLE, None, "", False, 0.0, 0.0)
    with pytest.raises(GuardTripped) as tripped:
        guard.end(guard.begin(0.0), 0.0, CallResult("c", Outcome.UNREACHABLE, attempts=[attempt]))
    assert f"1 at {label}" in str(tripped.value)
    assert str(tripped.value).endswith("run: sfusion doctor URL")


def test_waiting_in_vain_for_a_permit_is_a_failure_of_the_limiter(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def go() -> None:
        async with FakeSandbox() as sandbox:
            tool = make(sandbox)
            tool = SandboxFusionTool({**tool.config, "rate_limit": 1, "queue_timeout": 1.0})
            slow = asyncio.create_task(
                tool.execute(
                    "instance", {"code": "1  # sfusion:call=slow seconds=25", "timeout": 60}
                )
            )
            await asyncio.sleep(0.1)
            assert set(await call(tool, 10)) == {"throttled"}
            slow.cancel()

    in_virtual_time(go)
    text = logged(caplog)[0][1]
    assert "10 at the limiter, 0 at http" in text
    assert "run: sfusion limiter" in text
    assert "sfusion doctor" not in text


async def test_the_error_stops_a_job_and_leaves_asyncio_alone() -> None:
    """verl's agent loop, and others, turn every Exception of a tool into a text for the model."""
    assert not issubclass(GuardTripped, Exception | SystemExit | KeyboardInterrupt)
    tool = make(f"http://127.0.0.1:{closed_port()}", then="fail")
    await call(tool, 10)

    async def swallowing() -> str:
        try:
            await tool.execute("instance", CODE)
        except Exception as error:
            return f"Error executing tool: {error}"
        return ""

    with pytest.raises(GuardTripped):
        await asyncio.gather(*(asyncio.create_task(swallowing()) for _ in range(3)))

    async def in_a_group() -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(swallowing())
            tasks.create_task(asyncio.sleep(3600))

    with pytest.raises(BaseExceptionGroup) as group:
        await in_a_group()
    assert group.group_contains(GuardTripped)


def test_cancelled_calls_do_not_trip_it(caplog: pytest.LogCaptureFixture) -> None:
    async def go() -> None:
        async with FakeSandbox(faults=[{"what": "hang"}]) as sandbox:
            tool = make(sandbox, then="fail")
            for _ in range(20):
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(1):
                        await tool.execute("instance", CODE)
                assert (await tool.execute("instance", {"cmd": "ls"}))[2][
                    "outcome"
                ] == "bad_arguments"

    in_virtual_time(go)
    assert logged(caplog) == []


async def test_all_tools_of_a_process_with_one_config_share_a_guard() -> None:
    """verl 0.7.1 makes a tool for every trajectory, and may do so in several threads."""
    url = f"http://127.0.0.1:{closed_port()}"
    assert [await call(make(url, then="fail")) for _ in range(10)] == [["unreachable"]] * 9 + [
        ["GuardTripped"]
    ]
    from_thread: list[str] = []
    thread = threading.Thread(
        target=lambda: from_thread.extend(asyncio.run(call(make(url, then="fail"))))
    )
    thread.start()
    await asyncio.to_thread(thread.join)
    assert from_thread == ["GuardTripped"]
    assert await call(make(url, then="warn")) == ["unreachable"], "other settings, another guard"
    assert await call(make(f"http://127.0.0.1:{closed_port()}", then="fail")) == ["unreachable"], (
        "another sandbox"
    )


@pytest.mark.parametrize(
    ("first", "second", "shared"),
    [
        ({"url": "?pool=a"}, {"url": "?pool=b"}, False),
        ({"url": "", "user": "x:good@"}, {"url": "", "user": "x:bad@"}, False),
        ({"url": "", "headers": {"X-Pool": "a"}}, {"url": "", "headers": {"X-Pool": "b"}}, False),
        (
            {"url": "", "headers": {"X-Pool": "a"}},
            {"url": "/run_code", "headers": {"x-pool": "a"}},
            True,
        ),
        ({"url": "", "others": "before"}, {"url": "", "others": "after"}, True),
    ],
    ids=["query", "password", "headers", "spelling", "order"],
)
def test_only_tools_that_send_the_same_requests_share_a_guard(
    first: dict[str, Any], second: dict[str, Any], shared: bool, caplog: pytest.LogCaptureFixture
) -> None:
    port, other = closed_port(), f"http://127.0.0.1:{closed_port()}"

    def tool(
        url: str, user: str = "", others: str = "", headers: dict[str, str] | None = None
    ) -> SandboxFusionTool:
        one = f"http://{user}127.0.0.1:{port}{url}"
        urls = {"": [one], "before": [other, one], "after": [one, other]}[others]
        return SandboxFusionTool({**make(urls, then="fail").config, "headers": headers or {}})

    async def go() -> list[str]:
        await call(tool(**first), 10)
        return await call(tool(**second))

    assert in_virtual_time(go) == (["GuardTripped"] if shared else ["unreachable"])
    assert "good" not in caplog.text


async def test_it_also_watches_the_client_and_scores() -> None:
    url = f"http://127.0.0.1:{closed_port()}"
    cases = {"inputs": [""] * 10, "outputs": [""] * 10}
    with pytest.raises(GuardTripped):
        await asyncio.to_thread(score_sync, "1", cases, make(url, then="fail").config)
    assert await call(make(url, then="fail")) == ["GuardTripped"]
    with pytest.raises(GuardTripped):
        await make(url, then="fail").client.run(Program("1"))


def test_simulated_runs_in_one_process_do_not_share_a_guard() -> None:
    url = f"http://127.0.0.1:{closed_port()}"

    async def go() -> list[str]:
        return [(await call(make(url, then="fail")))[0] for _ in range(11)]

    expected = ["unreachable"] * 9 + ["GuardTripped"] * 2
    assert [in_virtual_time(go), in_virtual_time(go), asyncio.run(go())] == [expected] * 3


def test_a_child_process_begins_with_a_guard_of_its_own() -> None:
    program = """if True:
        import asyncio, os
        from sfusion_tools.sandbox.guard import GuardSettings
        from sfusion_tools.sandbox.guard import shared_guard

        async def mine():
            return shared_guard(GuardSettings(), "http://a")()

        parents = asyncio.run(mine())
        assert asyncio.run(mine()) is parents
        parents._lock.__enter__()  # as another thread may have, at the moment of the fork
        if child := os.fork():
            raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        own = asyncio.run(mine())
        assert own.begin(0.0) and own is not parents
    """
    subprocess.run([sys.executable, "-c", program], check=True, timeout=PATIENCE)


async def test_the_guard_hears_of_a_call_that_is_broken_off_at_its_very_end() -> None:
    heard: list[CallResult | None] = []

    class Listening(SandboxGuard):
        def end(self, call: GuardedCall, now: float, result: CallResult | None) -> None:
            heard.append(result)
            super().end(call, now, result)

    def stop(event: str, _: object) -> None:
        if event == "call_ended":
            raise asyncio.CancelledError

    guard = Listening(GuardSettings(), ["http://a"])
    async with FakeSandbox(executor="scripted") as sandbox:
        client = SandboxClient(sandbox.url, guard=lambda: guard, on_event=stop)
        with pytest.raises(asyncio.CancelledError):
            await client.run(Program("print(1)"))
        await client.aclose()
    assert heard == [None]


def test_a_call_that_was_cancelled_while_the_guard_tripped_is_not_an_error() -> None:
    guard = SandboxGuard(GuardSettings(window=1, then="fail"), ["http://a"])
    cancelled, failed = guard.begin(0.0), guard.begin(0.0)
    with pytest.raises(GuardTripped):
        guard.end(failed, 0.0, CallResult("c", Outcome.UNREACHABLE))
    guard.end(cancelled, 0.0, CallResult("c", Outcome.CANCELLED, "this limiter was closed"))


@pytest.mark.parametrize(
    ("guard", "says"),
    [
        ({"windw": 5}, "unknown key 'guard.windw'; did you mean 'window'?"),
        ({"window": 0}, "guard.window: Input should be greater than or equal to 1, found 0"),
        ({"window": "many"}, "guard.window: Input should be a valid integer, found 'many'"),
        (
            {"infrastructure_at_most": 1},
            "guard.infrastructure_at_most: Input should be less than 1, found 1",
        ),
        ({"then": "stop"}, "guard.then: Input should be 'warn' or 'fail', found 'stop'"),
        ({"probe_after": 0}, "guard.probe_after: Input should be greater than 0, found 0"),
        (
            "warn",
            (
                "guard must be a mapping with any of window, infrastructure_at_most, then, "
                "min_calls, probe_after"
            ),
        ),
    ],
    ids=str,
)
def test_wrong_settings_are_refused_with_what_was_found(guard: Any, says: str) -> None:
    with pytest.raises(ConfigError, match="SandboxFusionTool 'code_interpreter': ") as refused:
        SandboxFusionTool({"sandbox_fusion_url": "http://127.0.0.1:1", "guard": guard})
    assert says in str(refused.value)


def test_there_is_no_guard_by_default() -> None:
    assert SandboxFusionTool({"sandbox_fusion_url": "http://127.0.0.1:1"}).settings.guard is None
    settings = SandboxFusionTool(
        {"sandbox_fusion_url": "http://127.0.0.1:1", "guard": {}}
    ).settings.guard
    assert settings is not None
    assert (settings.window, settings.infrastructure_at_most, settings.then) == (200, 0.3, "warn")
    assert settings.enough > PROBES
