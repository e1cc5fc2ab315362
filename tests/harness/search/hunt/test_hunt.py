"""The hunt: what is played is decided by the seed alone, nothing is played twice, and what breaks
is found."""

from __future__ import annotations

import json
import random
import weakref
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pydantic import Field

from sfusion.fakes.faults import KINDS, Rule
from sfusion.fakes.faults.action import Action
from sfusion.harness.atomic_files import lock_folder
from sfusion.harness.errors import BadOption
from sfusion.harness.lab.promises import PROMISES, How, Verdict
from sfusion.harness.lab.scenarios.drawing import Drawing
from sfusion.harness.lab.worlds import virtual_time
from sfusion.harness.search.hunt import case as case_module
from sfusion.harness.search.hunt.case import LOGGED, HuntCase, HuntResult, play_case, scenario_of
from sfusion.harness.search.hunt.command import render_hunt
from sfusion.harness.search.hunt.corpus import HUNT, Corpus
from sfusion.harness.search.hunt.generate import FEATURES, SCENES, generate, mutate, valid
from sfusion.harness.search.hunt.hunt import BATCH, Hunt
from sfusion.harness.search.shrink import Failure
from tests.harness.search.hunt.bad_tools import Blocking, Exiting, Forgetful, Raising, Spinning
from tests.proof.changes import CHANGES
from tests.proof.hunted import OWN, RIGHT, Prey, hunt_mistake
from tests.proof.mistakes import MISTAKES
from tests.reference_tool import GoodTool, tool_config

CALM: dict[str, Any] = {"load": {"calls": 2, "concurrency": 1, "program": {"prints": "{call}\n"}}}


def made_up(case: HuntCase) -> HuntResult:
    """A result that depends on the case alone, without playing it."""
    number = int(case.digest, 16)
    findings = (
        [Failure(How("no_stall", f"way {number % 3}"), "it stalls")] if number % 7 == 0 else []
    )
    behaviour = frozenset({f"b{number % 97}", f"c{number % 31}"})
    strikes = frozenset({"status before"}) if number % 2 else frozenset()
    return HuntResult(findings, behaviour, strikes, {"no_stall": "held"}, {"ok": 2})


def hunted(hunt: Hunt, batches: int, corpus: Corpus | None = None) -> list[str]:
    digests = []
    for _ in range(batches):
        played = [(case, made_up(case)) for case in hunt.decide(16)]
        hunt.fold(played)
        if corpus is not None:
            corpus.add(hunt, played)
        digests += [case.digest for case, _ in played]
    return digests


def test_the_seed_decides_what_is_played_and_nothing_is_played_twice() -> None:
    digests = hunted(Hunt(3), 6)
    assert digests == hunted(Hunt(3), 6)
    assert digests != hunted(Hunt(4), 6)
    assert len(set(digests)) == len(digests)


def test_an_interrupted_hunt_continues_as_if_it_had_not_been_interrupted(tmp_path: Path) -> None:
    whole = Hunt(3)
    expected = hunted(whole, 5)
    first = Hunt(3)
    digests = hunted(first, 2, corpus := Corpus(tmp_path))
    with (tmp_path / HUNT).open("a") as file:
        file.write('{"number": 99, "dig')  # the process died while it wrote
    second, third = Hunt(3), Hunt(3)
    with corpus:
        assert corpus.resume(second) == 32
        digests += hunted(second, 3, corpus)
        assert digests == expected
        assert corpus.resume(third) == 80
    for one in (second, third):
        assert (one.tally, one.covered, one.seen) == (whole.tally, whole.covered, whole.seen)
        assert [case.digest for case in one.corpus] == [case.digest for case in whole.corpus]
        assert {f: found.count for f, found in one.found.items()} == {
            f: x.count for f, x in whole.found.items()
        }


def test_a_folder_is_for_one_hunt_at_a_time(tmp_path: Path) -> None:
    with Corpus(tmp_path) as first:
        first.resume(Hunt(3))
        with pytest.raises(BadOption, match="another hunt is using it; give another folder"):
            Corpus(tmp_path).resume(Hunt(3))
        lock_folder(tmp_path, wait=False).close()  # runs may be written to it meanwhile
    with Corpus(tmp_path) as second:
        assert second.resume(Hunt(3)) == 0


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ("{\n", "is not that of a hunt"),
        ('{"tally": {}}\n', "is not that of a hunt"),
        (None, "its hunt has seed 3, this one 4"),
    ],
)
def test_a_folder_of_another_hunt_is_refused(tmp_path: Path, state: str | None, words: str) -> None:
    hunted(Hunt(3), 1, corpus := Corpus(tmp_path))
    if state is not None:
        (tmp_path / HUNT).write_text(state)
    with corpus, pytest.raises(BadOption, match=words):
        corpus.resume(Hunt(4))
    (tmp_path / "file").write_text("")
    with pytest.raises(BadOption, match="is a file"):
        Corpus(tmp_path / "file").resume(Hunt(4))


def test_cases_are_valid_and_leave_features_out() -> None:
    cases = [generate(random.Random(f"0:{number}")) for number in range(150)]
    assert all(map(valid, cases))
    kinds = {action["kind"] for action in _actions(cases)}
    assert len(kinds) > len(KINDS) / 2
    assert any("rollouts" in case for case in cases)
    for part in ("cluster", "sandbox", "events", "schedule"):
        having = sum(part in case for case in cases)
        assert 15 < having < 135, part
    assert len(set(FEATURES)) == len(FEATURES)


def _actions(cases: list[dict[str, Any]]) -> list[dict[str, str]]:
    rules = [
        Rule.model_validate(rule)
        for case in cases
        for rule in case.get("sandbox", {}).get("faults", [])
    ]
    return [{"kind": action.kind} for rule in rules for action in rule.what]


def test_every_kind_of_fault_can_be_drawn_in_every_phase() -> None:
    drawing = Drawing(random.Random(0))
    for kind, cls in KINDS.items():
        for phase in cls.phases:
            for _ in range(20):
                Rule.model_validate({"phase": phase, "what": drawing.action(cls)})
        assert kind


def test_a_new_kind_of_fault_is_hunted_without_being_named(monkeypatch: pytest.MonkeyPatch) -> None:
    class Sneeze(Action):
        kind = "sneeze"
        phases = ("before",)
        built_in = False

        loudness: int = Field(ge=3)
        often: bool = False

    monkeypatch.setitem(KINDS, "sneeze", Sneeze)
    cases = [generate(random.Random(f"0:{number}")) for number in range(300)]
    assert any(one["kind"] == "sneeze" for one in _actions(cases))


def test_a_mutated_case_is_another_valid_one() -> None:
    draw = random.Random(1)
    start = generate(draw)
    mutated = [mutate(start, draw) for _ in range(40)]
    assert all(one != start and valid(one) for one in mutated)
    assert len({json.dumps(one, sort_keys=True) for one in mutated}) > 20


def test_near_scenarios_are_played_first_with_their_own_promises_and_then_varied() -> None:
    hunt = Hunt(0, near=[HuntCase(0, CALM, "near", ("retries_spread", {"no_stall": 3}))])
    first, *others = hunt.decide(8)
    assert (first.data, first.origin) == (CALM, "near")
    promises = [promise.name for promise in scenario_of(first).promises]
    assert promises[:2] == ["retries_spread", "no_stall"]
    assert len(set(promises)) == len(promises)
    assert all(case.data != CALM for case in others)
    assert sum(case.origin == "near" for case in others) > 4


def test_every_promise_that_applies_is_judged_without_being_asked_for() -> None:
    result = play_case(HuntCase(0, CALM))
    of_load = {
        name
        for name, cls in PROMISES.items()
        if not cls.of_rollouts and not cls.model_construct().only_single_calls
    }
    assert of_load - result.states.keys() <= {
        "creates_within_limit",
        "recovers_within",
        "no_starvation",
    }  # their numbers are the user's
    assert not result.findings
    assert result.states["throughput_at_least"] == "held"
    assert "call called call_started" in result.behaviour


def test_garbage_made_between_cases_is_collected_after_some_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It was frozen with everything else when the next case began."""
    monkeypatch.setattr(case_module, "THAW", 2)
    cycle = HuntCase(0, CALM)
    object.__setattr__(cycle, "data", {"itself": cycle})
    lives = weakref.ref(cycle)
    del cycle
    for number in range(2):
        play_case(HuntCase(number, CALM))
    assert lives() is None


@pytest.mark.parametrize(
    ("tool", "found"),
    [
        (Raising, "tool_never_raises"),
        (Forgetful, LOGGED),
        (Spinning, "stuck"),
        (Blocking, "error"),
        (Exiting, "error"),
    ],
)
def test_exceptions_hangs_and_tracebacks_are_findings(
    tool: type[GoodTool], found: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(virtual_time, "_FRUITLESS", 5000)
    if tool is Blocking:  # the others come to an end, however long that takes
        monkeypatch.setattr(case_module, "REAL_SECONDS", 2.0)
    several = {"load": {"calls": 4, "concurrency": 2}}
    result = play_case(HuntCase(0, several), tool_config(tool))
    assert found in {one.promise for one in result.findings}


def test_a_request_that_was_given_up_is_not_in_flight_although_the_run_ends_before_its_answer() -> (
    None
):
    late = {"times": 1, "what": {"delay": 600}}
    program = {"seconds": 5, "prints": "{call}"}
    data = {
        "tools": {"rate_limit": 1},
        "sandbox": {"faults": [late]},
        "load": {"calls": 2, "program": program},
    }
    result = play_case(HuntCase(0, data), tool_config(GoodTool))
    assert result.states["in_flight_within_limit"] == "held"


def test_rollouts_longer_than_the_context_of_the_model_need_not_be_answered() -> None:
    turns = [{"say": "Compute.", "programs": [{"prints": "{fill:30000}"}]}] * 2 + [
        {"say": "It is 4."}
    ]
    assert not play_case(HuntCase(0, {"rollouts": {"count": 1, "turns": turns}})).findings


def test_a_tool_of_another_class_needs_no_schema_for_rollouts() -> None:
    turns = [{"say": "Compute.", "programs": [{"prints": "4\n"}]}, {"say": "It is 4."}]
    tools = [
        {key: value for key, value in tool_config(GoodTool)[0].items() if key != "tool_schema"}
    ]
    assert not play_case(HuntCase(0, {"rollouts": {"count": 1, "turns": turns}}), tools).findings


def test_an_exception_of_a_promise_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    def check(*_: object) -> Verdict:
        raise ZeroDivisionError("no calls")

    monkeypatch.setattr(PROMISES["no_stall"], "check", check)
    (found,) = play_case(HuntCase(0, CALM)).findings
    assert found.promise == "error"
    assert "ZeroDivisionError: no calls" in found.sentence


@pytest.mark.parametrize(
    "mistake", ["needs-its-limiter", "keeps-the-first-limit", "grants-one-too-many"]
)
def test_a_mistake_is_found_from_scratch(mistake: str) -> None:
    kill = hunt_mistake(Prey(mistake, seed=0, cases=BATCH))
    assert kill.found, f"{mistake} was not found in {BATCH} cases"


SICK = {
    "instances": 2,
    "each": {"sandbox-1": {"faults": [{"name": "sick", "what": {"status": 503}}]}},
}
CRASHES = {
    "name": "sick",
    "between": [0, 2],
    "what": [{"crash": {"restart_after": 1.019}}, {"delay": 0.317}],
}
WIDE = {
    "calls": 32,
    "concurrency": 16,
    "program": {"seconds": {"uniform": [0.1, 1.5]}, "prints": "{call}\n"},
}
PASSED: dict[str, dict[str, Any]] = {
    "a sandbox that recovers beside one that does not": {
        "sandbox": {
            **SICK,
            "faults": [{"name": "gentle", "first_attempts": 1, "what": {"truncate": 0.5}}],
        },
        "load": {"calls": 2, "concurrency": 1, "program": {"prints": "{call}\n"}},
    },
    "a slow sandbox that crashes too": {
        "tools": {
            "enable_global_rate_limit": False,
            "max_attempts": 3,
            "retry_may_have_run": False,
        },
        "sandbox": {"instances": 2, "each": {"sandbox-1": {"faults": [CRASHES]}}},
        "load": WIDE,
    },
    "more than an hour of timeouts": {
        "tools": {"rate_limit": 1},
        "sandbox": {
            "faults": [
                {"name": "one", "every": 2, "phase": "before", "what": {"wedge": {"ping": "alive"}}}
            ]
        },
        "load": {"calls": 32, "concurrency": 1, "program": {"prints": "{call}\n"}},
    },
    "a gateway that a paced tool never exceeds": {
        "tools": {"rate_limit": 16, "requests_per_second": 10.0, "requests_burst": 4},
        "sandbox": {"model": {"kind": "quota", "per_second": 12.0, "burst": 8, "retry_after": 1.5}},
        "load": {"calls": 32, "concurrency": 32, "program": {"prints": "{call}\n"}},
    },
    "answers that break off after a while": {
        "tools": {"retry_may_have_run": False},
        "sandbox": {
            "faults": [{"name": "one", "phase": "body", "what": {"hang": {"seconds": 0.1}}}]
        },
        "load": {"calls": 2, "concurrency": 1, "program": {"prints": "{call}\n"}},
    },
    "one of several sandboxes is slow": {
        "tools": {"rate_limit": 8},
        "sandbox": {
            "instances": 2,
            "each": {"sandbox-1": {"faults": [{"name": "slow", "what": {"delay": 3.037}}]}},
        },
        "load": {"calls": 96, "concurrency": 16, "program": {"prints": "{call}\n"}},
    },
    "an answer that drips": {
        "sandbox": {
            "faults": [{"name": "one", "times": 1, "what": {"drip": {"bytes": 1, "every": 1.019}}}]
        },
        "load": {"calls": 2, "concurrency": 1, "program": {"prints": "{call}\n"}},
    },
    "colours": {
        "load": {
            "calls": 2,
            "program": {"prints": "{call}\n", "errors": "\x1b[0;31m\x1b[1m" * 400 + "oh\n"},
        },
    },
}
"""Hunted cases that a right tool passes."""


@pytest.mark.parametrize("case", PASSED)
def test_a_right_tool_passes(case: str) -> None:
    assert not play_case(HuntCase(0, PASSED[case]), tool_config(GoodTool)).findings


def test_calls_of_the_right_tool_do_not_give_up_in_one_moment() -> None:
    """A sandbox that turns to the next request when a client leaves would answer as the next client
    leaves."""
    tool = GoodTool({"sandbox_fusion_url": "http://127.0.0.1:1"})
    limits = {
        tool.seconds(tool.arguments(f"c{number}", {"code": "print(1)"})) for number in range(9)
    }
    assert len(limits) == 9


@pytest.mark.parametrize(
    ("case", "mistake", "promise"),
    [
        ("a sandbox that recovers beside one that does not", "first-sandbox-only", "outcomes"),
        ("a gateway that a paced tool never exceeds", "ignores-the-pace", "requests_paced"),
        ("an answer that drips", "timeout-per-read", "deadline_honoured"),
        ("colours", "keeps-escape-codes", "output_bounded"),
    ],
)
def test_a_mistake_shows(case: str, mistake: str, promise: str) -> None:
    found = play_case(HuntCase(0, PASSED[case]), tool_config(MISTAKES[mistake].tool)).findings
    assert promise in [one.promise for one in found]


@pytest.mark.parametrize(
    ("scene", "mistake", "promise"),
    [
        ("one of several sandboxes is slow", "round-robin", "throughput_at_least"),
        (
            "calls wait for permits for longer than programs may run",
            "timeout-includes-the-queue",
            "outcomes",
        ),
    ],
)
def test_a_scene_shows_what_chance_hardly_draws(scene: str, mistake: str, promise: str) -> None:
    case = HuntCase(0, SCENES[scene])
    assert not play_case(case).findings
    assert not play_case(case, tool_config(GoodTool)).findings
    found = play_case(case, tool_config(MISTAKES[mistake].tool)).findings
    assert promise in [finding.promise for finding in found]


def test_every_scene_is_drawn_with_the_keys_that_a_tool_has() -> None:
    drawn = [generate(random.Random(seed), frozenset({"rate_limit"})) for seed in range(600)]
    for scene in SCENES.values():
        limit = {"rate_limit": scene["tools"]["rate_limit"]}
        assert {**scene, "tools": limit} in drawn


SLOW = {"faults": [{"name": "slow", "what": {"delay": 3.037}}]}
SHORT = {"prints": "{call}\n", "seconds": 0.051}


@pytest.mark.parametrize(
    "data",
    [
        {
            "cluster": {"link": {"delay": 0.317}},
            "tools": {"rate_limit": 8, "requests_per_second": 10.0, "requests_burst": 1},
            "load": {"calls": 24, "concurrency": 12, "program": SHORT},
        },
        {
            "cluster": {"link": {"delay": {"choice": [0.0, 0.053]}}},
            "tools": {"requests_per_second": 10.0, "requests_burst": 1, "max_attempts": 1},
            "sandbox": {"model": {"kind": "quota", "per_second": 12.0, "burst": 1}},
            "load": {"calls": 24, "concurrency": 12, "program": SHORT},
        },
        {
            "tools": {"rate_limit": 8},
            "sandbox": {
                "model": {"kind": "unbounded", "spawn_cost": 0.4},
                "instances": 2,
                "each": {"sandbox-1": SLOW},
            },
            "load": {"calls": 96, "concurrency": 16, "program": SHORT},
        },
        {
            "cluster": {"link": {"delay": 0.5}},
            "tools": {"permit_lease": 1.0},
            "load": {"calls": 12, "concurrency": 12, "program": SHORT},
        },
        {  # the rest of an answer that is too large is not read, and its connection closed
            "tools": {"rate_limit": 2, "max_response_mb": 0.05},
            "load": {"calls": 12, "concurrency": 6, "program": {"prints": "{fill:99999}\n"}},
        },
    ],
    ids=[
        "pace on a slow link",
        "jitter on a link",
        "slow to start",
        "short leases",
        "large answers",
    ],
)
def test_what_is_expected_of_our_own_tool_is_possible(data: dict[str, Any]) -> None:
    assert not play_case(HuntCase(0, data)).findings


def test_requests_queued_in_a_sandbox_are_not_held_against_tools_without_reports() -> None:
    case = HuntCase(0, {**CALM, "sandbox": {"model": {"kind": "queue", "workers": 1}}})
    states = [
        play_case(case, tools).states["in_flight_within_limit"]
        for tools in (None, tool_config(GoodTool))
    ]
    assert "broken" not in states


def test_a_pause_of_our_own_tool_that_is_too_long_is_a_stall() -> None:
    refused = {"name": "gentle", "first_attempts": 1, "what": {"status": 503}}
    case = HuntCase(0, {**CALM, "sandbox": {"faults": [refused]}})
    assert not play_case(case).findings
    with CHANGES["sleeps-before-retrying"].applied():
        assert [one.promise for one in play_case(case).findings] == ["no_stall"]


def test_what_a_right_tool_breaks_too_is_no_sign_of_a_mistake(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        PROMISES["no_stall"], "check", lambda *_: Verdict("no_stall", "broken", "always")
    )
    assert hunt_mistake(Prey(RIGHT, seed=1, cases=1)).promises == ("no_stall",)
    for mistake in ("keeps-escape-codes", "keeps-dead-connections"):
        assert not hunt_mistake(Prey(mistake, seed=1, cases=1)).found


def test_nothing_is_found_in_right_tools() -> None:
    assert not hunt_mistake(Prey(RIGHT, seed=1, cases=4)).found
    assert not hunt_mistake(Prey(OWN, seed=1, cases=4)).found


def test_results_are_the_same_in_another_process() -> None:
    from sfusion.harness.lab.spreading import open_workers

    cases = Hunt(5).decide(2)
    here = [play_case(case) for case in cases]
    with open_workers(2) as workers:
        there = list(workers.map(partial(play_case, tools=None), cases))
    for one, other in zip(here, there, strict=True):
        assert (one.behaviour, one.findings) == (other.behaviour, other.findings)


def test_the_page_tells_what_was_found_and_what_never_happened() -> None:
    hunt = Hunt(3)
    hunted(hunt, 4)
    page = render_hunt(hunt, None, 3)
    assert "fault crash in phase body" in page
    assert "it stalls" in page
    assert "cases played</text>" in page
    assert "Nothing broke" not in page
    assert "http://" not in page


def test_a_long_program_that_is_lost_after_it_ran_may_be_ended_by_the_deadline_of_its_call() -> (
    None
):
    """Found by `sfusion hunt --seed 7`, case 63: three runs of 30 s in 90 s."""
    rule = {"every": 1, "phase": "after", "what": {"status": 504}}
    load = {"calls": 1, "program": {"seconds": 60.0}}
    assert not play_case(HuntCase(0, {"sandbox": {"faults": [rule]}, "load": load})).findings


def test_calls_that_their_own_deadline_ends_need_not_recover() -> None:
    """Found by `sfusion hunt --seed 6`, case 8169."""
    data = {
        "tools": {
            "rate_limit": 4,
            "permit_lease": 1.0,
            "call_deadline": 4.0,
        },
        "load": {
            "calls": 24,
            "concurrency": 24,
            "program": {"seconds": 7, "timeout": 8, "prints": "{call}\n"},
        },
        "events": [{"at": 2.003, "cut_off": "n1-w1", "seconds": 1.5}],
    }
    assert not play_case(HuntCase(0, data)).findings


def test_what_was_queued_at_a_slow_sandbox_before_that_was_known_may_take_its_time() -> None:
    """Found by `sfusion hunt --seed 10`, case 24918."""
    slow = {"model": {"kind": "queue", "workers": 2}, "faults": [{"what": {"delay": 3.037}}]}
    data = {
        "cluster": {"nodes": 3, "workers_per_node": 1},
        "tools": {"rate_limit": 8},
        "sandbox": {"instances": 2, "each": {"sandbox-1": slow}},
        "load": {"calls": 32, "concurrency": 16, "program": {"prints": "{call}\n"}},
        "schedule": {"random": 88617},
    }
    assert not play_case(HuntCase(0, data)).findings


def test_a_change_takes_programs_as_they_are() -> None:
    """Without its compiler a program does not fail, and a word that it prints twice would look like
    a mistake."""
    failing = {
        "language": "go",
        "compile_exit": 127,
        "compile_errors": "/bin/bash: go: command not found\n",
    }
    coloured = {"prints": "4\n", "errors": "\x1b[31mred\x1b[0m\n"}
    load = {"calls": 3, "program": [failing, coloured]}
    rollouts = {
        "count": 1,
        "turns": [{"say": "Compute.", "programs": [failing, coloured]}, {"say": "It is 4."}],
    }
    for seed in range(200):
        changed = mutate(
            {"load": load} if seed % 2 else {"rollouts": rollouts}, random.Random(seed)
        )
        text = json.dumps(changed, ensure_ascii=False)
        assert text.count('"compile_exit": 127') == text.count("command not found")


def test_a_worker_may_be_stopped_twice_at_a_time() -> None:
    pauses = [
        {"at": 0.5, "pause": "n1-w1", "seconds": 4},
        {"at": 1, "pause": "n1-w1", "seconds": 0.2},
    ]
    load = {"calls": 4, "concurrency": 2, "program": {"seconds": 3, "prints": "{call}\n"}}
    assert not play_case(
        HuntCase(0, {"load": load, "events": pauses}), tool_config(GoodTool)
    ).findings


def test_what_is_drawn_can_be_changed_without_changing_what_is_drawn_next() -> None:
    def spoil(part: Any) -> None:
        for one in list(part.values() if isinstance(part, dict) else part):
            if isinstance(one, dict | list):
                spoil(one)
        part.clear()

    before = [generate(random.Random(f"2:{number}")) for number in range(60)]
    kept = json.dumps(before)
    for case in before:
        spoil(case)
    assert json.dumps([generate(random.Random(f"2:{number}")) for number in range(60)]) == kept


def test_a_case_of_which_changes_have_left_nothing_can_be_changed_further() -> None:
    for seed in range(20):
        assert valid(mutate({}, random.Random(seed)))
