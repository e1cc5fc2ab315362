"""The fake under load: quotas hold, the counts add up, and nothing is left behind."""

from __future__ import annotations

import asyncio
import json
import resource
import socket
import struct
import sys
from collections import Counter
from pathlib import Path

import pytest

from sfusion.fakes.sandbox import FakeSandbox
from tests.fakes.wire.raw import PATIENCE, Raw, RawAnswer, Watch, one, run_code


async def test_quota_of_8_holds_against_64_clients() -> None:
    received: list[RawAnswer] = []
    async with FakeSandbox(model={"kind": "quota", "in_flight": 8, "retry_after": 0.5}) as sandbox:

        async def client(number: int) -> None:
            async with Raw(sandbox.port) as raw:
                for turn in range(5):
                    received.append(
                        await raw.ask(run_code(f"# sfusion:call=c{number}.{turn} seconds=0.02"))
                    )

        await asyncio.gather(*(client(number) for number in range(64)))
        ledger = sandbox.ledger
        statuses = Counter(answer.status for answer in received)
        assert set(statuses) == {200, 429}
        assert all(
            answer.header("retry-after") == "0.5" for answer in received if answer.status == 429
        )
        assert ledger.peak_executing == 8
        assert ledger.statuses == dict(statuses)
        assert ledger.arrived == len(received) == 64 * 5
        assert ledger.started == ledger.finished == statuses[200]
        assert sum(record.started for record in ledger.calls.values()) == statuses[200]
        assert (ledger.in_flight, ledger.executing) == (0, 0)


SERVER = """
import asyncio, gc, json, os, re, sys
from sfusion.fakes.sandbox import FakeSandbox

def status():
    with open("/proc/self/status") as file:
        return file.read()

async def main():
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    async with FakeSandbox(faults=[{"what": "hang"}]) as sandbox:
        print(sandbox.port, flush=True)
        while (line := await reader.readline()).strip():
            gc.collect()
            print(json.dumps({
                "in_flight": sandbox.ledger.in_flight,
                "tasks": len(asyncio.all_tasks()),
                "files": len(os.listdir("/proc/self/fd")),
                # Not getrusage's maximum: that begins with the memory of the parent process.
                "kilobytes": int(re.search(r"VmRSS:\\s+(\\d+)", status())[1]),
            }), flush=True)

asyncio.run(main())
"""


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="counts open files in /proc")
async def test_2000_hanging_connections_are_cheap_and_leave_nothing_behind() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 4096:
        pytest.skip(f"only {hard} open files are allowed here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 4096), hard))
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", SERVER, stdin=pipe, stdout=pipe
    )
    assert process.stdin is not None
    assert process.stdout is not None
    stdin, stdout = process.stdin, process.stdout

    async def state() -> dict[str, int]:
        stdin.write(b"?\n")
        found: dict[str, int] = json.loads(await stdout.readline())
        return found

    async with asyncio.timeout(3 * PATIENCE):
        port = int(await stdout.readline())
        before = await state()
        clients = [await Raw(port).__aenter__() for _ in range(2000)]
        for number, client in enumerate(clients):
            await client.send(run_code(f"# sfusion:call=c{number}"))
        while (during := await state())["in_flight"] < 2000:
            pass  # each question is a turn of the server's loop
        assert during["kilobytes"] < 300 * 1024
        for client in clients:
            client.reset()
        after = during
        while any(after[what] > before[what] for what in ("in_flight", "files", "tasks")):
            after = await state()  # the server hears of a leaving client a turn later
        stdin.close()
        assert await process.wait() == 0


async def test_stop_answers_requests_in_flight_and_leaves_no_task() -> None:
    events = Watch()
    before = asyncio.all_tasks()
    sandbox = await FakeSandbox(journal=events.note).start()
    async with Raw(sandbox.port) as raw, Raw(sandbox.port) as idle:
        await raw.send(run_code('# sfusion:call=a seconds=0.1 prints="late"'))
        await events.until(lambda: sandbox.ledger.executing == 1)
        await sandbox.stop()
        answer = await raw.answer()
        assert answer.json["run_result"]["stdout"] == "late"
        assert await idle.rest() == (b"", "closed")
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", sandbox.port)
    assert asyncio.all_tasks() == before


async def test_stop_is_not_disturbed_by_a_client_that_has_just_reset_its_connection() -> None:
    loop = asyncio.get_running_loop()
    sandbox = await FakeSandbox().start()
    with socket.socket() as client:
        client.setblocking(False)
        await loop.sock_connect(client, ("127.0.0.1", sandbox.port))
        await loop.sock_sendall(client, run_code())
        assert await loop.sock_recv(client, 1) == b"H"
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    await sandbox.stop()
    assert sandbox.server.open_connections == 0


async def test_stop_does_not_wait_for_hanging_requests() -> None:
    events = Watch()
    sandbox = await FakeSandbox(faults=[{"what": "hang"}], journal=events.note).start()
    async with Raw(sandbox.port) as raw:
        await raw.send(run_code())
        await events.until(lambda: "strike" in events.kinds())
        await sandbox.stop(grace=3600)
        assert await raw.rest() == (b"", "closed")


async def test_program_that_outlasts_the_grace_period_is_cancelled() -> None:
    events = Watch()
    sandbox = await FakeSandbox(journal=events.note).start()
    async with Raw(sandbox.port) as raw:
        await raw.send(run_code("# sfusion:call=a seconds=3600", run_timeout=7200))
        await events.until(lambda: sandbox.ledger.executing == 1)
        await sandbox.stop(grace=0.01)
        assert (await raw.rest())[0] == b""
    assert sandbox.ledger.calls["a"].finished == 0


async def test_program_runs_on_when_its_client_disconnects() -> None:
    events = Watch()
    async with FakeSandbox(journal=events.note) as sandbox:
        async with Raw(sandbox.port) as raw:
            await raw.send(run_code("# sfusion:call=a seconds=0.05"))
            await events.until(lambda: sandbox.ledger.executing == 1)
        await events.until(lambda: sandbox.ledger.in_flight == 0)
        assert sandbox.ledger.calls["a"].finished == 1


async def test_several_fakes_run_independently() -> None:
    async with FakeSandbox() as a, FakeSandbox() as b:
        assert a.port != b.port
        await one(a.port, run_code("# sfusion:call=x"))
        assert (a.ledger.arrived, b.ledger.arrived) == (1, 0)


def test_synchronous_context_manager_runs_the_fake_in_a_thread() -> None:
    import http.client

    with FakeSandbox(faults=[{"first": 1, "what": {"status": 503}}]) as sandbox:

        def status() -> int:
            connection = http.client.HTTPConnection("127.0.0.1", sandbox.port)
            body = b'{"code":"# sfusion:call=a","language":"python"}'
            connection.request("POST", "/run_code", body, {"content-type": "application/json"})
            got = connection.getresponse().status
            connection.close()
            return got

        assert [status(), status()] == [503, 200]
        sandbox.set_faults([{"what": {"status": 500}}])
        assert status() == 500
        sandbox.forget()
        assert sandbox.ledger.arrived == 0
    with pytest.raises(ConnectionRefusedError):
        status()
