"""The work of parsing grows with the length of the text and not with its square, and nesting is
bounded."""

from __future__ import annotations

import gc
import itertools
import sys
import time
from typing import Any

import pytest

from benchmarks.texts import SHAPES, TOOLS, argument, parse
from sfusion_tools.formats import (
    Format,
    Parsed,
    RenderError,
    Toolbox,
    format_names,
    get_format,
    text_reader,
)
from sfusion_tools.formats.jsontext import DEEPEST
from sfusion_tools.formats.text_reader import TextReader
from tests.cases import every
from tests.sfusion_tools.formats.recordings import every_parser

TYPED = [
    {
        "function": {
            "name": "TOOL",
            "parameters": {"type": "object", "properties": {"KEY": {"type": "array"}}},
        }
    },
]


class CountingReader(TextReader):
    """Counts the characters that are copied, searched or given back."""

    work = 0

    def feed(self, chunk: str) -> None:
        super().feed(chunk)
        CountingReader.work += self.left

    def seek(self, offset: int) -> None:
        CountingReader.work += max(self.offset - offset, 0)
        super().seek(offset)

    def take(self, size: int) -> str:
        CountingReader.work += size
        return super().take(size)

    def since_mark(self) -> str:
        text = super().since_mark()
        CountingReader.work += len(text)
        return text


def streamed(form: Format, text: str) -> tuple[Parsed, int]:
    """Stream a text one character at a time; return the result and the number of calls and
    characters it took."""
    calls = 0

    def count(frame: Any, event: str, argument: Any) -> None:
        nonlocal calls
        calls += 1

    CountingReader.work = 0
    gc.disable()  # what other tests have left is not counted
    sys.setprofile(count)
    try:
        stream = form.stream(TOOLS)
        deltas = [delta for char in text for delta in stream.feed(char)] + stream.finish()
    finally:
        sys.setprofile(None)
        gc.enable()
    return Parsed.of(deltas), calls + CountingReader.work


@pytest.fixture
def never_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_reader, "_FREE", 0)


FORMS = [
    name
    for name in every_parser()
    if name not in ("apertus", "command_r7b", "solar_open", "kimi_k3", "xlam")
]
ALL = list(itertools.product(FORMS, SHAPES))


@pytest.mark.usefixtures("never_free")
@every(ALL, "-".join)
def test_twice_the_text_is_twice_the_work_one_character_at_a_time(case: tuple[str, str]) -> None:
    """Counted: calls of functions, and characters that the reader copies. Work inside of a regex is
    not seen here."""
    name, shape = case
    form = get_format(name)
    texts = [SHAPES[shape](form, size) for size in (150, 300)]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("sfusion_tools.formats.streamparser.TextReader", CountingReader)
        (_, once), (parsed, twice) = (streamed(form, text) for text in texts)
    assert parsed == form.parse(texts[1], TOOLS)
    assert twice < 2.5 * once * len(texts[1]) / (2 * len(texts[0]))


@pytest.mark.usefixtures("never_free")
@every(ALL, "-".join)
def test_no_regex_searches_the_same_text_from_every_position(case: tuple[str, str]) -> None:
    """Eight times the text takes 8 times as long if it is linear, and 64 times if it is quadratic;
    24 is between them.

    It is the processor's time of this thread, without garbage collection, so other processes add
    nothing to it, and noise in some of the attempts does not matter: a quadratic search is slow in
    all of them.
    """
    name, shape = case
    form = get_format(name)
    short, long = (SHAPES[shape](form, size) for size in (1000, 8000))
    gc.disable()
    try:
        once = min(seconds(form, short) for _ in range(3))
        assert any(seconds(form, long) < 24 * once for _ in range(10))
    finally:
        gc.enable()


def seconds(form: Format, text: str) -> float:
    begin = time.thread_time()
    parse(form, text, 0)
    return time.thread_time() - begin


def nested(form: Format, depth: int) -> str:
    """Write a call whose arguments, an object, are nested so deep."""
    value: Any = []
    for _ in range(depth - 2):
        value = [value]
    return form.write_section(
        [form.write_call("TOOL", form.write_arguments("TOOL", {"KEY": value}, Toolbox()))]
    )


@every(format_names(), str)
def test_the_bound_of_nesting_is_the_same_in_every_format(name: str) -> None:
    form = get_format(name)
    assert [call.name for call in form.parse(nested(form, DEEPEST)).calls] == ["TOOL"]
    parsed = form.parse(nested(form, DEEPEST + 1) + "\n" + nested(form, DEEPEST))
    assert [call.name for call in parsed.calls] == ["TOOL"]
    assert [(problem.kind, problem.call_name) for problem in parsed.problems] == [
        ("too_deep", "TOOL")
    ]
    assert f"nested deeper than {DEEPEST} levels" in parsed.problems[0].message


@every(itertools.product(format_names(), ["]", ""], [None, TYPED]), str)
def test_any_deeper_nesting_is_refused_for_that_reason(case: tuple[str, str, Any]) -> None:
    name, closing, tools = case
    form = get_format(name)
    for depth in (DEEPEST + 10, 5_000):
        parsed = form.parse(argument(form, "[" * depth + closing * depth), tools)
        assert parsed.calls == ()
        assert [problem.kind for problem in parsed.problems] == ["too_deep"]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("hermes", '<tool_call>{"name": "a", "arguments": "{\\"a\\": DEEP}"}</tool_call>'),
        ("llama3", "<|python_tag|>{'name': 'a', 'parameters': {'a': DEEP}}"),
        ("mistral", '[TOOL_CALLS] [[{"name": "a", "arguments": {"a": DEEP}}]]'),
    ],
)
@pytest.mark.parametrize("depth", [DEEPEST, DEEPEST + 50, 5_000])
def test_nesting_is_bounded_in_other_spellings(name: str, text: str, depth: int) -> None:
    parsed = get_format(name).parse(text.replace("DEEP", "[" * depth + "]" * depth))
    assert parsed.calls == ()
    assert [problem.kind for problem in parsed.problems] == ["too_deep"]


@every(format_names(), str)
def test_arguments_nested_too_deep_are_not_rendered(name: str) -> None:
    value: Any = []
    for _ in range(5_000):
        value = [value]
    with pytest.raises(RenderError, match="nested deeper"):
        get_format(name).render([{"name": "TOOL", "arguments": {"KEY": value}}])
