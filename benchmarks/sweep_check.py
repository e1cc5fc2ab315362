"""Is the rate_limit that ``sfusion sweep`` recommends as good in real time? Not a test: it takes
about 15 minutes.

    python -m benchmarks.sweep_check [--rounds 2] [--calls 300] [--json FILE]

Five sandboxes under contention, made of the fake's server models. For each, a sweep in world sim
recommends a rate_limit; then the same calls are made in real time, over sockets, through the tool
and its limiter, with every value of the sweep. The recommended value must reach at least 90% of the
best throughput that was measured.

``benchmarks.real_productions`` asks the same of a real sandbox.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import statistics
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.sweeping import swept
from sfusion.fakes.sandbox import FakeSandbox
from sfusion.harness.lab.scenarios import Scenario
from sfusion.harness.lab.scenarios.reading import vary
from sfusion.harness.lab.spreading import open_workers
from sfusion.harness.lab.worlds.calling import Workload, call_tool
from sfusion.harness.studies.sweep.grid import play_sample
from sfusion.harness.studies.sweep.result import SweepResult
from sfusion_tools.sandbox_fusion_tools import SandboxFusionTool

GOAL = 0.9
"""The share of the best throughput that a recommendation must reach (chosen)."""
RANGE = "tools.rate_limit=2..64"
SHORT = {"lognormal": [0.2, 0.4]}
MIDDLE = {"lognormal": [0.3, 0.3]}
SETTINGS: dict[str, dict[str, Any]] = {
    "8 shared cores": {"model": {"kind": "unbounded", "cores": 8}, "seconds": SHORT},
    "an event loop that starts a program in 30 ms": {
        "model": {"kind": "unbounded", "spawn_cost": 0.03},
        "seconds": MIDDLE,
    },
    "6 workers, 10 may wait, then 503": {
        "model": {"kind": "queue", "workers": 6, "waiting": 10, "retry_after": 0.5},
        "seconds": SHORT,
    },
    "a gateway that admits 12 to 8 cores, then 429": {
        "model": {"kind": "quota", "in_flight": 12, "retry_after": 0.5, "cores": 8},
        "seconds": SHORT,
    },
    "a gateway with 20 requests per second, then 429": {
        "model": {"kind": "quota", "per_second": 20, "burst": 4},
        "seconds": MIDDLE,
    },
}

_names = itertools.count()


def scenario_of(name: str, calls: int) -> Scenario:
    setting = SETTINGS[name]
    return Scenario.from_data(
        {
            "scenario": "sweep-check",
            "about": name,
            "tools": {"default_timeout": 30},
            "sandbox": {"model": setting["model"]},
            "load": {
                "calls": calls,
                "concurrency": 64,
                "program": {"seconds": setting["seconds"], "prints": "ok\n"},
            },
            "promises": ["every_call_ends_once"],
        }
    )


def sweep(scenario: Scenario, seeds: int) -> SweepResult:
    with open_workers(2) as workers:
        return swept(scenario, RANGE, seeds, partial(workers.map, play_sample))


async def real_throughput(scenario: Scenario, limit: int) -> float:
    """Return the calls that ended ok per second of real time."""
    scenario = vary(scenario, {"tools.rate_limit": limit})
    assert scenario.load is not None
    workload = Workload(scenario, 1.0)
    left = iter(range(1, scenario.load.calls + 1))
    ok = 0
    async with FakeSandbox(
        executor="scripted", model=scenario.sandbox.model, seed=scenario.seed
    ) as sandbox:
        local = {
            "sandbox_fusion_url": sandbox.url,
            "limiter": "local",
            "limiter_name": f"check-{next(_names)}",
        }
        tool = SandboxFusionTool({**(scenario.own_config or {}), **local})

        async def caller() -> None:
            nonlocal ok
            for number in left:
                facts = await call_tool(tool, workload.prepare(number))
                ok += facts["outcome"] == "ok"

        began = time.perf_counter()
        await asyncio.gather(*(caller() for _ in range(scenario.load.concurrency)))
        return ok / (time.perf_counter() - began)


def check(name: str, args: argparse.Namespace) -> dict[str, Any]:
    scenario = scenario_of(name, args.calls)
    result = sweep(scenario, args.seeds)
    (recommendation,) = result.recommendations.values()
    values = result.grid.chosen.values
    rounds: dict[int, list[float]] = {value: [] for value in values}
    for _ in range(args.rounds):
        for value in values:
            rounds[value].append(asyncio.run(real_throughput(scenario, value)))
    real = {value: statistics.median(found) for value, found in rounds.items()}
    best = max(real, key=lambda value: real[value])
    return {
        "setting": name,
        "recommended": recommendation.value,
        "sentence": recommendation.sentence,
        "simulated": {value: measured.throughput.median for (value,), measured in result.settings},
        "real": real,
        "best": best,
        "share": real[recommendation.value] / real[best],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--calls", type=int, default=300)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    found = []
    print(
        "| sandbox | recommended in sim | real throughput there | best in real time | "
        "share of the best |"
    )
    print("|---|---|---|---|---|", flush=True)
    for name in SETTINGS:
        one = check(name, args)
        found.append(one)
        at = one["recommended"]
        print(
            f"| {name} | {at} ({one['simulated'][at]:.1f}/s) | {one['real'][at]:.1f}/s "
            f"| {one['real'][one['best']]:.1f}/s at {one['best']} | {one['share']:.0%} |",
            flush=True,
        )
        if args.json is not None:
            args.json.write_text(json.dumps(found, indent=2) + "\n")
    sys.exit(0 if all(row["share"] >= GOAL for row in found) else 1)


if __name__ == "__main__":
    main()
