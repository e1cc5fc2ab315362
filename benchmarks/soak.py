"""A soak in virtual time: a day of training steps, a million calls, every promise judged, and the memory measured.

    python benchmarks/soak.py [--calls 1000000] [--steps 1440] [--journal FILE]

The whole stack of world sim (workers, limiter, fake sandbox) runs as one process from the first call to the last. The
calls come in steps, as in training; after each step all of its calls have ended, so its part of the journal is judged
by the usual promises, written to the file and dropped. Exit code 1 if a promise was broken.
"""

from __future__ import annotations

import argparse
import resource
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any, TextIO

from sfusion.harness.journal import Event, Journal
from sfusion.harness.promises import Verdict, judge
from sfusion.harness.scenarios.model import Scenario
from sfusion.harness.worlds import sim

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
    """Return the scenario: about a minute per step; a sixth of the calls meet a fault, a few parts fail."""
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


class StepJournal(Journal):
    """Keeps the events of the present step only."""

    scenario: Scenario
    file: TextIO
    every: int

    def prepare(self, scenario: Scenario, file: TextIO, every: int) -> None:
        self.scenario, self.file, self.every = scenario, file, every
        self.began: Event = {}
        self.states: Counter[str] = Counter()
        self.failed: list[Verdict] = []
        self.said: set[str] = set()
        self.calls = self.all_events = self.written = 0
        self.since = time.process_time()
        print(f"{'calls':>9} {'virtual':>9} {'RSS':>8} {'journal':>10} {'CPU':>8}")
        self.show(0.0)

    def add(self, event: Event) -> None:
        super().add(event)
        if event["event"] == "began":
            self.began = event
        elif event["event"] in ("step_ended", "ended"):
            self._end_step(event)

    def _end_step(self, last: Event) -> None:
        made = sum(one["event"] == "called" for one in self.events)
        began = {**self.began, "calls": made}
        ended = {"at": last["at"], "source": "world", "event": "ended"}
        step = Journal(self.header, [began, *(one for one in self.events if one is not self.began), ended])
        for verdict in judge(step, self.scenario.promises):
            self.states[verdict.state] += 1
            if verdict.failed and verdict.sentence not in self.said:
                self.said.add(verdict.sentence)
                print(f"  {verdict.state}: {verdict.promise}: {verdict.sentence}")
            if verdict.state == "broken":
                self.failed.append(verdict)
        for line in Journal(self.header, self.events).lines():
            self.file.write(line)
            self.written += len(line)
        self.all_events += len(self.events)
        self.events.clear()
        before, self.calls = self.calls, self.calls + made
        if self.calls // self.every > before // self.every or last["event"] == "ended":
            self.show(last["at"])

    def show(self, at: float) -> None:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        rss = pages * resource.getpagesize() / 2**20
        written, cpu = self.written / 2**20, time.process_time() - self.since
        print(f"{self.calls:>9,} {at / 3600:>7.2f} h {rss:>5.0f} MB {written:>7,.0f} MB {cpu:>6.0f} s", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=1_000_000)
    parser.add_argument("--steps", type=int, default=1440)
    parser.add_argument("--journal", type=Path, default=Path("/dev/null"), help="where to write the journal")
    parser.add_argument("--show", type=int, default=100_000, help="measure after each so many calls")
    options = parser.parse_args()
    scenario = soak(options.calls, options.steps)
    journal = StepJournal.begin(scenario="soak", cell="", seed=0, world="sim")
    assert isinstance(journal, StepJournal)
    with options.journal.open("w", encoding="ascii") as file:
        journal.prepare(scenario, file, options.show)
        sim.run(scenario, journal=journal)
    print(f"{journal.all_events:,} events; verdicts of {options.steps:,} steps: {dict(journal.states)}")
    return 1 if journal.failed or not journal.calls else 0


if __name__ == "__main__":
    sys.exit(main())
