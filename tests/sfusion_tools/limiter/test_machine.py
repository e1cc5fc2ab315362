"""One limit for all processes of a machine, without Ray and without a server that somebody
starts."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

import pytest

from sfusion.fakes.sandbox import FakeSandbox
from sfusion_tools import CodeRunner
from sfusion_tools.errors import ConfigError, LimiterError
from sfusion_tools.limiter import LimiterSettings
from sfusion_tools.limiter.machine import machine_limiter, snapshot
from sfusion_tools.limiter.machine_server import FOLDER, FileStore, Place
from sfusion_tools.limiter.ray_limiter import LimiterChoice
from tests.sfusion_tools.limiter.holding import give, take
from tests.sfusion_tools.limiter.kills import play
from tests.sfusion_tools.sandbox.helpers import until

pytestmark = pytest.mark.xdist_group("machine limiter")


@pytest.fixture(scope="module", autouse=True)
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder whose path is short enough for a socket; its servers are killed."""
    scratch = tmp_path_factory.mktemp("m")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(FOLDER, str(scratch))
        yield scratch
    for lock in scratch.rglob("*.lock"):
        if lock.with_suffix(".sock").exists():
            with suppress(ProcessLookupError):  # a server that nobody uses ends by itself
                os.kill(int(lock.read_text()), signal.SIGKILL)


def kill_server(name: str) -> None:
    os.kill(int(Path(Place.of(name).lock_file).read_text()), signal.SIGKILL)


async def held_by_a_child(settings: LimiterSettings, name: str) -> int:
    """Fork a process that holds a permit; return its pid."""
    ready, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            asyncio.run(_hold(settings, name, write))
        finally:
            os._exit(1)
    os.close(write)
    assert await asyncio.to_thread(os.read, ready, 1) == b"!"
    os.close(ready)
    return pid


async def _hold(settings: LimiterSettings, name: str, write: int) -> None:
    async with machine_limiter(settings, name).permit():
        os.write(write, b"!")
        await asyncio.sleep(600)


def test_kills_of_holders_waiters_and_servers_break_neither_limit_nor_order(folder: Path) -> None:
    """``python -m tests.sfusion_tools.limiter.kills 1000`` plays more of it."""
    inner = folder / "kills"
    inner.mkdir(mode=0o700)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(FOLDER, str(inner))
        counts = play(6, 3, inner)
    assert counts.rounds == 6
    assert min(counts.killed.values()) > 0


async def test_a_dead_process_returns_its_permit_at_once() -> None:
    settings, name = LimiterSettings(1, lease=3600.0), uuid4().hex
    pid = await held_by_a_child(settings, name)
    limiter = machine_limiter(settings, name)
    waiting = asyncio.create_task(take(limiter))
    await until(lambda: limiter.waiting == 1)
    os.kill(pid, signal.SIGKILL)
    await give(await waiting)
    await asyncio.to_thread(os.waitpid, pid, 0)
    record = FileStore(Place.of(name).record).read()
    assert record is not None
    assert list(record.clients) == [limiter.name], "a successor need not wait for the dead one"
    await limiter.aclose()


async def test_a_permit_outlives_the_server_and_the_next_one_counts_it() -> None:
    settings, name = LimiterSettings(1, lease=60.0), uuid4().hex
    limiter, other = machine_limiter(settings, name), machine_limiter(settings, name)
    held = await take(limiter)
    before = snapshot(name)
    kill_server(name)
    with pytest.raises(LimiterError):
        await other.permit(2.0).__aenter__()
    after = snapshot(name)
    assert before is not None
    assert after is not None
    assert (after.in_use, after.holders) == (1, before.holders)
    assert after.incarnation != before.incarnation
    await give(held)
    await give(await take(other))
    await limiter.aclose()
    await other.aclose()


async def test_other_settings_are_named_and_those_of_a_successor_stay(
    caplog: pytest.LogCaptureFixture,
) -> None:
    name = uuid4().hex
    first, second = (
        machine_limiter(LimiterSettings(n, lease=60.0), name, apply=n == 3) for n in (1, 3)
    )
    await give(await take(first))
    with caplog.at_level(logging.WARNING):
        await give(await take(second))
    assert "now it runs with rate_limit 3" in caplog.text
    kill_server(name)
    await give(await take(first))
    found = snapshot(name)
    assert found is not None
    assert found.rate_limit == 3
    await first.aclose()
    await second.aclose()


def test_a_folder_that_cannot_be_used_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tmp_path.chmod(0o777)
    monkeypatch.setenv(FOLDER, str(tmp_path))
    with pytest.raises(ConfigError, match="others may write to it"):
        LimiterChoice(LimiterSettings(1), kind="host", name="x")
    monkeypatch.setenv(FOLDER, str(tmp_path / ("x" * 120)))
    with pytest.raises(ConfigError, match="too long for a socket"):
        LimiterChoice(LimiterSettings(1), kind="host", name="x")


async def test_a_server_that_cannot_start_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", "/bin/false")
    limiter = machine_limiter(LimiterSettings(1), uuid4().hex)
    with pytest.raises(LimiterError, match=r"could not be started \(1\)"):
        await take(limiter)
    await limiter.aclose()


def test_runners_of_several_processes_share_the_limit() -> None:
    with FakeSandbox() as sandbox:
        config = {
            "sandbox_fusion_url": sandbox.url,
            "limiter": "host",
            "limiter_name": uuid4().hex,
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
        assert [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children] == [0, 0, 0]
        assert (sandbox.ledger.peak_in_flight, sandbox.ledger.arrived) == (2, 12)


async def _run_all(config: dict[str, object], code: str) -> None:
    runner = CodeRunner(config)
    results = await asyncio.gather(*(runner.run(code.format(n)) for n in range(4)))
    assert not any(result.lost for result in results)
