"""What the scripted model writes and reads: malformed calls, raw text with code, and what it must
see to go on."""

from __future__ import annotations

from typing import Any

import pytest

from sfusion.harness.lab.scenarios import ScenarioError, parse_scenarios
from sfusion.harness.lab.worlds import sim

HEAD = "scenario: turns\nabout: Turns of a model.\npromises: [rollout_ends]\n"
RUNS = '{seconds: 100ms, prints: "4\\n"}'


def played(rollouts: str) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Return the calls that returned and the end of the only trajectory."""
    (cell,) = parse_scenarios(f"{HEAD}rollouts: {{count: 1, {rollouts}}}\n")
    events = sim.run(cell).events
    (end,) = [event for event in events if event["event"] == "rollout_ended"]
    return [event for event in events if event["event"] == "returned"], end


@pytest.mark.parametrize("form", ["hermes", "qwen3_coder", "deepseekv3"])
def test_a_malformed_call_is_written_in_the_format_of_the_rollout(form: str) -> None:
    (call,), end = played(
        f"format: {form}, turns: [{{malformed: missing_name, programs: [{RUNS}]}}, "
        f"{{programs: [{RUNS}]}}]"
    )
    assert (call["call"], call["text"]) == ("r001.t2.1", "4\n")
    assert end["refused"] == {"malformed": 1}


def test_a_malformed_call_that_can_be_repaired_runs_its_own_program() -> None:
    calls, end = played(f"turns: [{{malformed: double_encoded, programs: [{RUNS}]}}]")
    assert [(call["call"], call["text"]) for call in calls] == [("r001.t1.1", "4\n")]
    assert end["refused"] == {}


def test_raw_text_can_hold_the_code_of_programs_so_that_its_calls_can_be_followed() -> None:
    raw = (
        '<tool_call>{"name": "code_interpreter", "arguments": {"code": '
        '"{code:2}"}}</tool_call> of {id}'
    )
    calls, _ = played(f"turns: [{{raw: '{raw}', programs: [{{prints: a}}, {RUNS}]}}]")
    assert [(call["call"], call["text"]) for call in calls] == [("r001.t1.2", "4\n")]


@pytest.mark.parametrize(("pattern", "turns"), [("^4$", 3), ("^5$", 2)])
def test_a_model_that_does_not_see_what_it_needs_gives_up(pattern: str, turns: int) -> None:
    calls, end = played(
        f"turns: [{{programs: [{RUNS}]}}, {{sees: '{pattern}', programs: [{RUNS}]}}]"
    )
    assert (len(calls), end["turns"], end["ended_by"]) == (turns - 1, turns, "answered")


def test_large_output_does_not_use_up_the_response() -> None:
    (call,), end = played(
        "turns: [{programs: [{prints: '{fill:500000}', whole: true}]}], limits: "
        "{max_response_len: 30000}"
    )
    assert (call["outcome"], call["chars"], end["ended_by"]) == ("ok", 20000, "answered")


@pytest.mark.parametrize(
    ("rollouts", "words"),
    [
        ("turns: [{malformed: bad_escap, programs: [{}]}]", "did you mean 'bad_escape'?"),
        ("turns: [{malformed: bad_escape}]", "give `programs`"),
        ("turns: [{malformed: bad_escape, raw: x, programs: [{}]}]", "give one of them"),
        (
            "turns: [{malformed: bad_escape, programs: [{}]}], format: glm45",
            "format glm45 cannot be wrong by bad_escape",
        ),
        ("turns: [{say: x}], format: hermez", "'hermes'"),
        ("turns: [{raw: '{code:1}'}]", "needs a program number 1"),
        (
            "turns: [{programs: [{repeated: true}]}]",
            "`repeated` is only for the programs of a load",
        ),
        ("turns: [{raw: '{code:0}', programs: [{}]}]", "needs a program number 0"),
        ("turns: [{say: x, sees: '('}]", "is not a regular expression"),
        (
            "turns: [{say: x}], faults: [{what: drip}]",
            "strikes at a socket, and an engine object has none",
        ),
        ("turns: [{say: x}], faults: [{what: {output: lost}}]", "applies only to sandboxes"),
    ],
)
def test_a_turn_that_cannot_be_written_is_refused(rollouts: str, words: str) -> None:
    with pytest.raises(ScenarioError, match="scenario:4: ") as caught:
        parse_scenarios(f"{HEAD}rollouts: {{{rollouts}}}\n")
    assert words in str(caught.value)
