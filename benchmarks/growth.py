"""How the cost of one unit grows: with callers, waiters, workers, nodes, calls, journal lines and
the length of a text.

Costs are CPU time of this process, so that a busy machine matters little; only real nodes are
measured in real time.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.benchmark import repeat
from benchmarks.calls import CODE
from benchmarks.figures import GrowthCurve, GrowthPoint, Spread
from benchmarks.ground import Ground
from benchmarks.texts import SHAPES, parse
from sfusion.harness.core.figures import figures_of
from sfusion.harness.core.journal import Journal
from sfusion.harness.errors import HarnessError
from sfusion.harness.lab.promises import check_promises
from sfusion.harness.lab.scenarios.model import Scenario
from sfusion.harness.lab.worlds import sim
from sfusion.harness.reports.html import render_run
from sfusion.harness.reports.run_report import RunReport
from sfusion_tools.errors import MissingExtra
from sfusion_tools.formats import format_names, get_format
from sfusion_tools.limiter import LimiterSettings
from sfusion_tools.limiter.host import local_limiter
from sfusion_tools.sandbox_fusion_tools import SandboxFusionTool

MICROSECONDS = "µs of CPU per {}"
Costs = Mapping[str, float]
"""By line, the cost of one unit."""


class TooSmall(Exception):
    """This machine cannot measure a point; the message says what it lacks."""


@dataclass(frozen=True, slots=True)
class Growth:
    """What grows, and how one point of it is measured."""

    name: str
    size_name: str
    unit: str
    sizes: Sequence[int]
    measure: Callable[[Ground, int], Costs]
    levels: Sequence[str] = ()
    """Lines whose figure is a level in MB, not the cost of a unit."""
    repetitions: int | None = None
    """At most this many, where a point takes long."""


def measure_growth(
    growth: Growth,
    ground: Ground,
    sizes: Sequence[int],
    repetitions: int,
    point_ended: Callable[[str, GrowthPoint, str], None] = lambda name, point, unit: None,
) -> list[GrowthCurve]:
    """Measure every size; return one curve for each line."""
    count = repetitions if growth.repetitions is None else min(growth.repetitions, repetitions)
    points: dict[str, list[GrowthPoint]] = {}
    refused: list[GrowthPoint] = []
    for size in sizes:
        try:
            found = [growth.measure(ground, size) for _ in range(count)]
        except TooSmall as why:
            refused.append(GrowthPoint(size, note=str(why)))
            point_ended(growth.name, refused[-1], "")
            continue
        for line in found[0]:
            point = GrowthPoint(size, Spread.of([costs[line] for costs in found]), count)
            points.setdefault(line, []).append(point)
            point_ended(f"{growth.name}{f', {line}' if line else ''}", point, _unit(growth, line))
    return [
        GrowthCurve(
            curve=growth.name,
            line=line,
            size_name=growth.size_name,
            unit=_unit(growth, line),
            points=sorted([*measured, *refused], key=lambda point: point.size),
            per_unit=line not in growth.levels,
        )
        for line, measured in (points or {"": []}).items()
    ]


def _unit(growth: Growth, line: str) -> str:
    return "MB" if line in growth.levels else growth.unit


@contextmanager
def _cpu(costs: dict[str, float], line: str, units: int) -> Iterator[None]:
    """Note the microseconds of CPU for each of the units that the block handles."""
    gc.collect()
    began = time.process_time()
    yield
    costs[line] = (time.process_time() - began) / units * 1e6


def _callers(ground: Ground, callers: int) -> Costs:
    calls = max(callers, ground.size(2048))
    costs: dict[str, float] = {}
    config = {"sandbox_fusion_url": ground.url("bare"), "rate_limit": 64, "limiter": "local"}

    async def main() -> None:
        tool = SandboxFusionTool({**config, "limiter_name": f"growth-{callers}"})

        async def call() -> None:
            _, _, metrics = await tool.execute("", {"code": CODE})
            assert metrics is not None
            assert metrics["outcome"] == "ok", metrics

        await repeat(call, 1, 5)
        with _cpu(costs, "", calls):
            await repeat(call, callers, calls)
        await tool.aclose()

    asyncio.run(main())
    return costs


def _waiters(ground: Ground, waiters: int) -> Costs:
    costs: dict[str, float] = {}

    async def main() -> None:
        limiter = local_limiter(LimiterSettings(10))
        granted = 0

        async def wait() -> None:
            nonlocal granted
            async with limiter.permit():
                granted += 1

        with _cpu(costs, "", waiters):
            async with asyncio.TaskGroup() as tasks:
                for _ in range(waiters):
                    tasks.create_task(wait())
        assert granted == waiters
        await limiter.aclose()

    asyncio.run(main())
    return costs


def _simulated(nodes: int, workers: int, calls: int, worlds: Sequence[str] = ("sim",)) -> Scenario:
    return Scenario.from_data(
        {
            "scenario": "growth",
            "about": "Workers share one limiter.",
            "worlds": list(worlds),
            "cluster": {"nodes": nodes, "workers_per_node": workers},
            "tools": {"rate_limit": 64},
            "load": {
                "calls": calls,
                "concurrency": max(nodes * workers, 64),
                "program": {"seconds": "50ms", "prints": "ok\n"},
            },
            "promises": ["every_call_ends_once", "in_flight_within_limit"],
        }
    )


def _workers(ground: Ground, workers: int) -> Costs:
    calls = max(4 * workers, ground.size(500))
    costs: dict[str, float] = {}
    scenario = _simulated(1, workers, calls) if workers < 8 else _simulated(workers // 4, 4, calls)
    with _cpu(costs, "", calls):
        journal = sim.run(scenario)
    assert sum(event["event"] == "returned" for event in journal.events) == calls
    return costs


def _simulated_nodes(ground: Ground, nodes: int) -> Costs:
    calls = ground.size(800, nodes)
    costs: dict[str, float] = {}
    with _cpu(costs, "", calls):
        sim.run(_simulated(nodes, 2, calls))
    return costs


_NODE_MEMORY = 600 * 2**20


def _real_nodes(ground: Ground, nodes: int) -> Costs:
    """Seconds of real time, in microseconds for each call; the nodes are processes of this
    machine."""
    free = _free_memory()
    if free is not None and free < nodes * _NODE_MEMORY:
        raise TooSmall(
            f"{nodes} Ray nodes need about {nodes * _NODE_MEMORY >> 20:,} MB, "
            f"{free >> 20:,} MB are free"
        )
    try:
        from sfusion.harness.lab.worlds import ray
    except ImportError as error:
        raise TooSmall("Ray is not installed") from error
    try:
        figures = figures_of(ray.run(_simulated(nodes, 2, ground.size(200 * nodes), ("ray",))))
    except (HarnessError, MissingExtra) as error:
        raise TooSmall(str(error)) from error
    return {"": figures.seconds / figures.calls * 1e6}


def _free_memory() -> int | None:
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError):
        return None


def _calls(ground: Ground, calls: int) -> Costs:
    """A soak in a process of its own, whose journal goes to disk; the time includes judging."""
    command = [sys.executable, "-m", "benchmarks.soaking", str(calls)]
    found = json.loads(
        subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    )
    assert found["calls"] == calls
    return {"time": found["cpu"] / calls * 1e6, "memory": found["memory"] / 2**20}


def _journal_lines(ground: Ground, lines: int) -> Costs:
    """A journal of at least so many lines: reading it, judging it, and writing its page."""
    scenario = _simulated(2, 2, max(1, lines // 12))
    costs: dict[str, float] = {}
    journal = sim.run(scenario)
    count = len(journal.events)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "journal.ndjson"
        with _cpu(costs, "writing", count):
            journal.write(file)
        with _cpu(costs, "reading", count):
            journal = Journal.read(file)
    with _cpu(costs, "judging", count):
        verdicts = check_promises(journal, scenario.promises)
    run = RunReport("growth", verdicts, events=journal.events)
    with _cpu(costs, "reporting", count):
        render_run(run)
    return costs


def _tool_call_text(ground: Ground, size: int) -> Costs:
    """Calls streamed in pieces of 16 characters; the slowest of all formats, and the median."""
    found: dict[str, float] = {}
    for name in format_names():
        form = get_format(name)
        text = SHAPES["many calls"](form, size)
        with _cpu(found, name, len(text)):
            parse(form, text, 16)
    ordered = sorted(found.values())
    return {"median format": ordered[len(ordered) // 2], "slowest format": ordered[-1]}


def _powers(first: int, last: int, factor: int) -> list[int]:
    found = [first]
    while found[-1] * factor < last:
        found.append(found[-1] * factor)
    return [*found, last] if found[-1] != last else found


GROWTHS = (
    Growth(
        name="callers",
        size_name="callers",
        unit=MICROSECONDS.format("call"),
        sizes=_powers(1, 4096, 4),
        measure=_callers,
    ),
    Growth(
        name="waiters",
        size_name="waiters",
        unit=MICROSECONDS.format("permit"),
        sizes=_powers(10, 100_000, 10),
        measure=_waiters,
    ),
    Growth(
        name="workers",
        size_name="simulated workers",
        unit=MICROSECONDS.format("call"),
        sizes=[1, 4, 16, 64, 256, 1000],
        measure=_workers,
    ),
    Growth(
        name="nodes",
        size_name="simulated nodes",
        unit=MICROSECONDS.format("call"),
        sizes=[1, 2, 4, 8],
        measure=_simulated_nodes,
    ),
    Growth(
        name="real-nodes",
        size_name="Ray nodes of this machine",
        unit="µs per call",
        sizes=[1, 2, 4],
        measure=_real_nodes,
        repetitions=1,
    ),
    Growth(
        name="calls",
        size_name="simulated calls",
        unit=MICROSECONDS.format("call"),
        sizes=[1000, 4000, 16_000],
        measure=_calls,
        levels=["memory"],
        repetitions=1,
    ),
    Growth(
        name="journal",
        size_name="lines",
        unit=MICROSECONDS.format("line"),
        sizes=_powers(1000, 64_000, 4),
        measure=_journal_lines,
        repetitions=3,
    ),
    Growth(
        name="text",
        size_name="characters",
        unit=MICROSECONDS.format("character"),
        sizes=_powers(1024, 65_536, 4),
        measure=_tool_call_text,
        repetitions=3,
    ),
)


def as_document(curves: Sequence[GrowthCurve], machine: str) -> dict[str, Any]:
    return {"machine": machine, "curves": [curve.as_dict() for curve in curves]}
