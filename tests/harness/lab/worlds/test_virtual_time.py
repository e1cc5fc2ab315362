"""The virtual loop: time jumps only when nothing real is pending, and in-memory connections behave
like real ones."""

from __future__ import annotations

import asyncio
import selectors
import socket
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import aiohttp
import pytest

from sfusion.fakes.sandbox import FakeSandbox
from sfusion.fakes.sandbox.executors.python import executor as python_executor
from sfusion.fakes.sandbox.executors.python.executor import PythonExecutor
from sfusion.fakes.sandbox.executors.python.files import WorkDirectory
from sfusion.fakes.sandbox.protocol import RunCode
from sfusion.harness.errors import NoProgress, NothingLeft
from sfusion.harness.lab.worlds.virtual_time import VirtualTimeLoop, run_virtually
from sfusion_tools._loops import in_daemon_thread


def test_an_hour_passes_without_waiting() -> None:
    async def main() -> float:
        await asyncio.sleep(3600)
        return asyncio.get_running_loop().time()

    assert run_virtually(main()) == 3600


def test_timers_fire_in_the_order_of_their_times() -> None:
    async def main() -> list[int]:
        order: list[int] = []

        async def later(number: int, seconds: float) -> None:
            await asyncio.sleep(seconds)
            order.append(number)

        await asyncio.gather(later(3, 0.3), later(1, 0.1), later(2, 0.2))
        return order

    assert run_virtually(main()) == [1, 2, 3]


def test_a_blocking_sleep_holds_up_everything_else() -> None:
    async def main() -> list[float]:
        loop = asyncio.get_running_loop()

        async def late() -> float:
            await asyncio.sleep(1.0)
            return loop.time()

        waiting = asyncio.ensure_future(late())
        await asyncio.sleep(0)
        time.sleep(2)  # noqa: ASYNC251 - what a careless tool does
        return [loop.time(), await waiting]

    real = time.sleep
    assert run_virtually(main()) == [2.0, 2.0]
    assert time.sleep is real


def test_the_clock_stands_still_while_a_thread_works() -> None:
    async def main() -> tuple[bool, float]:
        loop = asyncio.get_running_loop()
        alarm = asyncio.ensure_future(asyncio.sleep(0.001))
        before = loop.time()
        await loop.run_in_executor(None, time.sleep, 0.05)
        rang = alarm.done()
        passed = loop.time() - before
        await alarm
        return rang, passed

    assert run_virtually(main()) == (False, 0.0)


def test_the_clock_stands_still_while_a_real_socket_is_open() -> None:
    async def main() -> tuple[bytes, float]:
        loop = asyncio.get_running_loop()
        near, far = socket.socketpair()
        near.setblocking(False)
        with near, far:
            alarm = asyncio.ensure_future(asyncio.sleep(0.001))
            receiving = asyncio.ensure_future(loop.sock_recv(near, 10))
            await asyncio.sleep(0)
            sending = loop.run_in_executor(None, far.send, b"real")
            data = await receiving
            passed = loop.time()
            await sending
            await alarm
        return data, passed

    assert run_virtually(main()) == (b"real", 0.0)


class RealWait:
    """Work outside of the loop that ends when the loop waits for it in real time, and not before.

    A loop that does not wait raises NothingLeft, or rings its alarms meanwhile.
    """

    def __init__(self) -> None:
        self.armed = False
        self._over = threading.Event()

    def note(self) -> None:
        """The loop waits in real time."""
        if self.armed:
            self._over.set()

    def work(self) -> str:
        self._over.wait()
        return "worked"

    def end(self) -> None:
        self._over.set()


@pytest.fixture
def real_wait(monkeypatch: pytest.MonkeyPatch) -> Iterator[RealWait]:
    waiting = RealWait()
    select = selectors.DefaultSelector.select

    def noted(selector: Any, timeout: float | None = None) -> Any:
        if timeout is None:
            waiting.note()
        return select(selector, timeout)

    monkeypatch.setattr(selectors.DefaultSelector, "select", noted)
    yield waiting
    waiting.end()


async def _pool_of_its_own(work: Callable[[], str]) -> str:
    pool = ThreadPoolExecutor(1)
    try:
        return await asyncio.wrap_future(pool.submit(work))
    finally:
        pool.shutdown(wait=False)


async def _default_pool(work: Callable[[], str]) -> str:
    return await asyncio.to_thread(work)


async def _daemon_thread(work: Callable[[], str]) -> str:
    return await in_daemon_thread(work)


@pytest.mark.parametrize("outside", [_pool_of_its_own, _default_pool, _daemon_thread])
def test_the_clock_stands_still_while_a_thread_is_awaited(
    outside: Callable[[Callable[[], str]], Coroutine[Any, Any, str]], real_wait: RealWait
) -> None:
    async def main() -> tuple[str, float, bool]:
        alarm = asyncio.ensure_future(asyncio.sleep(0.001))
        real_wait.armed = True
        try:
            result = await outside(real_wait.work)
        finally:
            real_wait.end()
        return result, asyncio.get_running_loop().time(), alarm.done()

    assert run_virtually(main()) == ("worked", 0.0, False)


@pytest.mark.parametrize("start", ["exec", "shell"])
def test_the_clock_stands_still_until_a_subprocess_without_pipes_has_ended(start: str) -> None:
    async def main(here: socket.socket) -> tuple[int, float]:
        # It ends when it reads the end of its input, which comes from a thread that knows of no
        # clock: the loop has no pipe to wait for.
        if start == "exec":
            process = await asyncio.create_subprocess_exec("cat", stdin=here)
        else:
            process = await asyncio.create_subprocess_shell("cat", stdin=here)
        here.close()
        alarm = asyncio.ensure_future(asyncio.sleep(0.001))
        asyncio.get_running_loop().call_soon(ending.start)
        code = await process.wait()
        assert not alarm.done()
        return code, asyncio.get_running_loop().time()

    here, there = socket.socketpair()
    ending = threading.Thread(target=there.close)
    assert run_virtually(main(here)) == (0, 0.0)
    ending.join()


def test_a_process_that_cannot_be_started_does_not_stop_the_clock() -> None:
    async def main() -> float:
        with pytest.raises(FileNotFoundError):
            await asyncio.create_subprocess_exec("/no/such/program")
        await asyncio.sleep(5)
        return asyncio.get_running_loop().time()

    assert run_virtually(main()) == 5.0


def _removed_late(real_wait: RealWait, monkeypatch: pytest.MonkeyPatch) -> None:
    remove = WorkDirectory.remove

    def late(work: WorkDirectory) -> None:
        real_wait.work()
        remove(work)

    monkeypatch.setattr(WorkDirectory, "remove", late)


_PROGRAM = RunCode(code="print(1)", language="python")


def test_the_clock_stands_still_until_the_directories_of_programs_are_removed(
    real_wait: RealWait, monkeypatch: pytest.MonkeyPatch
) -> None:
    _removed_late(real_wait, monkeypatch)

    async def main() -> float:
        executor = PythonExecutor(own_user=False)
        assert (await executor.run_code(_PROGRAM)).status == "Success"
        real_wait.armed = True
        try:
            await executor.settle()
        finally:
            real_wait.end()
            await executor.aclose()
        return asyncio.get_running_loop().time()

    assert run_virtually(main()) == 0.0


def test_the_clock_stands_still_while_a_request_waits_for_removals(
    real_wait: RealWait, monkeypatch: pytest.MonkeyPatch
) -> None:
    _removed_late(real_wait, monkeypatch)
    monkeypatch.setattr(python_executor, "MOST_REMOVALS", 2)  # of the trial and the first program

    async def main() -> tuple[str, float]:
        executor = PythonExecutor(own_user=False)
        assert (await executor.run_code(_PROGRAM)).status == "Success"
        real_wait.armed = True
        try:
            status = (await executor.run_code(_PROGRAM)).status
        finally:
            real_wait.end()
            await executor.aclose()
        return status, asyncio.get_running_loop().time()

    assert run_virtually(main()) == ("Success", 0.0)


def test_a_deadlock_raises_instead_of_hanging() -> None:
    async def main() -> None:
        await asyncio.get_running_loop().create_future()

    with pytest.raises(NothingLeft, match="nothing is left that could ever happen"):
        run_virtually(main())


def test_a_busy_loop_raises_instead_of_hanging(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sfusion.harness.lab.worlds.virtual_time._FRUITLESS", 1000)

    async def main() -> None:
        loop = asyncio.get_running_loop()

        def spin() -> None:
            loop.call_soon(spin)

        spin()
        await loop.create_future()

    with pytest.raises(NoProgress, match="without letting time pass"):
        run_virtually(main())


def test_sets_of_tasks_iterate_in_the_order_of_creation() -> None:
    async def main() -> list[int]:
        made = [asyncio.ensure_future(asyncio.sleep(1)) for _ in range(8)]
        places = [made.index(task) for task in set(made)]
        await asyncio.wait(made)
        return places

    # Tasks hash by their number, so the order depends only on the order of creation.
    assert run_virtually(main()) == run_virtually(main())


def test_a_real_client_and_the_fake_talk_in_memory() -> None:
    async def main() -> tuple[str, float]:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualTimeLoop)
        async with FakeSandbox() as sandbox, aiohttp.ClientSession() as session:
            body = {
                "code": '# sfusion:call=c1 seconds=25s prints="hi"',
                "language": "python",
                "run_timeout": 60,
            }
            async with session.post(sandbox.url + "/run_code", json=body) as answer:
                data = await answer.json()
        return data["run_result"]["stdout"], loop.time()

    text, took = run_virtually(main())
    assert text == "hi"
    assert took >= 25


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        ({"what": "reset"}, aiohttp.ClientOSError),
        ({"what": "close"}, aiohttp.ServerDisconnectedError),
        ({"what": {"truncate": 0.5}}, aiohttp.ClientPayloadError),
        ({"phase": "connect", "what": "reset"}, aiohttp.ClientOSError),
    ],
)
def test_broken_connections_raise_the_errors_of_real_sockets(
    fault: dict[str, object], error: type[Exception]
) -> None:
    async def main() -> None:
        async with FakeSandbox(faults=[fault]) as sandbox, aiohttp.ClientSession() as session:
            answer = await session.post(
                sandbox.url + "/run_code", json={"code": "", "language": "python"}
            )
            await answer.read()

    with pytest.raises(error):
        run_virtually(main())


def test_a_crashed_server_refuses_connections_until_it_restarts() -> None:
    async def main() -> list[str]:
        seen: list[str] = []
        async with FakeSandbox() as sandbox, aiohttp.ClientSession() as session:
            for wait in (0.0, 1.0, 10.0):
                await asyncio.sleep(wait)
                try:
                    async with session.get(sandbox.url + "/v1/ping") as answer:
                        seen.append(str(answer.status))
                except aiohttp.ClientConnectorError:
                    seen.append("refused")
                if not wait:
                    sandbox.crash(restart_after=5)
        return seen

    assert run_virtually(main()) == ["200", "refused", "200"]


def test_bodies_larger_than_any_buffer_arrive_whole() -> None:
    async def main() -> int:
        fault = {"what": {"output": {"what": "huge", "size": 3_000_000}}}
        async with FakeSandbox(faults=[fault]) as sandbox, aiohttp.ClientSession() as session:
            answer = await session.post(
                sandbox.url + "/run_code", json={"code": "", "language": "python"}
            )
            return len((await answer.json())["run_result"]["stdout"])

    assert run_virtually(main()) >= 3_000_000


def test_an_end_that_was_closed_reads_nothing_more() -> None:
    class Peer(asyncio.Protocol):
        def __init__(self) -> None:
            loop = asyncio.get_running_loop()
            self.made, self.lost, self.read = loop.create_future(), loop.create_future(), b""

        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            self.made.set_result(transport)

        def data_received(self, data: bytes) -> None:
            self.read += data

        def connection_lost(self, exc: Exception | None) -> None:
            self.lost.set_result(exc)

    async def main() -> bytes:
        loop, server_end = asyncio.get_running_loop(), Peer()
        sock = socket.create_server(("127.0.0.1", 0))
        address = sock.getsockname()
        async with await loop.create_server(lambda: server_end, sock=sock):
            transport, client_end = await loop.create_connection(Peer, *address)
            accepted = await server_end.made
            transport.write(b"too late")
            accepted.close()
            await server_end.lost
            await client_end.lost
        return server_end.read

    assert run_virtually(main()) == asyncio.run(main()) == b""


def test_timers_of_one_time_are_due_in_order_of_creation_whatever_others_there_are() -> None:
    async def main(others: int) -> list[int]:
        loop = asyncio.get_running_loop()
        due: list[int] = []
        for number in range(50):
            loop.call_at(5.0, due.append, number)
            for other in range(others):
                loop.call_at(1.0 + (number * 7 + other) % 9, lambda: None)
        await asyncio.sleep(6)
        return due

    assert [run_virtually(main(others)) for others in range(4)] == [list(range(50))] * 4


def test_asyncio_task_can_be_used_as_ever_and_no_task_of_virtual_time_starts_eagerly() -> None:
    order: list[str] = []

    async def step(name: str) -> str:
        order.append(name)
        return name

    async def main() -> None:
        loop = asyncio.get_running_loop()
        eager = {"eager_start": True} if sys.version_info >= (3, 12) else {}
        made: asyncio.Task[str] = asyncio.Task(step("made"), loop=loop, **eager)  # as aiohttp does
        order.append("first")

        class Mine(asyncio.Task[str]):
            pass

        mine = Mine(step("mine"), loop=loop)
        assert isinstance(made, asyncio.Task)
        assert isinstance(mine, Mine)
        assert not isinstance(made, Mine)
        assert [await made, await mine] == ["made", "mine"]

    run_virtually(main())
    assert order == ["first", "made", "mine"]
    assert asyncio.Task.__name__ == "Task"


def test_connections_idle_in_virtual_time() -> None:
    async def main() -> list[str]:
        events: list[str] = []

        async def created(*_: object) -> None:
            events.append("new")

        async def reused(*_: object) -> None:
            events.append("same")

        trace = aiohttp.TraceConfig()
        trace.on_connection_create_end.append(created)
        trace.on_connection_reuseconn.append(reused)
        connector = aiohttp.TCPConnector(keepalive_timeout=2)
        async with (
            FakeSandbox() as sandbox,
            aiohttp.ClientSession(connector=connector, trace_configs=[trace]) as session,
        ):
            for idle in (0, 1, 3):
                await asyncio.sleep(idle)
                async with session.get(f"{sandbox.url}/v1/ping") as answer:
                    await answer.read()
        return events

    assert run_virtually(main()) == ["new", "same", "new"]


def test_timers_fire_apart_where_the_clock_of_the_platform_is_coarse(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def main() -> list[float]:
        loop = asyncio.get_running_loop()
        fired: list[float] = []
        for at in (1.0, 1.001):
            loop.call_at(at, lambda: fired.append(loop.time()))
        await asyncio.sleep(2)
        return fired

    monkeypatch.setattr(time, "get_clock_info", lambda _: SimpleNamespace(resolution=0.016))
    assert run_virtually(main()) == [1.0, 1.001]
