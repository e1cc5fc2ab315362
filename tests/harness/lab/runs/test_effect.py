"""What a scenario declares and its run does not show makes the run unknown, with the reason."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sfusion.harness.lab.runs import Task, run_one, run_scenario
from sfusion.harness.lab.runs.tasks import Task as TaskClass
from sfusion.harness.lab.scenarios import Scenario, parse_scenarios
from tests.cases import every
from tests.harness.lab.promises.scenes import BASE, rollout_scene, scene


def reason(scenario: Scenario) -> str:
    """Run it; return why the run is unknown, "" if it is held."""
    result = run_one(Task(scenario, "sim"))
    others = [one for one in result.verdicts if one.promise != "everything_took_effect"]
    assert all(one.held for one in others), others
    assert result.state == ("held" if len(others) == len(result.verdicts) else "unknown")
    return result.verdicts[-1].sentence if result.state == "unknown" else ""


RULES = [
    ({"call": "c42"}, "no call matches `c42`, ids are c0001…c0024"),
    ({"path": "/run_jupyter"}, "no request had the path `/run_jupyter`"),
    ({"after": 1000}, "only 24 requests met its conditions, `after` is 1000"),
    ({"every": 30}, "only 24 requests met its conditions, `every` is 30"),
    (
        {"between": ["1h", "2h"]},
        "no request came between 3600 s and 7200 s, the load ended at 0.808 s",
    ),
    ({"above_in_flight": 3}, "at most 3 were in flight, `above_in_flight` is 3"),
    ({"probability": 0.0001}, "none of 24 requests was drawn with probability 0.0001"),
    ({"language": "cpp"}, "no request met its condition `language: cpp`"),
    ({"code": "import numpy"}, "no request met its condition `code: import numpy`"),
    ({"phase": "connect", "after": 1000}, "no connection met its conditions"),
]


@pytest.mark.parametrize(
    ("when", "why"), RULES, ids=[next(iter(reversed(when))) for when, _ in RULES]
)
def test_a_rule_that_never_strikes_is_named_with_the_nearest_miss(
    when: dict[str, Any], why: str
) -> None:
    rule = {"name": "flaky", **when, "what": {"delay": "1ms"}}
    assert reason(scene(sandbox={"faults": [rule]})) == f"rule `flaky` never struck: {why}"
    assert reason(scene(sandbox={"faults": [{**rule, "may_not_strike": True}]})) == ""


SILENT = {"calls": 6, "concurrency": 3, "program": {"prints": "", "errors": "warned\n"}}
HARMLESS = [
    ({"delay": 0}, "its delay lasts 0 s"),
    ({"degrade": {"end": 0, "over": 1}}, "its degrade lasts 0 s"),
    ({"wedge": 0}, "its wedge lasts 0 s"),
    ({"output": "lost"}, "no program that it struck wrote to stdout, or not more than it keeps"),
    (
        {"output": {"what": "cut", "size": 7, "stream": "stderr"}},
        "no program that it struck wrote to stderr, or not",
    ),
]


def test_output_that_a_file_does_not_spell_out_can_be_lost() -> None:
    """By default a program prints a canary; ``{fill:N}`` is short in the file and long in the
    output."""
    lost = {"name": "lossy", "what": {"output": "lost"}}
    assert (
        reason(
            scene(load={"calls": 6, "concurrency": 3, "program": {}}, sandbox={"faults": [lost]})
        )
        == ""
    )
    cut = {"name": "cuts", "what": {"output": {"what": "cut", "size": 500}}}
    long = {"calls": 6, "concurrency": 3, "program": {"prints": "{fill:1000}"}}
    assert reason(scene(load=long, sandbox={"faults": [cut]})) == ""


@every(HARMLESS, lambda case: str(case[0]))
def test_a_rule_that_strikes_and_changes_nothing_is_named(case: tuple[dict[str, Any], str]) -> None:
    rule = {"name": "idle", "what": case[0]}
    found = reason(scene(load=SILENT, sandbox={"faults": [rule]}))
    assert found.startswith(f"rule `idle` changed nothing: {case[1]}"), found
    assert reason(scene(load=SILENT, sandbox={"faults": [{**rule, "may_not_strike": True}]})) == ""


def test_a_rule_that_cuts_something_is_not_idle() -> None:
    cuts = [{"what": {"output": {"what": "cut", "size": 6, "stream": "stderr"}}}]
    assert reason(scene(load=SILENT, sandbox={"faults": cuts})) == ""


def test_a_rule_of_one_of_several_sandboxes_that_never_strikes_is_named() -> None:
    rule = {"name": "sick", "after": 1000, "what": {"status": 503}}
    found = reason(scene(sandbox={"instances": 2, "each": {"sandbox-2": {"faults": [rule]}}}))
    assert found == "rule `sick` never struck: only 12 requests met its conditions, `after` is 1000"
    each = {name: {"faults": []} for name in ("sandbox-1", "sandbox-2")}
    found = reason(
        scene(
            sandbox={
                "instances": 2,
                "faults": [{"name": "lost", "what": {"delay": 1}}],
                "each": each,
            }
        )
    )
    assert found == "rule `lost` never struck: each sandbox has `faults` of its own"


MODELS = [
    {"kind": "quota", "in_flight": 2},
    {"kind": "queue", "workers": 2},
    {"kind": "queue", "workers": 1, "waiting": 1},
]


@every(MODELS, str)
def test_a_quota_or_a_queue_that_nothing_reaches_is_named(model: dict[str, Any]) -> None:
    few = {**BASE["load"], "concurrency": 2}
    found = reason(scene(load=few, sandbox={"model": model}))
    assert found == f"the {model['kind']} of sandbox-1 was never reached: at most 2 were in flight"
    assert reason(scene(sandbox={"model": model})) == ""
    assert reason(scene(load=few, tools={"rate_limit": 2}, sandbox={"model": model})) == ""


def test_a_rule_behind_another_one_never_strikes() -> None:
    rules = [
        {"name": "first", "what": {"delay": "1ms"}},
        {"name": "slow", "phase": "body", "what": {"drip": True}},
    ]
    hidden = {"name": "hidden", "phase": "body", "what": {"drip": {"bytes": 7}}}
    found = reason(scene(sandbox={"faults": [*rules, hidden]}))
    assert found == (
        "rule `hidden` never struck: no request that met its conditions reached phase "
        "`body` unharmed"
    )


EVENTS = [
    (
        {"at": "300s", "kill": "n1-w1"},
        "`kill: n1-w1` at 300 s never happened: the load ended at 0.808 s",
    ),
    (
        {"at": "300s", "crash": "sandbox"},
        "`crash: sandbox` at 300 s never happened: the load ended at 0.808 s",
    ),
    (
        {"at": "300s", "cancel": 1.0},
        "`cancel: 1.0` at 300 s never happened: the load ended at 0.808 s",
    ),
    ({"at": "300s", "resize": 5}, "`resize: 5` at 300 s never happened: the load ended at 0.808 s"),
    (
        {"after": {"grants": 99}, "kill": "n1-w1"},
        "`kill: n1-w1` after grants 99 never happened: the count reached only 24",
    ),
    (
        {"at": "100ms", "restart": "limiter"},
        "`restart: limiter` at 0.1 s never happened: its target was gone",
    ),
]


@pytest.mark.parametrize(("event", "why"), EVENTS, ids=[list(event)[1] for event, _ in EVENTS])
def test_an_event_that_never_happens_is_named_with_its_reason(
    event: dict[str, Any], why: str
) -> None:
    assert reason(scene(events=[event])) == f"event {why}"
    assert reason(scene(events=[{**event, "may_not_strike": True}])) == ""


@every([("pause", "n1-w1"), ("cut_off", "n1-w1"), ("wedge", "sandbox")], lambda case: case[0])
def test_an_event_that_lasts_no_time_is_named(case: tuple[str, str]) -> None:
    kind, target = case
    found = reason(scene(events=[{"at": "100ms", kind: target, "seconds": 0}]))
    assert found == f"event `{kind}: {target}` changed nothing: it lasts 0 s"


def test_an_event_whose_target_is_gone_never_happens() -> None:
    kills = [
        {"at": "100ms", "kill": "n1-w1"},
        {"at": "200ms", "kill": "node-1"},
        {"at": "1s", "pause": "n1-w1", "seconds": 1},
    ]
    found = reason(scene(events=kills))
    assert found.startswith(
        "event `kill: node-1` at 0.2 s never happened: its target was gone; event `pause: n1-w1`"
    )


@pytest.mark.parametrize(
    "events",
    [
        [{"at": "500ms", "crash": "sandbox", "seconds": "1s"}],
        [{"at": "500ms", "crash": "sandbox"}, {"at": "1500ms", "restart": "sandbox"}],
    ],
    ids=["seconds", "restart"],
)
def test_an_event_that_is_over_before_the_first_request_is_named(
    events: list[dict[str, Any]],
) -> None:
    late = {**BASE["load"], "think": "2s"}
    found = reason(scene(load=late, events=events))
    assert found == "event `crash: sandbox` was over before the first request, which came at 2 s"


def test_callers_that_never_give_up_are_named() -> None:
    patient = {**BASE["load"], "cancel": {"share": 0.5, "after": "1h"}}
    assert reason(scene(load=patient)) == "`load.cancel` cancelled none of 24 calls"


def test_a_rule_of_the_engine_that_never_strikes_is_named() -> None:
    rollouts = rollout_scene().written["rollouts"]
    rule = {"name": "tired", "after": 100, "what": {"delay": "1s"}}
    found = reason(rollout_scene(rollouts={**rollouts, "faults": [rule]}))
    assert found == "rule `tired` of the engine never struck: none of 6 turns met its conditions"
    assert reason(rollout_scene(rollouts={**rollouts, "faults": [{**rule, "after": 1}]})) == ""


def test_a_cell_that_is_the_same_as_another_is_named() -> None:
    matrix = {"load.program.seconds": {"a": "100ms", "b": 0.1, "c": "200ms"}}
    results = run_scenario({**BASE, "matrix": matrix}, check=False)
    assert [result.state for result in results] == ["held", "unknown", "held"]
    assert results[1].verdicts[-1].sentence == "cell `seconds=b` is the same as cell `seconds=a`"


@pytest.mark.parametrize(
    "cells", [["a b", "a/b", "a-b", "a%20b"], ["x" * 300 + "1", "x" * 300 + "2"]]
)
def test_every_cell_has_a_folder_of_its_own(cells: list[str], tmp_path: Path) -> None:
    data = {**BASE, "matrix": {"about": cells}}
    folders = [TaskClass(cell, "sim").folder for cell in parse_scenarios(str(data))]
    assert len(set(folders)) == len(cells)
    for folder in folders:
        (tmp_path / folder).mkdir()
