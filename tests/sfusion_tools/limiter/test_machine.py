"""One limit for all processes of a machine, without Ray and without a server."""

from __future__ import annotations

import asyncio
import errno
import gc
import logging
import os
import resource
import shutil
import signal
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from sfusion.fakes.sandbox import FakeSandbox
from sfusion.fakes.sandbox.executors.python.guard import kernel
from sfusion.harness.lab.worlds.virtual_time import run_virtually
from sfusion_tools import CodeRunner
from sfusion_tools._loops import LoopThread
from sfusion_tools.errors import ConfigError, LimiterClosed, LimiterError, PermitTimeout
from sfusion_tools.limiter import LimiterSettings, machine
from sfusion_tools.limiter.machine import MachineLimiter, machine_limiter, machine_slots
from sfusion_tools.limiter.ray_limiter import LimiterChoice
from sfusion_tools.limiter.slots import FOLDER, MOST_SLOTS, slot_path
from sfusion_tools.outcome import Outcome
from tests.fakes.sandbox.executors.conftest import on_linux
from tests.sfusion_tools.limiter.holding import give, take
from tests.sfusion_tools.limiter.kills import PATIENCE, play
from tests.sfusion_tools.sandbox.helpers import until

NO_NAMESPACES = 77
"""The exit code of a child that may not mount anything (chosen)."""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "limiters"
    monkeypatch.setenv(FOLDER, str(folder))
    return folder


@pytest.fixture
def name() -> str:
    return uuid4().hex


@pytest.fixture
def children() -> Iterator[list[int]]:
    """Processes that are killed after the test."""
    pids: list[int] = []
    yield pids
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


Body = Callable[[Callable[[], None]], Awaitable[None]]


async def fork(body: Body, children: list[int]) -> int:
    """Fork a process that runs ``body``; return its pid when it says that it is ready."""
    reading, writing = os.pipe()

    def ready() -> None:
        os.write(writing, b"!")

    async def run() -> None:
        await body(ready)

    pid = os.fork()
    if pid == 0:
        try:
            asyncio.run(run())
            os._exit(0)
        finally:
            os._exit(1)
    children.append(pid)
    os.close(writing)
    assert await asyncio.to_thread(os.read, reading, 1) == b"!", "the process failed"
    os.close(reading)
    return pid


def holding(settings: LimiterSettings, name: str, permits: int = 1) -> Body:
    """A process that holds permits until it is killed."""

    async def body(ready: Callable[[], None]) -> None:
        limiter = machine_limiter(settings, name)
        held = [await take(limiter) for _ in range(permits)]
        ready()
        await asyncio.Event().wait()
        del held

    return body


def kill(pid: int, children: list[int]) -> None:
    children.remove(pid)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def in_use(name: str) -> int:
    state = machine_slots(name).state()
    return 0 if state is None else state.in_use


class TestProcesses:
    """Several processes, and their deaths."""

    def test_kills_of_holders_and_waiters_break_no_limit_and_lose_no_permit(
        self, folder: Path
    ) -> None:
        """``python -m tests.sfusion_tools.limiter.kills 1000`` plays more of it."""
        folder.mkdir(mode=0o700)
        counts = play(6, 3, folder)
        assert counts.rounds == 6
        assert min(counts.killed.values()) > 0

    async def test_a_dead_process_returns_its_permits(self, name: str, children: list[int]) -> None:
        settings = LimiterSettings(2)
        pid = await fork(holding(settings, name, permits=2), children)
        limiter = machine_limiter(settings, name)
        waiting = [asyncio.create_task(take(limiter)) for _ in range(2)]
        await until(lambda: limiter.waiting == 2)
        kill(pid, children)
        for permit in waiting:
            await give(await permit)

    async def test_a_child_of_a_dead_holder_does_not_keep_its_permit(
        self, name: str, children: list[int]
    ) -> None:
        settings = LimiterSettings(1)
        alive, ended = os.pipe()

        async def body(ready: Callable[[], None]) -> None:
            permit = await take(machine_limiter(settings, name))
            if os.fork() == 0:
                os.close(ended)
                os.read(alive, 1)
                os._exit(0)
            ready()
            await asyncio.Event().wait()
            del permit

        pid = await fork(body, children)
        kill(pid, children)
        await give(await take(machine_limiter(settings, name)))
        os.close(ended)  # only now its child ends
        os.close(alive)

    async def test_a_forked_child_leaves_the_permits_of_its_parent_alone(
        self, name: str, children: list[int]
    ) -> None:
        settings = LimiterSettings(1)
        limiter = machine_limiter(settings, name)
        permit = await take(limiter)

        async def inherits(ready: Callable[[], None]) -> None:
            permit.give_up()
            limiter.abandon()
            ready()

        async def finds_none(ready: Callable[[], None]) -> None:
            with pytest.raises(PermitTimeout):
                await take(machine_limiter(settings, name), 0.1)
            ready()

        await fork(inherits, children)
        await fork(finds_none, children)
        await give(permit)

    async def test_what_a_forked_child_inherits_does_not_return_a_permit_of_its_own(
        self, name: str, children: list[int]
    ) -> None:
        settings = LimiterSettings(1)
        limiter = machine_limiter(settings, name)
        inherited = await take(limiter)
        may_ask, ask = os.pipe()

        async def body(ready: Callable[[], None]) -> None:
            await asyncio.to_thread(os.read, may_ask, 1)
            own = await take(machine_limiter(settings, name))
            inherited.give_up()
            ready()
            await asyncio.Event().wait()
            del own

        child = asyncio.create_task(fork(body, children))
        await until(lambda: len(children) == 1)
        await give(inherited)
        os.write(ask, b"!")
        await child
        with pytest.raises(PermitTimeout):
            await take(limiter, 0.1)
        os.close(may_ask)
        os.close(ask)

    async def test_a_process_with_many_callers_lets_the_callers_of_others_in(
        self, name: str, children: list[int]
    ) -> None:
        settings = LimiterSettings(1)

        async def body(ready: Callable[[], None]) -> None:
            limiter = machine_limiter(settings, name)

            async def call() -> None:
                while True:
                    async with limiter.permit():
                        await asyncio.sleep(0.001)

            calls = [asyncio.create_task(call()) for _ in range(8)]
            await until(lambda: limiter.held == 1 and limiter.waiting == 7)
            ready()
            await asyncio.gather(*calls)

        await fork(body, children)
        limiter = machine_limiter(settings, name)
        for _ in range(20):
            await give(await take(limiter, PATIENCE))

    async def test_a_newcomer_does_not_overtake_the_callers_of_another_process(
        self, name: str, children: list[int]
    ) -> None:
        settings = LimiterSettings(1)
        permit = await take(machine_limiter(settings, name))

        async def body(ready: Callable[[], None]) -> None:
            limiter = machine_limiter(settings, name)
            waiting = asyncio.create_task(take(limiter))
            while not (state := machine_slots(name).state()) or not state.waiting:  # noqa: ASYNC110 # what others see
                await asyncio.sleep(0)
            ready()
            await waiting
            await asyncio.Event().wait()  # it holds the permit, if it has it before anybody looks

        await fork(body, children)
        await give(permit)
        assert machine_slots(name).take() is None

    async def test_the_pace_is_that_of_all_processes(self, name: str, children: list[int]) -> None:
        settings = LimiterSettings(9, per_second=0.001, burst=3)
        pid = await fork(holding(settings, name, permits=2), children)
        limiter = machine_limiter(settings, name)
        await give(await take(limiter))
        kill(pid, children)
        with pytest.raises(PermitTimeout):
            await take(limiter, 0.3)

    def test_runners_of_several_processes_share_the_limit(self, name: str) -> None:
        with FakeSandbox() as sandbox:
            config = {
                "sandbox_fusion_url": sandbox.url,
                "limiter": "host",
                "limiter_name": name,
                "rate_limit": 2,
            }
            children = []
            for number in range(3):
                pid = os.fork()
                if pid == 0:
                    try:
                        code = f"1  # sfusion:call=c{number}x{{}} seconds=0.05"
                        asyncio.run(_run_all(config, code))
                        os._exit(0)
                    finally:
                        os._exit(1)
                children.append(pid)
            codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children]
            assert codes == [0, 0, 0]
            assert (sandbox.ledger.peak_in_flight, sandbox.ledger.arrived) == (2, 12)


async def _run_all(config: dict[str, object], code: str) -> None:
    runner = CodeRunner(config)
    results = await asyncio.gather(*(runner.run(code.format(n)) for n in range(4)))
    assert not any(result.lost for result in results)


class TestSettings:
    """All processes agree on the limit."""

    async def test_another_limit_is_refused_with_a_warning(
        self, name: str, children: list[int], caplog: pytest.LogCaptureFixture
    ) -> None:
        await fork(holding(LimiterSettings(1), name), children)
        limiter = machine_limiter(LimiterSettings(3), name)
        with caplog.at_level(logging.WARNING), pytest.raises(PermitTimeout):
            await take(limiter, 0.1)
        assert "already runs with rate_limit 1, so rate_limit 3 is NOT in force" in caplog.text
        assert "sfusion limiter --machine --resize N" in caplog.text

    async def test_another_limit_is_applied_with_a_warning_and_holds_for_all(
        self, name: str, children: list[int], caplog: pytest.LogCaptureFixture
    ) -> None:
        await fork(holding(LimiterSettings(1), name), children)
        first = machine_limiter(LimiterSettings(1), name)
        waiting = asyncio.create_task(take(first))
        await until(lambda: first.waiting == 1)
        with caplog.at_level(logging.WARNING):
            permit = await take(machine_limiter(LimiterSettings(3), name, apply=True))
        assert "now it runs with rate_limit 3, as a later caller asked" in caplog.text
        await give(await waiting)
        await give(permit)

    async def test_the_limit_of_a_process_that_is_gone_does_not_count(
        self, name: str, children: list[int], caplog: pytest.LogCaptureFixture
    ) -> None:
        kill(await fork(holding(LimiterSettings(1), name), children), children)
        limiter = machine_limiter(LimiterSettings(2), name)
        with caplog.at_level(logging.WARNING):
            permits = [await take(limiter) for _ in range(2)]
        assert caplog.text == ""
        for permit in permits:
            await give(permit)

    async def test_after_a_decrease_nothing_is_granted_until_enough_permits_are_back(
        self, name: str
    ) -> None:
        limiter = machine_limiter(LimiterSettings(4), name)
        first, *rest = [await take(limiter) for _ in range(4)]
        assert machine_slots(name).resize(2) == 4
        await give(first)
        with pytest.raises(PermitTimeout):
            await take(limiter, 0.05)
        await give(rest.pop())
        with pytest.raises(PermitTimeout):
            await take(limiter, 0.05)
        await give(rest.pop())
        rest.append(await take(limiter))
        assert in_use(name) == 2
        for permit in rest:
            await give(permit)

    async def test_an_adaptive_limit_follows_what_its_holders_report(self, name: str) -> None:
        limiter = machine_limiter(LimiterSettings(4, adaptive=True), name)
        async with limiter.permit() as permit:
            permit.report(throttled=True)
        held = [await take(limiter), await take(limiter)]
        with pytest.raises(PermitTimeout):
            await take(limiter, 0.05)
        for permit in held:
            permit.report(succeeded=True)
            await give(permit)
        held = [await take(limiter) for _ in range(3)]
        state = machine_slots(name).state()
        assert state is not None
        assert (state.rate_limit, state.width, state.in_use) == (4, 3, 3)
        for permit in held:
            await give(permit)

    def test_more_slots_than_any_machine_needs_are_refused(self, name: str) -> None:
        with pytest.raises(ConfigError, match="at most 100000 permits"):
            machine_limiter(LimiterSettings(MOST_SLOTS + 1), name)
        with pytest.raises(ConfigError, match="at most 100000 permits"):
            LimiterChoice(LimiterSettings(MOST_SLOTS + 1), kind="host", name=name)

    def test_a_share_is_refused(self, name: str) -> None:
        with pytest.raises(ConfigError, match="limiter: host has no shares"):
            LimiterChoice(LimiterSettings(1), kind="host", name=name, share="nightly")


class TestOneProcess:
    """Callers of one process, in its event loops and threads."""

    async def test_callers_of_all_its_loops_are_served_in_the_order_in_which_they_came(
        self, name: str, children: list[int]
    ) -> None:
        settings = LimiterSettings(1)
        pid = await fork(holding(settings, name), children)
        thread = LoopThread("another loop")
        order: list[int] = []

        async def call(limiter: MachineLimiter, number: int) -> None:
            async with limiter.permit():
                order.append(number)

        mine = machine_limiter(settings, name)
        other = machine_limiter(settings, name)
        calls = []
        for number in range(6):
            limiter = other if number % 2 else mine
            before = limiter.waiting
            work = call(limiter, number)
            if limiter is mine:
                calls.append(asyncio.ensure_future(work))
            else:
                calls.append(asyncio.wrap_future(thread.start(work)))
            await until(lambda: limiter.waiting == before + 1)  # noqa: B023
        kill(pid, children)
        await asyncio.gather(*calls)
        assert order == [0, 1, 2, 3, 4, 5]
        await asyncio.wrap_future(thread.start(other.aclose()))
        thread.close()

    async def test_a_newcomer_does_not_overtake_those_who_wait(self, name: str) -> None:
        limiter = machine_limiter(LimiterSettings(1), name)
        permit = await take(limiter)
        waiting = asyncio.create_task(take(limiter))
        await until(lambda: limiter.waiting == 1)
        await give(permit)
        assert machine_slots(name).take() is None
        await give(await waiting)

    async def test_a_released_permit_goes_to_the_next_caller_of_the_process_at_once(
        self, name: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(machine, "LOOK_SECONDS", 3600.0)
        limiter = machine_limiter(LimiterSettings(1), name)
        permit = await take(limiter)
        waiting = asyncio.create_task(take(limiter))
        await until(lambda: limiter.waiting == 1)
        await give(permit)
        await give(await waiting)

    async def test_a_cancelled_caller_leaves_the_line_and_a_cancelled_holder_its_permit(
        self, name: str
    ) -> None:
        limiter = machine_limiter(LimiterSettings(1), name)

        async def hold() -> None:
            async with limiter.permit():
                await asyncio.Event().wait()

        holder = asyncio.create_task(hold())
        await until(lambda: limiter.held == 1)
        impatient = asyncio.create_task(hold())
        patient = asyncio.create_task(take(limiter))
        await until(lambda: limiter.waiting == 2)
        impatient.cancel()
        holder.cancel()
        await give(await patient)
        await asyncio.wait([impatient, holder])
        assert (limiter.held, limiter.waiting, in_use(name)) == (0, 0, 0)

    async def test_a_caller_whose_time_is_over_does_not_keep_a_permit(self, name: str) -> None:
        limiter = machine_limiter(LimiterSettings(1), name)
        permit = await take(limiter)
        with pytest.raises(PermitTimeout, match=r"no permit within 0\.02 s"):
            await take(limiter, 0.02)
        await give(permit)
        await give(await take(limiter))
        assert (limiter.held, limiter.waiting, in_use(name)) == (0, 0, 0)

    async def test_a_permit_that_nobody_refers_to_returns(self, name: str) -> None:
        limiter = machine_limiter(LimiterSettings(1), name)
        permit = await take(limiter)
        waiting = asyncio.create_task(take(limiter))
        await until(lambda: limiter.waiting == 1)
        del permit
        gc.collect()
        await give(await waiting)

    async def test_closing_ends_the_callers_of_its_loop_and_returns_their_permits(
        self, name: str
    ) -> None:
        limiter = machine_limiter(LimiterSettings(1), name)
        permit = await take(limiter)
        waiting = asyncio.create_task(take(limiter))
        await until(lambda: limiter.waiting == 1)
        await limiter.aclose()
        with pytest.raises(LimiterClosed, match="while a caller waited"):
            await waiting
        with pytest.raises(LimiterClosed):
            await take(limiter)
        assert in_use(name) == 0
        await give(permit)

    def test_a_loop_that_ends_returns_its_permits(self, name: str) -> None:
        choice = LimiterChoice(LimiterSettings(1), kind="host", name=name)

        async def leave_it() -> object:
            return await take(choice())

        for _ in range(3):
            assert asyncio.run(leave_it())

    async def test_tools_with_equal_settings_share_one_limiter_per_loop(self, name: str) -> None:
        choices = [LimiterChoice(LimiterSettings(2), kind="host", name=name) for _ in range(2)]
        assert choices[0]() is choices[1]()

    def test_a_simulated_run_does_not_depend_on_other_processes(
        self, name: str, children: list[int]
    ) -> None:
        asyncio.run(_held_elsewhere(name, children))

        async def scenario() -> float:
            limiter = LimiterChoice(LimiterSettings(1), kind="host", name=name)()

            async def call() -> None:
                async with limiter.permit(100.0):
                    await asyncio.sleep(60)

            await asyncio.gather(call(), call())
            return asyncio.get_running_loop().time()

        assert run_virtually(scenario()) == pytest.approx(120)


async def _held_elsewhere(name: str, children: list[int]) -> None:
    await fork(holding(LimiterSettings(1), name), children)


class TestTrouble:
    """Files that cannot be used, or are gone."""

    async def test_a_full_disk_is_an_error_and_not_a_wait(
        self, name: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def full(*_: object) -> int:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        limiter = machine_limiter(LimiterSettings(2), name)
        with monkeypatch.context() as patch:
            patch.setattr(os, "pwrite", full)
            with pytest.raises(LimiterError, match=rf"{name}.*No space left on device; make room"):
                await take(limiter)
        permit = await take(limiter)
        with monkeypatch.context() as patch:
            patch.setattr(os, "pwrite", full)
            with pytest.raises(LimiterError, match="No space left on device"):
                await take(limiter)
        await give(permit)
        assert in_use(name) == 0

    async def test_callers_that_wait_get_the_error_too(
        self, name: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def broken(*_: object) -> bytes:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

        limiter = machine_limiter(LimiterSettings(1), name)
        permit = await take(limiter)
        waiting = asyncio.create_task(take(limiter))
        await until(lambda: limiter.waiting == 1)
        with monkeypatch.context() as patch:
            patch.setattr(os, "pread", broken)
            with pytest.raises(LimiterError, match="Input/output error"):
                await waiting
        await give(permit)
        assert in_use(name) == 0

    def test_a_call_ends_where_nothing_can_be_written(self, name: str) -> None:
        """The kernel refuses every write of the process, as on a full disk."""
        pid = os.fork()
        if pid == 0:
            try:
                resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
                config = {"sandbox_fusion_url": "http://127.0.0.1:1", "limiter": "host"}
                result = asyncio.run(CodeRunner({**config, "limiter_name": name}).run("1"))
                assert result.outcome is Outcome.THROTTLED
                assert f"limiter {name!r} of this host: File too large" in result.message
                os._exit(0)
            finally:
                os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0

    @on_linux
    def test_a_call_ends_on_a_disk_with_room_for_the_rules_alone(
        self, name: str, folder: Path
    ) -> None:
        folder.mkdir(mode=0o700)
        pid = os.fork()
        if pid == 0:
            try:
                try:
                    kernel.enter_namespaces()
                    kernel.mount("none", "/", None, kernel.MS_REC | kernel.MS_PRIVATE)
                    kernel.mount("tmpfs", str(folder), "tmpfs", 0, "size=4k,mode=700")
                except OSError:
                    os._exit(NO_NAMESPACES)
                config = {"sandbox_fusion_url": "http://127.0.0.1:1", "limiter": "host"}
                result = asyncio.run(CodeRunner({**config, "limiter_name": name}).run("1"))
                assert result.outcome is Outcome.THROTTLED
                assert f"limiter {name!r} of this host: No space left on device" in result.message
                os._exit(0)
            finally:
                os._exit(1)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        if code == NO_NAMESPACES:
            pytest.skip("this machine offers no mount namespaces")
        assert code == 0

    async def test_a_folder_that_others_may_use_meanwhile_is_an_error(
        self, name: str, folder: Path
    ) -> None:
        limiter = machine_limiter(LimiterSettings(1), name)
        os.chmod(folder, 0o755)
        with pytest.raises(LimiterError, match="others may use"):
            await take(limiter)

    async def test_a_file_that_was_removed_is_made_again(self, name: str) -> None:
        limiter = machine_limiter(LimiterSettings(1), name)
        await give(await take(limiter))
        slot_path(name).unlink()
        new = await take(limiter)
        assert in_use(name) == 1
        with pytest.raises(PermitTimeout):
            await take(limiter, 0.05)
        await give(new)
        await give(await take(limiter))

    async def test_permits_of_removed_folders_count_until_they_return(
        self, name: str, folder: Path
    ) -> None:
        limiter = machine_limiter(LimiterSettings(2), name)
        first = await take(limiter)
        shutil.rmtree(folder)
        second = await take(limiter)
        with pytest.raises(PermitTimeout):
            await take(limiter, 0.05)
        shutil.rmtree(folder)
        with pytest.raises(PermitTimeout):
            await take(limiter, 0.05)
        await give(first)
        third = await take(limiter)
        with pytest.raises(PermitTimeout):
            await take(limiter, 0.05)
        for permit in (second, third):
            await give(permit)
        await give(await take(limiter))

    async def test_a_process_counts_what_others_hold_of_a_removed_file(
        self, name: str, children: list[int]
    ) -> None:
        settings = LimiterSettings(1)
        limiter = machine_limiter(settings, name)
        await give(await take(limiter))
        child = await fork(holding(settings, name), children)
        slot_path(name).unlink()
        with pytest.raises(PermitTimeout):
            await take(limiter, 0.1)
        kill(child, children)
        await give(await take(limiter))

    async def test_a_file_that_another_process_has_made_again_is_the_one_that_counts(
        self, name: str, children: list[int]
    ) -> None:
        settings = LimiterSettings(1)
        limiter = machine_limiter(settings, name)
        await give(await take(limiter))
        slot_path(name).unlink()
        await fork(holding(settings, name), children)
        with pytest.raises(PermitTimeout):
            await take(limiter, 0.1)

    async def test_a_damaged_file_is_an_error(self, name: str) -> None:
        limiter = machine_limiter(LimiterSettings(1), name)
        await give(await take(limiter))
        slot_path(name).write_text("nonsense")
        with pytest.raises(LimiterError, match="holds no rules of a limiter"):
            await take(limiter)
