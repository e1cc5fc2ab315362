"""``quirks: sglang`` parses texts as recorded from sglang."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from operator import itemgetter
from typing import Any

import pytest

from sfusion.fakes.sglang.keyed_digest import whole
from sfusion.fakes.sglang.quirk_json import partial_json
from sfusion.fakes.sglang.quirks import QuirkError, QuirkParser, quirk_stream, sglang_parse
from tests.cases import every
from tests.sfusion_tools.formats.recordings import DATA, TOOLS, ids, records

EVENTS = [
    json.loads(line) for line in (DATA / "stream_events.ndjson").read_text(encoding="utf-8").rstrip("\n").split("\n")
]
# How many recorded streams are reproduced; the others depend on cuts that were not recorded, or are not understood.
REACHED = {
    "hermes": 89,
    "qwen25": 80,
    "llama3": 75,
    "mistral": 87,
    "deepseekv3": 74,
    "deepseekv31": 74,
    "kimi_k2": 76,
    "glm45": 59,
    "qwen3_coder": 64,
    "pythonic": 62,
    "gpt-oss": 71,
}
_TOKEN = re.compile(r"</?(?:tool_call|think)>|\[TOOL_CALLS\]|\[ARGS\]|<\|[a-z_]+\|>|<｜[^｜]*｜>")


@every(records(), itemgetter("id"))
def test_whole_texts_are_parsed_as_recorded_from_sglang(record: dict[str, Any]) -> None:
    expected = record["sglang"]
    if "exception" in expected:
        with pytest.raises(QuirkError, match=re.escape(expected["exception"])):
            sglang_parse(record["format"], record["text"], TOOLS)
        return
    parsed = sglang_parse(record["format"], record["text"], TOOLS)
    calls = [{"name": call.name, "arguments": call.arguments} for call in parsed.pieces]
    assert {"content": parsed.content, "calls": calls} == expected


@pytest.mark.parametrize("recording", EVENTS, ids=ids(EVENTS))
def test_streams_send_the_recorded_events(recording: dict[str, Any]) -> None:
    tools = [tool for tool in TOOLS if tool["function"]["name"] in recording["tools"]]
    stream = quirk_stream(recording["format"], tools)
    events: list[list[Any]] = []
    for delta in (*map(stream.feed, recording["chunks"]), stream.finish("stop")):
        if delta.content:
            events.append(["c", delta.content])
        events.extend(["t", piece.index, piece.name, piece.arguments] for piece in delta.pieces)
    assert events == recording["events"]


@pytest.mark.parametrize("form", REACHED)
def test_streams_reach_the_recorded_final_states(form: str) -> None:
    assert sum(_is_reached(record) for record in records() if record["format"] == form) >= REACHED[form]


def held_by_client(form: str, chunks: Iterable[str], tools: Sequence[Any]) -> tuple[str, list[tuple[str | None, str]]]:
    """Return what a client holds after the stream: the content, and name and arguments of each call by its index."""
    stream = quirk_stream(form, tools)
    content = ""
    calls: dict[int, tuple[str | None, str]] = {}
    for delta in (*map(stream.feed, chunks), stream.finish("stop")):
        content += delta.content
        for piece in delta.pieces:
            name, arguments = calls.get(piece.index, (None, ""))
            calls[piece.index] = (name or piece.name, arguments + piece.arguments)
    return content, [calls[index] for index in sorted(calls)]


def _is_reached(record: dict[str, Any]) -> bool:
    """Is the recorded stream reproduced by at least one way to cut the text?"""
    wanted = record["sglang_stream"]
    held = wanted["content"], [(call["name"], call["arguments"]) for call in wanted["calls"]]
    return any(held_by_client(record["format"], pieces, TOOLS) == held for pieces in cuts(record["text"]))


@pytest.mark.parametrize(
    ("form", "text", "held"),
    [
        ("mistral", '[TOOL_CALLS] [{"name": "search", "arguments": {"query": "a"}}, {"name": "search"', 1),
        ("llama3", '<|python_tag|>{"name": "code_interpreter", "parameters": {"code": "d = {\'a\': 1}"}}', 1),
        ("hermes", '<tool_call>\n{"name": "nope", "arguments": {}}\n</tool_call>', 0),
    ],
)
def test_a_stream_loses_what_sglang_loses(form: str, text: str, held: int) -> None:
    _, calls = held_by_client(form, list(text), TOOLS)
    assert len(calls) == held
    if form == "llama3":
        assert calls == [("code_interpreter", '{"code": "d = {\'a\'"}')]


def test_after_an_unknown_tool_a_stream_appends_a_later_call_to_the_first() -> None:
    names = ("search", "nope", "calc_gsm8k_reward")
    text = "\n".join(f'<tool_call>\n{{"name": "{name}", "arguments": {{"a": "1"}}}}\n</tool_call>' for name in names)
    _, calls = held_by_client("hermes", list(text), TOOLS)
    assert calls == [("search", '{"a": "1"}{"a": "1"}')]


def test_the_index_of_a_non_streaming_call_is_the_position_of_its_tool() -> None:
    text = '<tool_call>\n{"name": "search", "arguments": {}}\n</tool_call>'
    assert sglang_parse("hermes", text, TOOLS).pieces[0].index == 2
    coder = "<tool_call>\n<function=search>\n</function>\n</tool_call>"
    assert sglang_parse("qwen3_coder", coder, TOOLS).pieces[0].index == 0


def test_the_chat_route_keeps_a_text_if_the_parser_raised() -> None:
    parser = QuirkParser("mistral")
    assert parser.whole("[TOOL_CALLS] [42]", TOOLS, "stop") is None
    assert parser.whole("Just text.", TOOLS, "stop") is None
    cut = parser.whole('[TOOL_CALLS] [{"name": "search", "arguments": {"query": "a"}}]', TOOLS, "stop")
    assert cut is not None
    assert [(piece.index, piece.name, piece.arguments) for piece in cut.pieces] == [(2, "search", '{"query": "a"}')]


def cuts(text: str) -> Iterator[list[str]]:
    """Yield one piece, single characters, and pieces of up to six characters, with and without whole special tokens."""
    yield [text]
    if len(text) < 2000:
        yield list(text)
    for seed in range(58):
        tokens = list(_TOKEN.finditer(text)) if seed % 2 else []
        pieces: list[str] = []
        at = 0
        for match in (*tokens, None):
            end = match.start() if match else len(text)
            while at < end:
                size = min(whole(1, 6, "cut", seed, len(pieces)), end - at)
                pieces.append(text[at : at + size])
                at += size
            if match:
                pieces.append(match[0])
                at = match.end()
        yield pieces


def sent(form: str, *deltas: str) -> list[tuple[str, list[tuple[int, str | None, str]]]]:
    """Return what a stream sends for each delta, and at its end."""
    stream = quirk_stream(form, TOOLS)
    found = [*map(stream.feed, deltas), stream.finish("stop")]
    return [(one.content, [(p.index, p.name, p.arguments) for p in one.pieces]) for one in found]


@pytest.mark.parametrize("half", ["", "\\", "\\u", "\\u00e"])
@pytest.mark.parametrize("size", range(5))
def test_a_run_of_backslashes_is_no_half_escape(size: int, half: str) -> None:
    begun = json.dumps("\\" * size)[:-1]
    assert partial_json(begun + half, strings=True) == ("\\" * size, len(begun + half), False)


def test_glm_sends_empty_arguments_twice_and_a_lost_brace_at_the_end() -> None:
    assert sent("glm45", "<tool_call>search\n", "</tool_call>")[1:] == [
        ("", [(0, None, "{}")]),
        ("", [(0, None, "{}")]),
    ]
    call = '<tool_call>search\n<arg_key>filters</arg_key>\n<arg_value>{"a": 1}</arg_value>\n</tool_call>'
    assert sent("glm45", call, call.replace("filters", "query"))[2:] == [("", [])], "only the last call counts"
    assert sent("glm45", call)[1:] == [("", [(0, None, "}")])]


def test_pythonic_text_behind_a_list_comes_one_delta_later() -> None:
    call = "[search(query='q')]"
    first = ("", [(0, "search", '{"query": "q"}')])
    assert sent("pythonic", f"{call}\nThen ", "", "I answer.")[:3] == [first, ("\nThen ", []), ("I answer.", [])]
    assert sent("pythonic", f"{call}{call}", "")[:2] == [first, first]


CALL = '<|channel|>commentary to=functions.search <|constrain|>json<|message|>{"query": "q"}<|call|>'


@pytest.mark.parametrize(
    ("deltas", "contents"),
    [
        (["Hi. ", "<|start|>", "assist", "ant", CALL], ["Hi. ", "Hi. ", "assist", "ant", ""]),
        (["Hi. ", "<|start|>assistant", CALL], ["Hi. ", "Hi. ", ""]),
        (["Hi. <|start|>assi", "stant", CALL], ["Hi. ", "stant", ""]),
        (["<|start|>", "assistant", CALL], ["", "", ""]),
    ],
)
def test_gpt_oss_shows_the_role_that_comes_behind_forgotten_markers(deltas: list[str], contents: list[str]) -> None:
    found = sent("gpt-oss", *deltas)[:-1]
    assert [content for content, _ in found] == contents
    assert found[-1][1] == [(0, "search", '{"query": "q"}')]


@pytest.mark.parametrize(
    ("deltas", "contents"),
    [
        (["\n<|start|>assistant", CALL], ["", ""]),
        (["\n", "<|start|>assistant", CALL], ["\n", "", ""]),
        (["commentary<|start|>assistant", CALL], ["", ""]),
        (["\nThen <|start|>assistant", CALL], ["\nThen ", ""]),
    ],
)
def test_gpt_oss_drops_a_newline_before_a_marker_behind_a_call(deltas: list[str], contents: list[str]) -> None:
    found = sent("gpt-oss", f"<|start|>assistant{CALL}", *deltas)[1:-1]
    assert [content for content, _ in found] == contents
    assert found[-1][1] == [(1, "search", '{"query": "q"}')]
