"""Which promises apply to a case, and with which numbers: what must hold by construction, derived from the scenario."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from sfusion.fakes.faults import Action, Distribution, Rule
from sfusion.fakes.faults.action import ContentFault
from sfusion.fakes.sandbox.models import Queue, Quota
from sfusion.fakes.sandbox.program import fill
from sfusion.fakes.sglang.engine import CONTEXT_LENGTH
from sfusion.harness.promises import PROMISES
from sfusion.harness.promises.story import PROGRAM_OUTCOMES
from sfusion.harness.scenarios.model import Scenario
from sfusion.harness.scenarios.program import ProgramPart
from sfusion.harness.worlds.workload import Workload
from sfusion_tools.outcome import Outcome
from sfusion_tools.sandbox.languages import COMPILED
from sfusion_tools.sandbox.text import plain

_ANY = frozenset(one.value for one in Outcome if not one.is_from_program) - {"bad_arguments", "cancelled"}
_PARAMETERS = frozenset(
    {"rollout_ends", "outcomes", "attempts_per_call", "deadline_honoured", "no_duplicate_execution", "no_stall",
     "no_starvation",
     "recovers_within", "throughput_at_least", "output_bounded"}
)  # fmt: skip
"""Promises whose numbers depend on the case."""
_OUTCOMES: dict[str, frozenset[str]] = {
    "delay": frozenset({"transport_timeout", "unreachable", "program_timeout"}),
    "degrade": frozenset({"transport_timeout", "program_timeout"}),
    "hang": frozenset({"transport_timeout", "unreachable"}),
    "reset": frozenset({"unreachable", "bad_response"}),
    "close": frozenset({"unreachable"}),
    "drip": frozenset({"transport_timeout"}),
    "content_type": frozenset(),
    "sandbox_error": frozenset({"sandbox_error"}),
    "timeout": frozenset({"program_timeout", "transport_timeout"}),
}
"""How a call may end because of a fault; by any failure of the infrastructure for kinds that are not here."""
_REFUSED_FOR_NOW = (429, 503)
_BROKEN_FOR_NOW = (502, 504)


def promises_of(scenario: Scenario) -> list[Any]:
    """Return every promise that applies, as a scenario writes it."""
    universal = []
    expected = _Expectation(scenario)
    for name, cls in PROMISES.items():
        if name not in (*_PARAMETERS, *expected.misleading()) and (
            scenario.rollouts is not None or not cls.of_rollouts
        ):
            with suppress(ValueError):  # it needs a parameter that is not known here
                cls()
                universal.append(name)
    return [*universal, *expected.stated()]


@dataclass(frozen=True)
class _Expectation:
    scenario: Scenario

    def misleading(self) -> list[str]:
        """Return promises that would misjudge this case."""
        found = self._misleading()
        if self._value("permit_lease", 30.0) < 10 * longest(self.scenario.cluster.link.delay):
            found.append("no_permit_leaked")  # messages take too long for such a lease
        dead = [event.seconds or math.inf for event in self.scenario.events if event.kill == "limiter"]
        if any(seconds > 0.5 * self._value("permit_lease", 30.0) for seconds in dead):
            found.append("in_flight_within_limit")  # leases end unseen while there is no limiter
        return found

    def _misleading(self) -> list[str]:
        if any(_lies(action) for rule in self._rules for action in rule.what):
            # The sandbox says something else than what the program did, and no tool can know better.
            return ["text_is_truthful", "infra_never_scored", "partial_output_kept", "no_permit_while_backing_off"]
        # At the sandbox, a call that waits for its turn or its connection looks like one that waits for a permit.
        kinds = {action.kind for rule in self._rules for action in rule.what}
        clear = kinds <= {"status"} and not self._paces and not self.scenario.events
        return [] if self.scenario.own_config is not None or clear else ["no_permit_while_backing_off"]

    def stated(self) -> list[Any]:
        scenario = self.scenario
        found: list[Any] = [{"no_stall": self._longest_silence}]
        if scenario.own_config is not None:
            found += ["deadline_honoured", {"no_starvation": self._longest_wait}]
        else:
            found.append({"deadline_honoured": self._deadline + self._longest_wait})
        if self._number("max_attempts") is not None:
            once = self.is_calm or not self._reasons_to_retry
            found.append({"attempts_per_call": 1 if once else int(self._value("max_attempts"))})
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
        if scenario.events and known and self._all_give_results:
            found.append({"recovers_within": self._longest_silence})
        longest = self._value("max_output_chars") if self._number("max_output_chars") is not None else 100_000
        found.append({"output_bounded": int(max(longest, 1000) + 1000)})
        return found

    # -- what the tool is set to --

    def _number(self, key: str) -> float | None:
        """Return a key of the tool's config; None if the tool does not state it."""
        if self.scenario.settings is not None:
            found = getattr(self.scenario.settings, key, None)
        else:
            assert isinstance(self.scenario.tools, list)
            found = (self.scenario.tools[0].get("config") or {}).get(key)
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
        asked = [part.timeout for part in self.programs if part.timeout is not None]
        return min(most, max([self.scenario.default_timeout, *asked]))

    @cached_property
    def _attempt(self) -> float:
        compiling = any(part.language in COMPILED for part in self.programs)
        return (
            self._longest_timeout
            + compiling * self._value("compile_timeout", 10.0)
            + self._value("transport_margin", 30.0)
        )

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
        paced = self._paces * self._callers
        return turns * per_attempt * attempts + paced * attempts + self._disturbed + 5.0

    @cached_property
    def _paces(self) -> float:
        """Seconds between two requests."""
        rate = self._number("requests_per_second")
        return 1 / rate if rate else 0.0

    @cached_property
    def _longest_silence(self) -> float:
        """How long nothing at all may happen."""
        think = self.scenario.load.think if self.scenario.load is not None else None
        thinking = longest(think) if think is not None else 0.0
        engine = 120.0 if self.scenario.rollouts is not None and self.scenario.rollouts.faults else 5.0
        lease = 2 * self._value("permit_lease", 30.0)
        return self._deadline + lease + self._disturbed + thinking + engine + 10 * self._paces

    @cached_property
    def _disturbed(self) -> float:
        """How long the limiter, or a worker's way to it, may be away."""
        lasting = 0.0
        for event in self.scenario.events:
            if event.kind in ("pause", "cut_off") or event.target == "limiter":
                lasting += self._queue if event.seconds is None else event.seconds
        link = self.scenario.cluster.link
        return lasting + 20 * longest(link.delay) + (self._queue if link.loss else 0.0)

    @cached_property
    def _queue(self) -> float:
        return self._value("queue_timeout", 600.0)

    @cached_property
    def _is_shaken(self) -> bool:
        """May permits be held by those who no longer use them?"""
        return bool(self.scenario.events) or bool(self.scenario.cluster.link.loss)

    # -- what may go wrong --

    @cached_property
    def programs(self) -> list[ProgramPart]:
        if self.scenario.load is not None:
            return self.scenario.load.program
        assert self.scenario.rollouts is not None
        return [part for turn in self.scenario.rollouts.turns for part in turn.programs]

    @cached_property
    def _rules(self) -> list[Rule]:
        sandbox = self.scenario.sandbox
        return [rule for number in range(1, sandbox.instances + 1) for rule in sandbox.instance(number).faults]

    @cached_property
    def _models(self) -> list[Any]:
        sandbox = self.scenario.sandbox
        return [sandbox.instance(number).model for number in range(1, sandbox.instances + 1)]

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
        # Our limiter keeps the pace; without it nobody does.
        return rate is None or rate > 0.9 * model.per_second or mine > burst or self.scenario.stated_limit is None

    @cached_property
    def _one_is_slow(self) -> float:
        """Return how much slower one of several otherwise healthy sandboxes is; 0 if that is not all there is."""
        sandbox, slow = self.scenario.sandbox, []
        for number in range(1, sandbox.instances + 1):
            part = sandbox.instance(number)
            if not part.faults and not isinstance(part.model, Queue | Quota) and not part.model.cores:
                continue
            delays = [longest_wait(rule) for rule in part.faults if not rule.phase]
            if len(delays) != len(part.faults) or not all(delays) or (isinstance(part.model, Quota)):
                return 0.0
            if isinstance(part.model, Queue) and part.model.waiting is not None:
                return 0.0
            slow.append(sum(delays))
        short = max(longest(part.seconds) for part in self.programs) <= 3
        quiet = not self.scenario.events and self._attempt > 20 and short
        return slow[0] if len(slow) == 1 and sandbox.instances > 1 and quiet and slow[0] <= 5 else 0.0

    @cached_property
    def is_calm(self) -> bool:
        """Is there nothing that could fail an attempt?"""
        return self._is_unbounded and not self.scenario.events and all(map(_is_harmless, self._rules))

    @cached_property
    def _reasons_to_retry(self) -> bool:
        shaken = any(event.kind in ("crash", "wedge", "restart") for event in self.scenario.events)
        return shaken or not self._is_unbounded or not all(map(_is_harmless, self._rules))

    @cached_property
    def _never_runs_twice(self) -> bool:
        if self.is_calm:
            return True
        if self._value("retry_may_have_run", 1.0):
            return False
        # A server that ran the program and then says that it is too busy misleads everybody.
        refused = [one for rule in self._rules for one in _late(rule) if one.kind == "status"]
        misled = any(getattr(one, "status", 0) in _REFUSED_FOR_NOW for one in refused)
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
    def _all_give_results(self) -> bool:
        return set(self._intents) <= PROGRAM_OUTCOMES and self.scenario.rollouts is None

    @cached_property
    def _outcomes(self) -> dict[str, Any] | None:
        """Return which outcomes may occur, with their numbers if these are known."""
        scenario, own = self.scenario, self._intents
        if scenario.load is None or "real" in own:
            return None
        others = self._failures
        if others is None:
            others = _ANY | {"program_timeout"}
        lost = any(event.kind in ("kill", "cancel") for event in scenario.events) or scenario.load.cancel is not None
        if not others and not lost:
            return dict(own)
        return dict.fromkeys(sorted({*own, *others}), "at least 0")

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
        if self._value("max_response_mb", 16.0) < 1 or self._longest_wait > 500:
            return None
        if not self._survives and not self._one_is_slow:
            for rule in self._rules:
                for action in rule.what:
                    found |= _outcomes_of(action)
            attempts = int(self._value("max_attempts", 1.0))
            if found and not self._in_time(attempts, waits=8.0 * attempts):
                found.add("transport_timeout")  # its deadline ends the last attempt
        return frozenset(found)

    @cached_property
    def _survives(self) -> bool:
        """Must every call get its result in spite of the rules?"""
        sandbox = self.scenario.sandbox
        failures, pauses, hangs = 0, 0.0, 0
        may_have_run = bool(self._value("retry_may_have_run", 0.0))
        healthy = 0
        for number in range(1, sandbox.instances + 1):
            rules = sandbox.instance(number).faults
            sick = 0
            for rule in rules:
                if _is_harmless(rule):
                    continue
                if not all(_is_transient(one, rule, may_have_run) for one in rule.what):
                    return False
                hangs += any(one.kind == "hang" for one in rule.what)
                pauses = max([pauses, *(_asked(one) for one in rule.what)])
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
        work = max(longest(part.seconds) for part in self.programs)
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
        needed = response_room(turn.model_dump() for turn in part.turns)
        fits = room is None or (isinstance(room, int) and room >= needed)
        return not given and fits and needed <= CONTEXT_LENGTH

    # -- how fast it must be --

    @cached_property
    def _throughput(self) -> float | None:
        """Return the calls per second that greedy callers reach where nothing goes wrong."""
        load, scenario = self.scenario.load, self.scenario
        if load is None or load.cancel is not None or scenario.events or scenario.cluster.link.loss:
            return None
        if self._failures is None or self._failures or self._value("adaptive_rate_limit"):
            return None
        slow = self._one_is_slow
        if slow and min(self._limit, load.concurrency) < 2 * scenario.sandbox.instances:
            return None  # a lone call may well be sent to the slow one
        if not slow and any(not _is_harmless(rule) for rule in self._rules):
            return None
        workload = Workload.of(scenario, 1.0)
        calls = [workload.prepare(number) for number in range(1, load.calls + 1)]
        if any(call.intent(scenario.default_timeout)["kind"] not in ("ok", "program_error") for call in calls):
            return None
        link = 4 * longest(scenario.cluster.link.delay)
        added = sum(longest_wait(rule) for rule in scenario.sandbox.faults)
        work = [call.seconds + workload.think(number) + added + link for number, call in enumerate(calls, 1)]
        width, paced = min(self._limit, load.concurrency), len(calls) * self._paces
        if slow:  # the others must do nearly all of the work
            share = (scenario.sandbox.instances - 1) / scenario.sandbox.instances
            fast = max(1.0, math.floor(width * share))
            return _rate(len(calls), max(sum(work) / fast, paced) + 2 * (max(work) + slow) + self._paces + 1.0)
        return _rate(len(calls), max(sum(work) / width, paced) + max(work) + self._paces + 0.3)


def _rate(calls: int, seconds: float) -> float | None:
    return round(0.85 * calls / seconds, 3)


def is_clear(scenario: Scenario) -> bool:
    """Is it known what every program does when nothing goes wrong, and whose request is whose?"""
    expected = _Expectation(scenario)
    if any(part.repeated for part in expected.programs) and not expected.is_calm:
        return False  # requests with the same code can only be told apart where all of them succeed
    most = max(expected.most_seconds, scenario.default_timeout)
    lowered = [part for part in expected.programs if part.timeout is not None and part.timeout > most]
    return all(
        min(part.seconds.numbers) > part.timeout or longest(part.seconds) <= most for part in lowered if part.timeout
    )


def response_room(turns: Iterable[Mapping[str, Any]]) -> int:
    """Return a number of tokens that suffices for these turns, if output is shown without its escape codes."""
    room = 300
    for turn in turns:
        room += len(turn["say"].encode()) + 100
        for part in turn.get("programs", ()):
            arguments = ProgramPart.model_validate(part).prepare("r001.t1.1", 0).arguments
            written = (part.get(key) or "" for key in ("early", "prints", "errors", "raises", "compile_errors"))
            room += 2 * len(json.dumps(arguments)) + 300 + len(plain("".join(map(fill, written))).encode())
    return room


def longest(distribution: Distribution) -> float:
    """Return the longest duration that a distribution gives, nearly."""
    numbers = distribution.numbers
    match distribution.shape:
        case "normal":
            return numbers[0] + 6 * numbers[1]
        case "lognormal":
            return numbers[0] * math.exp(6 * numbers[1])
        case "exponential":
            return 20 * numbers[0]
    return max(numbers)


def longest_wait(rule: Rule) -> float:
    """Return how long a rule delays a request."""
    return sum(longest(one.delay) for one in rule.what if hasattr(one, "delay"))


def _late(rule: Rule) -> Iterable[Action]:
    """Return what strikes after the program has been started."""
    for phase, actions in rule.actions_by_phase.items():
        if phase in ("during", "after", "body"):
            yield from actions


_SHORT = 0.5


def _is_harmless(rule: Rule) -> bool:
    """Does every attempt that the rule strikes succeed all the same?"""
    for phase, actions in rule.actions_by_phase.items():
        for action in actions:
            if action.kind == "content_type" or (action.kind == "output" and _keeps_stdout(action)):
                continue
            if action.kind == "delay" and phase != "during" and longest_wait(rule) <= _SHORT:
                continue
            return False
    return True


def _keeps_stdout(action: Any) -> bool:
    return action.what in ("lost", "null", "cut") and action.stream == "stderr"


def _is_transient(action: Any, rule: Rule, may_have_run: bool) -> bool:
    """Is the attempt worth another one, which this rule does not strike?"""
    limited = rule.first_attempts is not None
    match action.kind:
        case "status" if action.status in _REFUSED_FOR_NOW and not action.headers:
            late = rule.phase in ("during", "after")
            return isinstance(_asked(action), float) and _asked(action) < 5 and not (late and not may_have_run)
        case "status" if action.status in _BROKEN_FOR_NOW and not action.headers:
            return limited and may_have_run and _asked(action) < 5
        case "reset" | "close":
            return limited and may_have_run
        case "truncate":
            return limited and may_have_run and action.then == "close" and 0 < action.at < 1
        case "hang":
            return rule.first_attempts == 1 and may_have_run and action.seconds is None and rule.phase != "connect"
    return False


def _lies(action: Any) -> bool:
    """Does the sandbox give a result that is not the program's?"""
    if action.kind == "output":
        return action.stream != "stderr" and action.what not in ("huge", "not_utf8")
    return isinstance(action, ContentFault) and action.kind != "sandbox_error"


def _asked(action: Any) -> float:
    """Return the seconds of Retry-After, infinity for anything that is not a number."""
    asked = getattr(action, "retry_after", None)
    if asked is None:
        return 0.0
    return float(asked) if isinstance(asked, int | float) else math.inf


def _outcomes_of(action: Any) -> frozenset[str]:
    if action.kind == "status":
        if action.status == 429:
            return frozenset({"throttled"})
        if action.status >= 500:
            return frozenset({"sandbox_error"})
        return frozenset({"bad_response", "sandbox_error"}) if action.status == 200 else frozenset({"bad_response"})
    if action.kind == "output":
        return frozenset({"bad_response"}) if action.what == "not_utf8" else frozenset()
    return _OUTCOMES.get(action.kind, _ANY)
