"""Which promises apply to a case, and with which numbers; those without numbers hold in every run.

Numbers are stated where they are sure: in a case in which nothing goes wrong, or nothing that a
second attempt does not mend. Elsewhere the promises that compare what was said with what happened
judge alone.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from sfusion_tools.sandbox.program import COMPILED

from ....fakes.faults import Output, Rule, Status
from ....fakes.sandbox.models import Queue, Quota
from ...lab.scenarios.model import Scenario
from ...lab.scenarios.program import PreparedCall
from ...lab.worlds.calling import Workload

_MANY = 99
_ASKED = 6.0
"""More than a sandbox that recovers asks to wait, in seconds."""
_SHARED = ("limiter", "driver")


@dataclass(frozen=True)
class Expectation:
    """What a case must keep, and how long it may take."""

    scenario: Scenario

    @property
    def horizon(self) -> float:
        """The time by which the run must have come to its end."""
        load = self.scenario.load
        return max(
            self.scenario.horizon, load.calls * self.longest_turn if load is not None else 0.0
        )

    def promises(self) -> list[Any]:
        """Return every promise whose numbers depend on the case, as a scenario writes it."""
        found: list[Any] = [
            {"no_stall": self._longest_silence},
            {"output_bounded": self._longest_text},
        ]
        if not self._reasons_to_retry:
            found.append({"attempts_per_call": 1})
        elif self._number("max_attempts") is not None:
            found.append({"attempts_per_call": int(self._value("max_attempts"))})
        if self._never_runs_twice:
            found.append("no_duplicate_execution")
        if not self._may_fail and "real" not in self._intents:
            load = self.scenario.load
            lost = self.scenario.events or load is None or load.cancel is not None
            found.append(
                {"outcomes": dict.fromkeys(self._intents, "any") if lost else dict(self._intents)}
            )
            full = set(self._intents) <= {"ok", "program_error"} and not self._value(
                "adaptive_rate_limit"
            )
            if (
                not lost
                and self.is_calm
                and load is not None
                and load.steps == 1
                and full
                and not self._pace
            ):
                found.append({"throughput_at_least": self._throughput})
        if (
            self.scenario.own_config is None
            and self.scenario.load is not None
            and not self.scenario.events
        ):
            found.append({"deadline_honoured": self.longest_turn + self._longest_wait})
        return found

    # -- what the tool is set to --

    def _number(self, key: str) -> float | None:
        """Return a key of the tool's config; None if the tool does not state it."""
        found = self.scenario.setting(key)
        return float(found) if isinstance(found, int | float) else None

    def _value(self, key: str, default: float = 0.0) -> float:
        found = self._number(key)
        return default if found is None else found

    @cached_property
    def most_seconds(self) -> float:
        """The longest timeout that a model may set."""
        return max(self._value("max_timeout", 60.0), self.scenario.default_timeout)

    @cached_property
    def _attempt(self) -> float:
        """The longest time that an attempt may take."""
        scenario = self.scenario
        asked = [part.timeout for part in scenario.programs if part.timeout is not None]
        compiles = any(part.language in COMPILED for part in scenario.programs)
        compiling = self._value("compile_timeout", 10.0) if compiles else 0.0
        longest = min(self.most_seconds, max([scenario.default_timeout, *asked]))
        return longest + compiling + self._value("transport_margin", 30.0)

    @cached_property
    def longest_turn(self) -> float:
        """The seconds that a call may take, without waiting for permits, and the pause after it."""
        return 3 * self._attempt + 15.0 + self._thinking

    @cached_property
    def _thinking(self) -> float:
        """How long a caller may pause between two calls."""
        load = self.scenario.load
        return load.think.longest + load.step_pause * (load.steps > 1) if load is not None else 0.0

    @cached_property
    def _longest_silence(self) -> float:
        """How long nothing at all may happen: an attempt and its wait, and whatever keeps the
        limiter away."""
        if self.scenario.own_config is not None and not self.scenario.events and not self._may_fail:
            return max(self._seconds) + self._value("backoff_cap") + _ASKED + self._pace
        lasting = sum(event.seconds or 0.0 for event in self.scenario.events)
        rollouts = 120.0 if self.scenario.rollouts is not None else 0.0
        waits = self._value("queue_timeout", 600.0) + 2 * self._value("permit_lease", 30.0)
        return self.longest_turn + waits + lasting + rollouts

    @cached_property
    def _longest_wait(self) -> float:
        """How long a call may wait before its attempts: each time for an attempt of everybody
        else."""
        assert self.scenario.load is not None
        callers = self.scenario.load.concurrency
        width = 1 if self._value("adaptive_rate_limit") else self._width
        turn = (math.ceil(callers / width) - 1) * self._attempt + callers * self._pace
        return turn * (self._value("max_attempts", 6.0) if self._reasons_to_retry else 1.0)

    @cached_property
    def _longest_text(self) -> int:
        """How long a message may be: what a program prints, as JSON without escape codes, and
        remarks; or cut."""
        cut = self._value("max_output_chars", 100_000)
        changed = any(isinstance(one, Output) for rule in self._rules for one in rule.what)
        if changed or any(part.code is not None for part in self.scenario.programs):
            return int(max(cut, 1000) + 1000)
        truths = [
            part.prepare("c0001", self.scenario.seed).truth for part in self.scenario.programs
        ]
        printed = [len(truth.stdout) + len(truth.stderr) for truth in truths]
        return int(min(max(cut, 1000), 6 * max(printed, default=0))) + 1000

    # -- what may go wrong --

    @cached_property
    def _rules(self) -> list[Rule]:
        return [rule for part in self.scenario.sandbox.settings for rule in part.faults]

    @cached_property
    def _is_unbounded(self) -> bool:
        """Does no sandbox refuse requests or get slower under load?"""
        models = [part.model for part in self.scenario.sandbox.settings]
        return not any(
            isinstance(model, Queue | Quota) or model.cores is not None or model.spawn_cost
            for model in models
        )

    @cached_property
    def is_calm(self) -> bool:
        """Is there nothing that could fail an attempt?"""
        return not self.scenario.events and not self._reasons_to_retry

    @cached_property
    def _reasons_to_retry(self) -> bool:
        shaken = any(event.kind in ("crash", "wedge", "restart") for event in self.scenario.events)
        failing = any(
            part.sandbox_error or part.compile_exit == 127 for part in self.scenario.programs
        )
        return (
            shaken
            or failing
            or not self._is_unbounded
            or not all(rule.is_harmless for rule in self._rules)
        )

    @cached_property
    def _never_runs_twice(self) -> bool:
        if self.is_calm:
            return True
        # A server that ran the program and then says that it is too busy misleads everybody.
        late = [rule for rule in self._rules if rule.phase in ("during", "after")]
        misled = any(isinstance(one, Status) and one.refuses for rule in late for one in rule.what)
        return not self._value("retry_may_have_run", 1.0) and not misled

    # -- how calls must end, and how fast --

    @cached_property
    def _intents(self) -> Counter[str]:
        """How the programs of a load end when nothing goes wrong."""
        return Counter(call.intent(self.scenario.default_timeout)["kind"] for call in self._calls)

    @cached_property
    def _calls(self) -> list[PreparedCall]:
        assert self.scenario.load is not None
        workload = Workload(self.scenario)
        return [workload.prepare(number) for number in range(1, self.scenario.load.calls + 1)]

    @cached_property
    def _width(self) -> float:
        """How many calls may be under way at a time."""
        assert self.scenario.load is not None
        return min(self.scenario.stated_limit or math.inf, self.scenario.load.concurrency)

    @cached_property
    def _seconds(self) -> list[float]:
        """How long each call takes at most, with the pause after it, where nothing fails."""
        added = (
            sum(rule.longest_delay for rule in self._rules)
            + 4 * self.scenario.cluster.link.delay.longest
        )
        return [call.seconds + added + self._thinking for call in self._calls]

    @cached_property
    def _queued(self) -> float:
        """How long a call may wait for its permits where all calls get their results."""
        resized = [event.resize for event in self.scenario.events if event.resize is not None]
        width = min([1 if self._value("adaptive_rate_limit") else self._width, *resized])
        lasting = sum(
            2 * self._value("permit_lease", 30.0) + (event.seconds or 0.0)
            for event in self.scenario.events
        )
        return (self._failures + 1) * (
            sum(self._seconds) / width + len(self._calls) * self._pace
        ) + lasting

    @cached_property
    def _may_fail(self) -> bool:
        """May a call end otherwise than with the result of its program?"""
        scenario = self.scenario
        load = scenario.load
        link = scenario.cluster.link
        if load is None or link.loss or not self._is_unbounded or not self._spares_servers:
            return True
        if any(self._number(key) is not None for key in ("call_deadline", "total_timeout")):
            return True
        is_usual = (
            self._value("queue_timeout", 600.0) == 600 and self._value("max_response_mb", 16.0) >= 1
        )
        if (
            not is_usual
            or self._value("permit_lease", 30.0) < 10 * link.delay.longest
            or self._queued > 300
        ):
            return True
        # With the longest waits between attempts, a call must end before its deadline.
        attempts = (self._failures + 1) * max(self._seconds)
        return self._failures == _MANY or 13 * self._failures + attempts >= self._attempt

    @cached_property
    def _spares_servers(self) -> bool:
        """Do all events happen to workers, which are lost with their calls?"""
        events = [event for event in self.scenario.events if event.kind not in ("resize", "cancel")]
        return all(
            event.kind in ("kill", "pause", "cut_off") and event.target not in _SHARED
            for event in events
        )

    @cached_property
    def _failures(self) -> int:
        """How many attempts of a call fail before one succeeds; many if none need."""
        failures = 0
        is_healthy = False
        may_have_run = bool(self._value("retry_may_have_run"))
        for part in self.scenario.sandbox.settings:
            striking = [rule for rule in part.faults if not rule.is_harmless]
            hangs = any(one.kind == "hang" for rule in striking for one in rule.what)
            if hangs or not all(rule.recovers(may_have_run=may_have_run) for rule in striking):
                return _MANY
            is_sick = any(rule.first_attempts is None for rule in striking)
            is_healthy |= not is_sick
            failures += (
                2 if is_sick else max((rule.first_attempts or 0 for rule in striking), default=0)
            )
        mended = is_healthy and failures < self._value("max_attempts", 1.0)
        return failures if mended or not failures else _MANY

    @cached_property
    def _pace(self) -> float:
        """Seconds between two requests of the tool."""
        rate = self._number("requests_per_second")
        return 1 / rate if rate else 0.0

    @cached_property
    def _throughput(self) -> float:
        """The calls per second that greedy callers reach where nothing goes wrong."""
        seconds = sum(self._seconds) / self._width + max(self._seconds) + 0.3
        return round(0.85 * len(self._calls) / seconds, 3)


def is_clear(scenario: Scenario) -> bool:
    """Is it known what every program does when nothing goes wrong, and whose request is whose?"""
    expected = Expectation(scenario)
    cancelled = scenario.load is not None and scenario.load.cancel is not None
    if any(part.repeated for part in scenario.programs) and (cancelled or not expected.is_calm):
        return False  # requests with the same code can only be told apart where all of them succeed
    actions = [
        one for part in scenario.sandbox.settings for rule in part.faults for one in rule.what
    ]
    if any(
        isinstance(action, Output) and action.what == "huge" and action.stream == "both"
        for action in actions
    ):
        # the same is added to both streams, so nobody can tell of which a message shows how much
        return False
    most = expected.most_seconds
    lowered = [
        part for part in scenario.programs if part.timeout is not None and part.timeout > most
    ]
    return all(
        min(part.seconds.numbers) > part.timeout or part.seconds.longest <= most
        for part in lowered
        if part.timeout
    )
