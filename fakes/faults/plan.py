"""The fault plan decides which rules strike an attempt. Time comes in, chance is keyed, nothing waits."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from sfusion.fakes.faults.action import Action, Phase
from sfusion.fakes.faults.chance import Draw, drawer, uniform
from sfusion.fakes.faults.rule import Rule


@dataclass(frozen=True, slots=True)
class Attempt:
    """What is known about one request when its fate is decided."""

    call: str
    attempt: int = 1
    path: str = ""
    method: str = ""
    work: bool = True
    language: str | None = None
    code: str | None = None
    in_flight: int = 1


@dataclass(frozen=True, slots=True)
class Strike:
    """One action of one rule that hits one attempt."""

    rule: str
    phase: Phase
    action: Action
    draw: Draw


@dataclass(slots=True)
class Tally:
    """How often a rule was considered and struck."""

    fitted: int = 0
    struck: int = 0


class FaultPlan:
    """The rules in force, with their counters. One plan belongs to one server."""

    def __init__(self, rules: Iterable[Rule] = (), *, seed: int = 0, started: float = 0.0) -> None:
        self.seed = seed
        self.started = started
        self.rules: tuple[Rule, ...] = ()
        self.tallies: dict[str, Tally] = {}
        self._phases: frozenset[Phase] = frozenset()
        self.replace(rules, started=started)

    def replace(self, rules: Iterable[Rule], *, started: float) -> None:
        """Put other rules in force from ``started`` on; counters begin anew."""
        named = []
        used: dict[str, int] = {}
        for rule in rules:
            name = rule.name or next((action.kind for action in rule.what if action.final), rule.what[0].kind)
            used[name] = used.get(name, 0) + 1
            if used[name] > 1:
                name = f"{name}-{used[name]}"
            named.append(rule if rule.name == name else rule.model_copy(update={"name": name}))
        self.rules = tuple(named)
        self.started = started
        self.tallies = {rule.name: Tally() for rule in self.rules}
        self._phases = frozenset(phase for rule in self.rules for phase in rule.actions_by_phase)

    def concerns(self, phase: Phase) -> bool:
        """Is there any rule for this phase?"""
        return phase in self._phases

    def fate(self, attempt: Attempt) -> Fate:
        """Begin to decide what happens to an attempt."""
        return Fate(self, attempt)

    def decide(self, rule: Rule, attempt: Attempt, now: float) -> bool:
        """Does the rule strike? Asked once per rule and attempt; moves the rule's counters."""
        if not rule.fits(
            path=attempt.path,
            method=attempt.method,
            work=attempt.work,
            language=attempt.language,
            code=attempt.code,
            call=attempt.call,
        ):
            return False
        if rule.first_attempts is not None and attempt.attempt > rule.first_attempts:
            return False
        if rule.between is not None and not rule.between[0] <= now - self.started < rule.between[1]:
            return False
        if rule.above_in_flight is not None and attempt.in_flight <= rule.above_in_flight:
            return False
        tally = self.tallies[rule.name]
        tally.fitted += 1
        number = tally.fitted - (rule.after or 0)
        if number < 1 or (rule.first is not None and number > rule.first):
            return False
        if rule.every is not None and number % rule.every:
            return False
        if rule.probability is not None:
            chance = uniform(self.seed, "strike", rule.name, attempt.call, attempt.attempt)
            if chance >= rule.probability:
                return False
        if rule.times is not None and tally.struck >= rule.times:
            return False
        tally.struck += 1
        return True


@dataclass(slots=True)
class Fate:
    """What the rules do to one attempt, phase by phase; a rule is asked once its first phase is reached."""

    plan: FaultPlan
    attempt: Attempt
    decided: dict[str, bool] = field(default_factory=dict)

    def at(self, phase: Phase, now: float) -> list[Strike]:
        """The strikes of this phase in rule order."""
        plan, attempt = self.plan, self.attempt
        strikes: list[Strike] = []
        if not plan.concerns(phase):
            return strikes
        for rule in plan.rules:
            actions = rule.actions_by_phase.get(phase)
            if not actions:
                continue
            struck = self.decided.get(rule.name)
            if struck is None:
                struck = self.decided[rule.name] = plan.decide(rule, attempt, now)
            if struck:
                draw = drawer(plan.seed, "draw", rule.name, attempt.call, attempt.attempt)
                strikes.extend(Strike(rule.name, phase, action, draw) for action in actions)
        return strikes
