"""Which promises apply to a case, and with which numbers: what must hold by construction, derived from the scenario."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from sfusion.fakes.faults import Rule, Status
from sfusion.fakes.faults.action import ANY_FAILURE
from sfusion.fakes.sandbox.models import Queue, Quota
from sfusion.fakes.sandbox.program import fill
from sfusion.fakes.sglang.engine import CONTEXT_LENGTH
from sfusion.harness.lab.promises.story import PROGRAM_OUTCOMES
from sfusion.harness.lab.scenarios.model import Scenario
from sfusion.harness.lab.scenarios.program import ProgramPart
from sfusion.harness.lab.worlds.workload import Workload
from sfusion_tools.formats import get_format
from sfusion_tools.sandbox.program import COMPILED
from sfusion_tools.sandbox.text import plain


def promises_of(scenario: Scenario) -> list[Any]:
    """Return every promise whose numbers depend on the case, as a scenario writes it; the others hold in every run."""
    return _Expectation(scenario).stated()


def horizon_of(scenario: Scenario) -> float:
    """Return the time by which the run must have come to its end."""
    expected, load = _Expectation(scenario), scenario.load
    if load is None:
        return scenario.horizon
    turns = math.ceil(load.calls / load.concurrency) + load.steps - 1
    return max(scenario.horizon, turns * expected.longest_turn)


@dataclass(frozen=True)
class _Expectation:
    scenario: Scenario

    def stated(self) -> list[Any]:
        scenario = self.scenario
        found: list[Any] = [{"no_stall": self._longest_silence}]
        if scenario.own_config is not None:
            found.append({"no_starvation": self._longest_wait})
        else:
            found.append({"deadline_honoured": self._deadline + self._longest_wait})
        if self.is_calm or not self._reasons_to_retry:
            found.append({"attempts_per_call": 1})
        elif self._number("max_attempts") is not None:
            found.append({"attempts_per_call": int(self._value("max_attempts"))})
        if self._never_runs_twice:
            found.append("no_duplicate_execution")
        if (outcomes := self._outcomes) is not None:
            found.append({"outcomes": outcomes})
        if scenario.rollouts is not None:
            answered = self._has_room and not self._failures and self.is_calm
            found.append({"rollout_ends": "answered"} if answered else "rollout_ends")
        if (rate := self._throughput) is not None:
            found.append({"throughput_at_least": rate})
        known = not self._rules and self._is_unbounded and self._failures is not None
        if scenario.events and scenario.load is not None and known and set(self._intents) <= PROGRAM_OUTCOMES:
            found.append({"recovers_within": self._longest_silence})
        longest = self._value("max_output_chars", 100_000)
        found.append({"output_bounded": int(max(longest, 1000) + 1000)})
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
        return self._value("max_timeout", 60.0)

    @cached_property
    def _longest_timeout(self) -> float:
        """The longest time that a program of the case may get."""
        most = max(self.most_seconds, self.scenario.default_timeout)
        asked = [part.timeout for part in self.scenario.programs if part.timeout is not None]
        return min(most, max([self.scenario.default_timeout, *asked]))

    @cached_property
    def _attempt(self) -> float:
        compiles = any(part.language in COMPILED for part in self.scenario.programs)
        compiling = self._value("compile_timeout", 10.0) if compiles else 0.0
        return self._longest_timeout + compiling + self._value("transport_margin", 30.0)

    @cached_property
    def _deadline(self) -> float:
        """The seconds that a call may take, without waiting for permits."""
        return 3 * self._attempt + 15.0

    @cached_property
    def _limit(self) -> float:
        """How many attempts may be in flight, at the least."""
        limit = self.scenario.stated_limit
        if limit is None:
            return math.inf
        if self._value("adaptive_rate_limit"):
            return 1.0
        return min([limit, *(event.resize for event in self.scenario.events if event.resize is not None)])

    @cached_property
    def _callers(self) -> int:
        if self.scenario.load is not None:
            return self.scenario.load.concurrency
        assert self.scenario.rollouts is not None
        most = max(len(turn.programs) for turn in self.scenario.rollouts.turns)
        return max(1, most) * (self.scenario.rollouts.at_once or self.scenario.rollouts.count)

    @cached_property
    def _longest_wait(self) -> float:
        """How long a call may wait for its permits."""
        per_attempt = self._attempt + 2 * self._value("permit_lease", 30.0) * self._is_shaken
        turns = math.ceil(self._callers / self._limit) if self._limit != math.inf else 0
        attempts = self._value("max_attempts", 6.0) if self._reasons_to_retry else 1.0
        return turns * per_attempt * attempts + self._paces * self._callers * attempts + self._disturbed + 5.0

    @cached_property
    def _paces(self) -> float:
        """Seconds between two requests."""
        rate = self._number("requests_per_second")
        return 1 / rate if rate else 0.0

    @cached_property
    def _thinking(self) -> float:
        """How long a caller may pause between two calls."""
        load = self.scenario.load
        return load.think.longest + load.step_pause * (load.steps > 1) if load is not None else 0.0

    @cached_property
    def longest_turn(self) -> float:
        """The seconds that a caller may take for a call, with all waits."""
        return self._deadline + self._longest_wait + self._thinking

    @cached_property
    def _longest_silence(self) -> float:
        """How long nothing at all may happen."""
        must_succeed = self.scenario.load is not None and self._failures == frozenset()
        if self.scenario.own_config is not None and must_succeed and not self._is_shaken:
            return self._longest_pause
        engine = 120.0 if self.scenario.rollouts is not None and self.scenario.rollouts.faults else 5.0
        lease = 2 * self._value("permit_lease", 30.0)
        return self._deadline + lease + self._disturbed + self._thinking + engine + 10 * self._paces

    @cached_property
    def _longest_pause(self) -> float:
        """How long our own tool may be silent where every call gets its result: an attempt, and the wait after it."""
        attempt = max(min(part.seconds.longest, self._longest_timeout) for part in self.scenario.programs)
        attempt += max(self._one_is_slow, sum(rule.longest_delay for rule in self._rules))
        if any(action.kind == "hang" for action in self._actions):
            attempt += self._attempt
        wait = self._value("backoff_cap") + max((one.asked_wait for one in self._actions), default=0.0)
        network = 20 * self.scenario.cluster.link.delay.longest
        return attempt + wait + self._thinking + 10 * self._paces + network + 5.0

    @cached_property
    def _disturbed(self) -> float:
        """How long the limiter, or a worker's way to it, may be away."""
        lasting = 0.0
        for event in self.scenario.events:
            if event.kind in ("pause", "cut_off") or event.target == "limiter":
                lasting += self._queue if event.seconds is None else event.seconds
        link = self.scenario.cluster.link
        return lasting + 20 * link.delay.longest + (self._queue if link.loss or self._leases_are_short else 0.0)

    @cached_property
    def _queue(self) -> float:
        return self._value("queue_timeout", 600.0)

    @cached_property
    def _leases_are_short(self) -> bool:
        """Do messages take too long for the lease?"""
        return self._value("permit_lease", 30.0) < 10 * self.scenario.cluster.link.delay.longest

    @cached_property
    def _is_shaken(self) -> bool:
        """May permits be held by those who no longer use them?"""
        return bool(self.scenario.events) or bool(self.scenario.cluster.link.loss)

    # -- what may go wrong --

    @cached_property
    def _rules(self) -> list[Rule]:
        return [rule for part in self.scenario.sandbox.settings for rule in part.faults]

    @cached_property
    def _actions(self) -> list[Any]:
        return [action for rule in self._rules for action in rule.what]

    @cached_property
    def _models(self) -> list[Any]:
        return [part.model for part in self.scenario.sandbox.settings]

    @cached_property
    def _is_unbounded(self) -> bool:
        """Does no sandbox refuse requests or get slower under load?"""
        return not any(self._may_refuse(model) or model.cores is not None or model.spawn_cost for model in self._models)

    def _may_refuse(self, model: Any) -> bool:
        """May a sandbox of this model refuse requests, or make them wait?"""
        if isinstance(model, Queue):
            return True
        if not isinstance(model, Quota):
            return False
        if model.in_flight is not None or model.per_second is None or self.scenario.events:
            return True
        burst = model.burst or max(1, math.floor(model.per_second))
        rate, mine = self._number("requests_per_second"), self._value("requests_burst", math.inf)
        # Our limiter keeps the pace; without it nobody does, and on a link grants catch up with each other.
        if self.scenario.stated_limit is None or self.scenario.cluster.link.delay.longest > 0.01:
            return True
        return rate is None or rate > 0.9 * model.per_second or mine > burst

    @cached_property
    def _one_is_slow(self) -> float:
        """Return how much slower one of several otherwise healthy sandboxes is; 0 if that is not all there is."""
        sandbox, slow = self.scenario.sandbox, []
        for part in sandbox.settings:
            if part.model.cores or part.model.spawn_cost:
                return 0.0
            if not part.faults and not isinstance(part.model, Queue | Quota):
                continue
            delays = [rule.longest_delay for rule in part.faults]
            only = all(not rule.phase and all(one.kind == "delay" for one in rule.what) for rule in part.faults)
            refuses = isinstance(part.model, Quota) or getattr(part.model, "waiting", None) is not None
            if refuses or not only or not all(delays):
                return 0.0
            # Before anything is known about it, all that is in flight may be queued there.
            width = min(self._limit, self._callers)
            turns = math.ceil(width / part.model.workers) if isinstance(part.model, Queue) else 1
            slow.append(sum(delays) * turns)
        short = max(part.seconds.longest for part in self.scenario.programs) <= 3
        quiet = not self.scenario.events and self._attempt > 20 and short
        return slow[0] if len(slow) == 1 and sandbox.instances > 1 and quiet and slow[0] <= 5 else 0.0

    @cached_property
    def is_calm(self) -> bool:
        """Is there nothing that could fail an attempt?"""
        return not self.scenario.events and not self._reasons_to_retry

    @cached_property
    def _reasons_to_retry(self) -> bool:
        shaken = any(event.kind in ("crash", "wedge", "restart") for event in self.scenario.events)
        failing = any(part.sandbox_error or part.compile_exit == 127 for part in self.scenario.programs)
        return shaken or failing or not self._is_unbounded or not all(rule.is_harmless for rule in self._rules)

    @cached_property
    def _never_runs_twice(self) -> bool:
        if self.is_calm:
            return True
        if self._value("retry_may_have_run", 1.0):
            return False
        # A server that ran the program and then says that it is too busy misleads everybody.
        late = [rule for rule in self._rules if rule.phase in ("during", "after")]
        misled = any(isinstance(one, Status) and one.refuses for rule in late for one in rule.what)
        return not misled and not self.scenario.events

    # -- how calls must end --

    @cached_property
    def _intents(self) -> Counter[str]:
        """How the programs of a load end when nothing goes wrong."""
        scenario = self.scenario
        if scenario.load is None:
            return Counter()
        workload, numbers = Workload.of(scenario, 1.0), range(1, scenario.load.calls + 1)
        return Counter(workload.prepare(number).intent(scenario.default_timeout)["kind"] for number in numbers)

    @cached_property
    def _outcomes(self) -> dict[str, Any] | None:
        """Return which outcomes may occur, with their numbers if these are known."""
        scenario, own = self.scenario, self._intents
        if scenario.load is None or "real" in own:
            return None
        others = self._failures
        if others is None:
            others = frozenset({*(one.value for one in ANY_FAILURE), "program_timeout"})
        lost = any(event.kind in ("kill", "cancel") for event in scenario.events) or scenario.load.cancel is not None
        if not others and not lost:
            return dict(own)
        return dict.fromkeys(sorted({*own, *others}), "any")

    @cached_property
    def _failures(self) -> frozenset[str] | None:
        """Return how calls may end because of the infrastructure; None if that is not known."""
        scenario, found = self.scenario, set()
        if any(self._number(key) is not None for key in ("call_deadline", "total_timeout")) or self._queue != 600.0:
            return None
        if any(event.kind in ("crash", "wedge", "restart") for event in scenario.events):
            return None
        if any(event.target == "limiter" for event in scenario.events) or scenario.cluster.link.loss:
            found.add("throttled")
        if not self._is_unbounded and not self._one_is_slow:
            return None
        if self._value("max_response_mb", 16.0) < 1 or self._longest_wait > 500 or self._leases_are_short:
            return None
        if not self._survives and not self._one_is_slow:
            found |= {one.value for action in self._actions for one in action.may_end()}
            attempts = int(self._value("max_attempts", 1.0))
            if found and not self._in_time(attempts, waits=8.0 * attempts):
                found.add("transport_timeout")  # its deadline ends the last attempt
        return frozenset(found)

    @cached_property
    def _survives(self) -> bool:
        """Must every call get its result in spite of the rules?"""
        failures, pauses, hangs, healthy = 0, 0.0, 0, 0
        may_have_run = bool(self._value("retry_may_have_run", 0.0))
        for part in self.scenario.sandbox.settings:
            sick = 0
            for rule in part.faults:
                if rule.is_harmless:
                    continue
                if not rule.recovers(may_have_run=may_have_run):
                    return False
                hangs += any(one.kind == "hang" for one in rule.what)
                pauses = max([pauses, *(one.asked_wait for one in rule.what)])
                if rule.first_attempts is None:
                    sick = 99
                sick = max(sick, rule.first_attempts or 0)
            healthy += sick < 99
            failures += 2 if sick == 99 else sick
        if not failures:
            return True
        if healthy == 0 or (hangs and failures > 1) or failures >= self._value("max_attempts", 1.0):
            return False
        waits = sum(min(8.0, 2.0**one) for one in range(failures)) + failures * pauses
        return self._in_time(failures + 1, waits)

    def _in_time(self, attempts: int, waits: float) -> bool:
        """Do this many attempts of the longest program, and the waits between them, end before the call's deadline?"""
        work = max(part.seconds.longest for part in self.scenario.programs)
        return bool(waits + attempts * (min(work, self._longest_timeout) + 1.0) < self._attempt + 5.0)

    @cached_property
    def _has_room(self) -> bool:
        """Must every trajectory come to its answer?"""
        part = self.scenario.rollouts
        if part is None or part.repeat or part.enough is not None or part.faults:
            return False
        if any(turn.malformed is not None or turn.raw is not None or turn.sees is not None for turn in part.turns):
            return False
        given = part.limits.model_dump(exclude_none=True, exclude={"tool_response_truncate_side"})
        room = given.pop("max_response_len", None)
        needed = response_room((turn.model_dump() for turn in part.turns), part.format)
        fits = room is None or (isinstance(room, int) and room >= needed)
        return not given and fits and needed <= CONTEXT_LENGTH

    # -- how fast it must be --

    @cached_property
    def _throughput(self) -> float | None:
        """Return the calls per second that greedy callers reach where nothing goes wrong."""
        load, scenario = self.scenario.load, self.scenario
        if load is None or load.cancel is not None or load.steps > 1 or scenario.events or scenario.cluster.link.loss:
            return None
        if self._failures is None or self._failures or self._value("adaptive_rate_limit"):
            return None
        slow = self._one_is_slow
        if slow and min(self._limit, load.concurrency) < 2 * scenario.sandbox.instances:
            return None  # a lone call may well be sent to the slow one
        if not slow and any(not rule.is_harmless for rule in self._rules):
            return None
        if not set(self._intents) <= {"ok", "program_error"}:
            return None
        workload = Workload.of(scenario, 1.0)
        calls = [workload.prepare(number) for number in range(1, load.calls + 1)]
        link = 4 * scenario.cluster.link.delay.longest
        added = sum(rule.longest_delay for rule in scenario.sandbox.faults)
        work = [call.seconds + workload.think(number) + added + link for number, call in enumerate(calls, 1)]
        # A limiter answers when it is asked: what falls due meanwhile is lost above the burst.
        asked = link / self._value("requests_burst", 1.0)
        width, paced = min(self._limit, load.concurrency), len(calls) * max(self._paces, asked if self._paces else 0.0)
        if slow:  # the others must do nearly all of the work
            share = (scenario.sandbox.instances - 1) / scenario.sandbox.instances
            fast = max(1.0, math.floor(width * share))
            return _rate(len(calls), max(sum(work) / fast, paced) + 2 * (max(work) + slow) + self._paces + 1.0)
        return _rate(len(calls), max(sum(work) / width, paced) + max(work) + self._paces + 0.3)


def _rate(calls: int, seconds: float) -> float:
    return round(0.85 * calls / seconds, 3)


def is_clear(scenario: Scenario) -> bool:
    """Is it known what every program does when nothing goes wrong, and whose request is whose?"""
    expected = _Expectation(scenario)
    cancelled = scenario.load is not None and scenario.load.cancel is not None
    if any(part.repeated for part in scenario.programs) and (cancelled or not expected.is_calm):
        return False  # requests with the same code can only be told apart where all of them succeed
    most = max(expected.most_seconds, scenario.default_timeout)
    lowered = [part for part in scenario.programs if part.timeout is not None and part.timeout > most]
    return all(
        min(part.seconds.numbers) > part.timeout or part.seconds.longest <= most for part in lowered if part.timeout
    )


def response_room(turns: Iterable[Mapping[str, Any]], form: str) -> int:
    """Return a number of tokens that suffices for these turns, if output is shown without its escape codes."""
    room = 300
    for turn in turns:
        calls = []
        for part in turn.get("programs", ()):
            arguments = ProgramPart.model_validate(part).prepare("r001.t1.1", 0).arguments
            calls.append({"name": "code_interpreter", "arguments": arguments})
            written = (part.get(key) or "" for key in ("early", "prints", "errors", "raises", "compile_errors"))
            room += 300 + len(plain("".join(map(fill, written))).encode())
        said = get_format(form).render(calls, content=turn["say"]) if calls else turn["say"]
        room += len(said.encode()) + 100
    return room
