"""Every recorded text is parsed as intended, whole and in pieces; every broken one has a
problem."""

from __future__ import annotations

import json
import re
from operator import itemgetter
from typing import Any

from sfusion_tools.formats import get_format
from tests.cases import every
from tests.sfusion_tools.formats.recordings import DATA, TOOLS, chunkings, plain, records, streamed

INTENDED = [record for record in records() if "intended_calls" in record]
OTHERS = [record for record in records() if "intended_calls" not in record]
MALFORMED = [record for record in records() if record["class"] == "malformed"]

EXPECTED = {
    line["id"]: line
    for line in map(
        json.loads, (DATA / "expected.ndjson").read_text(encoding="utf-8").rstrip("\n").split("\n")
    )
}
"""The expected result for texts without intended calls, checked by hand."""


@every(INTENDED, itemgetter("id"))
def test_well_formed_text_yields_the_intended_calls(record: dict[str, Any]) -> None:
    form = get_format(record["format"])
    parsed = form.parse(record["text"], TOOLS)
    # Compare as JSON, to distinguish 1, 1.0 and true and the order of keys.
    assert json.dumps(plain(parsed)) == json.dumps(record["intended_calls"])
    assert parsed.problems == ()
    for pieces in chunkings(record["text"], _tag_cuts(record["text"])):
        assert streamed(form, pieces) == parsed


@every(INTENDED, itemgetter("id"))
def test_intended_calls_are_rendered_as_recorded(record: dict[str, Any]) -> None:
    form = get_format(record["format"])
    text = form.render(record["intended_calls"], tools=TOOLS)
    recorded = record["text"]
    content = form.parse(recorded, TOOLS).content
    if not record["intended_calls"]:
        assert (
            form.render([], recorded, tools=TOOLS) == recorded if form.name != "gpt-oss" else True
        )
    elif not content and record["format"] != "gpt-oss":
        assert text == recorded
    else:
        assert text in recorded


@every(OTHERS, itemgetter("id"))
def test_text_without_intended_calls_is_parsed_as_expected(record: dict[str, Any]) -> None:
    form = get_format(record["format"])
    parsed = form.parse(record["text"], TOOLS)
    expected = EXPECTED[record["id"]]
    assert json.dumps(plain(parsed)) == json.dumps(expected["calls"])
    assert [f"{problem.severity} {problem.kind}" for problem in parsed.problems] == expected[
        "problems"
    ]
    for pieces in chunkings(record["text"], _tag_cuts(record["text"])):
        assert streamed(form, pieces) == parsed
    for problem in parsed.problems:
        assert problem.message[0].isupper()
        assert 0 <= problem.position <= len(record["text"])


@every((r for r in MALFORMED if "/several_" in r["id"]), itemgetter("id"))
def test_one_bad_call_never_drops_its_siblings(record: dict[str, Any]) -> None:
    parsed = get_format(record["format"]).parse(record["text"], TOOLS)
    expected = [{"name": "calc_gsm8k_reward", "arguments": {"answer": "1"}}]
    if not record["id"].endswith("_first"):
        expected.insert(0, {"name": "search", "arguments": {"query": "q"}})
    assert plain(parsed) == expected
    assert len(parsed.refused) == 1


@every((r for r in MALFORMED if "/trunc_" in r["id"]), itemgetter("id"))
def test_a_truncated_call_is_never_returned(record: dict[str, Any]) -> None:
    whole = [
        {"name": "code_interpreter", "arguments": {"code": 's = "a\\n"\nprint(s)'}},
        {"name": "calc_gsm8k_reward", "arguments": {"answer": "72"}},
    ]
    for call in plain(
        get_format(record["format"]).parse(record["text"], TOOLS, finish_reason="tool_calls")
    ):
        assert call in whole


def _tag_cuts(text: str) -> list[int]:
    """Return a position inside each tag of the text, at most twenty."""
    tags = [
        match.start() + len(match[0]) // 2
        for match in re.finditer(r"<[^<>\s]{2,40}>|\[[A-Z_]+\]", text)
    ]
    return tags[:20]
