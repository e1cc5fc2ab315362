"""Any calls, in any format and however the text is cut, parse to the same calls."""

from __future__ import annotations

import itertools
import json
import keyword
from typing import Any

from hypothesis import HealthCheck, example, given, note, settings
from hypothesis import strategies as st

from benchmarks.texts import argument
from sfusion_tools.formats import Parsed, RenderError, format_names, get_format
from sfusion_tools.formats.braces import BraceFormat
from sfusion_tools.formats.families.minimax import MiniMaxM3
from sfusion_tools.formats.tags import TagFormat

SNIPPETS = st.sampled_from(
    [
        "<tool_call>",
        "</tool_call>",
        "<tool_call>\n</tool_call>",
        "</parameter>",
        "<parameter=code>",
        "</function>",
        "</arg_value>",
        "<arg_value>",
        "<think>",
        "</think>",
        "[TOOL_CALLS]",
        "[ARGS]",
        "]",
        '{"name": "x", "arguments": {}}',
        "<|python_tag|>",
        "<｜tool▁call▁end｜>",
        "<|tool_call_end|>",
        "<|call|>",
        "<|end|>",
        "</｜DSML｜parameter>",
        '<｜DSML｜invoke name="x">',
        "<|close|>argument<|sep|>",
        '<|"|>',
        "<tool_call|>",
        "<|tool_call>call:x{",
        "]</tool_calls>",
        "]<]minimax[>[</invoke>",
        "]<]minimax[>[<item>",
        "functools[",
        '<param name="',
        "</param>",
        "<![CDATA[",
        "]]></param>",
        "&lt;",
        "<|tool_call_start|>",
        ">>>",
        ">>>all\n",
        "</function>}",
        "<|function_call|>",
        "<|message_sep|>",
        "<function_call> ",
        "<|start|>assistant to=x<|message|>",
        "</atem:parameter>",
        "<|message_model|>",
        "<|end_message|>",
        "</dots_function_call>",
        "</arg_value:opensource>",
        "```json\n",
        "\n```",
        "'''",
        '"""',
        "\\d",
        "\\frac",
        "\\",
        '"',
        "'",
        "\n",
        "\r\n",
        "\t",
        "null",
        "3.50",
        " ",
        "\u2028",
        "👩‍👩‍👧",
    ]
)
TEXTS = st.one_of(
    st.text(max_size=20),
    st.lists(st.one_of(SNIPPETS, st.text(max_size=6)), max_size=6).map("".join),
)
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(min_value=-(10**25), max_value=10**25),
    st.floats(allow_nan=False, allow_infinity=False),
    TEXTS,
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(TEXTS, inner, max_size=3)),
    max_leaves=6,
)
NAMES = st.from_regex(r"[a-z_][a-z0-9_]{0,12}", fullmatch=True).filter(
    lambda name: not keyword.iskeyword(name)
)
CALLS = st.lists(
    st.builds(
        lambda name, arguments: {"name": name, "arguments": arguments},
        NAMES,
        st.dictionaries(NAMES, VALUES, max_size=3),
    ),
    min_size=1,
    max_size=3,
)
MESSES = st.lists(st.one_of(SNIPPETS, st.text(max_size=8)), max_size=12).map("".join)
CHECKS = settings(max_examples=25, suppress_health_check=[HealthCheck.too_slow])
FORMS = st.lists(st.sampled_from(format_names()), min_size=10, max_size=10, unique=True)
"""Each example is tried in some of the formats."""


def tools_for(calls: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return tools that declare the parameters of the calls; the first type of a parameter
    counts."""
    names = {
        list: "array",
        dict: "object",
        str: "string",
        bool: "boolean",
        int: "integer",
        float: "number",
    }
    properties: dict[str, dict[str, Any]] = {}
    for call in calls:
        known = properties.setdefault(call["name"], {})
        for key, value in call["arguments"].items():
            kind = names.get(type(value))
            if kind is None or known.get(key, {"type": kind}) != {"type": kind}:
                known[key] = {}
            else:
                known[key] = {"type": kind}
    return [
        {
            "type": "function",
            "function": {"name": name, "parameters": {"type": "object", "properties": known}},
        }
        for name, known in properties.items()
    ]


def variants(names: list[str]) -> list[tuple[str, str]]:
    return [(name, variant) for name in names for variant in get_format(name).variants]


def cut(text: str, places: list[int]) -> list[str]:
    edges = sorted({place % (len(text) + 1) for place in places} | {0, len(text)})
    return [text[start:end] for start, end in itertools.pairwise(edges)]


@given(
    names=FORMS,
    calls=CALLS,
    places=st.lists(st.integers(0, 10**6), max_size=8),
    declared=st.booleans(),
    by_char=st.booleans(),
)
@CHECKS
def test_rendered_calls_parse_to_the_same_calls(
    names: list[str], calls: list[dict[str, Any]], places: list[int], declared: bool, by_char: bool
) -> None:
    for name, variant in variants(names):
        note(name)
        form = get_format(name)
        tools = tools_for(calls) if declared else None
        try:
            text = form.render(calls, tools=tools, variant=variant)
        except RenderError:
            # Only formats with raw values have calls that they cannot express.
            assert isinstance(form, TagFormat | BraceFormat | MiniMaxM3)
            continue
        stream = form.stream(tools)
        pieces = list(text) if by_char else cut(text, places)
        parsed = Parsed.of(
            [delta for piece in pieces for delta in stream.feed(piece)] + stream.finish()
        )
        read = [{"name": call.name, "arguments": call.arguments} for call in parsed.calls]
        assert json.dumps(read) == json.dumps(calls)
        assert parsed.problems == ()
        assert parsed == form.parse(text, tools)


@given(
    names=FORMS,
    text=MESSES,
    places=st.lists(st.integers(0, 10**6), max_size=6),
)
@CHECKS
def test_any_text_parses_without_an_exception_and_the_same_in_pieces(
    names: list[str], text: str, places: list[int]
) -> None:
    for name in names:
        note(name)
        form = get_format(name)
        whole = form.parse(text)
        for pieces in (cut(text, places), list(text)):
            stream = form.stream()
            parsed = Parsed.of(
                [delta for piece in pieces for delta in stream.feed(piece)] + stream.finish()
            )
            assert parsed == whole


@given(
    names=FORMS,
    calls=CALLS,
    spoil=st.lists(
        st.tuples(st.integers(0, 10**6), st.sampled_from("dru"), SNIPPETS), min_size=1, max_size=3
    ),
    places=st.lists(st.integers(0, 10**6), max_size=6),
)
@CHECKS
def test_a_damaged_text_parses_the_same_in_pieces(
    names: list[str],
    calls: list[dict[str, Any]],
    spoil: list[tuple[int, str, str]],
    places: list[int],
) -> None:
    for name, variant in variants(names):
        note(name)
        form = get_format(name)
        tools = tools_for(calls)
        try:
            text = form.render(calls, tools=tools, variant=variant)
        except RenderError:
            continue
        for place, how, snippet in spoil:
            at = place % (len(text) + 1)
            text = {
                "d": text[:at] + text[at + 1 :],
                "r": text[:at] + snippet + text[at + 1 :],
                "u": text[:at],
            }[how]
        whole = form.parse(text, tools)
        for pieces in (cut(text, places), list(text)):
            stream = form.stream(tools)
            assert whole == Parsed.of(
                [delta for piece in pieces for delta in stream.feed(piece)] + stream.finish()
            )


@given(
    names=FORMS,
    calls=CALLS,
    content=st.text(alphabet="abc .,é\n", min_size=1, max_size=20).map(str.strip).filter(bool),
)
@CHECKS
def test_content_before_the_calls_is_preserved(
    names: list[str], calls: list[dict[str, Any]], content: str
) -> None:
    for name in names:
        note(name)
        form = get_format(name)
        tools = tools_for(calls)
        try:
            text = form.render(calls, content, tools=tools)
        except RenderError:
            continue
        parsed = form.parse(text, tools)
        assert parsed.content == content
        assert len(parsed.calls) == len(calls)


FRAGMENTS = r"""
{ } [ ] ( ) , : = * - ' " 'KEY' "KEY": KEY= {'KEY': {'name': 1 1j b'x' f'x' ... True null NaN 1e999
{1} {{}} {[]} [{[]}] () {1:2} lambda:1 '\ud800' "\ud800" """
ANY_SYNTAX = st.lists(
    st.sampled_from(
        [*FRAGMENTS.split(), "\ud800", "\0", "9" * 4301, "0x" + "f" * 3600, "[" * 101 + "]" * 101]
    ),
    min_size=1,
    max_size=5,
).map("".join)


@given(
    value=ANY_SYNTAX,
    declared=st.sampled_from([None, "string", "integer", "number", "object", "array", "boolean"]),
    bare=st.booleans(),
)
@example(value="{{1}}", declared=None, bare=False)
@example(value="[{[]}]", declared=None, bare=False)
@example(value="{'KEY': 0x" + "f" * 3600 + "}", declared=None, bare=True)
@example(value="0x" + "f" * 3600, declared="integer", bare=False)
@example(value="'\\ud800'", declared=None, bare=False)
@CHECKS
def test_whatever_a_value_is_the_arguments_of_a_call_are_json(
    value: str, declared: str | None, bare: bool
) -> None:
    for name in format_names():
        note(name)
        form = get_format(name)
        text = argument(form, value)
        if bare and name == "llama3":
            text = f"<|python_tag|>{{'name': 'TOOL', 'parameters': {value}}}"
        elif bare:
            text = form.write_section([form.write_call("TOOL", value)])
        properties = {"KEY": {"type": declared}} if declared else {}
        tools = [
            {
                "function": {
                    "name": "TOOL",
                    "parameters": {"type": "object", "properties": properties},
                }
            }
        ]
        for call in form.parse(text, tools).calls:
            written = json.dumps(call.arguments, ensure_ascii=False, allow_nan=False).encode()
            assert json.loads(written) == call.arguments
