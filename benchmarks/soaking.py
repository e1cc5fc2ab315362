"""A soak in virtual time: a day of training steps in one process, judged, written and dropped step
by step."""

from __future__ import annotations

import json
import resource
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TextIO

from sfusion.harness.core.journal import Event, Journal
from sfusion.harness.lab.promises import Verdict, check_promises
from sfusion.harness.lab.scenarios.model import Scenario
from sfusion.harness.lab.worlds import sim

PROMISES: list[Any] = [
    "in_flight_within_limit",
    "every_call_ends_once",
    "grants_in_order",
    "no_permit_leaked",
    "text_is_truthful",
    {"no_starvation": "120s"},
    {"no_stall": "60s"},
]
DAY = 24 * 3600.0


def soak(calls: int, steps: int) -> Scenario:
    """Return the scenario: about a minute per step; a sixth of the calls meet a fault, a few parts
    fail."""
    hours = DAY / 3600 * steps / 1440
    return Scenario.from_data(
        {
            "scenario": "soak",
            "about": "A day of training steps in virtual time.",
            "cluster": {"nodes": 2, "workers_per_node": 2},
            "tools": {"rate_limit": 16},
            "sandbox": {
                "faults": [
                    {"name": "busy", "probability": 0.1, "what": {"status": 503}},
                    {"name": "reset", "probability": 0.05, "what": {"reset": True}},
                    {"name": "slow", "probability": 0.01, "what": {"delay": "5s"}},
                ]
            },
            "load": {
                "calls": calls,
                "concurrency": 48,
                "steps": steps,
                "step_pause": "12s",
                "program": {"seconds": {"uniform": ["100ms", "1800ms"]}, "prints": "{call}\n"},
            },
            "events": [
                {"at": f"{hours * 0.25}h", "crash": "sandbox", "seconds": "20s"},
                {"at": f"{hours * 0.5}h", "kill": "limiter", "seconds": "5s"},
                {"at": f"{hours * 0.75}h", "pause": "n1-w1", "seconds": "60s"},
                {"at": f"{hours * 0.9}h", "kill": "n2-w2"},
            ],
            "horizon": "72h",
            "promises": PROMISES,
        }
    )


@dataclass(frozen=True, slots=True)
class Milestone:
    """How far a soak is, and what it has cost."""

    calls: int
    at: float
    """Virtual seconds."""
    memory: int
    """Bytes of RSS; 0 where the system does not tell."""
    written: int
    """Bytes of journal."""
    cpu: float


class StepJournal(Journal):
    """Keeps the events of the present step only, or of several if permits are out at the end of
    one.

    A worker that is killed in one step holds its permits until their leases end, which may be in
    the next.
    """

    def prepare(
        self, scenario: Scenario, file: TextIO, every: int, show: Callable[[Milestone], None]
    ) -> None:
        """Call ``show`` after each ``every`` calls, and at both ends."""
        self.scenario = scenario
        self.file = file
        self.every = every
        self._show = show
        self.began: Event = {}
        self.out: set[str] = set()
        self.states: Counter[str] = Counter()
        self.failed: list[Verdict] = []
        self.calls = self.all_events = self.written = 0
        self.since = time.process_time()
        self.show(0.0)

    def add(self, event: Event) -> None:
        super().add(event)
        match event["event"]:
            case "began":
                self.began = event
            case "limiter_died":
                self.out.clear()  # the clients report to the next limiter what they hold
            case "granted" | "learned" if event["source"] == "limiter":
                self.out.add(event["permit"])
            case "released" | "expired" if event["source"] == "limiter":
                self.out.discard(event["permit"])
            case "step_ended" if not self.out:
                self._check(event)
            case "ended":
                self._check(event)

    def _check(self, last: Event) -> None:
        made = sum(event["event"] == "called" for event in self.events)
        began = {**self.began, "calls": made}
        ended = {"at": last["at"], "source": "world", "event": "ended"}
        step = Journal(
            self.header,
            [began, *(event for event in self.events if event is not self.began), ended],
        )
        for verdict in check_promises(step, self.scenario.promises):
            self.states[verdict.state] += 1
            if verdict.failed and (
                verdict.how is None or verdict.how.kind != "never_reached"
            ):  # by a single step
                self.failed.append(verdict)
        header, *lines = Journal(self.header, self.events).lines()
        for line in lines if self.written else [header, *lines]:
            self.file.write(line)
            self.written += len(line)
        self.all_events += len(self.events)
        self.events.clear()
        before = self.calls
        self.calls = self.calls + made
        if self.calls // self.every > before // self.every or last["event"] == "ended":
            self.show(last["at"])

    def show(self, at: float) -> None:
        cpu = time.process_time() - self.since
        self._show(
            Milestone(calls=self.calls, at=at, memory=memory(), written=self.written, cpu=cpu)
        )


def memory() -> int:
    """Return the resident bytes of this process; 0 where the system does not tell."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    except OSError:
        return 0


def run_soak(
    calls: int, steps: int, journal: Path, every: int, show: Callable[[Milestone], None]
) -> StepJournal:
    """Play the soak and write its journal."""
    return play_in_steps(soak(calls, steps), journal, every, show)


def play_in_steps(
    scenario: Scenario, journal: Path, every: int, show: Callable[[Milestone], None]
) -> StepJournal:
    """Play a scenario in world sim and check its steps one by one."""
    found = StepJournal.begin(scenario=scenario.scenario, cell="", seed=0, world="sim")
    with journal.open("w", encoding="ascii") as file:
        found.prepare(scenario, file, every, show)
        sim.run(scenario, journal=found)
    return found


def main(calls: int) -> None:
    """Play a soak of so many calls, about 500 in a step, and print its last milestone as JSON."""
    seen: list[Milestone] = []
    with tempfile.TemporaryDirectory() as folder:
        run_soak(
            calls=calls,
            steps=max(1, calls // 500),
            journal=Path(folder) / "journal.ndjson",
            every=calls,
            show=seen.append,
        )
    print(json.dumps(asdict(seen[-1])))


if __name__ == "__main__":
    main(int(sys.argv[1]))
