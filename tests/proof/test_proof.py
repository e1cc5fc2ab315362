"""The proof: every mistake is caught by the promise that names it, and the proof itself can
fail."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from typer.testing import CliRunner

from sfusion.harness.lab.promises import PROMISES, Promise, RunEvents, Verdict
from tests import ROOT
from tests.proof.changes import CHANGES
from tests.proof.command import app
from tests.proof.mistakes import MISTAKES
from tests.proof.proof import OWN, Proof
from tests.proof.table import page


@pytest.mark.timeout(600)
def test_every_mistake_is_caught_by_the_promise_that_names_it() -> None:
    # The only test that plays every bundled scenario with our own stack.
    proof = Proof()
    own = [
        f"{result.cell}: {one.promise}: {one.sentence}"
        for result in proof.run()
        if result.row == OWN
        for one in result.verdicts
        if one.state != "held"
    ]
    assert own == []
    assert {row.name: row.problems for row in proof.rows.values() if row.problems} == {}
    assert proof.gaps == []
    text = (ROOT / "docs" / "proof.md").read_text(encoding="utf-8")
    assert page(text, proof) == text, "update it: python -m tests.proof --page docs/proof.md"
    idle = {
        f"{row.name}: {name}"
        for row in proof.mistakes
        for name in row.also - {row.promise}
        if name not in row.broken | row.unknown
    }
    assert idle == set(), "what follows from a mistake is listed, but never happens"


def test_there_are_many_mistakes_and_those_of_verl_are_among_them() -> None:
    assert len(MISTAKES) >= 45
    abouts = " ".join(
        [*(one.about for one in MISTAKES.values()), *(one.about for one in CHANGES.values())]
    )
    assert [letter for letter in "abcdefghjkm" if f"(verl, {letter})" not in abouts] == []


def test_the_good_tool_uses_nothing_of_our_stack() -> None:
    source = (ROOT / "tests" / "reference_tool.py").read_text(encoding="utf-8")
    assert re.findall(r"^(?:from|import) .*sfusion.*", source, re.MULTILINE) == []


@pytest.fixture
def unbreakable() -> Iterator[str]:
    class HoldsAnyway(Promise):
        """Nothing breaks this."""

        def check(self, run: RunEvents) -> Verdict:
            return self.held("whatever happens")

    yield HoldsAnyway.name
    del PROMISES[HoldsAnyway.name]


def test_a_promise_that_nothing_breaks_is_a_gap(unbreakable: str) -> None:
    proof = Proof()
    assert [one for one in proof.gaps if unbreakable in one] == [
        f"no change to our own stack breaks {unbreakable}: it may be unable to fail",
        f"no mistake of another tool breaks {unbreakable}: it may be unable to fail",
    ]


def invoke(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["--jobs", "1", *arguments])


def test_what_excludes_each_other_is_refused() -> None:
    result = invoke("--hunt", "--page", "proof.md")
    assert result.exit_code == 2
    assert "exclude each other" in result.output


def test_the_command_hunts() -> None:
    result = invoke("--hunt", "-k", "needs-its-limiter", "--seeds", "1", "--cases", "64")
    assert result.exit_code == 0, result.output
    assert "1 mistake found by most of 1 seed" in result.output


def test_the_command_prints_a_row_for_each_mistake_that_matches() -> None:
    result = invoke("-k", "never-retries or says-nothing-about-refusals")
    assert result.exit_code == 0, result.output
    assert [
        line.split()[:3] for line in result.output.splitlines() if line.startswith("caught")
    ] == [
        ["caught", "never-retries", MISTAKES["never-retries"].promise],
        ["caught", "says-nothing-about-refusals", "text_is_truthful"],
    ]


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"promise": "throughput_at_least"}, "throughput_at_least did not break"),
        ({"also": frozenset()}, "broken: attempts_per_call: call c0003 made 2 attempts"),
        ({"shown_in": ("single-node",)}, "no_duplicate_execution did not break"),
    ],
    ids=["another promise", "an unrelated promise", "no situation"],
)
def test_a_mistake_that_is_not_caught_as_it_should_be_fails_the_proof(
    changes: dict[str, Any], problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "retries-what-may-have-run"
    monkeypatch.setitem(MISTAKES, name, replace(MISTAKES[name], **changes))
    result = invoke("-k", name)
    assert result.exit_code == 1, result.output
    assert f"missed: {name}: " in result.output
    assert problem in result.output


def test_nothing_to_play_is_wrong_input() -> None:
    result = invoke("-k", "no-such-mistake")
    assert result.exit_code == 2
    assert "matches no mistake" in result.output


def test_the_list_plays_nothing() -> None:
    result = invoke("--list", "-k", "never-retries or no-timeout")
    assert result.exit_code == 0
    assert "no-timeout  (deadline_honoured)\n    No timeout at all" in result.output


def test_a_change_is_taken_back() -> None:
    owners: dict[Any, dict[str, Any]] = {}

    for one in CHANGES.values():
        one.make(
            lambda owner, name, new: owners.setdefault(owner, {}).update(
                {name: getattr(owner, name)}
            )
        )
    for one in CHANGES.values():
        with pytest.raises(RuntimeError, match="ended"), one.applied():
            raise RuntimeError("ended")
    assert owners
    for owner, attributes in owners.items():
        assert {name: getattr(owner, name) for name in attributes} == attributes
