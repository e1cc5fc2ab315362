"""Every recorded text is read as it was meant, whole and in pieces; every broken one is answered for."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from sfusion_tools.formats import format_names, get_format
from tests.formats.recordings import TOOLS, chunkings, ids, plain, records, streamed

INTENDED = [record for record in records() if "intended_calls" in record]
MALFORMED = [record for record in records() if record["class"] == "malformed"]

# Texts of the malformed class in which nothing is wrong for a parser that follows the format's grammar.
HARMLESS = {
    "arguments_not_in_schema",
    "bracket_in_string_unbalanced_close",
    "bracket_in_string_unbalanced_open",
    "call_end_token_in_argument",
    "call_token_in_argument",
    "closing_token_in_argument_string",
    "commentary_filler_between",
    "compact_trailing_prose",
    "compact_with_call_id",
    "doubled_whole_output",
    "empty_list",
    "fence_in_code_argument",
    "integer_with_spaces",
    "missing_section_begin",
    "null_for_integer",
    "opening_token_in_argument_string",
    "opening_value_tag_in_value",
    "same_index_twice",
    "string_value_bad_escape",
    "text_after_section",
    "trailing_prose_after_call",
    "trunc_between_calls",
    "two_markers_arrays",
    "unknown_key_number",
    "whole_call_in_argument_string",
    "wrong_type_string_for_int",
}


def test_all_formats_are_recorded() -> None:
    assert {record["format"] for record in records()} == set(format_names())


@pytest.mark.parametrize("record", INTENDED, ids=ids(INTENDED))
def test_wellformed_text_yields_the_intended_calls(record: dict[str, Any]) -> None:
    form = get_format(record["format"])
    parsed = form.parse(record["text"], TOOLS)
    # Compared as JSON, in which 1, 1.0 and true differ and the order of keys shows.
    assert json.dumps(plain(parsed)) == json.dumps(record["intended_calls"])
    assert parsed.problems == ()
    for pieces in chunkings(record["text"], _tag_cuts(record["text"])):
        assert streamed(form, pieces) == parsed


@pytest.mark.parametrize("record", INTENDED, ids=ids(INTENDED))
def test_intended_calls_are_rendered_as_recorded(record: dict[str, Any]) -> None:
    form = get_format(record["format"])
    text = form.render(record["intended_calls"], tools=TOOLS)
    recorded = record["text"]
    content = form.parse(recorded, TOOLS).content
    if not record["intended_calls"]:
        assert form.render([], recorded, tools=TOOLS) == recorded if form.name != "gpt-oss" else True
    elif not content and record["format"] != "gpt-oss":
        assert text == recorded
    else:
        assert text in recorded


@pytest.mark.parametrize("record", MALFORMED, ids=ids(MALFORMED))
def test_malformed_text_is_answered_for(record: dict[str, Any]) -> None:
    form = get_format(record["format"])
    kind = record["id"].rsplit("/", 1)[1]
    parsed = form.parse(record["text"], TOOLS)
    for pieces in chunkings(record["text"]):
        assert streamed(form, pieces) == parsed
    for call in parsed.calls:
        assert call.name in {tool["function"]["name"] for tool in TOOLS}
        _assert_whole(call.arguments, record["text"])
    for problem in parsed.problems:
        assert problem.message.endswith((".", ")", ">", "]", "}")), problem.message
        assert 0 <= problem.position <= len(record["text"])
    if kind not in HARMLESS and not _recorded_as_harmless(record):
        assert parsed.problems, "a text that is wrong must not pass uncommented"


@pytest.mark.parametrize(
    "record", [r for r in MALFORMED if "/several_" in r["id"]], ids=ids(r for r in MALFORMED if "/several_" in r["id"])
)
def test_one_bad_call_never_drops_its_siblings(record: dict[str, Any]) -> None:
    parsed = get_format(record["format"]).parse(record["text"], TOOLS)
    expected = [{"name": "calc_gsm8k_reward", "arguments": {"answer": "1"}}]
    if not record["id"].endswith("_first"):
        expected.insert(0, {"name": "search", "arguments": {"query": "q"}})
    assert plain(parsed) == expected
    assert len(parsed.refused) == 1


@pytest.mark.parametrize(
    "record", [r for r in MALFORMED if "/trunc_" in r["id"]], ids=ids(r for r in MALFORMED if "/trunc_" in r["id"])
)
def test_a_truncated_call_is_never_passed_off_as_whole(record: dict[str, Any]) -> None:
    whole = [
        {"name": "code_interpreter", "arguments": {"code": 's = "a\\n"\nprint(s)'}},
        {"name": "calc_gsm8k_reward", "arguments": {"answer": "72"}},
    ]
    for call in plain(get_format(record["format"]).parse(record["text"], TOOLS, finish_reason="tool_calls")):
        assert call in whole


def _assert_whole(arguments: dict[str, Any], text: str) -> None:
    """Code that is handed over is followed by the end of its value in the text, not by more code."""
    for value in arguments.values():
        if not isinstance(value, str) or not value:
            continue
        tail = re.escape(json.dumps(value[-1], ensure_ascii=False)[1:-1]) + r"|" + re.escape(value[-1])
        assert re.search(rf"(?:{tail})\s*(?:[\"'\\]|</|$)", text), value


def _recorded_as_harmless(record: dict[str, Any]) -> bool:
    """A text whose name says malformed, but that is in truth a plain list or a plain text."""
    name = record["id"].rsplit("/", 1)[1]
    return name == "two_objects_one_tag_comma" and record["format"] == "mistral"


def _tag_cuts(text: str) -> list[int]:
    """A place inside every tag of the text, at most twenty of them."""
    tags = [match.start() + len(match[0]) // 2 for match in re.finditer(r"<[^<>\s]{2,40}>|\[[A-Z_]+\]", text)]
    return tags[:20]
