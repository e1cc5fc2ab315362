"""Kill -9 of holders and waiters of a machine's limiter, with a count that does not come from it.

``python -m tests.sfusion_tools.limiter.kills 1000`` plays that many rounds. In each, all processes
ask, and permits go from hand to hand while some of the processes are killed. A holder must find one
of ``LIMIT`` bytes of another file that nobody else has locked.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import random
import select
import signal
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from sfusion_tools.limiter import LimiterSettings
from sfusion_tools.limiter.machine import machine_limiter
from sfusion_tools.limiter.slots import FOLDER

LIMIT = 2
WORKERS = 6
PATIENCE = 60.0
"""Seconds after which a grant is lost; on a busy machine everything may take long."""


class Worker:
    """A process that asks for a permit and releases it as it is told."""

    def __init__(self, name: str, counted: Path) -> None:
        commands, self._commands = os.pipe()
        self.answers, answers = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            code = 1
            try:
                asyncio.run(_work(name, commands, answers, counted))
                code = 0
            finally:
                os._exit(code)
        os.close(commands)
        os.close(answers)

    def tell(self, command: str) -> None:
        os.write(self._commands, f"{command}\n".encode())

    def answer(self) -> str:
        """Return the next answer; there is one at a time."""
        ready, _, _ = select.select([self.answers], [], [], PATIENCE)
        assert ready, f"no answer within {PATIENCE:g} s"
        data = os.read(self.answers, 4096).decode()
        assert data, "a worker ended by itself"
        return data.strip()

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self._commands)
        os.close(self.answers)


async def _work(name: str, commands: int, answers: int, counted: Path) -> None:
    loop = asyncio.get_running_loop()
    limiter = machine_limiter(LimiterSettings(LIMIT), name)
    lines: asyncio.Queue[str] = asyncio.Queue()

    def read() -> None:
        data = os.read(commands, 4096)
        for line in data.decode().split():
            lines.put_nowait(line)
        if not data:
            lines.put_nowait("end")

    loop.add_reader(commands, read)
    release = asyncio.Event()

    async def hold() -> None:
        async with limiter.permit():
            file = os.open(counted, os.O_RDWR)
            held = any(_locked(file, byte) for byte in range(LIMIT))
            os.write(answers, b"granted\n" if held else b"above the limit\n")
            await release.wait()
            release.clear()
            os.close(file)
        os.write(answers, b"released\n")

    while (line := await lines.get()) != "end":
        if line == "ask":
            holding = asyncio.create_task(hold())
        elif line == "release":
            release.set()
            await holding


def _locked(file: int, byte: int) -> bool:
    with suppress(BlockingIOError):
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, byte)
        return True
    return False


@dataclass
class Counts:
    """What happened."""

    rounds: int = 0
    grants: int = 0
    killed: dict[str, int] = field(default_factory=lambda: {"holder": 0, "waiter": 0})
    longest: float = 0.0
    """Seconds from a free permit to its next holder."""


def play(rounds: int, seed: int, folder: Path) -> Counts:
    """Play rounds in this folder; raise AssertionError if the limit is broken or a permit lost."""
    os.environ[FOLDER] = str(folder)
    name = f"kills {seed}"
    counted = folder / "counted"
    counted.write_bytes(bytes(LIMIT))
    chance = random.Random(seed)
    counts = Counts()
    workers = [Worker(name, counted) for _ in range(WORKERS)]
    try:
        for _ in range(rounds):
            _round(workers, chance, counts)
            while len(workers) < WORKERS:
                workers.append(Worker(name, counted))
            counts.rounds += 1
    finally:
        for worker in workers:
            worker.kill()
    return counts


def _next_holder(waiting: list[Worker]) -> Worker:
    """Return the worker that has been granted a permit."""
    answers = [worker.answers for worker in waiting]
    ready, _, _ = select.select(answers, [], [], PATIENCE)
    assert ready, f"a free permit was not granted within {PATIENCE:g} s"
    worker = waiting[answers.index(ready[0])]
    found = worker.answer()
    assert found == "granted", found
    return worker


def _round(workers: list[Worker], chance: random.Random, counts: Counts) -> None:
    waiting = list(workers)
    holding: list[Worker] = []
    for worker in waiting:
        worker.tell("ask")
    while True:
        free_since = time.monotonic()
        while waiting and len(holding) < LIMIT:
            worker = _next_holder(waiting)
            counts.longest = max(counts.longest, time.monotonic() - free_since)
            counts.grants += 1
            waiting.remove(worker)
            holding.append(worker)
        if not holding:
            return
        what = chance.choices(["release", "holder", "waiter"], [6, 2, 2 if waiting else 0])[0]
        if what == "release":
            worker = holding.pop(0)
            worker.tell("release")
            assert worker.answer() == "released"
            continue
        group = holding if what == "holder" else waiting
        victim = chance.choice(group)
        group.remove(victim)
        workers.remove(victim)
        victim.kill()
        counts.killed[what] += 1


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        print(play(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1, Path(scratch)))
