"""The fault plan decides which rules strike an attempt.

Time is an argument, chance is keyed, nothing waits.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from .action import Action, Phase, Strike
from .chance import Draw, drawer, uniform
from .pattern import PatternSearches
from .rule import Arrival, Rule


@dataclass(slots=True)
class RuleCount:
    """How many attempts met a rule's conditions, and how many of these it struck."""

    fitted: int = 0
    struck: int = 0


class FaultPlan:
    """The rules in force, with their counters. One plan belongs to one server."""

    def __init__(self, rules: Iterable[Rule] = (), *, seed: int = 0, started: float = 0.0) -> None:
        self.seed = seed
        self._searches = PatternSearches()
        self.replace(rules, started=started)

    def replace(self, rules: Iterable[Rule], *, started: float) -> None:
        """Put other rules in force from ``started`` on and reset the counters."""
        self.rules = _named(rules)
        self.started = started
        self.counts = {rule.name: RuleCount() for rule in self.rules}
        self._phases: set[Phase] = set()
        for rule in self.rules:
            self._phases.update(rule.actions_by_phase)

    def strikes(self) -> dict[str, int]:
        """How often each rule has struck."""
        return {name: count.struck for name, count in self.counts.items()}

    def concerns(self, phase: Phase) -> bool:
        """True when some rule strikes in this phase."""
        return phase in self._phases

    def fate(self, arrival: Arrival) -> Fate | None:
        """Decide, from all rules at once, which of them can strike an attempt.

        Return None when none can.
        """
        rules = [rule for rule in self.rules if rule.fits(arrival, self._searches)]
        return Fate(self, arrival, rules) if rules else None

    def count_and_decide(self, rule: Rule, arrival: Arrival, now: float) -> bool:
        """Count an attempt that has reached the rule's phase.

        Return whether the rule strikes it.
        """
        if not _is_due(rule, now - self.started):
            return False
        count = self.counts.get(rule.name)
        if count is None:  # the rules were replaced while the attempt was under way
            return False

        count.fitted += 1
        if not _strikes_number(rule, count.fitted) or not self._by_chance(rule, arrival):
            return False
        if rule.times is not None and count.struck >= rule.times:
            return False
        count.struck += 1
        return True

    def _by_chance(self, rule: Rule, arrival: Arrival) -> bool:
        """Does chance let the rule strike this attempt?"""
        if rule.probability is None:
            return True
        drawn = uniform(self.seed, "strike", rule.name, arrival.call, arrival.attempt)
        return drawn < rule.probability


def _named(rules: Iterable[Rule]) -> tuple[Rule, ...]:
    """Give each rule a name of its own, by default that of the fault that ends the request."""
    named = []
    used: dict[str, int] = {}
    for rule in rules:
        name = rule.name or _kind_of(rule)
        used[name] = used.get(name, 0) + 1
        if used[name] > 1:
            name = f"{name}-{used[name]}"
        if rule.name != name:
            rule = rule.model_copy(update={"name": name})
        named.append(rule)
    return tuple(named)


def _kind_of(rule: Rule) -> str:
    """The kind of the first fault that ends the request; without one, of the first fault."""
    for action in rule.what:
        if action.final:
            return action.kind
    return rule.what[0].kind


def _is_due(rule: Rule, since: float) -> bool:
    """Does a rule strike that many seconds after the faults were set?"""
    if rule.between is None:
        return True
    begin, end = rule.between
    return begin <= since < end


def _strikes_number(rule: Rule, fitted: int) -> bool:
    """Does a rule strike the Nth attempt that met its conditions?"""
    number = fitted - (rule.after or 0)
    if number < 1:
        return False
    if rule.first is not None and number > rule.first:
        return False
    return rule.every is None or number % rule.every == 0


class Fate:
    """The rules that can strike one attempt.

    Which rules these are is decided at arrival. Two conditions wait until the rule's first phase is
    reached, because that is what they are about: ``first``, ``every``, ``after`` and ``times``
    count the attempts that get that far (an attempt that an earlier fault or a failed program ended
    must not use them up), and ``between`` is the time of the strike (an outage hits a long run that
    ends in it). A rule is counted once, whatever number of phases it has.
    """

    def __init__(self, plan: FaultPlan, arrival: Arrival, rules: list[Rule]) -> None:
        self._plan = plan
        self._arrival = arrival
        self._rules = rules
        self._struck: dict[str, bool] = {}

    def at(self, phase: Phase, now: float) -> list[Strike]:
        """The strikes of a phase that has been reached.

        First come those that let the request go on, then at most one final one. The first rule with
        a final fault ends the request, so later ones with a final fault do not strike it. Rules
        without one strike in their order, unless they would have no effect.
        """
        here = [rule for rule in self._rules if phase in rule.actions_by_phase]
        ending = self._ending_rule(here, phase, now)

        strikes: list[Strike] = []
        taken: set[str] = set()
        for rule in here:
            if rule is not ending and _ends_request(rule, phase):
                continue
            useful = [
                action
                for action in rule.actions_by_phase[phase]
                if _has_effect(action, taken, is_replaced=ending is not None)
            ]
            if not useful or not self._strikes(rule, now):
                continue
            taken.update(action.kind for action in useful)
            draw = self._drawer(rule)
            strikes.extend(Strike(rule.name, action, draw) for action in useful)
        return sorted(strikes, key=lambda strike: strike.action.final)

    def _ending_rule(self, rules: list[Rule], phase: Phase, now: float) -> Rule | None:
        """The first rule that strikes with a final fault; later ones are not counted."""
        for rule in rules:
            if _ends_request(rule, phase) and self._strikes(rule, now):
                return rule
        return None

    def _drawer(self, rule: Rule) -> Draw:
        arrival = self._arrival
        return drawer(self._plan.seed, "draw", rule.name, arrival.call, arrival.attempt)

    def _strikes(self, rule: Rule, now: float) -> bool:
        """Does the rule strike this attempt? It is counted when this is asked first."""
        if rule.name not in self._struck:
            self._struck[rule.name] = self._plan.count_and_decide(rule, self._arrival, now)
        return self._struck[rule.name]


def _ends_request(rule: Rule, phase: Phase) -> bool:
    """Is there a final fault among those of this phase? It is the last of them."""
    return rule.actions_by_phase[phase][-1].final


def _has_effect(action: Action, taken: set[str], *, is_replaced: bool) -> bool:
    """Would an action still change anything?

    ``taken`` are the kinds that strike already; ``is_replaced``: a final fault replaces the answer.
    """
    if action.changes_answer and is_replaced:
        return False
    return action.adds or action.kind not in taken
