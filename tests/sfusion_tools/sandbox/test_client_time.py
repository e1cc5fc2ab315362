"""One deadline covers a call, cancelling ends it at once, and the end of a loop leaves nothing
open."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import textwrap
import weakref

import pytest

from sfusion.fakes.sandbox import FakeSandbox
from sfusion_tools.limiter import LimiterSettings, local_host, local_limiter
from sfusion_tools.limiter.client import Limiter
from sfusion_tools.limiter.host import LocalTransport
from sfusion_tools.outcome import Outcome
from sfusion_tools.sandbox import Bounds, Program, RetryPolicy, SandboxClient
from sfusion_tools.sandbox.text import model_text
from tests.patience import PATIENCE
from tests.sfusion_tools.limiter.holding import give, take
from tests.sfusion_tools.sandbox.helpers import (
    Events,
    RawServer,
    answering,
    client,
    http,
    in_virtual_time,
    run_answer,
    until,
)

PROGRAM = Program("print(3)", timeout=30.0)


async def _silence(writer: asyncio.StreamWriter, number: int) -> None:
    """Accept, read, and never answer."""
    await asyncio.Event().wait()


async def _drip(writer: asyncio.StreamWriter, number: int) -> None:
    """Send a byte per second, for ever."""
    writer.write(
        b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 1000000\r\n\r\n{"
    )
    while not writer.is_closing():
        await asyncio.sleep(1.0)
        writer.write(b" ")


@pytest.mark.parametrize("serve", [_silence, _drip], ids=["silent", "dripping"])
def test_a_call_ends_at_its_deadline(serve):
    """An answer of one byte per second outlived every timeout of verl's client."""

    async def go() -> None:
        server = RawServer(serve)
        async with server.running() as url:
            result = await SandboxClient(url).run(PROGRAM)
            first, last = result.attempts[0], result.attempts[-1]
            assert result.outcome is Outcome.TRANSPORT_TIMEOUT
            assert first.seconds == pytest.approx(40.0, abs=0.01)  # the program's 30 s plus 10 s
            assert first.detail.startswith("no complete answer within 40 s")
            assert result.seconds == pytest.approx(
                90.0, abs=0.01
            )  # the whole call: twice that plus 10 s
            assert sum(a.seconds for a in result.attempts) + result.backed_off == pytest.approx(
                90.0, abs=0.01
            )
            assert len(result.attempts) == len(server.requests) == result.possible_executions == 3
            assert last.seconds < 40.0
            assert "the next attempt would miss the deadline" in result.message

    in_virtual_time(go)


def test_a_configured_deadline_is_respected():
    async def go() -> None:
        async with RawServer(_drip).running() as url:
            result = await client(url, bounds=Bounds(deadline=12.0)).run(PROGRAM)
        assert (result.outcome, len(result.attempts)) == (Outcome.TRANSPORT_TIMEOUT, 1)
        assert result.seconds == pytest.approx(12.0, abs=0.01)

    in_virtual_time(go)


def test_the_deadline_bounds_retries_too():
    async def go() -> None:
        async with answering(http("", "503 Service Unavailable")) as (url, _):
            retry = RetryPolicy(max_attempts=10_000, base=1.0, cap=4.0)
            result = await client(url, retry=retry, bounds=Bounds(deadline=60.0)).run(PROGRAM)
        assert result.outcome is Outcome.SANDBOX_ERROR
        assert 50.0 < result.seconds <= 60.0

    in_virtual_time(go)


def test_compilation_gets_extra_time():
    async def go() -> None:
        async with RawServer(_silence).running() as url:
            sandbox = client(url, retry=RetryPolicy(max_attempts=1), bounds=Bounds(margin=5.0))
            result = await sandbox.run(
                Program("int main(){}", "cpp", timeout=20.0, compile_timeout=15.0)
            )
        assert result.seconds == pytest.approx(40.0, abs=0.01)

    in_virtual_time(go)


def test_the_wait_for_a_permit_does_not_count_towards_the_deadline():
    async def go() -> None:
        clock = asyncio.get_running_loop().time
        limiter = Limiter(LocalTransport(local_host(LimiterSettings(rate_limit=1), clock)))
        async with FakeSandbox() as sandbox:
            tool = client(sandbox.url, limiter=lambda: limiter, bounds=Bounds(deadline=15.0))
            slow = [Program(f"print({n})  # sfusion:call=c{n} seconds=10") for n in range(5)]
            results = await asyncio.gather(*(tool.run(program) for program in slow))
        assert [result.outcome for result in results] == [Outcome.OK] * 5
        assert [round(result.waited) for result in results] == [0, 10, 20, 30, 40]
        assert [round(result.metrics()["permit_wait_s"]) for result in results] == [
            0,
            10,
            20,
            30,
            40,
        ]
        assert {round(result.metrics()["request_s"]) for result in results} == {10}

    in_virtual_time(go)


@pytest.mark.parametrize("queued", [0.0, 50.0, 100.0])
def test_the_total_bounds_queue_attempts_and_pauses_together(queued):
    """Without it, nothing bounds a call but the sum of its parts: ten minutes in the queue for
    each attempt."""

    async def go() -> None:
        loop = asyncio.get_running_loop()
        limiter = Limiter(LocalTransport(local_host(LimiterSettings(rate_limit=1), loop.time)))

        async def occupy() -> None:
            async with limiter.permit():
                await asyncio.sleep(queued)

        async with RawServer(_silence).running() as url:
            sandbox = client(url, limiter=lambda: limiter, bounds=Bounds(total=60.0))
            ahead = asyncio.create_task(occupy())
            await until(lambda: limiter.held)
            result = await sandbox.run(PROGRAM)
            assert result.seconds == pytest.approx(60.0, abs=0.01)
            assert result.out_of_time == 60.0
            assert result.waited == pytest.approx(min(queued, 60.0), abs=0.01)
            if queued > 60.0:
                assert (result.outcome, result.attempts) == (Outcome.THROTTLED, [])
                assert result.message == "no permit from the limiter within 60 s"
            else:
                assert result.outcome is Outcome.TRANSPORT_TIMEOUT
                assert [round(a.seconds) for a in result.attempts] == (
                    [40, 20] if queued == 0.0 else [10]
                )
            assert "a call may take 60 s" in model_text(
                result, "code_interpreter", timeout=30.0, limit=1000
            )
            assert (limiter.held, limiter.waiting) == (int(queued > 60.0), 0)
            await ahead

    in_virtual_time(go)


@pytest.mark.parametrize("limited", [False, True])
def test_nothing_is_sent_once_the_total_is_over(limited):
    async def go() -> None:
        limiter = local_limiter(LimiterSettings(rate_limit=1)) if limited else None
        async with answering(http(run_answer())) as (url, server):
            result = await client(url, limiter=lambda: limiter, bounds=Bounds(total=1e-9)).run(
                PROGRAM
            )
        assert (result.outcome, result.attempts, server.requests) == (Outcome.THROTTLED, [], [])
        assert result.out_of_time == 1e-9
        assert limiter is None or (limiter.held, limiter.waiting) == (0, 0)

    in_virtual_time(go)


def test_a_call_that_would_miss_its_total_ends_before_the_pause():
    async def go() -> None:
        async with answering(http("", "429 Too Many Requests", "retry-after: 100")) as (
            url,
            server,
        ):
            result = await client(url, bounds=Bounds(total=60.0, deadline=1000.0)).run(PROGRAM)
        assert (result.outcome, len(server.requests), result.out_of_time) == (
            Outcome.THROTTLED,
            1,
            60.0,
        )
        assert "the next attempt would miss the deadline" in result.message
        assert result.backed_off == 0.0

    in_virtual_time(go)


def test_a_connect_timeout_means_that_nothing_ran(monkeypatch):
    async def go() -> None:
        loop = asyncio.get_running_loop()

        async def never(*args: object, **kwargs: object) -> None:
            await asyncio.Event().wait()

        # Loopback always answers, so imitate a black hole at the event loop.
        monkeypatch.setattr(loop, "sock_connect", never)
        result = await client("http://192.0.2.1:8080", retry=RetryPolicy(max_attempts=2)).run(
            PROGRAM
        )
        assert (result.outcome, result.possible_executions) == (Outcome.UNREACHABLE, 0)
        assert "no connection to http://192.0.2.1:8080 within 10 s" in result.message

    in_virtual_time(go)


@pytest.mark.parametrize("where", ["attempt_started", "backing_off", "in the queue"])
async def test_cancelling_frees_the_permit_at_once(where):
    """verl defect (j): a cancelled call held its permit for 70 s more, and still sent its
    request."""
    events = Events()
    host = local_host(LimiterSettings(rate_limit=1))
    limiter = Limiter(LocalTransport(host))
    busy = http("", "429 Too Many Requests", "retry-after: 3600")

    async def serve(writer: asyncio.StreamWriter, number: int) -> None:
        if where == "backing_off":
            writer.write(busy)
        else:
            await server.client_left(writer)

    server = RawServer(serve)
    async with server.running() as url:
        sandbox = client(
            url, limiter=lambda: limiter, on_event=events, bounds=Bounds(deadline=10_000.0)
        )
        held = await take(limiter) if where == "in the queue" else None
        task = asyncio.create_task(sandbox.run(PROGRAM))
        if held is not None:
            await until(lambda: host.snapshot().waiting)
        else:
            await events.first(where)
        if where == "attempt_started":
            await until(lambda: server.requests)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        if held is not None:
            await give(held)
        await limiter.flush()
        snapshot = host.snapshot()
        assert (snapshot.in_use, snapshot.waiting) == (0, 0)
        if where == "attempt_started":
            await server.gone.wait()  # the connection is closed too
        assert len(server.requests) == (0 if where == "in the queue" else 1)
    ended = events.of("call_ended")[0]
    assert ended["outcome"] == "cancelled"
    assert ended["executions"] == (1 if where == "attempt_started" else 0)


def test_a_client_works_in_successive_loops_and_keeps_none_alive():
    loops: list[weakref.ref[asyncio.AbstractEventLoop]] = []

    with FakeSandbox(executor="scripted") as sandbox:
        tool = client(sandbox.url)

        async def go() -> Outcome:
            loops.append(weakref.ref(asyncio.get_running_loop()))
            return (await tool.run(PROGRAM)).outcome

        assert [asyncio.run(go()) for _ in range(3)] == [Outcome.OK] * 3
        gc.collect()
        assert [loop() for loop in loops] == [None, None, None]


async def test_a_loop_has_one_session_and_reuses_its_connections():
    async with FakeSandbox(executor="scripted") as sandbox:
        tool = client(sandbox.url)
        for number in range(5):
            await tool.run(Program(f"print({number})"))
        assert sandbox.ledger.connections == 1
        await tool.aclose()
        assert (await tool.run(PROGRAM)).outcome is Outcome.OK
        assert sandbox.ledger.connections == 2
        await tool.aclose()
        await tool.aclose()


async def test_clients_of_a_loop_share_connections_until_the_last_one_closes():
    """Some trainers make new tools for every trajectory."""
    async with FakeSandbox(executor="scripted") as sandbox:
        for number in range(5):
            await client(sandbox.url).run(Program(f"print({number})"))
        staying, leaving = client(sandbox.url), client(sandbox.url)
        await staying.run(PROGRAM)
        await leaving.run(PROGRAM)
        await leaving.aclose()
        await staying.run(PROGRAM)
        assert sandbox.ledger.connections == 1


def test_no_connection_is_left_open_when_loops_end():
    """No unclosed session, no destroyed task, no warning: in a new process with all warnings
    enabled."""
    program = """
        import asyncio, gc, logging
        from sfusion.fakes.sandbox import FakeSandbox
        from sfusion_tools.sandbox_fusion_tools import SandboxFusionTool

        # A busy machine may be slow.
        logging.getLogger("asyncio").addFilter(lambda record: "took" not in record.msg)
        with FakeSandbox(executor="scripted") as sandbox:
            config = {"sandbox_fusion_url": sandbox.url, "limiter": "local", "rate_limit": 2}
            tool = SandboxFusionTool(config)

            async def go(code):
                await asyncio.gather(*(tool.execute("x", {"code": code}) for _ in range(5)))

            async def give_up():
                task = asyncio.create_task(go("1  # sfusion:call=x seconds=60"))
                await asyncio.wait([task], timeout=0.05)

            asyncio.run(go("1"))
            asyncio.run(give_up())
            asyncio.run(go("2"))
        gc.collect()
        print("done")
    """
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-W", "error", "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert (done.stdout, done.stderr, done.returncode) == ("done\n", "", 0)


def test_closing_a_client_during_its_own_call_does_not_end_the_call():
    async def go() -> None:
        async with FakeSandbox() as sandbox:
            own = client(sandbox.url)
            call = asyncio.create_task(own.run(Program("1  # sfusion:call=a seconds=5")))
            await until(lambda: sandbox.ledger.arrived)
            await own.aclose()
            result = await call
        assert (result.outcome, len(result.attempts)) == (Outcome.OK, 1)

    in_virtual_time(go)
