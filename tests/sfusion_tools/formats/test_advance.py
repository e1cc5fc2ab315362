"""Every step of a parser reads on: whatever is declared and whatever is written, it comes to an
end."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from sfusion_tools.errors import FormatError
from sfusion_tools.formats import Format, Toolbox, format_names, get_format
from sfusion_tools.formats.declared import Declared
from sfusion_tools.formats.text_reader import TextReader

_READS = ("take", "seek", "peek", "sees", "run", "arrived", "_ahead", "until", "search", "first")
_FREE = 500
_EACH = 20
"""Reads that a text may take, and how many more for each of its characters.

Measured: the bundled formats take 2.1 for each at most; a parser that stands still takes them all.
"""


class Standstill(BaseException):
    """Raised when a parser reads and reads; no Exception, which a parser would survive."""


class Counter:
    """Counts what is read, up to a limit."""

    def __init__(self) -> None:
        self.left = 0

    def allow(self, text: str) -> None:
        self.left = _FREE + _EACH * len(text)

    def count(self, what: str) -> None:
        self.left -= 1
        if self.left < 0:
            raise Standstill(what)


@pytest.fixture(scope="module")
def counter() -> Iterator[Counter]:
    counter = Counter()
    with pytest.MonkeyPatch.context() as patch:
        for name in _READS:
            patch.setattr(TextReader, name, _counted(name, counter))
        yield counter


def _counted(name: str, counter: Counter) -> Any:
    original = getattr(TextReader, name)

    def counted(*args: Any, **kwargs: Any) -> Any:
        counter.count(name)
        return original(*args, **kwargs)

    return counted


MARKS = st.sampled_from(
    ["", "<a>", "</a>", "<b", "<b>", ">", "[", "]", "{", "(", '"', "\n", " ", "ab"]
)
PLACES = ("{object}", "{name}", "{arguments}", "{id}", "{key}", "{value}", "{type}")
WRITTEN = st.lists(st.one_of(MARKS, st.sampled_from(PLACES)), max_size=6).map("".join)
CALLS = st.one_of(
    WRITTEN,
    st.tuples(MARKS, MARKS).map("{object}".join),
    st.tuples(MARKS, MARKS, MARKS).map(
        lambda marks: f"{marks[0]}{{name}}{marks[1]}{{arguments}}{marks[2]}"
    ),
    st.just("{name}({arguments})"),
    st.just("<a>to={name}</a>{arguments}"),
    st.tuples(MARKS, MARKS).map("call:{name}{arguments}".join),
)
ARGUMENTS = st.one_of(
    st.just(""),
    WRITTEN,
    st.tuples(MARKS, MARKS, MARKS).map(
        lambda marks: f"{marks[0]}{{key}}{marks[1]}{{value}}{marks[2]}"
    ),
)
PAIRS = st.one_of(st.just(("", "")), st.tuples(MARKS, MARKS))
DECLARATIONS = st.builds(
    Declared,
    name=st.just("drawn"),
    call=CALLS,
    argument=ARGUMENTS,
    section=PAIRS,
    between=MARKS,
    each=st.booleans(),
    keys=st.sampled_from([("name", "arguments", "id"), ("", "args", "id"), ("name", "args")]),
    openers=st.lists(MARKS, max_size=2).map(tuple),
    around=PAIRS,
    empty=st.booleans(),
    cdata=st.booleans(),
    quote=st.one_of(st.just(""), MARKS),
    ends=st.lists(MARKS, max_size=2).map(tuple),
    header=st.one_of(st.just(()), st.tuples(MARKS, MARKS, MARKS, MARKS)),
    think=st.sampled_from([("<think>", "</think>"), (), ("", "")]),
)
CALL = {"name": "TOOL", "arguments": {"KEY": "VALUE"}}


def parts_of(form: Format) -> list[str]:
    """Return what a text in this format may be made of."""
    parser = form.parser
    call = form.write_call("TOOL", form.write_arguments("TOOL", {"KEY": "VALUE"}, Toolbox()))
    whole = form.write_section([call, call])
    return [whole, call, call[: len(call) // 2], *parser.openers, *parser.silent, form.closing]


def read_in_pieces(form: Format, text: str, size: int, counter: Counter) -> None:
    """Parse a text in pieces; raises Standstill if that takes too many reads."""
    counter.allow(text)
    stream = form.stream()
    for start in range(0, len(text), size):
        stream.feed(text[start : start + size])
    deltas = stream.finish()
    failed = [delta for delta in deltas if "parser_failed" in repr(delta)]
    assert not failed, (text, failed)


@given(declared=DECLARATIONS, data=st.data())
@example(
    declared=Declared("drawn", call="<b {name}>{arguments}</b>", argument="<p {key}>{value}</p>"),
    data=None,
)
@example(
    declared=Declared(
        "drawn", call="<a>to={name}</a>{arguments}", header=("<a>", "to=", "</a>", "")
    ),
    data=None,
)
@example(declared=Declared("drawn", call="<a>{object}", header=("<b", " ", ">", "b")), data=None)
@settings(max_examples=150, suppress_health_check=list(HealthCheck))
def test_whatever_is_declared_every_text_is_read_to_its_end(
    counter: Counter, declared: Declared, data: Any
) -> None:
    counter.allow(" " * 100)
    try:
        form = declared.build()
    except FormatError:
        return
    parts = parts_of(form)
    text = "".join(parts)
    size = 3
    if data is not None:
        drawn = st.lists(st.one_of(st.sampled_from(parts), MARKS), max_size=8).map("".join)
        text = data.draw(drawn)
        size = data.draw(st.sampled_from([1, 7, 1000]))
    read_in_pieces(form, text, size, counter)


@given(name=st.sampled_from(format_names()), data=st.data())
@settings(max_examples=100, suppress_health_check=list(HealthCheck))
def test_a_bundled_format_reads_any_of_its_own_markers_to_the_end(
    counter: Counter, name: str, data: Any
) -> None:
    form = get_format(name)
    counter.allow(" " * 100)
    parts = parts_of(form)
    drawn = st.lists(st.one_of(st.sampled_from(parts), MARKS), max_size=8).map("".join)
    text = data.draw(drawn)
    read_in_pieces(form, text, data.draw(st.sampled_from([1, 7, 1000])), counter)
