"""Is the advice learned from a log the advice that its production needed? Not a test: it takes
about ten minutes.

    python -m benchmarks.advice_round_trips [--only 3,17] [--draw 1] [--seeds 2] [--keep FOLDER]
    [--json FILE]

More than 60 productions, drawn from their numbers: what the server is (cores, a cost for each
start, a quota, a rate, a queue, two sandboxes, one that degrades) and how wide the load is. Each is
played in virtual time, learned from its journal alone, and both are swept over the same values of
``rate_limit``. The recommendation for the learned scenario must be that for the production or a
neighbour of it on the grid, and must never point in the other direction.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.sweeping import swept
from sfusion.harness.core.figures import RunFigures
from sfusion.harness.core.run_events import RunEvents
from sfusion.harness.lab.runs.runner import run_one
from sfusion.harness.lab.runs.tasks import Task
from sfusion.harness.lab.scenarios import Scenario, parse_scenarios
from sfusion.harness.lab.spreading import open_workers
from sfusion.harness.studies.learn.draft import scenario_text
from sfusion.harness.studies.learn.learned import learn
from sfusion.harness.studies.sweep.grid import GridSample, play_sample
from sfusion.harness.studies.sweep.result import SweepResult

GRID = "tools.rate_limit=2..32"
NEAR = 0.95
"""The share of productions whose advice must be right or next to it (chosen)."""
UNTOLD = 0.1
"""The share of productions for which nothing may be advised (chosen)."""
CALLS = 240
"""Calls of a production (chosen)."""


@dataclass(frozen=True, slots=True)
class Production:
    """A server under a load, as a scenario."""

    name: str
    data: dict[str, Any]

    @property
    def scenario(self) -> Scenario:
        return Scenario.from_data(self.data)

    @property
    def limit(self) -> int:
        """How many requests it had in flight at most."""
        return int(min(self.data["tools"]["rate_limit"], self.data["load"]["concurrency"]))


SERVERS: dict[str, list[tuple[dict[str, Any], int]]] = {
    "idle": [({}, 24), ({}, 16), ({}, 12)],
    "cores": [({"model": {"kind": "unbounded", "cores": cores}}, cores) for cores in (2, 4, 8)],
    "spawn": [
        ({"model": {"kind": "unbounded", "spawn_cost": cost}}, 4) for cost in (0.05, 0.1, 0.3)
    ],
    "cores and spawn": [
        ({"model": {"kind": "unbounded", "cores": cores, "spawn_cost": cost}}, 3)
        for cores, cost in ((2, 0.3), (4, 0.1), (2, 0.05))
    ],
    "quota": [
        ({"model": {"kind": "quota", "in_flight": most, "retry_after": 0.5}}, most)
        for most in (4, 6, 8)
    ],
    "quota and cores": [
        ({"model": {"kind": "quota", "in_flight": most, "retry_after": 1, "cores": cores}}, cores)
        for most, cores in ((8, 4), (12, 2), (16, 8))
    ],
    "rate": [
        ({"model": {"kind": "quota", "per_second": rate, "burst": 4}}, 4) for rate in (5, 10, 20)
    ],
    "queue": [({"model": {"kind": "queue", "workers": workers}}, workers) for workers in (2, 4, 8)],
    "queue that refuses": [
        (
            {"model": {"kind": "queue", "workers": workers, "waiting": 4, "retry_after": 0.5}},
            workers,
        )
        for workers in (2, 4, 8)
    ],
    "two speeds": [
        (
            {
                "instances": 2,
                "each": {"sandbox-2": {"faults": [{"name": "slow", "what": {"delay": 0.6}}]}},
            },
            12,
        ),
        (
            {
                "instances": 2,
                "each": {
                    "sandbox-1": {"model": {"kind": "unbounded", "cores": 2}},
                    "sandbox-2": {"model": {"kind": "unbounded", "cores": 6}},
                },
            },
            6,
        ),
        (
            {"instances": 2, "each": {"sandbox-2": {"model": {"kind": "queue", "workers": 2}}}},
            12,
        ),
    ],
    "degrades": [
        ({"faults": [{"name": "slower", "what": {"degrade": {"end": end, "over": 30}}}]}, 16)
        for end in (0.5, 1, 2)
    ],
}
PACES = (4, 6, 8, 16)
"""Requests per second that a client with its own pace starts."""
LOADS = ("narrow", "right", "wide", "pausing", "far too wide")


def productions(draw: int = 0) -> list[Production]:
    """All of them, each drawn from its number; other draws have other sizes, programs and
    timeouts."""
    found = list(_productions(10_000 * draw))
    return [
        Production(f"{number:02} {production.name}", production.data)
        for number, production in enumerate(found)
    ]


def _productions(first: int) -> Iterator[Production]:
    number = first
    for kind, variants in SERVERS.items():
        for load in LOADS:
            number += 1
            draw = random.Random(number)
            sandbox, capacity = variants[number % len(variants)]
            yield _production(draw=draw, kind=kind, load=load, sandbox=sandbox, capacity=capacity)
    for place, pace in enumerate(PACES):
        draw = random.Random(first + 900 + place)
        yield _production(
            draw=draw,
            kind="pace",
            load="wide",
            sandbox={},
            capacity=8,
            tools={"requests_per_second": pace, "requests_burst": 2},
        )
    for place, (kind, limit) in enumerate((("idle", 4), ("cores", 3), ("queue", 2))):
        draw = random.Random(first + 950 + place)
        sandbox, capacity = SERVERS[kind][-1]
        yield _production(
            draw=draw,
            kind=kind,
            load="limited",
            sandbox=sandbox,
            capacity=capacity,
            tools={"rate_limit": limit},
        )
    measured: tuple[dict[str, Any], ...] = (
        {"cores": 2},
        {"cores": 2, "spawn_cost": 0.3},
        {"spawn_cost": 0.3},
    )
    for place, model in enumerate(measured):
        # As measured on a real server: 16 at a time, of programs with a median of 0.3 s.
        draw = random.Random(first + 970 + place)
        sandbox = {"model": {"kind": "unbounded", **model}}
        tools = {"default_timeout": 6}
        programs = {"lognormal": [0.3, 0.6]}
        yield _production(
            draw=draw,
            kind="cores, spawn",
            load="as measured",
            sandbox=sandbox,
            capacity=2,
            tools=tools,
            programs=programs,
        )


def _production(
    draw: random.Random,
    kind: str,
    load: str,
    sandbox: dict[str, Any],
    capacity: int,
    tools: dict[str, Any] | None = None,
    programs: Any = None,
) -> Production:
    median = draw.choice((0.2, 0.3, 0.5, 0.8))
    seconds = draw.choice(
        (
            {"lognormal": [median, draw.choice((0.3, 0.6))]},
            {"lognormal": [median, draw.choice((0.3, 0.6))]},
            {"exponential": median},
            {"uniform": [round(median / 3, 3), round(2 * median, 3)]},
            median,
        )
    )
    callers, limit, think, steps = {
        "narrow": (max(2, capacity // 2), 16, 0.0, 1),
        "right": (capacity + 1, 24, 0.5, 1),
        "wide": (32, 16 if capacity < 12 else 32, 0.0, 4),
        "pausing": (2 * capacity + 4, 32, 2.0, 1),
        "far too wide": (64, 32, 0.0, 3),
        "limited": (32, 0, 0.0, 2),
        "as measured": (32, 16, 0.0, 1),
    }[load]
    pause = round(think * median, 3)
    return Production(
        f"{kind}, {load}",
        {
            "scenario": "production",
            "about": f"{kind}, {load}",
            "seed": draw.randrange(1000),
            "tools": {
                "rate_limit": limit,
                "default_timeout": draw.choice((6, 12, 30)),
                **(tools or {}),
            },
            "sandbox": sandbox,
            "load": {
                "calls": CALLS,
                "concurrency": callers,
                **({"think": {"exponential": pause}} if pause else {}),
                **({"steps": steps, "step_pause": 2} if steps > 1 else {}),
                "program": {"seconds": programs or seconds},
            },
            "promises": ["every_call_ends_once"],
        },
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class RoundTrip:
    """What was recommended for a production, and for the scenario that was learned from its log."""

    name: str
    limit: int
    truth: Any
    advice: Any
    """None: cannot tell."""
    verdict: str
    share: float
    """Throughput of the production at the advised value, as a share of that at the recommended
    one."""
    cause: str


def rated(values: list[Any], limit: int, truth: Any, advice: Any) -> str:
    """same, neighbour, cannot tell, wrong direction or off."""
    if advice is None:
        return "cannot tell"
    apart = abs(values.index(advice) - values.index(truth))
    if apart <= 1:
        return "neighbour" if apart else "same"
    return "WRONG DIRECTION" if (truth - limit) * (advice - limit) < 0 else "off"


def round_trip(
    production: Production, seeds: int, keep: Path | None, grid: str = GRID
) -> RoundTrip:
    result = run_one(Task(production.scenario, "sim"))
    calls = RunEvents(result.journal).records
    learned = learn(calls)
    text = scenario_text(learned, "learned", production.name)
    if keep is not None:
        (keep / f"{production.name.replace(' ', '-').replace(',', '')}.yaml").write_text(text)
    (again,) = parse_scenarios(text)
    truth = sweep(production.scenario, seeds, keep, grid)
    advised = sweep(again, seeds, keep, grid)
    values = list(truth.grid.chosen.values)
    assert truth.overall is not None
    right = truth.overall[0]
    advice = advised.overall[0] if advised.overall is not None else None
    rates = {value: measured.throughput.median for (value,), measured in truth.settings}
    return RoundTrip(
        name=production.name,
        limit=production.limit,
        truth=right,
        advice=advice,
        verdict=rated(values, production.limit, right, advice),
        share=rates[advice] / rates[right] if advice is not None else 0.0,
        cause=learned.causes[0].says if learned.causes else "none",
    )


def sweep(
    scenario: Scenario, seeds: int, keep: Path | None = None, values: str = GRID
) -> SweepResult:
    def play(tasks: Iterable[Task]) -> list[GridSample]:
        return [_played(task, keep) for task in tasks]

    return swept(scenario, values, seeds, play)


def _played(task: Task, keep: Path | None) -> GridSample:
    """Play a run, or read what it gave before."""
    if keep is None:
        return play_sample(task)
    data = task.scenario.changed(scenario="x", about="x").model_dump(mode="json")
    del data["observed"]
    file = keep / "played" / hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(asdict(play_sample(task))))
    kept = json.loads(file.read_text())
    return GridSample(RunFigures(**kept["figures"]), tuple(kept["broken"]), kept["error"])


def _task(given: tuple[Production, int, Path | None]) -> RoundTrip:
    return round_trip(*given)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--only", help="numbers of productions, separated by commas; all by default"
    )
    parser.add_argument(
        "--draw", type=int, default=0, help="draw other productions of the same kinds"
    )
    parser.add_argument("--seeds", type=int, default=2, help="seeds of each setting of a sweep")
    parser.add_argument(
        "--keep", type=Path, help="keep learned scenarios and what was played in this folder"
    )
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    chosen = productions(args.draw)
    if args.only:
        chosen = [chosen[int(number)] for number in args.only.split(",")]
    if args.keep is not None:
        args.keep.mkdir(parents=True, exist_ok=True)
    found = []
    print(
        "| production | in flight | recommended | learned and swept | | throughput there | "
        "main cause learned |"
    )
    print("|---|---|---|---|---|---|---|", flush=True)
    with open_workers(2) as workers:
        for judged in workers.map(
            _task, [(production, args.seeds, args.keep) for production in chosen]
        ):
            found.append(judged)
            advice = "-" if judged.advice is None else judged.advice
            cells = (
                judged.name,
                judged.limit,
                judged.truth,
                advice,
                judged.verdict,
                f"{judged.share:.0%}",
                judged.cause,
            )
            print(f"| {' | '.join(map(str, cells))} |", flush=True)
    counts = Counter(judged.verdict for judged in found)
    told = len(found) - counts["cannot tell"]
    near = (counts["same"] + counts["neighbour"]) / max(told, 1)
    print(
        f"\n{len(found)} productions: the same {counts['same']}, a neighbour "
        f"{counts['neighbour']} ({near:.1%} of "
        f"those told), cannot tell {counts['cannot tell']}, off {counts['off']}, wrong direction "
        f"{counts['WRONG DIRECTION']}"
    )
    if args.json is not None:
        args.json.write_text(json.dumps([asdict(judged) for judged in found], indent=2) + "\n")
    ok = (
        near >= NEAR
        and counts["cannot tell"] <= UNTOLD * len(found)
        and not counts["WRONG DIRECTION"]
    )
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
