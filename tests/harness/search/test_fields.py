"""Every field of the scenario model is hunted and shrunk, or says why not: a new one cannot be
forgotten."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

from pydantic import BaseModel

from sfusion.fakes.described import described_fields
from sfusion.fakes.faults import KINDS
from sfusion.fakes.fields import Drawn, NotHunted, NotShrunk
from sfusion.harness.lab.scenarios.base import ScenarioPart, declared, parts_below
from sfusion.harness.lab.scenarios.model import Scenario
from sfusion.harness.lab.scenarios.parts import LoadPart
from sfusion.harness.lab.scenarios.tools import TOOL_KEYS
from sfusion.harness.lab.single_calls.planned import SingleCallPart
from sfusion.harness.search.hunt.generate import generate, named
from sfusion.harness.search.shrink.reductions import REDUCTIONS
from sfusion_tools.sandbox.config import SandboxToolConfig
from tests.cases import every

Field = tuple[type[BaseModel], str]
CASES = 600
TRIED = 8
WORDS = {"kind", "shape", "numbers", "cell"}
"""Parts of how a value is written (which model, which distribution), and what only sfusion sets."""
MODELS = dict.fromkeys(
    one
    for one in [Scenario, *(part for _, _, part in parts_below(Scenario)), *KINDS.values()]
    if one.model_fields and one.__name__ not in ("Action", "Promise")
)
FIELDS: list[Field] = [
    (model, name) for model in MODELS for name in model.model_fields if name not in WORDS
]
OF_SINGLE_CALLS = {SingleCallPart, *(part for _, _, part in parts_below(SingleCallPart))}
"""What no hunt draws is declared once for all of them."""
PARTS = [model for model in MODELS if issubclass(model, ScenarioPart)]


def name_of(field: Field) -> str:
    model, name = field
    return f"{model.__name__}.{name}"


TURN = {"programs": [{"prints": "4\n"}], "sees": "4"}
_LOST = {"groups": [[1, "lost", 0], [1, 1, 0]], "lost_by": "mask", "lost_reward": 7}
_EPISODES: dict[str, Any] = {
    "sandbox": {
        "face": "daytona",
        "model": {
            "kind": "lifecycle",
            "boot": 7.0,
            "starting": 4,
            "live": 8,
            "creates_per_second": 7.0,
            "burst": 7,
            "status": 503,
            "retry_after": 7.0,
            "ttl": 70.0,
            "idle": 70.0,
            "delete_takes": 7.0,
            "dies": 0.7,
            "dies_after": 7.0,
        },
    },
    "episodes": {
        "count": 7,
        "concurrency": 4,
        "think": 7.0,
        "deadline": 70.0,
        "settle": 7.0,
        "steps": [
            {"exec": {"seconds": 7.0, "exit": 7}},
            {"exec": {}},
            {"exec": {}, "only": "odd"},
            {"write": "a"},
            {"read": "a"},
        ],
    },
}
NOT_HUNTED: list[dict[str, Any]] = [
    _EPISODES,
    {"load": {"needs": ["groups"], "each": [_LOST, {"groups": [[1, 0]]}]}},
    {
        "incident": "volcengine/verl#1",
        "expected": "It goes on.",
        "worlds": ["sim", "ray"],
        "time_scale": 0.5,
        "horizon": "100s",
        "schedule": {"deviations": [[3, 1], [5, 2]]},
        "observed": {
            "compared": True,
            "rate_limit": [2, 4],
            "callers": 8,
            "unknown": "what more would do",
            "processes": 4,
            "server_time": ["x"],
        },
        "sandbox": {
            "executor": "python",
            "instances": 2,
            "each": {"sandbox-1": {"model": {"kind": "queue", "workers": 3, "status": 500}}},
            "faults": [{"what": "reset", "may_not_strike": True, "on": "exec"}],
        },
        "load": {"calls": 3, "program": [{"call": "c0001", "real": True, "code": "print(1)"}, {}]},
        "cluster": {"nodes": 2},
        "events": [
            {"at": 1, "crash": "sandbox", "may_not_strike": True},
            {"at": 1, "kill": "n2-w1"},
            {"at": 1, "pause": "n2-w1", "seconds": 1},
            {"at": 1, "cut_off": "n2-w1", "seconds": 1},
        ],
        "promises": ["every_call_ends_once", "no_stall"],
    },
    {
        "load": {
            "needs": ["concurrent"],
            "each": [
                {
                    "end": "program_error",
                    "prints": "{word}",
                    "errors": "{lines}",
                    "exit": 3,
                    "seconds": 2.0,
                    "compile_seconds": 1.0,
                    "warnings": "unused {word}",
                    "at": 7.0,
                    "times": 5,
                    "every": 0.7,
                    "language": "cpp",
                    "stdin": "1",
                    "files": {"a": "b"},
                    "timeout": 17.0,
                    "more_code": "1",
                    "then": {
                        "prints": "{word:second}",
                        "errors": "x",
                        "exit": 4,
                        "ending": "stopped",
                        "seconds": 7.0,
                        "compile_seconds": 7.0,
                        "warnings": "y",
                    },
                    "truth": "{word}",
                    "instance": "one",
                    "last": False,
                    "executes": True,
                    "needs": ["code"],
                    "together": True,
                    "cancel": {"after": 7.0, "steps": 3, "steps_more": 2},
                    "fault": [{"what": {"status": 503}, "phase": "before", "first_attempts": 3}],
                },
                {"end": "bad_arguments", "arguments": {"code": 7}},
                {"program_of": "c0001", "ending": "stopped"},
                {
                    "tests": [
                        "fail",
                        {"does": "more", "fault": {"what": "reset", "phase": "after"}},
                        {"does": "fail", "expects": "10\n", "prints": "11\n"},
                    ],
                    "executes": False,
                },
                {
                    "tests": [{"expects": "{word}\n", "prints": "x\n", "seconds": 2.0}],
                    "among": 2,
                },
            ],
        },
        "events": [{"at": 1, "clock_jump": 7}],
    },
    {
        "expected": "It goes on.",
        "promises": ["every_call_ends_once", "no_stall"],
        "sandbox": {"model": {"kind": "quota", "in_flight": 3, "status": 503}},
        "rollouts": {"turns": [TURN, {"raw": "<tool_call>", "say": "x"}]},
    },
    {
        "promises": ["tool_use_kept", "no_stall"],
        "training": {
            "steps": 3,
            "prompts": 2,
            "group": 3,
            "estimator": "rloo",
            "lost": "mask",
            "divide_by": "kept",
            "learning_rate": 2.0,
            "aggregation": "token-mean",
            "kl": 0.1,
            "format_reward": 0.2,
            "endless": "lost",
            "think": "1s",
            "seconds": "1s",
            "update_time": "1s",
            "behaviours": [
                {"name": "head", "right": 0.5, "share": 2.0},
                {"name": "call", "right": 0.9, "calls": 2, "again": 1, "guess": 0.5},
                {
                    "name": "long",
                    "right": 0.5,
                    "calls": 1,
                    "best": 0.8,
                    "learns": 0.5,
                    "spread": 0.5,
                    "tokens": 20,
                    "tokens_lost": 10,
                    "length": 2.0,
                    "provokes": 0.1,
                },
            ],
        },
    },
]
"""Scenarios with the fields that no case has."""


def set_in(value: Any) -> Iterator[tuple[type[BaseModel], str, Any]]:
    """Yield every field that a scenario, or a part of one, sets, and its value."""
    if isinstance(value, BaseModel):
        for name in sorted(value.model_fields_set):
            given = getattr(value, name)
            yield type(value), name, given
            yield from set_in(given)
    elif isinstance(value, dict | list | tuple):
        for one in value.values() if isinstance(value, dict) else value:
            yield from set_in(one)


@dataclass(frozen=True)
class Contents:
    """What a scenario has, walked once for the questions of all fields."""

    values: dict[Field, set[str]]
    """The values of each field that it sets."""
    parts: Counter[type[BaseModel]]
    """How many parts it has of each model, or of one derived from it."""

    @classmethod
    def of(cls, scenario: Scenario) -> Contents:
        values: dict[Field, set[str]] = {}
        for model, name, value in set_in(scenario):
            values.setdefault((model, name), set()).add(repr(value))
        return cls(values, Counter(_models_of(scenario)))


@dataclass(frozen=True)
class Case:
    scenario: Scenario

    @cached_property
    def contents(self) -> Contents:
        return Contents.of(self.scenario)

    @cached_property
    def simpler(self) -> list[Contents]:
        """What each reduction makes of it that is still a scenario."""
        return [Contents.of(scenario) for scenario in _variants(self.scenario)]


@cache
def written() -> list[Case]:
    return [
        Case(Scenario.from_data({"scenario": "test", "about": "A test.", **one}, "x"))
        for one in NOT_HUNTED
    ]


@cache
def drawn() -> dict[Field, list[Case]]:
    """Return cases for each field that some case sets, the smallest first."""
    found: dict[Field, list[Case]] = {}
    cases = [named(generate(random.Random(f"3:{number}"))) for number in range(CASES)]
    for scenario in sorted(cases, key=lambda case: len(str(case.plain))):
        case = Case(scenario)
        for field in {(model, name) for model, name, _ in set_in(scenario)}:
            found.setdefault(field, []).append(case)
    return found


@every(FIELDS, name_of)
def test_a_field_is_hunted_or_says_why_not(field: Field) -> None:
    model, name = field
    reason = declared(model.model_fields[name].metadata, NotHunted)
    if model in OF_SINGLE_CALLS:
        reason = declared(LoadPart.model_fields["each"].metadata, NotHunted)
    if reason is None:
        assert field in drawn(), (
            "declare how it is drawn, Annotated[..., Drawn(...)], or why not, NotHunted(why)"
        )
    elif model is not Scenario:
        assert field not in drawn(), f"it is drawn, but says: {reason.why}"


@every(FIELDS, name_of)
def test_a_field_is_shrunk_or_says_why_not(field: Field) -> None:
    model, name = field
    info = model.model_fields[name]
    having = [case for case in written() if field in case.contents.values]
    having += drawn().get(field, [])[:TRIED]
    assert having, "NOT_HUNTED has no scenario with it"
    if declared(info.metadata, NotShrunk) is not None:
        case = having[0]
        for simpler in case.simpler:
            changed = simpler.values.get(field, set()) - case.contents.values[field]
            assert not changed, "it is reduced, but says why not"
    else:
        assert any(_is_reduced(field, case) for case in having), (
            "nothing makes it simpler and keeps what it belongs to"
        )


def _is_reduced(field: Field, case: Case) -> bool:
    before = case.contents.values[field]
    count = case.contents.parts[field[0]]
    return any(
        simpler.values.get(field, set()) != before
        for simpler in case.simpler
        if simpler.parts[field[0]] == count
    )


def _variants(scenario: Scenario) -> Iterator[Scenario]:
    for reduction in REDUCTIONS:
        for data in reduction(scenario.plain):
            try:
                yield Scenario.from_data(data)
            except ValueError:
                continue


def _models_of(value: Any) -> Iterator[type[BaseModel]]:
    """Yield the model of each part at or below a value, and those that it is derived from."""
    if isinstance(value, BaseModel):
        yield from (model for model in type(value).__mro__ if issubclass(model, BaseModel))
        value = [getattr(value, name) for name in type(value).model_fields]
    if isinstance(value, dict | list | tuple):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _models_of(inner)


def test_every_key_of_the_tool_is_hunted_or_says_why_not() -> None:
    assert set(TOOL_KEYS) == set(SandboxToolConfig.model_fields)
    cases = [generate(random.Random(f"1:{number}")) for number in range(300)]
    seen = {key for case in cases for key in case["tools"]}
    assert seen == {key for key, one in TOOL_KEYS.items() if isinstance(one, Drawn)}


@every(PARTS, lambda model: model.__name__)
def test_every_field_is_described(model: type[BaseModel]) -> None:
    assert [name for name, field in described_fields(model).items() if not field.description] == []


def test_reasons_are_sentences() -> None:
    reasons = [one for model, name in FIELDS for one in model.model_fields[name].metadata]
    assert all(len(one.why) > 5 for one in reasons if isinstance(one, NotHunted | NotShrunk))
