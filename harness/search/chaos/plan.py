"""Plans the rounds of a chaos run. A round is a scenario; seed and number alone decide it."""

from __future__ import annotations

from random import Random
from typing import Any

from sfusion.harness.lab.scenarios.model import Scenario

LEASE = 2.0
"""Short, so that a round sees permits expire."""
_PROMISES: list[Any] = [
    "in_flight_within_limit",
    "no_permit_leaked",
    # Generous: on a busy machine Ray takes half a minute to restart a limiter.
    {"no_starvation": "60s"},
    {"no_stall": "60s"},
]
_KINDS = (
    "kill worker", "kill node", "kill limiter", "kill driver", "pause worker", "pause node", "pause limiter", "resize",
    "cancel", "crash",
)  # fmt: skip


def plan_round(seed: int, number: int, nodes: int) -> Scenario:
    """Return the scenario of a round on at most this many nodes."""
    draw = Random(f"{seed}/{number}")
    machines = draw.randint(min(2, nodes), nodes)
    per_node = draw.randint(1, 2)
    limit = draw.randint(2, 8)
    calls = draw.randrange(40, 121, 10)
    workers = [f"n{n}-w{w}" for n in range(1, machines + 1) for w in range(1, per_node + 1)]
    events = _events(draw, workers, limit, calls)
    tools: dict[str, Any] = {"rate_limit": limit, "permit_lease": LEASE, "default_timeout": 10}
    promises = list(_PROMISES)
    if draw.random() < 0.5:
        tools["retry_may_have_run"] = False
        promises.append("no_duplicate_execution")
    faults = []
    if draw.random() < 0.4:
        status = draw.choice([429, 502, 503])
        faults.append({"name": "flaky", "probability": 0.1, "what": {"status": status}, "may_not_strike": True})
    program = [
        {"seconds": {"choice": ["20ms", "100ms", "400ms"]}, "prints": "{call}\n", "share": 4},
        {"raises": "ValueError: bad", "share": 1},
    ]
    return Scenario.from_data(
        {
            "scenario": f"chaos-{seed}-{number:04d}",
            "about": f"Round {number} of chaos with seed {seed}.",
            "worlds": ["sim", "ray"],
            "seed": draw.randrange(2**31),
            "cluster": {"nodes": machines, "workers_per_node": per_node},
            "tools": tools,
            "sandbox": {"faults": faults},
            "load": {"calls": calls, "concurrency": limit + draw.randint(len(workers), 16), "program": program},
            "events": events,
            "horizon": "90s",
            "promises": promises,
        }
    )


def _events(draw: Random, workers: list[str], limit: int, calls: int) -> list[dict[str, Any]]:
    left = dict.fromkeys(workers)
    events: list[dict[str, Any]] = []
    for kind in draw.sample(_KINDS, draw.randint(1, 4)):
        event = _event(draw, kind, left, limit, calls)
        if event is not None:
            events.append({"after": _point(draw, limit, calls), **event})
    return events or [{"after": _point(draw, limit, calls), "kill": "limiter", "seconds": "1s"}]


def _point(draw: Random, limit: int, calls: int) -> dict[str, int]:
    counted = draw.choice(["grants", "arrivals", "ended", "in_flight"])
    return {counted: draw.randint(1, limit) if counted == "in_flight" else draw.randint(3, calls // 2)}


def _node_of(worker: str) -> str:
    return f"node-{worker[1:].partition('-')[0]}"


def _event(draw: Random, kind: str, left: dict[str, None], limit: int, calls: int) -> dict[str, Any] | None:
    """Return an event of this kind; None if it would leave no worker alive. A killed driver is the end of all."""
    # Half of the stops are shorter than a lease, half of them longer.
    stop = {"seconds": round(LEASE * draw.choice([0.3, 0.6, 1.4, 2.0]), 2)}
    match kind:
        case "kill worker" if len(left) > 1:
            worker = draw.choice(list(left))
            del left[worker]
            return {"kill": worker}
        case "kill node":
            node = _node_of(draw.choice(list(left)))
            lost = [name for name in left if _node_of(name) == node]
            if len(lost) == len(left):
                return None
            for name in lost:
                del left[name]
            return {"kill": node}
        case "kill limiter":
            return {"kill": "limiter", "seconds": "1s"}
        case "kill driver" if draw.random() < 0.3:
            return {"after": {"ended": calls // 2 + 5}, "kill": "driver"}
        case "pause worker":
            return {"pause": draw.choice(list(left)), **stop}
        case "pause node":
            return {"pause": _node_of(draw.choice(list(left))), **stop}
        case "pause limiter":
            return {"pause": "limiter", **stop}
        case "resize":
            return {"resize": draw.choice([max(1, limit // 2), limit * 2])}
        case "cancel":
            return {"cancel": draw.choice([0.3, 0.7])}
        case "crash":
            return {"crash": "sandbox", "seconds": draw.choice(["300ms", "1s"])}
    return None
