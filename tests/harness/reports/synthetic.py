"""Journals made by a small simulation, with as many calls as a test needs."""

from __future__ import annotations

import heapq
import random
from collections import deque
from collections.abc import Callable
from typing import Any

from sfusion.harness.core.verdict import Verdict
from sfusion.harness.reports import RunReport

PLANTED = (
    "<script>window.planted = true</script><img src=x onerror='window.planted = true'></script>"
)


class Simulation:
    """Workers that share a limiter and call a server that throttles, resets connections and
    crashes."""

    def __init__(
        self, calls: int, workers: int = 4, limit: int = 10, seed: int = 7, faults: float = 0.08
    ) -> None:
        self._random = random.Random(seed)
        self._limit, self._faults, self._workers = limit, faults, workers
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0
        self._held = 0
        self._waiting: deque[tuple[str, int, float]] = deque()
        self.now = 0.0
        self.events: list[dict[str, Any]] = []
        self._dead: set[str] = set()
        self._worker_of: dict[str, str] = {}
        for number in range(calls):
            call, worker = f"c{number:05d}", f"worker-{number % workers}"
            self._worker_of[call] = worker
            self._schedule(self._random.random() * calls / 40, lambda call=call: self._start(call))

    def run(
        self, kill_at: float | None = None, crash_at: float | None = None
    ) -> list[dict[str, Any]]:
        """Run to the end and return the events."""
        self._note("world", "began", limit=self._limit)
        if kill_at is not None:
            self._schedule(kill_at, lambda: self._kill("worker-1"))
        if crash_at is not None:
            self._schedule(crash_at, lambda: self._note("server", "crash", restart_after=2.0))
            self._schedule(crash_at + 2, lambda: self._note("server", "restart"))
        while self._queue:
            self.now, _, action = heapq.heappop(self._queue)
            action()
        return self.events

    def _schedule(self, seconds: float, action: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._queue, (self.now + seconds, self._count, action))

    def _note(
        self,
        source: str,
        event: str,
        call: str | None = None,
        attempt: int | None = None,
        **more: Any,
    ) -> None:
        line: dict[str, Any] = {"at": round(self.now, 6), "source": source, "event": event}
        if call is not None:
            line["call"] = call
        if attempt is not None:
            line["attempt"] = attempt
        if call is not None and source == "client":
            line["worker"] = self._worker_of[call]
        self.events.append({**line, **more})

    def _kill(self, worker: str) -> None:
        self._dead.add(worker)
        self._note("world", "worker_died", worker=worker)

    def _is_dead(self, call: str) -> bool:
        return self._worker_of[call] in self._dead

    def _start(self, call: str) -> None:
        if not self._is_dead(call):
            self._note("client", "call_started", call)
            self._enqueue(call, 1)

    def _enqueue(self, call: str, attempt: int) -> None:
        self._waiting.append((call, attempt, self.now))
        self._grant()

    def _grant(self) -> None:
        while self._waiting and self._held < self._limit:
            call, attempt, since = self._waiting.popleft()
            if self._is_dead(call):
                continue
            self._held += 1
            waited = round(self.now - since, 6)
            self._note(
                "client", "permit_granted", call, attempt, permit=f"p{self._count}", waited=waited
            )
            self._note("client", "attempt_started", call, attempt, endpoint="http://127.0.0.1:8080")
            self._note("server", "arrived", call, attempt, path="/run_code", in_flight=self._held)
            self._serve(call, attempt)

    def _serve(self, call: str, attempt: int) -> None:
        drawn = self._random.random()
        if drawn < self._faults:
            kind = "reset" if drawn < self._faults / 3 else "status"
            more = {
                "rule": "flaky" if kind == "status" else "lost",
                "phase": "before",
                "kind": kind,
                "code_ran": "no",
            }
            self._note("server", "strike", call, attempt, **more)
            outcome = ("throttled", 429) if kind == "status" else ("unreachable", None)
            self._schedule(0.01, lambda: self._end(call, attempt, *outcome))
            return
        seconds = self._random.lognormvariate(-1.6, 0.6)
        self._note("server", "started", call, attempt)
        endings = [
            ("ok", 0.9),
            ("program_error", 0.06),
            ("program_timeout", 0.03),
            ("sandbox_error", 0.01),
        ]
        outcome = self._random.choices(
            [name for name, _ in endings], [weight for _, weight in endings]
        )[0]
        self._schedule(seconds, lambda: self._end(call, attempt, outcome, 200))

    def _end(self, call: str, attempt: int, outcome: str, status: int | None) -> None:
        if status == 200:
            self._note("server", "finished", call, attempt)
        self._note(
            "server",
            "unanswered" if status is None else "answered",
            call,
            attempt,
            status=status or 0,
        )
        self._held -= 1
        if self._is_dead(call):
            self._grant()
            return
        self._note("client", "permit_released", call, attempt)
        self._note("client", "attempt_ended", call, attempt, outcome=outcome, status=status)
        if status != 200 and attempt < 4:
            pause = 0.5 * 2 ** (attempt - 1)
            self._note(
                "client", "backing_off", call, attempt, seconds=pause, asked=0.5 if status else None
            )
            self._schedule(pause, lambda: self._enqueue(call, attempt + 1))
        else:
            text = PLANTED if call.endswith("3") else "42\n" * 4
            self._note("client", "call_ended", call, outcome=outcome, executions=1, text=text)
        self._grant()


def broken_run(calls: int = 300, **more: Any) -> RunReport:
    """A run with every kind of verdict, faults, a kill, a crash, and script tags in every text."""
    events = Simulation(calls, **more).run(kill_at=calls / 100, crash_at=calls / 70)
    verdicts = [
        Verdict(
            "in_flight_within_limit", "held", "At most 10 attempts in flight; the limit is 10."
        ),
        Verdict(
            "every_call_ends_once",
            "broken",
            f"12 of {calls} calls never ended: their worker was killed at {calls / 100:g} s.",
            [
                {
                    "call": f"c{number:05d}",
                    "at": calls / 100 + number / 7,
                    "event": "call_started",
                    "worker": "worker-1",
                }
                for number in range(1, 80, 4)
            ],
        ),
        Verdict(
            "outcomes",
            "broken",
            f"All should be ok; c00003 printed {PLANTED}",
            [{"call": "c00003", "found": PLANTED}],
        ),
        Verdict(
            "no_duplicate_execution",
            "unknown",
            "The server's ledger does not cover the time of its crash.",
        ),
        Verdict("no_permit_leaked", "held", "Every permit was released."),
        Verdict("retry_after_honoured", "held", "2 Retry-After headers, all respected."),
    ]
    return RunReport(
        "throttled-gateway",
        verdicts,
        cell="nodes=2,limit=10",
        about=(
            "A FaaS gateway admits 8 at a time; the limiter is set to 10. Calls must "
            "finish, slowly. "
        )
        + PLANTED,
        seed=7,
        sfusion="0.1.0",
        events=events,
        read_source=lambda: (
            f"scenario: throttled-gateway\nabout: '{PLANTED}'\nload: {{calls: {calls}}}\n"
        ),
        wall_seconds=0.21,
        directory="runs/throttled-gateway",
    )


def held_run(calls: int = 40) -> RunReport:
    """A run in which every promise held."""
    events = Simulation(calls, workers=2, faults=0.0, seed=3).run()
    verdicts = [
        Verdict(
            "in_flight_within_limit", "held", "At most 10 attempts in flight; the limit is 10."
        ),
        Verdict("every_call_ends_once", "held", f"Each of the {calls} calls ended once."),
    ]
    about = "Two workers on one node, nothing fails."
    return RunReport(
        "single-node",
        verdicts,
        about=about,
        seed=1,
        sfusion="0.1.0",
        events=events,
        wall_seconds=0.02,
    )
