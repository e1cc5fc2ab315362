"""What --vary accepts, and what it says about the rest."""

from __future__ import annotations

from typing import Any

import pytest

from sfusion.harness.errors import BadOption
from sfusion.harness.studies.sweep.grid import label, read_axes, read_axis


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("a=32,64,128", (32, 64, 128)),
        ("a=4..64", (4, 6, 8, 12, 16, 24, 32, 48, 64)),
        ("a=10..64", (10, 15, 20, 30, 40, 60, 64)),
        ("a=1..3", (1, 2, 3)),
        ("a=0.5..2", (0.5, 0.75, 1.0, 1.5, 2.0)),
        ("a=7..7", (7,)),
        ("scenario=../a.yaml,../b.yaml", ("../a.yaml", "../b.yaml")),
        ("a=64,4..8,4", (4, 6, 8, 64)),
        ("a=true,false", (True, False)),
        (
            "a={kind: quota, in_flight: 8},unbounded",
            ({"kind": "quota", "in_flight": 8}, "unbounded"),
        ),
        ("a=1,true", (1, True)),
    ],
)
def test_values_and_ranges(text: str, values: tuple[Any, ...]) -> None:
    found = read_axis(text).values
    assert found == values
    assert [type(one) for one in found] == [type(one) for one in values]


def test_values_are_named_in_a_few_words() -> None:
    assert read_axis("a=4..64").range == "4 to 64"
    assert read_axis("scenario=a.yaml,b.yaml").range == "a.yaml, b.yaml"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("tools.rate_limit", "expected PATH=VALUES"),
        ("=4", "expected PATH=VALUES"),
        ("a b=4", "expected PATH=VALUES"),
        ("a=", "no values"),
        ("a=64..4", "the range is empty, because 64 is above 4; write 4..64"),
        ("a=0..64", "list the values instead"),
        ("a=-4..4", "list the values instead"),
        ("a=1..x", "is not a range"),
        ("a=1..1e999", "finite"),
        ("a=1..1e300", "at most 1,000 are possible"),
        ("a={", "not YAML"),
        ("seed=1,2", "--seeds N"),
    ],
)
def test_what_is_wrong_is_said_with_what_to_write(text: str, words: str) -> None:
    with pytest.raises(BadOption) as caught:
        read_axis(text)
    assert words in str(caught.value)
    assert str(caught.value).startswith("--vary ")


def test_a_path_is_given_once() -> None:
    with pytest.raises(BadOption, match="given twice"):
        read_axes(["a=1", "b=2", "a=3"])
    with pytest.raises(BadOption, match="nothing to sweep"):
        read_axes([])


@pytest.mark.parametrize("path", ["about", "promises"])
def test_what_does_not_change_a_run_is_not_varied(path: str) -> None:
    with pytest.raises(BadOption, match=f"--vary {path}: it does not change what happens"):
        read_axis(f"{path}=a,b")


def test_labels_are_as_in_yaml() -> None:
    assert [label(one) for one in (True, None, 0.25, 8, {"kind": "quota", "n": [1]})] == [
        "true",
        "null",
        "0.25",
        "8",
        "{kind: quota, n: [1]}",
    ]
