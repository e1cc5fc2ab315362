"""Kill -9 of holders, waiters and the server of a machine's limiter, with a count that does not
come from the limiter.

``python -m tests.sfusion_tools.limiter.kills 1000`` plays that many rounds. In each, processes ask
one after the other, and permits go from hand to hand while some of the processes are killed. A
holder must find one of ``LIMIT`` bytes of a file that nobody else has locked: the kernel frees
those of the dead. Permits must be granted in the order of asking.
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
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from sfusion_tools.limiter import LimiterSettings
from sfusion_tools.limiter.machine import machine_limiter, snapshot
from sfusion_tools.limiter.machine_server import FOLDER, Place

LIMIT, WORKERS = 2, 6
SETTINGS = LimiterSettings(LIMIT, lease=6.0)
PATIENCE = 60.0
"""Seconds after which a grant is lost; on a busy machine everything may take long."""


class Worker:
    """A process that asks for a permit and releases it as it is told."""

    def __init__(self, name: str, slots: Path) -> None:
        commands, self._commands = os.pipe()
        self._answers, answers = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            code = 1
            try:
                asyncio.run(_work(name, commands, answers, slots))
                code = 0
            finally:
                os._exit(code)
        os.close(commands)
        os.close(answers)
        self._heard = ""

    def tell(self, command: str) -> None:
        os.write(self._commands, f"{command}\n".encode())

    def hears(self, seconds: float) -> str | None:
        """Return the next answer, None if there is none in time."""
        end = time.monotonic() + seconds
        while "\n" not in self._heard:
            if not select.select([self._answers], [], [], max(0.0, end - time.monotonic()))[0]:
                return None
            data = os.read(self._answers, 4096).decode()
            assert data, "a worker ended by itself"
            self._heard += data
        line, _, self._heard = self._heard.partition("\n")
        return line

    def expect(self, answer: str) -> None:
        found = self.hears(PATIENCE)
        assert found == answer, f"expected {answer!r} within {PATIENCE:g} s, found {found!r}"

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self._commands)
        os.close(self._answers)


async def _work(name: str, commands: int, answers: int, slots: Path) -> None:
    loop = asyncio.get_running_loop()
    limiter = machine_limiter(SETTINGS, name)
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
            file = os.open(slots, os.O_RDWR)
            held = any(_locked(file, slot) for slot in range(LIMIT))
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
        elif line == "flush":
            await limiter.flush()
            os.write(answers, b"flushed\n")


def _locked(file: int, slot: int) -> bool:
    with suppress(BlockingIOError):
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, slot)
        return True
    return False


@dataclass
class Counts:
    """What happened."""

    rounds: int = 0
    grants: int = 0
    killed: dict[str, int] = field(
        default_factory=lambda: dict.fromkeys(("holder", "waiter", "server"), 0)
    )
    longest: float = 0.0
    """Seconds from a free permit to its next holder."""


def play(rounds: int, seed: int, folder: Path) -> Counts:
    """Play rounds in this folder; raise AssertionError if the limit, the order or a permit is
    lost."""
    os.environ[FOLDER] = str(folder)
    name, slots, chance, counts = f"kills {seed}", folder / "slots", random.Random(seed), Counts()
    slots.write_bytes(bytes(LIMIT))
    workers = [Worker(name, slots) for _ in range(WORKERS)]
    try:
        for _ in range(rounds):
            _round(name, workers, chance, counts)
            while len(workers) < WORKERS:
                workers.append(Worker(name, slots))
            counts.rounds += 1
    finally:
        for worker in workers:
            worker.kill()
    return counts


def _wait_for(name: str, number: int) -> None:
    """Wait until so many hold a permit or wait for one."""
    end = time.monotonic() + PATIENCE
    while (0 if (state := snapshot(name)) is None else state.in_use + state.waiting) != number:
        assert time.monotonic() < end, f"{number} holders and waiters expected, found {state}"
        time.sleep(0.001)


def _round(name: str, workers: list[Worker], chance: random.Random, counts: Counts) -> None:
    waiting, holding = deque(chance.sample(workers, len(workers))), deque[Worker]()
    _wait_for(name, 0)
    for number, worker in enumerate(waiting, start=1):
        worker.tell("ask")
        _wait_for(name, number)
    while True:
        free_since = time.monotonic()
        while waiting and len(holding) < LIMIT:
            waiting[0].expect("granted")
            counts.longest = max(counts.longest, time.monotonic() - free_since)
            counts.grants += 1
            holding.append(waiting.popleft())
        early = [worker for worker in waiting if worker.hears(0.0) is not None]
        assert not early, "somebody was granted a permit before their turn, or above the limit"
        if not holding:
            return
        what = chance.choices(
            ["release", "holder", "waiter", "server"], [12, 2, 2 if waiting else 0, 1]
        )[0]
        if what == "server":
            for (
                worker
            ) in waiting:  # a ticket that is on its way when the server dies is nobody's place
                worker.tell("flush")
            for worker in waiting:
                worker.expect("flushed")
            os.kill(int(Path(Place.of(name).lock_file).read_text()), signal.SIGKILL)
        elif what == "release":
            worker = holding.popleft()
            worker.tell("release")
            worker.expect("released")
        else:
            victims = holding if what == "holder" else waiting
            victim = chance.choice(victims)
            victims.remove(victim)
            workers.remove(victim)
            victim.kill()
        if what != "release":
            counts.killed[what] += 1


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(
        ignore_cleanup_errors=True
    ) as scratch:  # its server ends a moment later
        print(play(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1, Path(scratch)))
