"""A verdict says how it came about as data: words can change, what is the same failure does not."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from string import Formatter
from typing import Any

import pytest

from sfusion.harness.core.journal import Journal
from sfusion.harness.core.verdict import sentence_of
from sfusion.harness.errors import NoProgress, NothingLeft, WorldError
from sfusion.harness.lab.promises import PROMISES, How, Verdict, base, check_promises
from sfusion.harness.lab.runs import RunResult, Task, read_run, run_one, write_run
from sfusion.harness.lab.scenarios import Scenario
from sfusion.harness.lab.worlds import sim
from sfusion.harness.search.hunt.case import HuntCase, play_case
from sfusion.harness.search.hunt.hunt import Hunt
from sfusion.harness.search.shrink import STUCK, Budget, Failure, Reproduces, failures_of, shrink
from sfusion.harness.studies.compare.comparison import RecordedRun, compare_runs
from tests import ROOT
from tests.harness.lab.promises.scenes import all_promises, rollout_scene, scene
from tests.proof.mistakes import MISTAKES
from tests.reference_tool import tool_config

NONSENSE = "7 of 'these' (c0001) went wrong, promised"
FLAKY = {"faults": [{"name": "flaky", "every": 2, "what": {"status": 503}}]}


def failing() -> Scenario:
    """Return a scenario in which a tool hides that programs fail."""
    tools = tool_config(MISTAKES["exit-code-ignored"].tool)
    program = [{"prints": "{call}\n", "share": 1}, {"raises": "ValueError: bad", "share": 1}]
    load = {"calls": 8, "concurrency": 4, "program": program}
    return scene(tools=tools, load=load, promises=["every_call_ends_once", "text_is_truthful"])


@pytest.fixture
def reworded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every sentence says something else, and the same."""
    for cls in PROMISES.values():
        monkeypatch.setattr(cls, "sentences", dict.fromkeys(cls.sentences, NONSENSE))
    monkeypatch.setattr(base, "COMMON", dict.fromkeys(base.COMMON, NONSENSE))


def hows(journal: Journal, rollouts: bool = False) -> list[How]:
    return [verdict.how for verdict in check_promises(journal, all_promises(rollouts=rollouts))]


JOURNALS = {
    "right": lambda: sim.run(scene()),
    "flaky": lambda: sim.run(scene(sandbox=FLAKY)),
    "mistaken": lambda: sim.run(failing()),
    "rollouts": lambda: sim.run(rollout_scene()),
}


@pytest.fixture(scope="module")
def before() -> dict[str, tuple[Journal, list[How]]]:
    journals = {name: make() for name, make in JOURNALS.items()}
    return {
        name: (journal, hows(journal, name == "rollouts")) for name, journal in journals.items()
    }


@pytest.mark.parametrize("name", JOURNALS)
def test_how_does_not_depend_on_words(
    name: str, before: dict[str, tuple[Journal, list[How]]], reworded: None
) -> None:
    journal, found = before[name]
    again = check_promises(journal, all_promises(rollouts=name == "rollouts"))
    assert [verdict.how for verdict in again] == found
    assert [verdict.how.details for verdict in again] == [how.details for how in found]
    assert {verdict.sentence.partition(" (and")[0] for verdict in again} == {NONSENSE}


def shrunk() -> Scenario:
    scenario = failing()
    failure = next(
        one for one in failures_of(played(scenario)) if one.promise == "text_is_truthful"
    )
    return shrink(scenario, Reproduces(scenario, failure), Budget(cases=60, seconds=None)).scenario


def played(scenario: Scenario) -> RunResult:
    return run_one(Task(scenario, "sim", trusted=True))


@pytest.fixture(scope="module")
def smallest() -> Scenario:
    return shrunk()


def test_shrinking_finds_the_same_scenario_in_other_words(
    smallest: Scenario, reworded: None
) -> None:
    assert shrunk().plain == smallest.plain
    assert smallest.load is not None
    assert smallest.load.calls < 8


CASES = [
    HuntCase(
        number,
        {"load": {"calls": calls, "concurrency": 2, "program": {"raises": "ValueError: bad"}}},
    )
    for number, calls in enumerate((3, 5))
]


def found_in_cases() -> dict[Failure, int]:
    hunt, tools = Hunt(0), tool_config(MISTAKES["exit-code-ignored"].tool)
    hunt.fold([(case, play_case(case, tools)) for case in CASES])
    return {failure: found.count for failure, found in hunt.found.items()}


@pytest.fixture(scope="module")
def duplicates() -> dict[Failure, int]:
    return found_in_cases()


def test_what_two_cases_have_in_common_is_one_finding_in_any_words(
    duplicates: dict[Failure, int], reworded: None
) -> None:
    assert 2 in duplicates.values()
    assert found_in_cases() == duplicates


@pytest.fixture(scope="module")
def broken() -> RunResult:
    return played(failing())


def test_comparisons_see_the_same_failure_in_other_words(broken: RunResult, reworded: None) -> None:
    again = played(broken.task.scenario)
    assert {one.sentence for one in again.verdicts}.isdisjoint(
        one.sentence for one in broken.verdicts
    )
    found = compare_runs(
        *(RecordedRun("x", {}, one.journal, one.verdicts) for one in (broken, again))
    )
    assert found.same


def test_comparisons_tell_that_a_promise_is_broken_in_another_way(
    broken: RunResult,
) -> None:
    changed = [
        replace(one, how=replace(one.how, kind="empty"))
        if one.promise == "text_is_truthful"
        else one
        for one in broken.verdicts
    ]
    other = replace(broken, verdicts=changed)
    found = compare_runs(
        *(RecordedRun("x", {}, one.journal, one.verdicts) for one in (broken, other))
    )
    assert [(one.what, one.before, one.after) for one in found.promises] == [
        ("text_is_truthful", "broken", "broken")
    ]
    assert not found.worse
    assert found.sentence.startswith("broken in another way: text_is_truthful")


def test_verdicts_are_read_back_with_how(broken: RunResult, tmp_path: Path) -> None:
    _, _, verdicts = read_run(write_run(broken, tmp_path))
    assert verdicts == broken.verdicts
    assert [one.how.details for one in verdicts] == [one.how.details for one in broken.verdicts]


def test_verdicts_written_before_there_was_how_can_be_read(broken: RunResult) -> None:
    old = [
        {key: value for key, value in one.as_dict().items() if key != "how"}
        for one in broken.verdicts
    ]
    read = [Verdict.from_dict(one) for one in old]
    assert [(one.promise, one.state, one.sentence) for one in read] == [
        (one.promise, one.state, one.sentence) for one in broken.verdicts
    ]
    assert [one.how for one in read] == [How(one.promise) for one in broken.verdicts]
    assert not compare_runs(
        *(RecordedRun("x", {}, broken.journal, one) for one in (read, broken.verdicts))
    ).promises


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("{calls:call} at {at:g} s", "1 call at 2.5 s"),
        ("{many:refused call}", "2 refused calls"),
        ("{names}", "a, b"),
        ("{names:, then }", "a, then b"),
        ("{text!r} of {size:,}", "'{x}' of 10,000"),
    ],
)
def test_sentences_count_nouns_and_join_lists(template: str, text: str) -> None:
    facts = {"calls": 1, "many": 2, "at": 2.5, "names": ["a", "b"], "text": "{x}", "size": 10_000}
    assert sentence_of(template, facts) == text


PROMISE_MODULES = sorted((ROOT / "harness" / "lab" / "promises").glob("*.py"))


def test_every_kind_of_a_promise_is_used_and_every_kind_that_is_used_is_declared() -> None:
    used = Counter(
        text
        for file in PROMISE_MODULES
        for text in _texts(ast.parse(file.read_text(encoding="utf-8")))
    )
    for cls in PROMISES.values():
        assert not cls.sentences.keys() & base.COMMON.keys()
        for kind in cls.sentences:
            spelt_out = (
                used[kind] > 1
                or kind.startswith(("held_", "forwarded_"))
                or kind in ("held", "nothing")
            )
            assert spelt_out, f"{cls.name} never says {kind}"
        named = {
            name
            for one in cls.sentences.values()
            for _, name, _, _ in Formatter().parse(one)
            if name
        }
        assert set(cls.identity) - {"raised", "function"} <= named


def _texts(tree: ast.AST) -> Iterator[str]:
    yield from (
        one.value
        for one in ast.walk(tree)
        if isinstance(one, ast.Constant) and isinstance(one.value, str)
    )


SEARCHES = {
    "search",
    "match",
    "fullmatch",
    "findall",
    "finditer",
    "sub",
    "split",
    "startswith",
    "endswith",
    "partition",
    "rpartition",
    "removeprefix",
    "removesuffix",
    "find",
    "index",
}


def _reads_sentence(node: ast.AST) -> bool:
    return any(isinstance(one, ast.Attribute) and one.attr == "sentence" for one in ast.walk(node))


def _parses(node: ast.AST) -> bool:
    """Does this look for something in a sentence?"""
    if isinstance(node, ast.Compare) and any(
        isinstance(one, ast.In | ast.NotIn) for one in node.ops
    ):
        return any(
            isinstance(one, ast.Attribute) and one.attr == "sentence" for one in node.comparators
        )
    if (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in SEARCHES
    ):
        return any(_reads_sentence(one) for one in (node.func.value, *node.args))
    return False


@pytest.mark.parametrize(
    "code",
    [
        "'ended' in verdict.sentence",
        "verdict.sentence.startswith('call')",
        "re.findall('[0-9]+', one.sentence)",
        "_MORE.sub('', verdict.sentence)",
    ],
)
def test_the_scan_sees_what_parses_a_sentence(code: str) -> None:
    assert any(map(_parses, ast.walk(ast.parse(code))))
    assert not any(
        map(_parses, ast.walk(ast.parse("print(one.sentence); one.sentence in repeated")))
    )


def test_nothing_parses_the_sentence_of_a_verdict() -> None:
    files = sorted((ROOT / "harness").rglob("*.py"))
    assert len(files) > 100
    wrong = [
        f"{file.relative_to(ROOT)}:{node.lineno}"
        for file in files
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if _parses(node) and isinstance(node, ast.expr)
    ]
    assert not wrong


def test_errors_of_a_run_are_told_apart_by_type_and_place(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(error: Exception) -> Failure:
        def run(*_: Any) -> Journal:
            raise error

        monkeypatch.setattr(sim, "run", run)
        (found,) = failures_of(played(scene()))
        assert found.promise == "error"
        return found

    assert fail(ZeroDivisionError("7 of 3")) == fail(ZeroDivisionError("something else"))
    assert fail(ZeroDivisionError("7 of 3")) != fail(KeyError("7 of 3"))


def test_runs_that_are_stuck_are_told_apart_by_type(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(error: WorldError) -> Failure:
        def run(work: Any, *_: Any) -> None:
            work.close()
            raise error

        monkeypatch.setattr(sim, "run_virtually", run)
        return next(one for one in failures_of(played(scene())) if one.promise == STUCK)

    assert fail(NoProgress("after 7 steps")) == fail(NoProgress("something else"))
    assert fail(NoProgress("after 7 steps")) != fail(NothingLeft("after 7 steps"))
