"""The table of grading rules: complete, explained, and identical in the documentation."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfusion.fakes.wire.message import dump_json
from sfusion.harness.real.drift.command import drift_headline
from sfusion.harness.real.drift.comparing import KINDS, Difference, matches
from sfusion.harness.real.drift.judging import (
    GRADES,
    RACE,
    RULES,
    ServerAnswers,
    compare_answers,
    rule_for,
)
from sfusion.harness.real.probes.model import bundled_probes
from sfusion.harness.real.probes.raw_http import ProbeAnswer
from tests import ROOT

PLACES = [
    "body",
    "status",
    "headers",
    "header.x-any",
    "body.run_result.stdout",
    "body.files.a",
    "body.detail[0].msg",
]


def test_every_kind_of_difference_has_a_rule_without_conditions() -> None:
    plain = [
        rule for rule in RULES if rule.places == ".*" and not (rule.one_empty or rule.same_media)
    ]
    assert {kind for rule in plain for kind in rule.kinds} == set(KINDS)


def test_every_rule_has_a_name_and_one_sentence() -> None:
    assert len({rule.name for rule in RULES}) == len(RULES)
    for rule in RULES:
        assert rule.grade in GRADES
        assert rule.because.endswith(".")
        assert rule.because.count(". ") == 0


@settings(max_examples=25)
@given(
    place=st.one_of(st.sampled_from(PLACES), st.text(max_size=20)),
    kind=st.sampled_from(KINDS),
    left=st.one_of(st.none(), st.text(max_size=4), st.integers()),
    right=st.one_of(st.none(), st.text(max_size=4), st.integers()),
)
def test_every_difference_is_graded(place: str, kind: str, left: object, right: object) -> None:
    assert rule_for(Difference("a/b", place.replace("\n", " "), kind, left, right)).grade in GRADES  # type: ignore[arg-type] # drawn from KINDS


@pytest.mark.parametrize(
    ("place", "kind", "left", "right", "rule"),
    [
        ("body.driver.stdout", "text", "a", "b", "server's own log"),
        ("body.cells[0].stdout", "text", "a", "b", "output"),
        ("body.cells[2].display[0].text/plain", "text", "1", "2", "output"),
        ("body.cells[0].error[0].ename", "text", "A", "B", "kind of error"),
        ("body.cells[0].error[0].evalue", "text", "a", "b", "wording"),
        ("body.driver.return_code", "value", 0, 1, "outcome"),
        ("body.compile_result.status", "text", "a", "b", "outcome"),
        ("body.run_result.stderr", "text", "a", "b", "wording"),
        ("body.run_result.stderr", "text", "a", "", "empty or not"),
        ("body.message", "text", "", "b", "empty or not"),
        ("body.detail[0].ctx.error", "text", "a", "b", "echo of a refusal"),
        ("body.detail[0].ctx", "key-missing", {}, None, "missing key"),
        ("header.content-type", "header-value", "a/b", "a/b; charset=x", "content type"),
        ("header.content-type", "header-missing", "a/b", None, "steering header"),
        ("header.server", "header-missing", "a", None, "other header"),
        ("body.anything", "value", 1, 2, "number"),
    ],
)
def test_rule_is_chosen_by_place(
    place: str, kind: str, left: object, right: object, rule: str
) -> None:
    assert rule_for(Difference("a/b", place, kind, left, right)).name == rule  # type: ignore[arg-type] # kinds as text


def test_the_docs_page_lists_the_rules_of_each_grade() -> None:
    page = (ROOT / "docs" / "drift.md").read_text(encoding="utf-8")
    lists = dict(re.findall(r"^- \*\*(\w+)\*\*.*: (.*)$", page, re.MULTILINE))
    assert {grade: names.split(", ") for grade, names in lists.items()} == {
        grade: [rule.name for rule in (*RULES, RACE) if rule.grade == grade] for grade in lists
    }
    assert set(lists) == set(GRADES)


def test_the_docs_page_says_how_many_probes_there_are() -> None:
    page = (ROOT / "docs" / "drift.md").read_text(encoding="utf-8")
    told = re.search(r"sends (\d+) probes", page)
    assert told is not None
    assert int(told[1]) == len(bundled_probes())


def test_a_pattern_matches_a_place_and_everything_below_it() -> None:
    assert matches("body.cells[3].error[0].ename", "body.cells[*].error")
    assert matches("body", "body")
    assert matches("body.a.b", "body.*")
    assert not matches("body.cells[3].errors", "body.cells[*].error")
    assert not matches("bodyguard", "body")


def test_long_texts_are_shown_from_where_they_diverge() -> None:
    left, right = Difference(
        "a/b", "body", "text", "x" * 300 + "left\n", "x" * 300 + "right"
    ).shown(20)
    assert "left" in left
    assert "right" in right
    assert max(len(left), len(right)) <= 22
    assert Difference("a/b", "body", "type", None, "\x1b[1m").shown() == ("null", '"\\u001b[1m"')


def test_races_inside_the_server_do_not_count_as_drift() -> None:
    """Above 131,072 bytes the real server cuts at random: the same probe is whole, cut, or out of
    time. With a limit of zero, a program on a busy machine may have printed before it is looked
    at."""
    racy = {probe.id: probe for probe in bundled_probes() if probe.racy}
    assert set(racy) == {
        "output/silently-cut",
        "output/blocked-for-ever",
        "jupyter/asks",
        "timeouts/zero",
        "timeouts/negative",
        "timeouts/false",
    }
    probe = racy["output/silently-cut"]
    result = {"status": "Finished", "return_code": 0, "stdout": "x" * 1000}
    late = {"status": "TimeLimitExceeded", "return_code": None, "stdout": "x" * 500}
    one, other = (
        ServerAnswers(
            name, {probe.id: ProbeAnswer(200, (), dump_json({"status": status, "run_result": ran}))}
        )
        for name, status, ran in (("one", "Success", result), ("other", "Failed", late))
    )
    report = compare_answers([probe], one, other)
    assert {finding.grade for finding in report.findings} == {"variable"}
    assert not report.breaking
    assert "4 variable" in drift_headline(report)
    steady = probe.model_copy(update={"racy": False})
    assert compare_answers([steady], one, other).breaking
    refused = ServerAnswers("refused", {probe.id: ProbeAnswer(503)})
    assert compare_answers([probe], one, refused).breaking, (
        "no race answers with another HTTP status"
    )
