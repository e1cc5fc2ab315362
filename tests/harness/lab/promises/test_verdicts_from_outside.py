"""Verdicts that were wrong when the harness was tried from outside."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sfusion.harness.core.journal import Journal
from sfusion.harness.lab.promises import Verdict, check_promises, read_promise
from sfusion.harness.lab.runs import run_one
from sfusion.harness.lab.runs.tasks import adapt_tasks, read_tasks
from sfusion.harness.lab.scenarios import scenario_files
from sfusion.harness.lab.worlds import sim
from tests.harness.lab.promises.scenes import scene
from tests.reference_tool import GoodTool, PeerResult, tool_config

CRASH = [{"at": "150ms", "crash": "sandbox", "seconds": "1s"}]


def verdict(journal: Journal, promise: Any) -> Verdict:
    return check_promises(journal, [read_promise(promise)])[0]


@pytest.mark.parametrize(
    ("program", "expected", "state"),
    [
        ({"arguments": {"code": 123}}, {"bad_arguments": "all"}, "held"),
        ({"arguments": {"code": 123}}, {"ok": "all"}, "broken"),
        ({"code": "print(4)"}, {"ok": "all"}, "held"),
        ({"code": "print(4)"}, {"ok": "some", "program_error": "some"}, "not_applicable"),
    ],
)
def test_outcomes_that_the_tool_does_not_state_are_known_from_the_program(
    program: Any, expected: dict[str, str], state: str
) -> None:
    (tool,) = tool_config(GoodTool)
    tool["config"]["states_outcomes"] = False
    journal = sim.run(scene(tools=[tool], load={"calls": 2, "concurrency": 1, "program": program}))
    assert verdict(journal, {"outcomes": expected}).state == state


@pytest.mark.parametrize(
    "fault",
    [{"phase": "after", "what": "sandbox_error"}, {"what": {"truncate": 0.5}}],
    ids=["error", "cut"],
)
def test_no_recovery_is_seen_in_answers_without_a_result(fault: Any) -> None:
    found = verdict(
        sim.run(scene(events=CRASH, sandbox={"faults": [fault]})), {"recovers_within": "60s"}
    )
    assert found.state == "broken"
    assert "no program completed again" in found.sentence


def test_a_request_already_in_flight_is_no_recovery() -> None:
    # One long program is under way when the other worker dies; the next one gets a permit 9 s
    # later.
    slow = {"calls": 4, "concurrency": 2, "program": {"seconds": "9s"}}
    dead = scene(
        load=slow,
        tools={"rate_limit": 2, "permit_lease": 60},
        events=[{"at": "1s", "kill": "n1-w1"}],
    )
    found = verdict(sim.run(dead), {"recovers_within": "9s"})
    assert found.state == "broken"
    assert "it took 17" in found.sentence


def test_a_last_request_in_flight_leaves_recovery_unobserved() -> None:
    last = {"calls": 2, "concurrency": 2, "program": {"seconds": "9s"}}
    found = verdict(
        sim.run(scene(load=last, events=[{"at": "1s", "kill": "n1-w1"}])),
        {"recovers_within": "30s"},
    )
    assert found.state == "unknown"


def test_a_queue_cut_by_the_horizon_is_unknown_unless_it_took_too_long() -> None:
    queued = scene(
        horizon="2s", load={"calls": 24, "concurrency": 12, "program": {"seconds": "10s"}}
    )
    journal = sim.run(queued)
    found = verdict(journal, {"no_starvation": "60s"})
    assert found.state == "unknown"
    assert (
        found.sentence
        == "9 callers still waited for a permit when the run ended, the longest for 2 s"
    )
    assert verdict(journal, {"no_starvation": "1s"}).state == "broken"


def begun(at: float, number: int) -> dict[str, Any]:
    call = {"at": at, "call": f"c{number}", "worker": "w"}
    return {**call, "source": "client", "event": "attempt_started", "attempt": 1}


def limited(*steps: dict[str, Any]) -> Journal:
    journal = Journal.begin(scenario="x", cell="", seed=0, world="sim")
    journal.note(0, "world", "began", workers=["w"], limit=2, calls=None)
    for step in steps:
        if step["event"] == "attempt_started":
            journal.note(0, "world", "called", call=step["call"], worker="w", intent={"kind": "ok"})
            journal.events.append(step)
            journal.note(
                9, "world", "returned", call=step["call"], worker="w", outcome="ok", text=""
            )
        else:
            journal.events.append(step)
    journal.events.sort(key=lambda event: event["at"])
    return journal


def resized(at: float, limit: int) -> dict[str, Any]:
    return {"at": at, "source": "limiter", "event": "resized", "worker": None, "rate_limit": limit}


def granted(at: float, number: int) -> dict[str, Any]:
    return {
        "at": at,
        "source": "limiter",
        "event": "granted",
        "worker": "w",
        "ticket": number,
        "permit": f"p{number}",
    }


def test_a_broken_limit_is_named_as_it_was_in_force() -> None:
    over = limited(*(begun(number, number) for number in (1, 2, 3)), resized(5, 20))
    assert (
        verdict(over, "in_flight_within_limit").sentence
        == "at 3 s 3 attempts were in flight; the limit is 2"
    )
    within = limited(begun(1, 1), begun(2, 2), resized(5, 20))
    assert (
        verdict(within, "in_flight_within_limit").sentence
        == "at most 2 in flight, the limit was 2, then 20"
    )


def test_grants_on_their_way_when_the_limit_shrinks_are_no_breach() -> None:
    steps = [granted(1, 1), granted(1, 2), resized(2, 1), begun(3, 1), begun(3, 2)]
    assert verdict(limited(*steps), "in_flight_within_limit").state == "held"
    assert verdict(limited(*steps, begun(4, 3)), "in_flight_within_limit").state == "broken"


def test_a_malformed_call_has_a_deadline_too() -> None:
    programs = [{"arguments": [1]}, {"prints": "x"}]
    journal = sim.run(scene(load={"calls": 8, "concurrency": 4, "program": programs}))
    assert verdict(journal, "deadline_honoured").state == "held"
    assert {event["allowed"] for event in journal.events if event["event"] == "called"} == {90.0}


def test_a_malformed_call_that_is_mended_may_take_the_time_to_compile() -> None:
    turns = [
        {"programs": [{"language": "cpp", "prints": "4\n"}], "malformed": "latex_escape"},
        {"say": "It is 4."},
    ]
    slow = {"faults": [{"what": {"drip": {"bytes": 1, "every": 1.0}}}]}
    journal = sim.run(scene(load=None, rollouts={"count": 1, "turns": turns}, sandbox=slow))
    allowed = {
        event["call"]: event["allowed"] for event in journal.events if event["event"] == "called"
    }
    assert allowed == {"r001.x1": 110.0}
    assert verdict(journal, "deadline_honoured").state == "held"


def test_retry_after_is_not_honoured_by_never_sending_again() -> None:
    busy = scene(
        sandbox={"faults": [{"what": {"status": 429, "retry_after": 1}}]}, tools={"max_attempts": 1}
    )
    found = verdict(sim.run(busy), "retry_after_honoured")
    assert found.state == "unknown"
    assert found.sentence == "24 Retry-After headers, but no call was sent again"


def test_escape_codes_that_a_program_prints_are_no_lie_of_the_tool() -> None:
    colourful = scene(load={"calls": 2, "program": {"prints": "\x1b[31mred\x1b[0m {call}\n"}})
    assert verdict(sim.run(colourful), "text_is_truthful").state == "held"


def test_attempts_at_two_sandboxes_are_told_apart() -> None:
    pair = scene(
        sandbox={"instances": 2, "faults": [{"first_attempts": 1, "what": {"status": 503}}]}
    )
    journal = sim.run(pair)
    assert verdict(journal, "in_flight_within_limit").state == "held"
    assert verdict(journal, {"outcomes": {"ok": "all"}}).state == "held"
    assert verdict(journal, {"throughput_at_least": 1}).state == "held"


class KeepsTheEnd(GoodTool):
    """Keeps the end of a long text, which is where a traceback says what was wrong."""

    def cut(self, text: str) -> str:
        kept = self.config["max_output_chars"]
        return (
            text
            if len(text) <= kept
            else f"[{len(text) - kept} characters omitted]\n{text[-kept:]}"
        )


class KeepsAnotherEnd(KeepsTheEnd):
    """The same mark, above something that the program did not print."""

    def cut(self, text: str) -> str:
        return super().cut(text)[:-40] + "nothing of the kind"


class InTags(GoodTool):
    """Tells the streams apart in tags."""

    def output(self, result: PeerResult) -> str:
        streams = {"stdout": result.stdout, "stderr": super().output(replace(result, stdout=""))}
        return "".join(f"<{name}>\n{text}</{name}>\n" for name, text in streams.items())


@pytest.mark.parametrize(
    ("tool", "name", "failed"),
    [
        (KeepsTheEnd, "silent-truncation", []),
        (KeepsAnotherEnd, "silent-truncation", ["text_is_truthful"]),
        (InTags, "coloured-tracebacks", []),
    ],
)
def test_a_right_tool_may_lay_out_its_text_as_it_likes(
    tool: type[GoodTool], name: str, failed: list[str]
) -> None:
    tasks = adapt_tasks(read_tasks(scenario_files([name]), "sim"), tools=tool_config(tool))
    assert [one.promise for task in tasks for one in run_one(task).verdicts if one.failed] == failed


def test_requests_of_a_crashed_sandbox_are_over_although_it_reports_them_later() -> None:
    (task,) = read_tasks(scenario_files(["one-of-two-sandboxes-dies"]), "sim")
    journal = sim.run(task.scenario.changed(schedule={"priority": 2}))
    crash = next(place for place, one in enumerate(journal.events) if one["event"] == "crash")
    after = [one["event"] for one in journal.events[crash:] if one["source"] == "server"]
    assert after.index("arrived") < after.index("unanswered")
    assert verdict(journal, "in_flight_within_limit").state == "held"
