"""Fault rules: what they can contain, how mistakes are reported, and when they strike."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfusion.fakes.described import described_fields
from sfusion.fakes.faults import (
    KINDS,
    PHASES,
    Action,
    Arrival,
    Distribution,
    FaultError,
    FaultPlan,
    Rule,
    Status,
    load_rules,
    parse_rules,
    read_rule,
    seconds,
    uniform,
)
from sfusion.fakes.faults.kinds import Delay

MISTAKES = [
    ("- {probabilty: 0.3, what: hang}", "unknown key 'probabilty'; did you mean 'probability'?"),
    ("- {what: {stauts: 503}}", "unknown kind of fault 'stauts'; did you mean 'status'?"),
    ("- {what: explode}", "for example {status: 503}; found 'explode'"),
    ("- {first: 3}", "what is missing"),
    ("- {what: []}", "`what` needs a fault"),
    ("- {first: 0, what: hang}", "first: input should be greater than or equal to 1, found 0"),
    (
        "- {probability: 2, what: hang}",
        "probability: input should be less than or equal to 1, found 2",
    ),
    (
        "- {what: {truncate: 0.5}, phase: before}",
        "truncate cannot strike in phase 'before', only in: body",
    ),
    ("- {what: {reset: true}, phase: conect}", "phase: input should be 'connect', 'before'"),
    ("- {what: reset, phase: connect, path: /x}", "there is no request yet, so path cannot"),
    ("- {what: hang, between: [5s, 2s]}", "between takes an earlier and a later time"),
    ("- {what: hang, code: '('}", "'(' is not a regular expression"),
    ("- {what: {delay: soon}}", "'soon' is not a duration"),
    ("- {what: {delay: {gauss: 1}}}", "unknown distribution 'gauss'"),
    ("- {what: {delay: {uniform: 1}}}", "uniform takes 2 numbers, got 1"),
    ("- {what: {status: 99}}", "greater than or equal to 200, found 99"),
    ("- {what: {retry_after: 1}}", "it belongs to a status, which is missing"),
    ("- {what: {drip: {byte: 3}}}", "unknown key 'what.byte'"),
    ("- {what: {malformed: smell}}", "input should be 'chunk', 'json', 'header' or 'status_line'"),
    ("- 3", "expected a mapping such as {first: 3, what: {status: 503}}, found 3"),
    ("rules: []", "expected a list of rules or a mapping 'faults: [...]', found 'rules'"),
    ("just words", "expected a list of rules"),
    ("- {what: [", "not YAML"),
]


@pytest.mark.parametrize(("text", "sentence"), MISTAKES, ids=[text for text, _ in MISTAKES])
def test_mistake_in_a_rule_is_reported_with_its_place_and_a_hint(text: str, sentence: str) -> None:
    with pytest.raises(FaultError) as error:
        parse_rules(text, where="f.yaml")
    assert sentence in str(error.value)
    assert str(error.value).startswith("f.yaml")


def test_error_names_the_line_of_the_rule() -> None:
    text = "faults:\n  - {what: hang}\n  # a comment\n  - {name: bad, what: {hangs: true}}\n"
    with pytest.raises(FaultError, match=r"f\.yaml:4: rule 2 \(bad\): .*did you mean 'hang'"):
        parse_rules(text, where="f.yaml")


def test_error_names_a_missing_file(tmp_path: Any) -> None:
    with pytest.raises(FaultError, match=r"nowhere\.yaml:1: cannot be read"):
        load_rules(tmp_path / "nowhere.yaml")


def test_rules_can_be_built_in_python() -> None:
    written = read_rule({"name": "x", "first": 3, "what": {"status": 503, "retry_after": 2}})
    assert written == Rule(name="x", first=3, what=(Status(status=503, retry_after=2),))


def test_delay_comes_first_when_a_rule_has_several_kinds() -> None:
    rule = read_rule({"what": {"status": 503, "delay": "100ms"}})
    assert rule.what == (Delay(delay=Distribution(numbers=(0.1,))), Status(status=503))


@pytest.mark.parametrize(
    ("text", "meant"), [(2, 2.0), ("250ms", 0.25), ("1.5 s", 1.5), ("2m", 120.0), ("1h", 3600.0)]
)
def test_durations_are_read_in_all_spellings(text: object, meant: float) -> None:
    assert seconds(text) == meant


EXAMPLES: dict[str, Any] = {
    "status": {"status": 503, "headers": {"x": "y"}, "body": {"a": 1}},
    "delay": {"delay": {"lognormal": [0.2, 0.5]}},
    "degrade": {"degrade": {"end": 5, "over": "1m"}},
    "truncate": {"truncate": {"at": 7, "then": "reset"}},
    "drip": {"drip": {"bytes": 3, "every": "10ms"}},
    "content_type": {"content_type": "text/html"},
    "sandbox_error": {"sandbox_error": "boom"},
    "output": {"output": {"what": "huge", "size": 5}},
    "crash": {"crash": "5s"},
    "wedge": {"wedge": {"ping": "dead"}},
}


@pytest.mark.parametrize("kind", KINDS)
def test_rule_round_trips_through_data(kind: str) -> None:
    rule = read_rule({"name": "r", "between": [1, "5s"], "what": EXAMPLES.get(kind, {kind: True})})
    assert read_rule(rule.as_data()) == rule


def struck(plan: FaultPlan, arrival: Arrival, now: float = 0.0) -> list[str]:
    """Names of the rules that strike this attempt in any phase."""
    fate = plan.fate(arrival)
    return (
        [strike.rule for phase in PHASES for strike in fate.at(phase, now)]
        if fate is not None
        else []
    )


def strikes(count: int, **conditions: Any) -> list[int]:
    """Which of ``count`` requests the rule strikes."""
    plan = FaultPlan([read_rule({"what": "hang", **conditions})])
    return [number for number in range(1, count + 1) if struck(plan, Arrival(call=f"c{number}"))]


def test_first_every_after_and_times_count_requests_that_fit() -> None:
    assert strikes(5, first=2) == [1, 2]
    assert strikes(7, every=3) == [3, 6]
    assert strikes(5, after=3) == [4, 5]
    assert strikes(9, after=2, first=3) == [3, 4, 5]
    assert strikes(9, after=1, every=2) == [3, 5, 7, 9]
    assert strikes(5, times=2) == [1, 2]


def test_first_attempts_counts_per_call() -> None:
    plan = FaultPlan([read_rule({"first_attempts": 2, "what": {"status": 504}})])
    fate = [
        (call, n) for n in (1, 2, 3) for call in "ab" if struck(plan, Arrival(call=call, attempt=n))
    ]
    assert fate == [("a", 1), ("b", 1), ("a", 2), ("b", 2)]


@pytest.mark.parametrize(
    ("conditions", "fits", "not_fits"),
    [
        ({"path": "/run_*"}, {"path": "/run_code"}, {"path": "/v1/ping", "work": False}),
        ({}, {"work": True}, {"work": False, "path": "/v1/ping"}),
        ({"method": "GET"}, {"method": "GET"}, {"method": "POST"}),
        ({"language": ["cpp", "go"]}, {"language": "go"}, {"language": "python"}),
        ({"code": r"import\s+numpy"}, {"code": "x\nimport  numpy"}, {"code": "numpy"}),
        ({"call": "a*"}, {"call": "a1"}, {"call": "b1"}),
        ({"above_in_flight": 8}, {"in_flight": 9}, {"in_flight": 8}),
    ],
    ids=["path", "work only", "method", "language", "code", "call", "above_in_flight"],
)
def test_rule_strikes_only_requests_that_meet_its_condition(
    conditions: dict[str, Any], fits: dict[str, Any], not_fits: dict[str, Any]
) -> None:
    plan = FaultPlan([read_rule({"what": "hang", **conditions})])
    assert struck(plan, Arrival(**{"call": "c", **fits}))
    assert not struck(plan, Arrival(**{"call": "c", **not_fits}))


def test_between_counts_from_when_the_faults_were_set() -> None:
    plan = FaultPlan([read_rule({"between": ["1s", "2s"], "what": "hang"})], started=100.0)
    assert [now for now in (100.5, 101.0, 101.9, 102.0) if struck(plan, Arrival("c"), now)] == [
        101.0,
        101.9,
    ]


def test_rule_of_a_later_phase_does_not_count_attempts_that_never_reach_it() -> None:
    plan = FaultPlan([read_rule({"first": 1, "phase": "after", "what": "reset"})])
    early = plan.fate(Arrival("a"))
    assert early is not None
    assert early.at("before", 0.0) == []
    assert struck(plan, Arrival("b")) == ["reset"]


def test_rule_is_decided_once_for_all_its_phases() -> None:
    plan = FaultPlan([read_rule({"every": 2, "what": [{"delay": 1}, {"truncate": 0.5}]})])
    fates = [plan.fate(Arrival(f"c{n}")) for n in range(4)]
    seen = [
        (bool(fate.at("before", 0.0)), bool(fate.at("body", 0.0)))
        for fate in fates
        if fate is not None
    ]
    assert seen == [(False, False), (True, True), (False, False), (True, True)]


calls = st.lists(st.tuples(st.sampled_from("abcdefgh"), st.integers(1, 4)), unique=True, min_size=1)


@settings(max_examples=25)
@given(calls, st.randoms(use_true_random=False), st.integers(0, 5))
def test_probability_depends_only_on_seed_rule_call_and_attempt(
    arrivals: Any, shuffler: Any, seed: int
) -> None:
    rule = read_rule({"name": "flaky", "probability": 0.5, "what": {"status": 503}})
    other = read_rule({"name": "other", "probability": 0.5, "what": {"delay": 1}})

    def fates(rules: list[Rule], order: Any) -> dict[Any, bool]:
        plan = FaultPlan(rules, seed=seed)
        return {one: "flaky" in struck(plan, Arrival(call=one[0], attempt=one[1])) for one in order}

    shuffled = list(arrivals)
    shuffler.shuffle(shuffled)
    assert fates([rule], arrivals) == fates([other, rule], shuffled)


def test_draws_are_uniform_and_independent_between_seeds() -> None:
    draws = [[uniform(seed, "r", n) for n in range(4000)] for seed in (1, 2)]
    assert all(0.47 < sum(row) / len(row) < 0.53 for row in draws)
    assert all(0 <= one < 1 for row in draws for one in row)
    both = sum(a < 0.3 and b < 0.3 for a, b in zip(*draws, strict=True)) / 4000
    assert 0.07 < both < 0.11, "independent of each other: 0.3 x 0.3"


@settings(max_examples=25)
@given(
    st.sampled_from(["uniform", "normal", "lognormal", "exponential", "choice", "constant"]),
    st.tuples(st.floats(0, 10), st.floats(0, 3)),
    st.integers(0, 1000),
)
def test_drawn_duration_is_never_negative(
    shape: str, numbers: tuple[float, float], seed: int
) -> None:
    given_numbers = list(numbers)[:1] if shape in ("exponential", "constant") else sorted(numbers)
    drawn = Distribution.model_validate({shape: given_numbers}).sample(
        lambda name: uniform(seed, name)
    )
    assert drawn >= 0


def test_every_kind_has_a_docstring_and_phases() -> None:
    for kind, action in KINDS.items():
        assert action.kind == kind
        assert action.__doc__
        assert all(field.description for field in described_fields(action).values())
        assert set(action.phases) <= set(PHASES)


@pytest.mark.parametrize(
    ("phase", "own", "missing"),
    [("body", "strike", "damage_body"), ("connect", "damage_body", "strike")],
)
def test_kind_without_the_method_that_its_phase_needs_cannot_be_defined(
    phase: str, own: str, missing: str
) -> None:
    body = {"kind": "sneeze", "phases": (phase,), own: lambda self, where, draw: None}
    with pytest.raises(
        TypeError, match=f"Sneeze names phase '{phase}', so it needs a method {missing}"
    ):
        type("Sneeze", (Action,), body)
    assert "sneeze" not in KINDS
