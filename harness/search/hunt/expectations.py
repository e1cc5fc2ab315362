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
from ....fakes.lifecycle.model import Lifecycle
from ....fakes.sandbox.models import Queue, Quota
from ...lab.scenarios.model import Scenario
from ...lab.scenarios.program import PreparedCall, ProgramPart
from ...lab.worlds.calling import Workload

_MANY = 99
"""More attempts than any call makes: the call may fail (chosen)."""
_ASKED = 6.0
"""More than a sandbox that recovers asks to wait, in seconds."""
_SHARED = ("limiter", "driver")
"""Targets of events that all workers need."""
_UNSTATED = {
    "max_timeout": 60.0,
    "compile_timeout": 10.0,
    "transport_margin": 30.0,
    "permit_lease": 30.0,
    "queue_timeout": 600.0,
    "max_response_mb": 16.0,
    "max_output_chars": 100_000.0,
}
"""What a tool of another class may have where its config does not say (the defaults of ours; margin
and length of output are chosen longer, so that nobody is accused for a smaller one)."""
_USUAL_QUEUE = 600.0
"""The queue_timeout with which no call of a hunted case gives up waiting: ours by default."""
_LONGEST_PAUSE = 13.0
"""Seconds between two attempts, at most: backoff and Retry-After together (chosen)."""
_NEARLY = 0.85
"""The share of the possible throughput that a tool must reach (chosen)."""
_SLOWEST = 5.0
"""Seconds by which one sandbox may be slower for a tool to be expected to go round it (chosen:
beyond that, the calls that find it out decide the time of the whole load)."""
_SHORT = 3.0
"""Seconds of the longest program for the same (chosen)."""


@dataclass(frozen=True)
class Expectation:
    """What a case must keep, and how long it may take."""

    scenario: Scenario

    @property
    def horizon(self) -> float:
        """The time by which the run must have come to its end."""
        load = self.scenario.load
        if load is None:
            return self.scenario.horizon
        return max(self.scenario.horizon, load.calls * self.longest_turn)

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
            found.append({"outcomes": self._outcomes})
            if self._is_greedy:
                found.append({"throughput_at_least": self._throughput})
        if self._has_deadline:
            found.append({"deadline_honoured": self.longest_turn + self._longest_wait})
        return found

    @property
    def _outcomes(self) -> dict[str, Any]:
        """How calls may end, with numbers where none can get lost."""
        return dict.fromkeys(self._intents, "any") if self._may_lose_calls else dict(self._intents)

    @property
    def _may_lose_calls(self) -> bool:
        load = self.scenario.load
        return bool(self.scenario.events) or load is None or load.cancel is not None

    @property
    def _is_greedy(self) -> bool:
        """Do callers take what they get, and is nothing in their way?"""
        load = self.scenario.load
        if load is None or load.steps != 1 or self._may_lose_calls or not self.is_calm:
            return False
        is_slowed = bool(self._pace) or bool(self._value("adaptive_rate_limit"))
        return not is_slowed and set(self._intents) <= {"ok", "program_error"}

    @property
    def _has_deadline(self) -> bool:
        """Is the tool another class, whose calls must end although nothing says when?"""
        scenario = self.scenario
        is_other = scenario.own_config is None
        return is_other and scenario.load is not None and not scenario.events

    # -- what the tool is set to --

    def _number(self, key: str) -> float | None:
        """Return a key of the tool's config; None if the tool does not state it."""
        found = self.scenario.setting(key)
        return float(found) if isinstance(found, int | float) else None

    def _value(self, key: str, default: float | None = None) -> float:
        """Return a key of the tool's config, or what is assumed where it does not state it."""
        found = self._number(key)
        if found is not None:
            return found
        return _UNSTATED.get(key, 0.0) if default is None else default

    @cached_property
    def most_seconds(self) -> float:
        """The longest timeout that a model may set."""
        return max(self._value("max_timeout"), self.scenario.default_timeout)

    @cached_property
    def _attempt(self) -> float:
        """The longest time that an attempt may take."""
        scenario = self.scenario
        asked = [part.timeout for part in scenario.programs if part.timeout is not None]
        compiles = any(part.language in COMPILED for part in scenario.programs)
        compiling = self._value("compile_timeout") if compiles else 0.0
        longest = min(self.most_seconds, max([scenario.default_timeout, *asked]))
        return longest + compiling + self._value("transport_margin")

    @cached_property
    def longest_turn(self) -> float:
        """The seconds that a call may take, without waiting for permits, and the pause after it.

        Twice an attempt and 10 s is the deadline of our own calls; a last attempt may begin then.
        """
        return 3 * self._attempt + 15.0 + self._thinking

    @cached_property
    def _thinking(self) -> float:
        """How long a caller may pause between two calls."""
        load = self.scenario.load
        if load is None:
            return 0.0
        pause = load.step_pause if load.steps > 1 else 0.0
        return load.think.longest + pause

    @cached_property
    def _longest_silence(self) -> float:
        """How long nothing at all may happen: an attempt and its wait, and whatever keeps the
        limiter away."""
        scenario = self.scenario
        if scenario.own_config is not None and not scenario.events and not self._may_fail:
            return max(self._seconds) + self._value("backoff_cap") + _ASKED + self._pace
        lasting = sum(event.seconds or 0.0 for event in scenario.events)
        # An engine that hangs is given up after two minutes.
        engine = 120.0 if scenario.rollouts is not None else 0.0
        waits = self._value("queue_timeout") + 2 * self._value("permit_lease")
        return self.longest_turn + waits + lasting + engine

    @cached_property
    def _longest_wait(self) -> float:
        """How long a call may wait before its attempts: each time for an attempt of everybody
        else."""
        assert self.scenario.load is not None
        callers = self.scenario.load.concurrency
        width = 1 if self._value("adaptive_rate_limit") else self._width
        turn = (math.ceil(callers / width) - 1) * self._attempt + callers * self._pace
        attempts = self._value("max_attempts", 6.0) if self._reasons_to_retry else 1.0
        return turn * attempts

    @cached_property
    def _longest_text(self) -> int:
        """How long a message may be: what a program prints, as JSON without escape codes, and
        remarks; or cut."""
        cut = self._value("max_output_chars")
        changed = any(isinstance(action, Output) for action in self.actions)
        if changed or any(part.code is not None for part in self.scenario.programs):
            return int(max(cut, 1000) + 1000)
        truths = [
            part.prepare("c0001", self.scenario.seed).truth for part in self.scenario.programs
        ]
        printed = [len(truth.stdout) + len(truth.stderr) for truth in truths]
        # JSON writes a control character as six.
        return int(min(max(cut, 1000), 6 * max(printed, default=0))) + 1000

    # -- what may go wrong --

    @cached_property
    def _rules(self) -> list[Rule]:
        return [rule for part in self.scenario.sandbox.settings for rule in part.faults]

    @cached_property
    def actions(self) -> list[Any]:
        return [action for rule in self._rules for action in rule.what]

    @cached_property
    def _is_unbounded(self) -> bool:
        """Does no sandbox refuse requests or get slower under load?"""
        models = [part.model for part in self.scenario.sandbox.settings]
        return not any(
            isinstance(model, Queue | Quota | Lifecycle)
            or model.cores is not None
            or model.spawn_cost
            for model in models
        )

    @cached_property
    def is_calm(self) -> bool:
        """Is there nothing that could fail an attempt?"""
        return not self.scenario.events and not self._reasons_to_retry

    @cached_property
    def _reasons_to_retry(self) -> bool:
        is_shaken = any(
            event.kind in ("crash", "wedge", "restart") for event in self.scenario.events
        )
        is_failing = any(
            part.sandbox_error or part.compile_exit == 127 for part in self.scenario.programs
        )
        is_struck = not all(rule.is_harmless for rule in self._rules)
        return is_shaken or is_failing or is_struck or not self._is_unbounded

    @cached_property
    def _slow_one(self) -> float:
        """By how many seconds one of several sandboxes is slower than the others; 0 if none is.

        A tool must then do nearly all of the work elsewhere.
        """
        delays = [
            sum(rule.longest_delay for rule in part.faults)
            for part in self.scenario.sandbox.settings
        ]
        slow = [delay for delay in delays if delay]
        if len(slow) != 1 or len(delays) < 2 or slow[0] > _SLOWEST:
            return 0.0
        # A lone call may well be sent to the slow one.
        is_wide = self._width >= 2 * len(delays)
        is_short = max(part.seconds.longest for part in self.scenario.programs) <= _SHORT
        return slow[0] if is_wide and is_short else 0.0

    @cached_property
    def _never_runs_twice(self) -> bool:
        if self.is_calm:
            return True
        # A server that ran the program and then says that it is too busy misleads everybody.
        late = [rule for rule in self._rules if rule.phase in ("during", "after")]
        actions = [action for rule in late for action in rule.what]
        is_misled = any(isinstance(action, Status) and action.refuses for action in actions)
        return not self._value("retry_may_have_run", 1.0) and not is_misled

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
        return [seconds + self._delays for seconds in self._quick_seconds]

    @cached_property
    def _quick_seconds(self) -> list[float]:
        """The same, without the delays of sandboxes."""
        network = 4 * self.scenario.cluster.link.delay.longest
        return [call.seconds + network + self._thinking for call in self._calls]

    @cached_property
    def _delays(self) -> float:
        return sum(rule.longest_delay for rule in self._rules)

    @cached_property
    def _queued(self) -> float:
        """How long a call may wait for its permits where all calls get their results."""
        events = self.scenario.events
        resized = [event.resize for event in events if event.resize is not None]
        width = min([1 if self._value("adaptive_rate_limit") else self._width, *resized])
        lasting = sum(2 * self._value("permit_lease") + (event.seconds or 0.0) for event in events)
        once = sum(self._seconds) / width + len(self._calls) * self._pace
        return (self._failures + 1) * once + lasting

    @cached_property
    def _may_fail(self) -> bool:
        """May a call end otherwise than with the result of its program?"""
        link = self.scenario.cluster.link
        if self.scenario.load is None or link.loss:
            return True
        if not self._is_unbounded or not self._spares_servers or self._gives_up_early:
            return True
        if self._value("permit_lease") < 10 * link.delay.longest or self._queued > _USUAL_QUEUE / 2:
            return True
        # With the longest waits between attempts, a call must end before its deadline.
        attempts = (self._failures + 1) * max(self._seconds)
        waits = _LONGEST_PAUSE * self._failures
        return self._failures == _MANY or waits + attempts >= self._attempt

    @cached_property
    def _gives_up_early(self) -> bool:
        """Is the tool set to give up a call before everything is tried?"""
        if any(self._number(key) is not None for key in ("call_deadline", "total_timeout")):
            return True
        return self._value("queue_timeout") != _USUAL_QUEUE or self._value("max_response_mb") < 1

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
        may_have_run = bool(self._value("retry_may_have_run"))
        failures = 0
        is_one_healthy = False
        for part in self.scenario.sandbox.settings:
            striking = [rule for rule in part.faults if not rule.is_harmless]
            if any(_hangs(rule) for rule in striking):
                return _MANY
            if not all(rule.recovers(may_have_run=may_have_run) for rule in striking):
                return _MANY
            if any(rule.first_attempts is None for rule in striking):
                failures += 2  # then the others are tried
            else:
                is_one_healthy = True
                failures += max((rule.first_attempts or 0 for rule in striking), default=0)
        is_mended = is_one_healthy and failures < self._value("max_attempts", 1.0)
        return failures if is_mended or not failures else _MANY

    @cached_property
    def _pace(self) -> float:
        """Seconds between two requests of the tool."""
        rate = self._number("requests_per_second")
        return 1 / rate if rate else 0.0

    @cached_property
    def _throughput(self) -> float:
        """The calls per second that greedy callers reach where nothing goes wrong."""
        if self._slow_one:
            share = 1 - 1 / self.scenario.sandbox.instances
            fast = max(1.0, math.floor(self._width * share))
            # Each of the first calls there shows that it is slow, and one may still be on its way.
            found_out = 2 * (max(self._quick_seconds) + self._slow_one) + 1.0
            seconds = sum(self._quick_seconds) / fast + found_out
        else:
            seconds = sum(self._seconds) / self._width + max(self._seconds) + 0.3
        return round(_NEARLY * len(self._calls) / seconds, 3)


def _hangs(rule: Rule) -> bool:
    return any(action.kind == "hang" for action in rule.what)


def is_clear(scenario: Scenario) -> bool:
    """Is it known what every program does when nothing goes wrong, and whose request is whose?"""
    expected = Expectation(scenario)
    return (
        _can_be_told_apart(scenario, expected)
        and not any(_fills_both_streams(action) for action in expected.actions)
        and all(_has_sure_end(part, expected.most_seconds) for part in scenario.programs)
    )


def _can_be_told_apart(scenario: Scenario, expected: Expectation) -> bool:
    """Requests with the same code can only be told apart where all of them succeed."""
    if not any(part.repeated for part in scenario.programs):
        return True
    is_cancelled = scenario.load is not None and scenario.load.cancel is not None
    return expected.is_calm and not is_cancelled


def _fills_both_streams(action: Any) -> bool:
    """The same is added to both streams, so nobody can tell of which a message shows how much."""
    return isinstance(action, Output) and action.what == "huge" and action.stream == "both"


def _has_sure_end(part: ProgramPart, most: float) -> bool:
    """Does a program end in the same way if its timeout is lowered to the longest one allowed?"""
    if part.timeout is None or part.timeout <= most:
        return True
    return min(part.seconds.numbers) > part.timeout or part.seconds.longest <= most
