"""Reading dumps: large files are not loaded, and malformed lines raise nothing."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfusion.harness.core.dumps import sample as sample_module
from sfusion.harness.core.dumps.sample import (
    LineIndex,
    Sample,
    open_dump,
    read_sample,
)
from sfusion.harness.errors import BadFilter, NoDump
from sfusion.harness.rollouts.viewer.filters import read_filter
from tests.harness.rollouts.viewer.dumps import record, write


@pytest.mark.parametrize("block", [1, 2, 3, 7, 1 << 20])
@pytest.mark.parametrize("text", ["", "\n", "a", "a\n", "a\nbb\n\nccc", "é\nü\r\nx\n"])
def test_lines_are_found_whatever_the_block_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int, text: str
) -> None:
    monkeypatch.setattr(sample_module, "_BLOCK", block)
    path = tmp_path / "1.jsonl"
    path.write_bytes(text.encode())
    index = LineIndex(path)
    while index.extend():
        pass
    wanted = text.encode().split(b"\n")
    if wanted[-1] == b"":
        wanted.pop()
    assert [index.read(i) for i in range(len(index))] == [line.rstrip(b"\r") for line in wanted]


def test_a_hundred_thousand_samples_open_with_one_block_read(tmp_path: Path) -> None:
    line = json.dumps(record("How many?" + "x" * 200)).encode() + b"\n"
    path = tmp_path / "1.jsonl"
    path.write_bytes(line * 100_000)
    step = open_dump(tmp_path)[0]
    step.index.extend()
    assert step.index.scanned == 1 << 20
    assert 1000 < len(step) < 5000
    assert step.sample(999).score == 1
    assert step.index.extend_to(99_999)
    assert len(step) == 100_000
    assert step.sample(99_999).number == 99_999
    assert not step.index.extend_to(100_000)


def test_steps_are_ordered_by_number(tmp_path: Path) -> None:
    for name in ("10", "9", "2"):
        write(tmp_path / f"{name}.jsonl", [record("q")])
    write(tmp_path / "requests" / "2.jsonl", [{}])
    assert [step.name for step in open_dump(tmp_path)] == ["2", "9", "10"]
    assert [step.name for step in open_dump(tmp_path / "9.jsonl")] == ["9"]


def test_a_path_without_a_dump_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(NoDump, match=r"has no \.jsonl file"):
        open_dump(tmp_path)
    with pytest.raises(NoDump, match="does not exist"):
        open_dump(tmp_path / "missing")


def test_the_requests_file_adds_its_fields(tmp_path: Path) -> None:
    write(tmp_path / "1.jsonl", [record("a"), record("b", acc=True)])
    write(
        tmp_path / "requests" / "1.jsonl", [{"request_id": "r0", "outcomes": {"ok": 2}, "step": 99}]
    )
    step = open_dump(tmp_path)[0]
    step.index.extend()
    first, second = step.sample(0), step.sample(1)
    assert first.outcomes == {"ok": 2}
    assert first.fields["step"] == 1
    assert first.fields["request_id"] == "r0"
    assert second.fields["acc"] is True
    assert second.outcomes == {}


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("", "an empty line"),
        ("{oops", "not JSON"),
        ("[1]", "a JSON list"),
        ('{"input": "x", "score": 1}', r"no text in output \(found keys: input, score\)"),
        ('{"input": 3, "output": null}', "no text in input and output"),
        ("[" * 100_000, "nested more than 100 levels deep"),
    ],
)
def test_a_malformed_line_is_a_sample_with_a_problem(line: str, problem: str) -> None:
    sample = read_sample(line.encode(), 4)
    assert sample.problem is not None
    assert re.match(problem, sample.problem)
    assert "malformed" in sample.tags
    assert sample.number == 4


@settings(max_examples=25)
@given(
    st.one_of(
        st.binary(max_size=60),
        st.recursive(st.none() | st.text(), st.lists).map(lambda v: json.dumps(v).encode()),
    )
)
def test_any_line_is_read_without_an_exception(raw: bytes) -> None:
    assert read_sample(raw, 0).preview is not None


@pytest.mark.parametrize("score", [math.nan, math.inf, -math.inf])
def test_scores_that_only_python_calls_json_are_shown(score: float) -> None:
    sample = read_sample(json.dumps({"input": "", "output": "x", "score": score}).encode(), 0)
    assert (sample.problem, f"{sample.score:g}") == (None, f"{score:g}")


@pytest.mark.parametrize("score", ["high", None, True])
def test_a_score_that_is_not_a_number_is_none(score: Any) -> None:
    assert (
        read_sample(json.dumps({"input": "", "output": "", "score": score}).encode(), 0).score
        is None
    )


SAMPLE = Sample(
    0,
    "user\nJohn's bonus",
    "#### 4",
    0.5,
    {"outcomes": {"unreachable": 1}, "ended_by": "length", "turns": 2},
)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "score>0",
        "score >= 0.5",
        "score=0.5 outcome:unreachable",
        "outcome:Unreachable",
    ],
)
def test_a_filter_accepts_a_matching_sample(text: str) -> None:
    assert read_filter(text).accepts(SAMPLE)


@pytest.mark.parametrize("text", ["score<0.5", "outcome:ok", "outcome:unreachable score!=0.5"])
def test_a_filter_rejects_other_samples(text: str) -> None:
    assert not read_filter(text).accepts(SAMPLE)


def test_a_sample_without_a_score_matches_no_comparison() -> None:
    assert not read_filter("score!=5").accepts(Sample(0))


@pytest.mark.parametrize("text", ["score<high", "bonus", "turns:2"])
def test_a_malformed_filter_is_an_error(text: str) -> None:
    with pytest.raises(BadFilter):
        read_filter(text)


def test_a_score_that_no_float_can_hold_is_no_score() -> None:
    line = json.dumps({"input": "a", "output": "b", "score": 10**400, "step": 1}).encode()
    assert read_sample(line, 0).score is None
