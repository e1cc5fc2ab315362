"""A fault rule: when it strikes, what it does, and in which phase of a request's life."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, SerializeAsAny, ValidationInfo, model_validator

from sfusion.fakes.faults.action import KINDS, PHASES, Action, Phase
from sfusion.fakes.faults.duration import Seconds
from sfusion.fakes.faults.kinds import Status
from sfusion.fakes.faults.pattern import Pattern, matches
from sfusion_tools.errors import near

_STATUS_KEYS = frozenset(Status.model_fields)
_REQUEST_FIELDS = ("path", "method", "language", "code", "call", "first_attempts")


def read_actions(value: Any, kinds: Mapping[str, type[Action]] = KINDS) -> tuple[Action, ...]:
    """Read ``what``: an action, a mapping of one or several kinds, or a list of them in order."""
    if isinstance(value, Action):
        return (value,)
    if isinstance(value, str) and value in kinds:
        value = {value: True}
    if isinstance(value, list | tuple):
        return tuple(action for one in value for action in read_actions(one, kinds))
    if not isinstance(value, dict):
        raise ValueError(f"`what` needs a fault, for example {{status: 503}}; found {value!r}")
    remaining = dict(value)
    actions: list[Action] = []
    if "status" in remaining:
        status = {key: remaining.pop(key) for key in list(remaining) if key in _STATUS_KEYS}
        actions.append(Status.model_validate(status))
    for key, inner in remaining.items():
        if key not in kinds:
            known = [*kinds, *(_STATUS_KEYS - {"status"})] if "status" in value else kinds
            hint = "it belongs to a status, which is missing" if key in _STATUS_KEYS else near(str(key), known)
            raise ValueError(f"unknown kind of fault {key!r}; {hint}")
        actions.append(kinds[key].model_validate({key: inner}))
    # A delay comes before the blow it goes with, whatever the order of the keys.
    actions.sort(key=lambda action: action.final)
    return tuple(actions)


def _what(value: Any, info: ValidationInfo) -> tuple[Action, ...]:
    return read_actions(value, (info.context or {}).get("kinds", KINDS))


def _words(value: Any) -> Any:
    return (value,) if isinstance(value, str) else value


Words = Annotated[tuple[str, ...], BeforeValidator(_words)]


class Rule(BaseModel):
    """One fault rule. All conditions given must hold; with none, every request for work is struck."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        use_attribute_docstrings=True,
        ignored_types=(cached_property,),
        allow_inf_nan=False,
    )

    name: str = ""
    """The rule's name in the journal; part of every probabilistic decision."""
    path: Words | None = None
    """Paths (``*`` is a wildcard); without it only requests for work, never pings or admin."""
    method: Words | None = None
    """HTTP methods."""
    language: Words | None = None
    """Languages of the code."""
    code: Pattern | None = None
    """A regular expression searched for in the code."""
    call: Words | None = None
    """Ids of calls (``*`` is a wildcard), as in the mark inside their code."""
    first: int | None = Field(default=None, ge=1)
    """Only the first N requests that fit."""
    first_attempts: int | None = Field(default=None, ge=1)
    """Only the attempts 1 to N of each call."""
    every: int | None = Field(default=None, ge=1)
    """Every Nth request that fits."""
    after: int | None = Field(default=None, ge=0)
    """Only after N requests that fit."""
    between: tuple[Seconds, Seconds] | None = None
    """Only between these two times, counted from when the faults were set."""
    above_in_flight: int | None = Field(default=None, ge=0)
    """Only while more than N requests are being handled, this one included."""
    probability: float | None = Field(default=None, ge=0, le=1)
    """With this probability, drawn from (seed, rule, call, attempt)."""
    times: int | None = Field(default=None, ge=1)
    """At most N strikes."""
    may_not_strike: bool = False
    """In a scenario: accept a run in which the rule never strikes, which is unknown otherwise."""
    phase: Phase | None = None
    """When in the life of the request; every kind has a default."""
    what: Annotated[tuple[SerializeAsAny[Action], ...], BeforeValidator(_what)]

    @model_validator(mode="after")
    def _possible(self) -> Rule:
        if not self.what:
            raise ValueError("`what` needs a fault, for example {status: 503}")
        for action in self.what:
            if self.phase is not None and self.phase not in action.phases:
                able = ", ".join(phase for phase in PHASES if phase in action.phases)
                raise ValueError(f"{action.kind} cannot strike in phase {self.phase!r}, only in: {able}")
        for phase, actions in self.actions_by_phase.items():
            ends = [action.kind for action in actions if action.final]
            if len(ends) > 1:
                raise ValueError(
                    f"{ends[0]} and {ends[1]} both end the request in phase {phase!r}; give each a rule of its own"
                )
        if self.between is not None and self.between[0] >= self.between[1]:
            raise ValueError(f"between takes an earlier and a later time, found {list(self.between)}")
        if "connect" in self.actions_by_phase:
            given = [field for field in _REQUEST_FIELDS if getattr(self, field) is not None]
            if given:
                raise ValueError(f"in phase 'connect' there is no request yet, so {given[0]} cannot be a condition")
        return self

    @cached_property
    def actions_by_phase(self) -> dict[Phase, tuple[Action, ...]]:
        table: dict[Phase, tuple[Action, ...]] = {}
        for action in self.what:
            phase = self.phase or action.phases[0]
            table[phase] = (*table.get(phase, ()), action)
        return table

    def fits(self, *, path: str, method: str, work: bool, language: str | None, code: str | None, call: str) -> bool:
        """True when the conditions on the request itself hold."""
        if self.path is None:
            if not work:
                return False
        elif not any(fnmatchcase(path, one) for one in self.path):
            return False
        if self.method is not None and method not in self.method:
            return False
        if self.language is not None and language not in self.language:
            return False
        if self.call is not None and not any(fnmatchcase(call, one) for one in self.call):
            return False
        return self.code is None or (code is not None and matches(self.code, code))

    def as_data(self) -> dict[str, Any]:
        """The rule as it could be written in YAML."""
        data: dict[str, Any] = self.model_dump(mode="json", exclude_defaults=True, exclude={"what"})
        return {**data, "what": [action.as_data() for action in self.what]}
