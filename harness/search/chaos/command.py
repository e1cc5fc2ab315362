"""``sfusion chaos``: kill, stop and crash the parts of a real Ray cluster under load, and judge
every round.

A cluster of several nodes is started on this machine. In each round the real tool, client and
limiter make calls to a fake sandbox in a process of its own, while workers, nodes, the limiter or
the driver are killed or stopped, the limit changes, calls are cancelled or the sandbox crashes: at
points of the journal, such as the 17th grant. The same scenario is then played in sim, and
differences between the two worlds are reported.

Exit code 0 if every promise held, 1 if one was broken or unknown, 2 if the input is wrong, 3 if Ray
is missing.

Example: sfusion chaos --rounds 20 --seed 4 --out runs
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random
from typing import Annotated, Any

from sfusion_tools.record import ENDINGS
from sfusion_tools.wording import counted

from ...commandline.declaring import command, option
from ...commandline.json_answer import is_stdout, text_stream, write_json
from ...commandline.options import Json, Out, Seed
from ...core.journal import Journal
from ...core.run_events import RunEvents
from ...core.verdict import EVERYTHING_TOOK_EFFECT, Verdict
from ...lab.promises.permit_steps import server_steps
from ...lab.promises.permits import FlightCount, count_in_flight
from ...lab.runs import RunResult, Task, run_one, written_run
from ...lab.runs.reporting import report_of_result
from ...lab.scenarios.events import EventPart
from ...lab.scenarios.model import Scenario
from ...lab.worlds.ray_cluster import open_cluster
from ...reports import Reports, write_page
from ...reports.run_report import duration
from ...terminal import ProgressReporter

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
    "kill worker",
    "kill node",
    "kill limiter",
    "kill driver",
    "pause worker",
    "pause node",
    "pause limiter",
    "resize",
    "cancel",
    "crash",
)


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
        faults.append(
            {
                "name": "flaky",
                "probability": 0.1,
                "what": {"status": status},
                "may_not_strike": True,
            }
        )
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
            "load": {
                "calls": calls,
                "concurrency": limit + draw.randint(len(workers), 16),
                "program": program,
            },
            "events": events,
            "horizon": "90s",
            "promises": promises,
        }
    )


def _events(draw: Random, workers: list[str], limit: int, calls: int) -> list[dict[str, Any]]:
    left = dict.fromkeys(workers)
    events: list[dict[str, Any]] = []
    for kind in draw.sample(_KINDS, draw.randint(1, 4)):
        event = _event(draw=draw, kind=kind, left=left, limit=limit, calls=calls)
        if event is not None:
            events.append({"after": _point(draw, limit, calls), **event})
    return events or [{"after": _point(draw, limit, calls), "kill": "limiter", "seconds": "1s"}]


def _point(draw: Random, limit: int, calls: int) -> dict[str, int]:
    counted = draw.choice(["grants", "arrivals", "ended", "in_flight"])
    return {
        counted: draw.randint(1, limit) if counted == "in_flight" else draw.randint(3, calls // 2)
    }


def _node_of(worker: str) -> str:
    return f"node-{worker[1:].partition('-')[0]}"


def _event(
    draw: Random, kind: str, left: dict[str, None], limit: int, calls: int
) -> dict[str, Any] | None:
    """Return an event of this kind; None if it would leave no worker alive.

    A killed driver is the end of all.
    """
    # Half of the stops are shorter than a lease, half of them longer.
    stop = {"seconds": round(LEASE * draw.choice([0.3, 0.6, 1.4, 2.0]), 2)}
    match kind:
        case "kill worker":
            return _kill_worker(draw, left)
        case "kill node":
            return _kill_node(draw, left)
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


def _kill_worker(draw: Random, left: dict[str, None]) -> dict[str, Any] | None:
    if len(left) < 2:
        return None
    worker = draw.choice(list(left))
    del left[worker]
    return {"kill": worker}


def _kill_node(draw: Random, left: dict[str, None]) -> dict[str, Any] | None:
    node = _node_of(draw.choice(list(left)))
    lost = [name for name in left if _node_of(name) == node]
    if len(lost) == len(left):
        return None
    for name in lost:
        del left[name]
    return {"kill": node}


_START_SECONDS = 300.0
"""How long the processes of a round may take to start: nobody is watching, and the machine may be
busy."""


@dataclass(frozen=True)
class Round:
    """One round, played in both worlds."""

    number: int
    scenario: Scenario
    real: RunResult
    sims: list[RunResult]
    """The runs in sim: first in, first out, then with random schedules."""
    count: FlightCount = field(default_factory=FlightCount)
    """Requests that the sandbox itself saw in the real run, counted without asking the clients."""

    @property
    def problems(self) -> list[str]:
        """Say what did not hold on the real cluster."""
        found = _problems(self.real)
        if first := self.count.first:
            crowd = f"{self.count.crowd} requests in flight; the limit was {self.count.limit}"
            found.append(f"at {first[-1]['at']:g} s the sandbox had {crowd}")
        return found

    @property
    def state(self) -> str:
        """Return broken, unknown (it could not be judged) or held, in whichever world."""
        results = [self.real, *self.sims]
        verdicts = [verdict for result in results for verdict in _judged(result)]
        if (
            self.count.broken
            or any(result.error for result in results)
            or any(verdict.state == "broken" for verdict in verdicts)
        ):
            return "broken"
        return "unknown" if any(verdict.failed for verdict in verdicts) else "held"

    @property
    def sim_problems(self) -> list[str]:
        """Say what did not hold in sim, and with which schedule."""
        found = []
        for result in self.sims:
            schedule = result.task.scenario.schedule
            how = f"schedule {schedule.random}" if schedule is not None else "first in, first out"
            found += [f"{how}: {problem}" for problem in _problems(result)]
        return found

    @property
    def disagreements(self) -> list[str]:
        """Say which promises reality judges differently from sim, whatever the schedule."""
        real, *sims = (
            {verdict.promise: verdict.state for verdict in _judged(result)}
            for result in (self.real, *self.sims)
        )
        found = [
            (name, real.get(name, "none"), [sim.get(name, "none") for sim in sims])
            for name in real | sims[0]
        ]
        return [
            f"{name}: ray {left}, sim {right[0]}"
            for name, left, right in found
            if left not in right
        ]

    @property
    def never_struck(self) -> str:
        """Say which of the events did not happen on the real cluster."""
        idle = [
            verdict.sentence
            for verdict in self.real.verdicts
            if verdict.promise == EVERYTHING_TOOK_EFFECT
        ]
        return "; ".join(idle)

    @property
    def outcomes(self) -> tuple[Counter[str], Counter[str]]:
        """Return how many calls ended in which way, on the cluster and in the run in sim that is
        nearest to it."""
        real = _outcomes(self.real)
        return real, min(map(_outcomes, self.sims), key=lambda sim: _moved(real, sim))

    @property
    def moved(self) -> int:
        """Return how many calls ended differently in the two worlds, at least."""
        return _moved(*self.outcomes)

    @property
    def events(self) -> list[str]:
        return [_sentence(event) for event in self.scenario.events]

    def as_dict(self) -> dict[str, Any]:
        """Return plain data, as in the JSON file of a chaos run."""
        real, sim = self.outcomes
        return {
            "round": self.number,
            "scenario": self.scenario.scenario,
            "state": self.state,
            "events": self.events,
            "limit": self.scenario.stated_limit,
            "peak_at_sandbox": self.count.peak,
            "problems": self.problems,
            "sim_problems": self.sim_problems,
            "disagreements": self.disagreements,
            "never_struck": self.never_struck,
            "outcomes_ray": dict(real),
            "outcomes_sim": dict(sim),
            "seconds": round(self.real.wall_seconds, 2),
        }


def play_rounds(
    seed: int, numbers: range, nodes: int, cluster: Any, schedules: int = 0
) -> Iterator[Round]:
    """Play rounds one after the other on an open cluster, with the fake sandbox in a process of its
    own.

    In sim each is played first in, first out, and with this number of random schedules.
    """
    from ...lab.worlds import ray

    player = partial(ray.run, cluster=cluster, sandbox_on="node", start_timeout=_START_SECONDS)
    for number in numbers:
        scenario = plan_round(seed, number, nodes)
        real = run_one(Task(scenario, "ray"), player=player)
        count = count_at_sandbox(real.journal) if not real.error else FlightCount()
        variants = [
            scenario,
            *(scenario.changed(schedule={"random": number}) for number in range(1, schedules + 1)),
        ]
        yield Round(
            number=number,
            scenario=scenario,
            real=real,
            sims=[run_one(Task(variant, "sim")) for variant in variants],
            count=count,
        )


def _judged(result: RunResult) -> list[Verdict]:
    """Return the verdicts on the stack: that an event never struck is not one."""
    return [verdict for verdict in result.verdicts if verdict.promise != EVERYTHING_TOOK_EFFECT]


def _problems(result: RunResult) -> list[str]:
    found = [
        f"{verdict.state}: {verdict.promise}: {verdict.sentence}"
        for verdict in _judged(result)
        if verdict.failed
    ]
    return [*found, result.error] if result.error else found


def _moved(one: Counter[str], other: Counter[str]) -> int:
    return max((one - other).total(), (other - one).total())


def _outcomes(result: RunResult) -> Counter[str]:
    ends = [
        event
        for event in result.journal.events
        if event["source"] == "world" and event["event"] in ENDINGS
    ]
    return Counter(end.get("outcome") or end["event"] for end in ends)


def _sentence(event: EventPart) -> str:
    lasts = f" for {duration(event.seconds)}" if event.seconds is not None else ""
    return f"{event.kind} {event.target}{lasts} after {event.after}"


def count_at_sandbox(journal: Journal) -> FlightCount:
    """Count the requests in flight against the limit from the sandbox's own events."""
    run = RunEvents(journal)
    limit = run.began["limit"]
    assert limit is not None, "the tools of chaos have a limit"
    return count_in_flight(server_steps(run, run.began["lease"]), limit)


_STYLES = {"held": "green", "broken": "bold red", "unknown": "yellow"}
_HEAD = ("", "round", "events", "peak/limit", "differ", "moved", "took")


@command
def chaos(
    rounds: Annotated[int, option("Number of rounds.", min=1)] = 10,
    seed: Seed = 1,
    first: Annotated[
        int, option("Number of the first round, to repeat or continue a run.", min=1)
    ] = 1,
    nodes: Annotated[
        int, option("Most nodes of the cluster that a round uses.", min=1, max=16)
    ] = 3,
    schedules: Annotated[
        int,
        option("Random schedules with which each round is also played in sim.", min=0, max=1000),
    ] = 2,
    out: Out = None,
    json_file: Json = None,
) -> int:
    reports = Reports(out=out, json=json_file)
    reports.check()
    numbers = range(first, first + rounds)
    played: list[Round] = []
    with (
        closing(open_cluster()) as cluster,
        ProgressReporter(text_stream(json_file), len(numbers), "rounds of chaos") as shown,
    ):
        for finished in play_rounds(
            seed=seed, numbers=numbers, nodes=nodes, cluster=cluster, schedules=schedules
        ):
            played.append(finished)
            if out is not None:
                for result in (finished.real, finished.sims[0]):
                    with written_run(result, out) as folder:
                        write_page(report_of_result(result, folder))
            if not is_stdout(json_file):
                # Each time: a run of hours may be interrupted.
                _write_rounds(played, seed, nodes, json_file)
            place = f"[{len(played)}/{len(numbers)}] {finished.state:<7}"
            line = f"{place} {finished.scenario.scenario}: {', '.join(finished.events)}"
            shown.progress(len(played), _counts(played), line=line)
            for problem in finished.problems:
                shown.print(f"  {problem}", "bold red")
            for problem in finished.sim_problems:
                shown.print(f"  in sim: {problem}", "bold red")
            for difference in finished.disagreements:
                shown.print(f"  sim and Ray differ: {difference}", "yellow")
        shown.print()
        shown.table(
            map(_row, played), _HEAD, [_STYLES[finished.state] for finished in played], texts=3
        )
        shown.print()
        worst = next(
            (
                state
                for state in ("broken", "unknown")
                if any(finished.state == state for finished in played)
            ),
            "held",
        )
        shown.print(_headline(played), _STYLES[worst])
    if is_stdout(json_file):
        _write_rounds(played, seed, nodes, json_file)
    return 0 if worst == "held" else 1


def _write_rounds(rounds: Sequence[Round], seed: int, nodes: int, file: Path | None) -> None:
    write_json(
        file, {"seed": seed, "nodes": nodes, "rounds": [played.as_dict() for played in rounds]}
    )


def _counts(rounds: Sequence[Round]) -> str:
    """Return how many rounds are in which state."""
    counts = Counter(played.state for played in rounds)
    return ", ".join(f"{counts[state]} {state}" for state in _STYLES if counts[state])


def _row(played: Round) -> tuple[str, ...]:
    crowd = f"{played.count.peak}/{played.scenario.stated_limit}"
    differ = str(len(played.disagreements) or "no")
    took = duration(played.real.wall_seconds)
    return (
        played.state,
        str(played.number),
        "; ".join(played.events),
        crowd,
        differ,
        str(played.moved),
        took,
    )


def _headline(rounds: Sequence[Round]) -> str:
    agreeing = sum(not played.disagreements for played in rounds)
    moved = sum(played.moved for played in rounds)
    calls = sum(played.outcomes[0].total() for played in rounds)
    if all(played.state == "held" for played in rounds):
        held = "every promise held"
    else:
        held = _counts(rounds)
    took = sum(played.real.wall_seconds for played in rounds) / len(rounds)
    return (
        f"{counted(len(rounds), 'round')}: {held}. "
        f"Sim and Ray agree on every promise in {agreeing} of them; "
        f"{moved} of {counted(calls, 'call')} ended differently. {took:.1f} s per round."
    )
