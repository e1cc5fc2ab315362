"""Whatever happens during a call, nothing is left behind: no permit, no slot, no socket, no
loop."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import socket
import stat
import subprocess
import sys
import textwrap
import threading
import types
import weakref
from collections.abc import Coroutine, Generator, Iterator
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar
from uuid import uuid4

import pytest

from sfusion.fakes.sandbox import FakeSandbox
from sfusion_tools.limiter import Limiter, LimiterSettings, LocalTransport, local_host
from sfusion_tools.limiter.host import shared_host
from sfusion_tools.limiter.ray_limiter import LimiterChoice
from sfusion_tools.outcome import Outcome
from sfusion_tools.runtime import LoopResource, runtime
from sfusion_tools.sandbox.client import SandboxClient
from sfusion_tools.sandbox.endpoints import normalise_url
from sfusion_tools.sandbox.fleet import Fleet, LoopSlots, Slot, slots_of
from sfusion_tools.sandbox.guard import GuardSettings, SandboxGuard
from sfusion_tools.sandbox.program import Program
from sfusion_tools.sandbox.ray_metrics import RayMetrics, _counted
from sfusion_tools.sandbox.result import CallResult
from sfusion_tools.sandbox_fusion_tools import SandboxFusionTool
from tests import ROOT
from tests.patience import PATIENCE
from tests.sfusion_tools.sandbox.helpers import in_virtual_time, until

T = TypeVar("T")

EVENTS = (
    "call_started",
    "permit_granted",
    "attempt_started",
    "permit_released",
    "attempt_ended",
    "call_ended",
)
FINE = {"code": '1  # sfusion:call=a prints="3"'}
ENDLESS = {"code": "1  # sfusion:call=b seconds=3600"}


@pytest.fixture(scope="module")
def sandbox() -> Iterator[FakeSandbox]:
    """A sandbox in its own thread; what other tests have left in memory is not collected again
    and again."""
    gc.collect()
    gc.freeze()
    with FakeSandbox(executor="scripted") as running:
        yield running


class Watched(SandboxFusionTool):
    """A tool with a limiter of its own, and with a look at what it holds."""

    def __init__(self, url: str, **options: Any) -> None:
        config = {
            "sandbox_fusion_url": url,
            "limiter": "local",
            "rate_limit": 1,
            "limiter_name": uuid4().hex,
        }
        super().__init__({**config, "backoff_base": 0.001, "backoff_cap": 0.002}, **options)

    async def outcome(self, parameters: dict[str, Any] | None = None) -> str:
        _, _, metrics = await self.execute("instance", parameters or FINE)
        assert metrics is not None
        return str(metrics["outcome"])

    @property
    def permits(self) -> tuple[int, int]:
        """Permits in use and callers waiting for one."""
        snapshot = shared_host(
            self.settings.limiter_name, self.settings.limits, apply=False
        ).snapshot()
        return snapshot.in_use, snapshot.waiting

    @property
    def slots(self) -> int:
        return (
            runtime.shared(Fleet, Fleet)
            .endpoint(normalise_url(self.settings.sandbox_fusion_url))
            .in_flight
        )

    async def settled(self) -> None:
        """Wait until the limiter has received every release."""
        await LimiterChoice(
            self.settings.limits, kind="local", name=self.settings.limiter_name
        )().flush()

    async def holds_nothing(self) -> None:
        await self.settled()
        assert (self.permits, self.slots) == ((0, 0), 0)


def open_files(sandbox: FakeSandbox) -> int:
    """Return the number of this process's open files, without the sandbox's ends of connections."""
    found = 0
    for fd in map(int, os.listdir("/dev/fd")):
        with suppress(OSError):  # the listing itself was open only for a moment
            found += _port(fd) != sandbox.port
    return found


def _port(fd: int) -> int | None:
    """Return the local port of an internet socket, None for any other file."""
    if not stat.S_ISSOCK(os.fstat(fd).st_mode):
        return None
    with socket.socket(fileno=os.dup(fd)) as copy:
        return int(copy.getsockname()[1]) if copy.family == socket.AF_INET else None


@pytest.mark.parametrize("event", EVENTS)
async def test_an_observer_that_raises_costs_no_call(
    sandbox: FakeSandbox, event: str, caplog: pytest.LogCaptureFixture
) -> None:
    def observe(name: str, facts: dict[str, Any]) -> None:
        if name == event:
            raise RuntimeError("a defect of the observer")

    tool = Watched(sandbox.url, on_event=observe)
    with caplog.at_level(logging.ERROR):
        assert [await tool.outcome() for _ in range(2)] == ["ok", "ok"]
    await tool.holds_nothing()
    assert [record.message for record in caplog.records] == [
        f"on_event raised at {event!r}; calls go on, and this is logged only once"
    ]


@pytest.mark.parametrize("event", EVENTS)
def test_an_interrupt_leaves_nothing_behind(sandbox: FakeSandbox, event: str) -> None:
    """Ctrl-C strikes anywhere in the main thread; in a callback, this test can say where."""

    def observe(name: str, facts: dict[str, Any]) -> None:
        if name == event:
            raise KeyboardInterrupt

    tool = Watched(sandbox.url, on_event=observe)
    loop = asyncio.new_event_loop()
    try:
        with pytest.raises(KeyboardInterrupt):
            loop.run_until_complete(tool.outcome())
        loop.run_until_complete(tool.holds_nothing())
    finally:
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()


async def test_a_limiter_that_cannot_be_made_leaves_nothing_behind(sandbox: FakeSandbox) -> None:
    def fail() -> None:
        raise ZeroDivisionError

    tool = Watched(sandbox.url, limiter=fail)
    with pytest.raises(ZeroDivisionError):
        await tool.outcome()
    assert tool.slots == 0


@types.coroutine
def _cancelled_at(step: int, work: Coroutine[Any, Any, T]) -> Generator[Any, Any, T]:
    """Await the work, and cancel the task when the work suspends for the ``step``-th time."""
    task = asyncio.current_task()
    assert task is not None
    advance = partial(work.send, None)
    while True:
        try:
            waits_for = advance()
        except StopIteration as done:
            result: T = done.value
            return result
        if step == 0:
            task.cancel()
        step -= 1
        try:
            yield waits_for
            advance = partial(work.send, None)
        except asyncio.CancelledError as cancelled:
            advance = partial(work.throw, cancelled)


@pytest.mark.parametrize("queued", [False, True])
async def test_cancelling_at_any_await_leaves_nothing_behind(queued: bool) -> None:
    """A call that connects or waits in the queue, is refused once and backs off is cancelled at
    each of its awaits."""
    rules = [{"call": "c-*", "first_attempts": 1, "what": {"status": 429}}]
    step, outcome = 0, None
    async with FakeSandbox(executor="scripted", faults=rules) as refusing:
        tool = Watched(refusing.url)
        while outcome is None:
            ahead = asyncio.create_task(tool.outcome({"code": f"1  # sfusion:call=ahead-{step}"}))
            await (until(lambda: tool.permits == (1, 0)) if queued else ahead)
            await asyncio.gather(*([] if queued else [tool.aclose()]))  # the call connects again
            call = tool.outcome({"code": f"1  # sfusion:call=c-{step}"})
            try:
                outcome = await asyncio.create_task(_as_coroutine(_cancelled_at(step, call)))
            except asyncio.CancelledError:
                step += 1
            await ahead
            await tool.holds_nothing()
    assert outcome == "ok"
    assert step >= 4  # the queue or the connection, two answers and the pause between them


async def _as_coroutine(work: Any) -> Any:
    return await work


def _left_open(tool: Watched, *, in_flight: bool) -> asyncio.AbstractEventLoop:
    """Make a call on a new loop and leave the loop; the call may still be under way."""
    loop = asyncio.new_event_loop()
    under_way: list[asyncio.Task[str]] = []

    async def begin() -> None:
        under_way.append(asyncio.create_task(tool.outcome(ENDLESS)))
        await until(lambda: tool.permits == (1, 0) and tool.slots == 1)

    loop.run_until_complete(begin() if in_flight else tool.outcome())
    loop.under_way = under_way  # type: ignore[attr-defined] # as held by somebody who waits for it
    return loop


@pytest.mark.parametrize("in_flight", [False, True])
@pytest.mark.filterwarnings(
    "ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)
def test_a_loop_that_is_only_closed_leaves_nothing_behind(
    sandbox: FakeSandbox, in_flight: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Its permit is free for the next call, not after a lease; its sockets and the loop itself
    are gone."""
    tool = Watched(sandbox.url)
    asyncio.run(tool.outcome())
    before = open_files(sandbox)
    for _ in range(3):
        loop = _left_open(tool, in_flight=in_flight)
        loop.close()
        assert asyncio.run(tool.outcome()) == "ok"
        assert (tool.permits, tool.slots) == ((0, 0), 0)
        assert open_files(sandbox) == before
        gone = weakref.ref(loop)
        del loop
        gc.collect()
        assert gone() is None
    assert "Unclosed" not in caplog.text


@pytest.mark.parametrize("in_flight", [False, True])
@pytest.mark.filterwarnings(
    "ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)
def test_a_loop_that_is_dropped_unclosed_leaves_nothing_behind(
    sandbox: FakeSandbox, in_flight: bool
) -> None:
    tool = Watched(sandbox.url)
    asyncio.run(tool.outcome())
    before = open_files(sandbox)
    for _ in range(3):
        gone = weakref.ref(_left_open(tool, in_flight=in_flight))
        gc.collect()
        assert asyncio.run(tool.outcome()) == "ok"
        gc.collect()
        assert gone() is None
        assert open_files(sandbox) == before
        assert (tool.permits, tool.slots) == ((0, 0), 0)


def test_the_garbage_collector_may_end_a_call_while_a_lock_is_held() -> None:
    """Closing an abandoned coroutine took the locks of the fleet, the guard and the metrics,
    maybe in their holder."""
    fleet, guard, metrics = Fleet(), SandboxGuard(GuardSettings(), ["http://a"]), RayMetrics()

    class Queue:
        waited = 0.0

        def permit(self, timeout: float | None) -> Any:
            return self

        async def __aenter__(self) -> None:
            await asyncio.Future()

        async def __aexit__(self, *_: object) -> None: ...

    queue: Any = Queue()
    client = SandboxClient("http://a", limiter=lambda: queue, guard=lambda: guard)

    async def call() -> None:
        with (
            Slot(LoopSlots(fleet), ["http://a"], 0.0),
            _counted(metrics, "tool", CallResult("c", Outcome.CANCELLED)),
        ):
            await client.run(Program("print(1)"))

    def collected_under(lock: Any) -> None:
        loop = asyncio.new_event_loop()
        abandoned = call()
        previous = asyncio.events._get_running_loop()
        asyncio.events._set_running_loop(loop)
        try:
            abandoned.send(None)
        finally:
            asyncio.events._set_running_loop(previous)
            loop.close()
        cycle: list[object] = [abandoned]
        cycle.append(cycle)
        del abandoned, cycle
        with lock:
            gc.collect()

    def collect() -> None:
        for owner in (fleet, guard, metrics):
            collected_under(owner._lock)
        metrics.flush()

    thread = threading.Thread(target=collect, daemon=True)
    thread.start()
    thread.join(PATIENCE)
    assert not thread.is_alive(), "deadlock"
    assert (fleet.endpoint("http://a").in_flight, metrics._in_flight["tool"]) == (0, 0)


@pytest.mark.filterwarnings(
    "ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)
def test_a_limiter_that_its_user_made_ends_with_its_loop_too(sandbox: FakeSandbox) -> None:
    host = local_host(LimiterSettings(1))
    loop = asyncio.new_event_loop()
    permit = Limiter(LocalTransport(host)).permit()
    loop.run_until_complete(permit.__aenter__())
    assert host.snapshot().in_use == 1
    loop.close()
    asyncio.run(Watched(sandbox.url).outcome())
    assert host.snapshot().in_use == 0


async def test_a_limiter_that_was_closed_is_not_used_again(sandbox: FakeSandbox) -> None:
    tool = Watched(sandbox.url)
    choice = LimiterChoice(tool.settings.limits, kind="local", name=tool.settings.limiter_name)
    assert await tool.outcome() == "ok"
    await choice().aclose()
    assert await tool.outcome() == "ok"


def test_many_runs_in_a_row_leave_nothing_behind(sandbox: FakeSandbox) -> None:
    tool = Watched(sandbox.url)
    asyncio.run(tool.outcome())
    before, loops = open_files(sandbox), []

    async def go() -> str:
        loops.append(weakref.ref(asyncio.get_running_loop()))
        return await tool.outcome()

    gc.disable()  # reference counts suffice: nothing of ours refers to a loop that has ended
    try:
        assert {asyncio.run(go()) for _ in range(20)} == {"ok"}
        if sys.version_info >= (
            3,
            12,
        ):  # where asyncio.run itself leaves a cycle if it cancels a task
            gc.collect()
        assert [loop for loop in loops if loop() is not None] == []
    finally:
        gc.enable()
    assert open_files(sandbox) == before
    assert (tool.permits, tool.slots) == ((0, 0), 0)


def test_loops_in_several_threads_share_limit_and_slots_and_leave_nothing_behind(
    sandbox: FakeSandbox,
) -> None:
    tool = Watched(sandbox.url)
    asyncio.run(tool.outcome())
    before, outcomes = open_files(sandbox), list[str]()

    async def several() -> list[str]:
        return list(await asyncio.gather(*(tool.outcome() for _ in range(5))))

    def work() -> None:
        for _ in range(3):
            outcomes.extend(asyncio.run(several()))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert outcomes == ["ok"] * 60
    assert (tool.permits, tool.slots) == ((0, 0), 0)
    assert open_files(sandbox) == before


def test_a_forked_child_shares_nothing_with_its_parent(sandbox: FakeSandbox) -> None:
    """The parent holds the only permit and a connection when it forks."""
    program = """
        import asyncio, contextlib, os, socket, stat, sys, traceback
        from sfusion_tools.sandbox_fusion_tools import SandboxFusionTool

        url = sys.argv[1]
        port = int(url.rpartition(":")[2])
        config = {"sandbox_fusion_url": url, "limiter": "local", "rate_limit": 1}
        config["permit_lease"] = 3600
        started = []
        tool = SandboxFusionTool(config, on_event=lambda event, facts: started.append(event))

        def connections():
            found = 0
            for fd in range(3, 100):
                with contextlib.suppress(OSError):
                    if stat.S_ISSOCK(os.fstat(fd).st_mode):
                        with socket.socket(fileno=os.dup(fd)) as copy:
                            found += copy.family == socket.AF_INET and copy.getpeername()[1] == port
            return found

        def child():
            assert connections() == 0, "the parent's connection is open here"
            _, _, metrics = asyncio.run(tool.execute("b", {"code": "1  # sfusion:call=child"}))
            assert metrics["outcome"] == "ok", metrics
            assert connections() == 0

        async def parent():
            code = "1  # sfusion:call=parent seconds=0.5"
            call = asyncio.create_task(tool.execute("a", {"code": code}))
            while connections() == 0 or "attempt_started" not in started:
                await asyncio.sleep(0)
            pid = os.fork()
            if pid == 0:
                try:
                    asyncio.events._set_running_loop(None)
                    child()
                    os._exit(0)
                except BaseException:
                    traceback.print_exc()
                    os._exit(1)
            _, _, metrics = await call
            assert metrics["outcome"] == "ok", metrics
            assert metrics["attempts"] == 1
            return await asyncio.to_thread(os.waitpid, pid, 0)

        _, status = asyncio.run(parent())
        sys.exit(os.waitstatus_to_exitcode(status))
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), sandbox.url],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stderr


async def test_tools_that_each_serve_one_trajectory_share_the_load() -> None:
    """With one tool per trajectory, as in verl 0.7.1, all first calls went to the first sandbox."""
    async with FakeSandbox() as a, FakeSandbox() as b, FakeSandbox() as c, FakeSandbox() as d:
        fleet = (a, b, c, d)
        config = {
            "sandbox_fusion_url": [one.url for one in fleet],
            "enable_global_rate_limit": False,
        }
        await asyncio.gather(*(SandboxFusionTool(config).execute("x", FINE) for _ in range(64)))
        assert [one.ledger.arrived for one in fleet] == [16, 16, 16, 16]


async def test_a_sandbox_that_fails_is_set_aside_for_all_tools(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sfusion_tools.sandbox.fleet.FIRST_PAUSE", 30.0)
    rules = [{"what": {"status": 503}}]
    async with FakeSandbox(faults=rules) as failing, FakeSandbox(executor="scripted") as fine:
        urls = [failing.url, fine.url]
        config = {
            "sandbox_fusion_url": urls,
            "enable_global_rate_limit": False,
            "backoff_base": 0.001,
        }
        tried = [(await SandboxFusionTool(config).execute("x", FINE))[2] for _ in range(5)]
    assert [metrics["attempts"] for metrics in tried if metrics is not None] == [2, 1, 1, 1, 1]


def test_loops_share_the_state_of_sandboxes_unless_they_keep_their_own_time() -> None:
    async def fleet() -> Fleet:
        return slots_of(runtime.scope()).fleet

    assert asyncio.run(fleet()) is asyncio.run(fleet()) is runtime.shared(Fleet, Fleet)
    first, second = in_virtual_time(fleet), in_virtual_time(fleet)
    assert len({first, second, runtime.shared(Fleet, Fleet)}) == 3


def test_two_hundred_closed_loops_leave_nothing_behind_and_do_not_crash() -> None:
    """Half of them have a call under way; CPython 3.11 used to crash when it collected one in
    most of such runs."""
    command = [sys.executable, "-m", "benchmarks.leaks", "--runs", "20", "--closed", "200"]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_resource_that_fails_to_close_does_not_keep_the_others_open(
    caplog: pytest.LogCaptureFixture,
) -> None:
    closed = []

    class First(LoopResource):
        async def aclose(self) -> None:
            closed.append("first")

    class Second(LoopResource):
        async def aclose(self) -> None:
            raise RuntimeError("stuck")

    async def open_both() -> None:
        runtime.scope().adopt(First())
        runtime.scope().adopt(Second())

    asyncio.run(open_both())
    assert closed == ["first"]
    assert "Second could not be closed" in caplog.text
