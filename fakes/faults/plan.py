"""The fault plan decides which rules strike an attempt. Time is an argument, chance is keyed,
nothing waits."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from .action import Phase, Strike
from .chance import drawer, uniform
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
        named = []
        used: dict[str, int] = {}
        for rule in rules:
            name = rule.name or next(
                (action.kind for action in rule.what if action.final), rule.what[0].kind
            )
            used[name] = used.get(name, 0) + 1
            if used[name] > 1:
                name = f"{name}-{used[name]}"
            named.append(rule if rule.name == name else rule.model_copy(update={"name": name}))
        self.rules = tuple(named)
        self.started = started
        self.counts = {rule.name: RuleCount() for rule in self.rules}
        self._phases = frozenset(phase for rule in self.rules for phase in rule.actions_by_phase)

    def strikes(self) -> dict[str, int]:
        """How often each rule has struck."""
        return {name: count.struck for name, count in self.counts.items()}

    def concerns(self, phase: Phase) -> bool:
        """True when some rule strikes in this phase."""
        return phase in self._phases

    def fate(self, arrival: Arrival) -> Fate | None:
        """Decide, from all rules at once, which of them can strike an attempt; None when none
        can."""
        rules = [rule for rule in self.rules if rule.fits(arrival, self._searches)]
        return Fate(self, arrival, rules) if rules else None

    def counted(self, rule: Rule, arrival: Arrival, now: float) -> bool:
        """Count an attempt that has reached the rule's phase, and say whether the rule strikes
        it."""
        if rule.between is not None and not rule.between[0] <= now - self.started < rule.between[1]:
            return False
        count = self.counts.get(rule.name)
        if count is None:  # the rules were replaced while the attempt was under way
            return False
        count.fitted += 1
        number = count.fitted - (rule.after or 0)
        if number < 1 or (rule.first is not None and number > rule.first):
            return False
        if rule.every is not None and number % rule.every:
            return False
        if rule.probability is not None:
            chance = uniform(self.seed, "strike", rule.name, arrival.call, arrival.attempt)
            if chance >= rule.probability:
                return False
        if rule.times is not None and count.struck >= rule.times:
            return False
        count.struck += 1
        return True


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
        """The strikes of a phase that has been reached: those that let the request go on, then at
        most one final one.

        The first rule with a final fault ends the request, so later ones with a final fault do not
        strike it. Rules without one strike in their order, unless they would have no effect.
        """
        here = [
            (rule, actions) for rule in self._rules if (actions := rule.actions_by_phase.get(phase))
        ]
        final = next(
            (rule for rule, actions in here if actions[-1].final and self._strikes(rule, now)), None
        )
        strikes: list[Strike] = []
        taken: set[str] = set()
        for rule, actions in here:
            if actions[-1].final and rule is not final:
                continue
            useful = [
                action
                for action in actions
                if (action.adds or action.kind not in taken)
                and not (action.changes_answer and final is not None)
            ]
            if not useful or not self._strikes(rule, now):
                continue
            taken.update(action.kind for action in useful)
            arrival = self._arrival
            draw = drawer(self._plan.seed, "draw", rule.name, arrival.call, arrival.attempt)
            strikes.extend(Strike(rule.name, action, draw) for action in useful)
        return sorted(strikes, key=lambda strike: strike.action.final)

    def _strikes(self, rule: Rule, now: float) -> bool:
        if rule.name not in self._struck:
            self._struck[rule.name] = self._plan.counted(rule, self._arrival, now)
        return self._struck[rule.name]
