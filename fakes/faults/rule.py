"""A fault rule: when it strikes, what it does, and in which phase of a request's life.

Rules are read from YAML, JSON or data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property
from itertools import combinations
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SerializeAsAny,
    ValidationError,
    ValidationInfo,
    model_validator,
)

from sfusion_tools.errors import YamlError, near, refusal
from sfusion_tools.marked_yaml import Marked, parse_marked, read_marked

from ..described import described_fields
from ..errors import FaultError
from ..fields import Drawn, NotHunted, NotShrunk, Reduced
from .action import KINDS, PHASES, Action, Phase
from .duration import Seconds
from .kinds import Status
from .pattern import Pattern, PatternSearches

Kinds = Mapping[str, type[Action]]
"""The kinds of faults that a rule may have, by their key in YAML."""

_STATUS_KEYS = frozenset(Status.model_fields)


def read_actions(value: Any, kinds: Kinds = KINDS) -> tuple[Action, ...]:
    """Read ``what``: an action, a mapping of one or several kinds, or a list of them in order."""
    if isinstance(value, Action):
        return (value,)
    if isinstance(value, list | tuple):
        return _read_list(value, kinds)

    if isinstance(value, str) and value in kinds:
        value = {value: True}
    if not isinstance(value, dict):
        hint = near(value, kinds) if isinstance(value, str) else ""
        meant = f"; {hint}" if hint.startswith("did you mean") else ""
        raise ValueError(
            f"`what` needs a fault, for example {{status: 503}}; found {value!r}{meant}"
        )

    return _read_mapping(value, kinds)


def _read_list(values: Iterable[Any], kinds: Kinds) -> tuple[Action, ...]:
    actions: list[Action] = []
    for value in values:
        actions.extend(read_actions(value, kinds))
    return tuple(actions)


def _read_mapping(value: dict[Any, Any], kinds: Kinds) -> tuple[Action, ...]:
    """Read a mapping of one or several kinds; the keys of a status stand beside it."""
    remaining = dict(value)
    actions: list[Action] = []

    if "status" in remaining:
        status = {key: remaining.pop(key) for key in value if key in _STATUS_KEYS}
        actions.append(Status.model_validate(status))

    for key, inner in remaining.items():
        if key not in kinds:
            raise ValueError(_unknown_kind(key, kinds, has_status="status" in value))
        actions.append(kinds[key].model_validate({key: inner}))

    # A delay comes before the blow it goes with, whatever the order of the keys.
    actions.sort(key=lambda action: action.final)
    return tuple(actions)


def _unknown_kind(key: Any, kinds: Kinds, *, has_status: bool) -> str:
    """Say that there is no such kind of fault, and what was probably meant."""
    known = list(kinds)
    if has_status:
        known.extend(_STATUS_KEYS - {"status"})
    hint = near(str(key), known)
    if key in _STATUS_KEYS:
        hint = "it belongs to a status, which is missing"
    return f"unknown kind of fault {key!r}; {hint}"


def _what(value: Any, info: ValidationInfo) -> tuple[Action, ...]:
    context = info.context or {}
    return read_actions(value, context.get("kinds", KINDS))


def _words(value: Any) -> Any:
    """Let a single word stand for a list of one."""
    return (value,) if isinstance(value, str) else value


Words = Annotated[tuple[str, ...], BeforeValidator(_words)]

Operation = Literal["create", "ready", "exec", "file", "renew", "delete"]
"""What a request does to a sandbox with a life cycle."""
OPERATIONS: tuple[Operation, ...] = get_args(Operation)


@dataclass(frozen=True, slots=True)
class Arrival:
    """What is known about one attempt when its fate is decided."""

    call: str
    attempt: int = 1
    path: str = ""
    method: str = ""
    work: bool = True
    language: str | None = None
    code: str | None = None
    in_flight: int = 1
    on: Operation | None = None


_RARE = 0.03
"""Share of hunted rules that get a condition which usually fits every call, or none (chosen)."""
_USUAL = 0.16
"""Share of hunted rules that get each other condition (chosen: a rule then has one or two)."""
_INSTEAD_OF_CHANCE = (
    {"first_attempts": 1},
    {"times": 1},
    {"first": 1},
    {"every": 2},
    {"every": 3},
)
"""What a shrinker tries in place of a probability."""

_HARMLESS_DELAY = 0.5
"""Seconds by which a rule may delay an attempt that must still succeed (chosen)."""
_REQUEST_FIELDS = ("on", "path", "method", "language", "code", "call", "first_attempts")
"""Conditions on a request, of which there is none when a connection is made."""


class Rule(BaseModel):
    """One fault rule. All conditions given must hold; with none, every request for work is
    struck."""

    model_config = ConfigDict(
        defer_build=True,
        frozen=True,
        extra="forbid",
        ignored_types=(cached_property,),
        allow_inf_nan=False,
    )

    name: Annotated[str, NotShrunk("part of every probabilistic decision")] = ""
    """The rule's name in the journal; part of every probabilistic decision."""
    on: Annotated[
        tuple[Operation, ...] | None,
        BeforeValidator(_words),
        NotHunted("only sandboxes with a life cycle have operations"),
        NotShrunk("an operation is a name, not an amount"),
    ] = None
    """What the request does to a sandbox with a life cycle: ``create``, ``ready`` (a poll),
    ``exec``, ``file``, ``renew``, ``delete``."""
    path: Annotated[Words | None, Drawn("/run_code", share=_RARE)] = None
    """Paths (``*`` is a wildcard); without it only requests for work, never pings or admin."""
    method: Annotated[Words | None, Drawn("POST", share=_RARE)] = None
    """HTTP methods."""
    language: Annotated[Words | None, Drawn("python", "cpp", share=_RARE)] = None
    """Languages of the code."""
    code: Annotated[Pattern | None, Drawn("call=c000[1-3]", share=_RARE)] = None
    """A regular expression searched for in the code."""
    call: Annotated[Words | None, Drawn("c000[1-3]", "*1", "r001.*", share=_USUAL)] = None
    """Ids of calls (``*`` is a wildcard), as in the mark inside their code."""
    first: Annotated[int | None, Drawn(range(1, 7), share=_USUAL), Reduced(scales=True)] = Field(
        default=None, ge=1
    )
    """Only the first N requests that fit."""
    first_attempts: Annotated[int | None, Drawn(1, 2, 3, share=_USUAL)] = Field(default=None, ge=1)
    """Only the attempts 1 to N of each call."""
    every: Annotated[int | None, Drawn(range(1, 6), share=_USUAL), Reduced(scales=True)] = Field(
        default=None, ge=1
    )
    """Every Nth request that fits."""
    after: Annotated[int | None, Drawn(range(7), share=_USUAL), Reduced(scales=True)] = Field(
        default=None, ge=0
    )
    """Only after N requests that fit."""
    between: Annotated[
        tuple[Seconds, Seconds] | None, Drawn(*combinations((0, 0.5, 1, 2, 4, 8), 2), share=_USUAL)
    ] = None
    """Only between these two times, counted from when the faults were set."""
    above_in_flight: Annotated[int | None, Drawn(range(5), share=_USUAL)] = Field(
        default=None, ge=0
    )
    """Only while more than N requests are being handled, this one included."""
    probability: Annotated[
        float | None, Drawn(0.1, 0.4, 0.8, share=_USUAL), Reduced(instead=_INSTEAD_OF_CHANCE)
    ] = Field(default=None, ge=0, le=1)
    """With this probability, drawn from (seed, rule, call, attempt)."""
    times: Annotated[int | None, Drawn(range(1, 7), share=_USUAL)] = Field(default=None, ge=1)
    """At most N strikes."""
    may_not_strike: Annotated[bool, NotHunted("a hunt accepts that anyway")] = False
    """In a scenario: accept a run in which the rule never strikes, which is unknown otherwise."""
    phase: Phase | None = None
    """When in the life of the request; every kind has a default."""
    what: Annotated[tuple[SerializeAsAny[Action], ...], BeforeValidator(_what)] = Field(
        description="say what to do, for example what: {status: 503}"
    )

    @model_validator(mode="after")
    def _possible(self) -> Rule:
        """Refuse combinations that can never happen."""
        if not self.what:
            raise ValueError("`what` needs a fault, for example {status: 503}")
        self._check_phase()
        self._check_endings()
        if self.between is not None and self.between[0] >= self.between[1]:
            raise ValueError(
                f"between takes an earlier and a later time, found {list(self.between)}"
            )
        if "connect" in self.actions_by_phase:
            self._check_connect()
        return self

    def _check_phase(self) -> None:
        """Refuse a phase in which an action cannot strike."""
        if self.phase is None:
            return
        for action in self.what:
            if self.phase not in action.phases:
                able = ", ".join(phase for phase in PHASES if phase in action.phases)
                raise ValueError(
                    f"{action.kind} cannot strike in phase {self.phase!r}, only in: {able}"
                )

    def _check_endings(self) -> None:
        """Refuse two actions that both end the request in the same phase."""
        for phase, actions in self.actions_by_phase.items():
            ends = [action.kind for action in actions if action.final]
            if len(ends) > 1:
                raise ValueError(
                    f"{ends[0]} and {ends[1]} both end the request in phase {phase!r}; "
                    "give each a rule of its own"
                )

    def _check_connect(self) -> None:
        """Refuse conditions on a request for a rule that strikes before there is one."""
        given = [field for field in _REQUEST_FIELDS if getattr(self, field) is not None]
        if given:
            raise ValueError(
                f"in phase 'connect' there is no request yet, so {given[0]} cannot be a condition"
            )

    @cached_property
    def actions_by_phase(self) -> dict[Phase, tuple[Action, ...]]:
        """The actions of each phase, in their order."""
        table: dict[Phase, tuple[Action, ...]] = {}
        for action in self.what:
            phase = self._phase_of(action)
            table[phase] = (*table.get(phase, ()), action)
        return table

    @property
    def is_harmless(self) -> bool:
        """Does every attempt that the rule strikes still succeed?"""
        if self.longest_delay > _HARMLESS_DELAY:
            return False
        return all(action.is_harmless(self._phase_of(action)) for action in self.what)

    def recovers(self, *, may_have_run: bool) -> bool:
        """Does a call succeed with a later attempt, which the rule does not strike?

        ``may_have_run``: the tool also repeats what may have been executed.
        """
        return all(
            action.is_transient(self._phase_of(action), self.first_attempts, may_have_run)
            for action in self.what
        )

    def _phase_of(self, action: Action) -> Phase:
        """The phase in which an action of this rule strikes."""
        return self.phase or action.phases[0]

    @property
    def longest_delay(self) -> float:
        """How long it delays a request that it lets through."""
        return sum(action.longest_delay for action in self.what)

    def fits(self, arrival: Arrival, searches: PatternSearches) -> bool:
        """True when the conditions that depend on the attempt alone hold."""
        if self.first_attempts is not None and arrival.attempt > self.first_attempts:
            return False
        if self.above_in_flight is not None and arrival.in_flight <= self.above_in_flight:
            return False
        if self.on is not None and arrival.on not in self.on:
            return False
        if not self._fits_path(arrival):
            return False
        if self.method is not None and arrival.method not in self.method:
            return False
        if self.language is not None and arrival.language not in self.language:
            return False
        if self.call is not None and not _fits_any(arrival.call, self.call):
            return False
        return self._fits_code(arrival, searches)

    def _fits_path(self, arrival: Arrival) -> bool:
        if self.path is None:
            return arrival.work
        return _fits_any(arrival.path, self.path)

    def _fits_code(self, arrival: Arrival, searches: PatternSearches) -> bool:
        if self.code is None:
            return True
        return arrival.code is not None and searches.matches(self.code, arrival.code)

    def as_data(self) -> dict[str, Any]:
        """The rule as it could be written in YAML."""
        data: dict[str, Any] = self.model_dump(mode="json", exclude_defaults=True, exclude={"what"})
        data["what"] = [action.as_data() for action in self.what]
        return data


def _fits_any(text: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(text, pattern) for pattern in patterns)


def load_rules(path: str | Path, *, kinds: Kinds = KINDS) -> list[Rule]:
    """Read the rules of a YAML file."""
    return _read_yaml(lambda: read_marked(Path(path)), str(path), kinds)


def parse_rules(text: str, *, where: str = "faults", kinds: Kinds = KINDS) -> list[Rule]:
    """Read the rules of a YAML text; JSON is YAML too."""
    return _read_yaml(lambda: parse_marked(text, where), where, kinds)


def _read_yaml(read: Callable[[], Marked], where: str, kinds: Kinds) -> list[Rule]:
    try:
        marked = read()
    except YamlError as error:
        raise FaultError(str(error)) from None
    return read_rules(marked, where=where, kinds=kinds)


def read_rules(source: object, *, where: str = "faults", kinds: Kinds = KINDS) -> list[Rule]:
    """Read rules from data: a list of mappings, or a mapping with the single key ``faults``."""
    data = source.data if isinstance(source, Marked) else source
    inside: tuple[str, ...] = ()
    if isinstance(data, dict):
        data = _only_faults(data, where)
        inside = ("faults",)
    if data is None:
        return []
    if isinstance(data, str | bytes) or not isinstance(data, Iterable):
        raise FaultError(f"{where}: expected a list of rules, found {data!r}")

    rules = []
    for index, item in enumerate(data):
        if isinstance(item, Rule):
            rules.append(item)
            continue
        place = where
        if isinstance(source, Marked):
            place = str(source.place((*inside, index)))
        rules.append(read_rule(item, where=f"{place}: rule {index + 1}", kinds=kinds))
    return rules


def _only_faults(data: dict[Any, Any], where: str) -> Any:
    """Return the value of ``faults``; raise FaultError if it is not the only key."""
    extra = sorted(str(key) for key in data if key != "faults")
    if "faults" not in data or extra:
        odd = extra[0] if extra else "nothing"
        raise FaultError(
            f"{where}: expected a list of rules or a mapping 'faults: [...]', found {odd!r}"
        )
    return data["faults"]


def read_rule(item: object, *, where: str = "rule", kinds: Kinds = KINDS) -> Rule:
    """Read one rule; raise FaultError with every mistake in it."""
    if not isinstance(item, dict):
        raise FaultError(
            f"{where}: expected a mapping such as {{first: 3, what: {{status: 503}}}}, "
            f"found {item!r}"
        )
    name = item.get("name")
    label = f"{where} ({name})" if name else where
    try:
        return Rule.model_validate(item, context={"kinds": kinds})
    except ValidationError as error:
        sentences = []
        for problem in error.errors():
            # Only keys of the rule itself, not those inside a fault, are near the rule's fields.
            known = described_fields(Rule) if len(problem["loc"]) == 1 else None
            sentences.append(f"{label}: {refusal(problem, known)}")
        raise FaultError("; ".join(sentences)) from None
