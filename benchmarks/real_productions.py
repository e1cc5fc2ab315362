"""What do ``learn`` and ``sweep`` make of the logs of a real Sandbox Fusion, and are they right?
Not a test: it takes half an hour on a quiet machine.

    python -m benchmarks.real_productions 'COMMAND' [--only saturated,front] [--rounds 2]
        [--keep FOLDER [--again]] [--json FILE]

COMMAND starts the server on a port of loopback that takes the place of ``{port}`` in it, such as
``uvicorn sandbox.server.server:app --port {port}``. It is started anew for each production and each
measurement. Options of one production are appended to it.

Six productions are played with the tool as their client: a server that is saturated, one that is so
full that calls time out, one that its client limits, one that is killed and started again, one with
short and long programs, and one that admits eight connections. ``sfusion learn`` and ``sfusion
sweep`` see nothing but the event log. The truth is a grid: the same programs with every value of
``rate_limit``, in turn, several times. With ``--measure``, ``sfusion doctor --sweep`` measures the
server too, with the programs of the log. ``--again`` learns once more from what ``--keep`` has
kept, and measures nothing.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import math
import random
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sfusion_tools.event_log import flush_event_logs
from sfusion_tools.sandbox_fusion_tools import SandboxFusionTool

GOAL = 0.9
"""The share of the best measured throughput that a recommended value must reach (chosen)."""
GRID = (2, 4, 8, 16, 32)
"""The values of rate_limit that are measured, and that a sweep chooses from."""
MEASURED_CALLS = 200
"""Calls per value and round of the grid (chosen)."""
_START_S = 30.0
"""How long a server may take until it answers (chosen)."""


@dataclass(frozen=True, slots=True)
class Work:
    """Programs of one kind: they compute, then sleep."""

    computes: float
    sleeps: float = 0.0
    spread: float = 0.5


@dataclass(frozen=True, slots=True)
class Production:
    """A load on a server that is started with these options."""

    name: str
    rate_limit: int
    callers: int
    works: tuple[tuple[float, Work], ...]
    options: str = ""
    calls: int = 400
    timeout: float = 10
    killed_at: int | None = None
    """The call at whose end the server is killed; it is started again after ten seconds."""

    def program(self, draw: random.Random) -> str:
        """Return the next program."""
        (work,) = draw.choices([work for _, work in self.works], [share for share, _ in self.works])
        computes = work.computes * math.exp(draw.gauss(0, work.spread))
        sleeps = work.sleeps * math.exp(draw.gauss(0, work.spread))
        return (
            "import time\n"
            f"while time.process_time() < {computes:.3f}: pass\n"
            f"time.sleep({sleeps:.3f})\n"
            "print('ok')"
        )


COMPUTING = ((1.0, Work(0.15)),)
LONGER = ((1.0, Work(0.3, spread=0.6)),)
PRODUCTIONS = (
    Production("saturated", rate_limit=32, callers=48, works=COMPUTING),
    Production("timeouts", rate_limit=32, callers=48, works=LONGER, timeout=6),
    Production("limited by the client", rate_limit=2, callers=24, works=((1.0, Work(0.02, 0.6)),)),
    Production("killed", rate_limit=8, callers=16, works=COMPUTING, killed_at=150),
    Production("mixed", 16, 32, works=((0.8, Work(0.05)), (0.2, Work(0.4, 1.5)))),
    Production("front", 16, 24, works=COMPUTING, options="--limit-concurrency 8"),
)


class Server:
    """The real server, as a process of ours."""

    def __init__(self, command: str, port: int) -> None:
        self._command = shlex.split(command.replace("{port}", str(port)))
        self.url = f"http://127.0.0.1:{port}"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self._process = subprocess.Popen(
            self._command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        until = time.monotonic() + _START_S
        while not self._answers():
            if time.monotonic() > until or self._process.poll() is not None:
                self.kill()
                raise SystemExit(f"{shlex.join(self._command)} does not answer at {self.url}")
            time.sleep(0.1)

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/v1/ping", timeout=2) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()


@contextlib.contextmanager
def serving(command: str, port: int, options: str) -> Iterator[Server]:
    server = Server(f"{command} {options}", port)
    server.start()
    try:
        yield server
    finally:
        server.kill()


@dataclass(frozen=True, slots=True)
class Played:
    """How the calls of one stretch went."""

    calls: int
    ok: int
    seconds: float

    @property
    def per_second(self) -> float:
        """Calls that ended ok per second."""
        return self.ok / self.seconds


async def _play(production: Production, server: Server, seed: int, log: Path | None) -> Played:
    """Make the calls of a production; kill the server and start it again where it says so."""
    draw = random.Random(seed)
    programs = enumerate([production.program(draw) for _ in range(production.calls)])
    tool = SandboxFusionTool(
        {
            "sandbox_fusion_url": server.url,
            "rate_limit": production.rate_limit,
            "default_timeout": production.timeout,
            "limiter": "local",
            "limiter_name": f"real-{production.name}-{production.rate_limit}-{time.monotonic_ns()}",
            "event_log": None if log is None else {"path": str(log), "include": ["code"]},
        }
    )
    ended = 0
    ok = 0
    restarting: list[asyncio.Task[None]] = []

    async def restart() -> None:
        server.kill()
        await asyncio.sleep(10)
        await asyncio.to_thread(server.start)

    async def caller() -> None:
        nonlocal ended, ok
        for number, code in programs:
            _, _, metrics = await tool.execute(f"call-{number}", {"code": code})
            ended += 1
            ok += (metrics or {}).get("outcome") == "ok"
            if ended == production.killed_at:
                restarting.append(asyncio.create_task(restart()))

    began = time.perf_counter()
    await asyncio.gather(*(caller() for _ in range(production.callers)))
    seconds = time.perf_counter() - began
    await asyncio.gather(*restarting)
    return Played(production.calls, ok, seconds)


def measure(
    command: str, port: int, production: Production, rounds: int
) -> dict[int, list[Played]]:
    """Return what each value of rate_limit did with the same programs, round by round."""
    found: dict[int, list[Played]] = {limit: [] for limit in GRID}
    for number in range(rounds):
        for limit, played in found.items():
            varied = replace(production, rate_limit=limit, calls=MEASURED_CALLS, killed_at=None)
            with serving(command, port, production.options) as server:
                played.append(asyncio.run(_play(varied, server, number, None)))
    return found


def sfusion(*args: str) -> subprocess.CompletedProcess[str]:
    """Run a command of ours as a user does."""
    return subprocess.run(
        [sys.executable, "-m", "sfusion", *args], capture_output=True, text=True, check=False
    )


@dataclass(frozen=True, slots=True)
class Advice:
    """The last line of a sweep: a number, or none and the experiment that it names."""

    number: int | None
    text: str


def advise(learned: Path, *more: str) -> Advice:
    """Return what sweep says of a learned scenario."""
    swept = sfusion(
        "sweep", str(learned), "--vary", f"tools.rate_limit={','.join(map(str, GRID))}", *more
    )
    lines = swept.stdout.strip().splitlines()
    if not lines or not lines[-1].startswith("tools.rate_limit: "):
        raise SystemExit(f"sfusion sweep {learned} failed: {swept.stdout}{swept.stderr}")
    value = lines[-1].removeprefix("tools.rate_limit: ")
    return Advice(int(value) if value.isdigit() else None, lines[-1] + "\n" + swept.stdout)


def examine(args: argparse.Namespace, production: Production, folder: Path) -> dict[str, Any]:
    """Play a production, measure the truth, learn from the log, and say what came of each."""
    folder.mkdir(parents=True, exist_ok=True)
    if not args.again:
        observe(args, production, folder)
    (log,) = folder.glob("events*.ndjson")
    learned = folder / "learned.yaml"
    learning = sfusion("learn", str(log), "--to", str(learned), "--force")
    (folder / "learn.txt").write_text(learning.stdout + learning.stderr)
    if learning.returncode not in (0, 1):
        raise SystemExit(f"sfusion learn {log} failed: {learning.stderr}")
    advice = {"log": advise(learned)}
    model = folder / "model.yaml"
    if model.exists():
        advice["measurement"] = advise(learned, "--model", str(model))
    for way, told in advice.items():
        (folder / f"sweep-{way}.txt").write_text(told.text)
    truth = json.loads((folder / "truth.json").read_text())
    return {
        "production": production.name,
        **truth,
        "real": {int(limit): rate for limit, rate in truth["real"].items()},
        "exit code of learn": learning.returncode,
        "advice": {way: told.number for way, told in advice.items()},
    }


def observe(args: argparse.Namespace, production: Production, folder: Path) -> None:
    """Leave in the folder what the real server did: the log of the production, what the doctor
    measured, and how many calls per second ended ok with each value of rate_limit."""
    log = folder / "events.ndjson"
    with serving(args.command, args.port, production.options) as server:
        played = asyncio.run(_play(production, server, 1000, log))
    flush_event_logs()
    if args.measure:
        model = str(folder / "model.yaml")
        with serving(args.command, args.port, production.options) as server:
            command = ["doctor", server.url, "--sweep", "--log", str(folder), "--model-out", model]
            doctor = sfusion(*command)
        (folder / "doctor.txt").write_text(doctor.stdout + doctor.stderr)
    grid = measure(args.command, args.port, production, args.rounds)
    truth = {
        "ok": played.ok,
        "calls": played.calls,
        "seconds": played.seconds,
        "real": {
            limit: statistics.median(stretch.per_second for stretch in rounds)
            for limit, rounds in grid.items()
        },
        "lost": {
            limit: sum(stretch.calls - stretch.ok for stretch in rounds)
            for limit, rounds in grid.items()
        },
    }
    (folder / "truth.json").write_text(json.dumps(truth, indent=2) + "\n")


WAYS = ("log", "measurement")
"""From where a number may come."""


def row(found: dict[str, Any], *, measured: bool) -> str:
    """Return a line of the table; a recommended value has the share of the best that it reached."""
    best = max(found["real"], key=found["real"].get)
    told = []
    for way in WAYS[: 2 if measured else 1]:
        number = found["advice"].get(way)
        if way not in found["advice"]:
            told.append("-")  # the doctor made no model
        elif number is None:
            told.append("cannot tell")
        else:
            told.append(f"{number} ({found['real'][number] / found['real'][best]:.0%})")
    grid = ", ".join(f"{limit}: {rate:.2f}" for limit, rate in found["real"].items())
    return (
        f"| {found['production']} | {found['ok']} of {found['calls']} "
        f"| {found['exit code of learn']} | {' | '.join(told)} | {grid} |"
    )


def harmful(found: dict[str, Any]) -> bool:
    """Whether a recommended value did much less than the best."""
    best = max(found["real"].values())
    numbers = [number for number in found["advice"].values() if number is not None]
    return any(found["real"][number] < GOAL * best for number in numbers)


def _arguments() -> tuple[argparse.Namespace, list[Production]]:
    """Return what was asked for, and the productions that were chosen."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("command", help="starts the server; {port} is its port")
    parser.add_argument("--port", type=int, default=18080)
    parser.add_argument("--only", default="", help="some productions, by name, with commas")
    parser.add_argument("--rounds", type=int, default=2, help="of the grid")
    parser.add_argument("--measure", action="store_true", help="let the doctor measure too")
    parser.add_argument("--keep", type=Path, help="a folder for logs, scenarios and outputs")
    parser.add_argument("--again", action="store_true", help="learn again from what was kept")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    if args.again and args.keep is None:
        parser.error("--again: nothing was kept; name the folder with --keep")
    named = {production.name: production for production in PRODUCTIONS}
    names = args.only.split(",") if args.only else list(named)
    if unknown := [name for name in names if name not in named]:
        parser.error(
            f"--only {','.join(unknown)}: no such production; there are {', '.join(named)}"
        )
    return args, [named[name] for name in names]


def main() -> None:
    args, chosen = _arguments()
    ways = "from the log | from a measurement" if args.measure else "from the log"
    print(f"| production | ok | learn | {ways} | ok per second, by rate_limit |")
    print("|---" * (6 if args.measure else 5) + "|", flush=True)
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        for production in chosen:
            rows.append(examine(args, production, (args.keep or Path(scratch)) / production.name))
            print(row(rows[-1], measured=args.measure), flush=True)
            if args.json is not None:
                args.json.write_text(json.dumps(rows, indent=2) + "\n")
    sys.exit(1 if any(harmful(found) for found in rows) else 0)


if __name__ == "__main__":
    main()
