"""Texts and files from strangers are read within bounds, and what is wrong with them is said with
file and line."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfusion_tools.bounded_input import MAX_DEPTH, parse_json, read_lines
from sfusion_tools.errors import InputError, YamlError
from sfusion_tools.marked_yaml import YamlLimits, parse_marked, read_marked

TENFOLD = list(zip("abcdefgh", "bcdefghi", strict=True))


def test_yaml_of_aliases_of_aliases_is_refused_at_the_line_that_is_too_much() -> None:
    bomb = "a: &a [x, x, x, x, x, x, x, x, x, x]\n"
    bomb += "".join(
        f"{name}: &{name} [{', '.join([f'*{below}'] * 10)}]\n" for below, name in TENFOLD
    )
    assert len(bomb) < 600
    with pytest.raises(YamlError, match=r"^f:5: more than 100,000 keys and values \(aliases"):
        parse_marked(bomb, "f")


def test_yaml_of_merges_of_merges_is_refused() -> None:
    bomb = "a: &a {x: 1}\n" + "".join(
        f"{name}: &{name} {{<<: [{', '.join([f'*{below}'] * 10)}]}}\n" for below, name in TENFOLD
    )
    with pytest.raises(YamlError, match="more than 100,000 keys and values"):
        parse_marked(bomb, "f")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[" * 9000, "f:1: nested more than 40 levels deep"),
        ("a:\n  " + "- " * 9000, "f:2: nested more than 40 levels deep"),
        ("- " * 39 + "&a [1]\n" + "- " * 39 + "[[*a]]", "f:2: nested more than 40 levels deep"),
        ("a: 1\nb: &b [1, *b]", "f:2: *b stands inside its own anchor"),
        ("a: 1\nb: " + ":".join(["59"] * 300_000), "f:2: a number of more than 100 characters"),
        ("b: 0x" + "f" * 9000, "f:1: a number of more than 100 characters"),
        ("b: 1.0e+" + "9" * 9000, "f:1: a number of more than 100 characters"),
        ("a: 1\nb: !!int ''", "f:2: a value cannot be read"),
        ("a: 1\nb: !!bool maybe", "f:2: a value cannot be read"),
        ("a: 1\nb: !!timestamp soon", "f:2: a value cannot be read"),
        ("a: 1\nb: 2024-13-01", "f:2: a value cannot be read: month must be in 1..12"),
        ("? " + "k" * 2000 + "\n: 1", "f:1: a key of more than 1,000 characters"),
        ("x" * 1_000_001, "f:1: larger than 1,000,000 bytes"),
        (
            "\n".join(f"{'k' * (n % 7 + 1)}: 1" for n in range(1000)),
            "f:8: duplicate key 'k', first given in line 1",
        ),
    ],
    ids=range(14),
)
def test_yaml_beyond_the_bounds_is_refused_with_its_line(text: str, problem: str) -> None:
    with pytest.raises(YamlError) as caught:
        parse_marked(text, "f")
    assert caught.value.problems[0].startswith(problem)
    assert len(caught.value.problems) <= 20


def test_limits_can_be_tighter() -> None:
    limits = YamlLimits(bytes=1000, depth=3, nodes=10)
    assert parse_marked("[[[1]]]", "f", limits).data == [[[1]]]
    for text in ("[[[[1]]]]", "[" + "1," * 10 + "]", "#" * 1001):
        with pytest.raises(YamlError):
            parse_marked(text, "f", limits)


def test_an_alias_is_expanded_within_the_bounds() -> None:
    marked = parse_marked("a: &a {x: 1}\nb: [*a, *a]\nc: {<<: *a, y: 2}\n", "f")
    assert marked.data == {"a": {"x": 1}, "b": [{"x": 1}, {"x": 1}], "c": {"x": 1, "y": 2}}


@given(st.text(alphabet="ab:-[]{}&*?!|>'\"#%@`,<=~. \n\t01e\x00\u2028é") | st.text())
@settings(max_examples=40)
def test_any_text_is_yaml_or_refused(text: str) -> None:
    problems: list[str] = []
    try:
        parse_marked(text, "f")
    except YamlError as error:
        problems = error.problems
    assert all(problem.startswith("f:") for problem in problems)


def test_a_file_that_is_too_large_is_not_read_to_its_end(tmp_path: Path) -> None:
    file = tmp_path / "huge.yaml"
    with file.open("wb") as sparse:
        sparse.truncate(1 << 40)
    with pytest.raises(YamlError, match=r"huge\.yaml:1: larger than 1,000,000 bytes"):
        read_marked(file)
    with pytest.raises(InputError, match=r"huge\.yaml:1: a line of more than 1,000 bytes"):
        list(read_lines(file, line=1000, total=10_000))


def test_lines_are_bounded_in_number_too(tmp_path: Path) -> None:
    file = tmp_path / "lines"
    file.write_bytes(b"12345\n" * 10)
    assert [number for number, _ in read_lines(file, line=10, total=60)] == list(range(1, 11))
    with pytest.raises(InputError, match=r"lines:10: larger than 59 bytes"):
        list(read_lines(file, line=10, total=59))


@pytest.mark.parametrize("opening", ["[", '{"a":'])
@pytest.mark.parametrize("depth", [MAX_DEPTH + 1, 990, 200_000])
def test_deep_json_is_refused_whatever_the_stack(opening: str, depth: int) -> None:
    closing = {"[": "]", "{": "}"}[opening[0]]
    with pytest.raises(InputError, match=r"^f:3: nested more than 100 levels deep"):
        parse_json(opening * depth + "1" + closing * depth, "f:3")
    fits = opening * MAX_DEPTH + "1" + closing * MAX_DEPTH
    assert parse_json(fits, "f") == json.loads(fits)


@pytest.mark.parametrize(
    "text", ["NaN", "[Infinity]", "-Infinity", "9" * 5000, "{", "", b"\xff", '"\\ud8"']
)
def test_what_is_not_json_is_refused(text: str | bytes) -> None:
    with pytest.raises(InputError, match=r"^f: not JSON"):
        parse_json(text, "f")


_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(_VALUES)
@settings(max_examples=25)
def test_json_is_read_as_it_was_written(value: object) -> None:
    assert parse_json(json.dumps(value), "f") == value


@given(st.binary() | st.text(alphabet='[]{}",:0123456789.eE-ntf \\u'))
@settings(max_examples=40)
def test_any_bytes_are_json_or_refused(text: str | bytes) -> None:
    try:
        value = parse_json(text, "f")
    except InputError:
        return
    assert not isinstance(value, float) or not math.isnan(value)
