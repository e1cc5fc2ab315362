"""The chat route against recordings of sglang's real serving code.

Our own parsers cut the calls: the same content, calls and ends, except where sglang's parsers lose
something. Each such record is named here with its reason.
"""

from __future__ import annotations

import json
import re
from operator import itemgetter
from typing import Any

import pytest

from sfusion.fakes.sglang import FakeSGLangServer, ScriptedPolicy
from sfusion_tools.formats import format_names, get_format
from tests import ROOT
from tests.cases import every
from tests.fakes.sglang.client import chat
from tests.fakes.sglang.replay import Record, records, replay_chat

RECORDS = records("engine_chunks")

DIFFERENT = {
    "qwen25/text_after/full": "text after the calls is dropped",
    "deepseekv3/text_after/full": "text after the calls is dropped",
    "deepseekv31/text_after/full": "text after the calls is dropped",
    "glm45/text_after/full": "text after the calls is dropped",
    "kimi_k2/text_after/full": "text after the calls is dropped",
    "mistral/two_calls/stream": "only the first call of a list is read when streaming",
    "mistral/three_calls_mixed/stream": "only the first call of a list is read when streaming",
    "glm45/three_calls_mixed/stream": (
        "the closing brace of an object argument is lost when streaming"
    ),
    "gpt-oss/no_call_plain_text/stream": (
        "text without a channel is held back for ever when streaming"
    ),
    "finish_length_truncated_call/full": (
        "a truncated call stays in the content instead of being refused"
    ),
    "malformed_bad_escape/full": "an escape that JSON does not know loses the call; ours mends it",
    "unknown_tool/full": "a call of an unknown tool is dropped; ours hands it on",
}
"""What sglang's parsers do differently from ours, by record."""


def held(response: dict[str, Any]) -> Any:
    """Return what a client ends up with: content, calls, thinking, finish reason, usage, error."""
    if "sse" not in response:
        body = json.loads(response["body"])
        if "choices" not in body:
            return response
        (choice,) = body["choices"]
        message = choice["message"]
        calls = [(call["id"], call["function"]) for call in message["tool_calls"] or ()]
        ends = (choice["finish_reason"], choice["matched_stop"], body["usage"])
        return message["content"].strip(), calls, message["reasoning_content"] or "", ends, None
    content = thinking = ""
    pieces: dict[int, list[str]] = {}
    ends, usage, error = (None, None), None, None
    assert response["sse"][-1] == "data: [DONE]"
    for line in response["sse"][:-1]:
        event = json.loads(line.removeprefix("data: "))
        error = event.get("error", error)
        usage = event.get("usage") or usage
        for choice in event.get("choices", ()):
            delta = choice["delta"]
            content += delta.get("content") or ""
            thinking += delta.get("reasoning_content") or ""
            for piece in delta.get("tool_calls") or ():
                call = pieces.setdefault(piece["index"], ["", "", ""])
                for place, text in enumerate((piece["id"], *piece["function"].values())):
                    call[place] += text or ""
            if choice["finish_reason"]:
                ends = (choice["finish_reason"], choice["matched_stop"])
    return content.strip(), sorted(pieces.items()), thinking, (*ends, usage), error


def test_the_docs_list_what_the_parsers_of_sglang_lose() -> None:
    text = (ROOT / "docs" / "fake-sglang.md").read_text(encoding="utf-8")
    for reason in set(DIFFERENT.values()):
        assert reason.partition(";")[0] in text


@pytest.mark.parametrize("name", format_names())
async def test_arguments_of_calls_arrive_in_pieces_in_every_format(name: str) -> None:
    code = "total = sum(range(10))\nprint(total)"
    text = get_format(name).render([{"name": "run", "arguments": {"code": code}}])
    policy = ScriptedPolicy([], otherwise=text)
    tool = {"type": "function", "function": {"name": "run", "parameters": {}}}
    async with FakeSGLangServer(policy, tool_call_parser=name) as server:
        answer = await chat(server.url, stream=True, tools=[tool])
    pieces: list[dict[str, Any]] = []
    for line in answer.text.split("\n\n"):
        if line.startswith("data: {"):
            (choice,) = json.loads(line.removeprefix("data: "))["choices"]
            pieces += choice["delta"].get("tool_calls") or ()
    assert [piece["function"]["name"] for piece in pieces] == ["run", *[None] * (len(pieces) - 1)]
    arguments = [piece["function"]["arguments"] for piece in pieces]
    assert json.loads("".join(arguments)) == {"code": code}
    assert len(arguments) > 4


@every(RECORDS, itemgetter("id"))
async def test_a_client_gets_what_was_recorded_except_for_listed_differences(
    record: Record,
) -> None:
    got, want = await replay_chat(record)
    assert (got["status"], got["content_type"]) == (want["status"], want["content_type"])
    if record["id"] in DIFFERENT:
        assert held(got) != held(want), "the difference is gone: take it off the list"
    else:
        assert held(got) == held(want)


def uncut(record: Record) -> bool:
    """Return whether no tool-call parser affects the answer."""
    request = record["request"]
    tools = (
        isinstance(request, dict) and request.get("tools") and request.get("tool_choice") != "none"
    )
    return not tools or record["tool_call_parser"] is None or record["status"] != 200


@every((one for one in RECORDS if uncut(one)), itemgetter("id"))
async def test_without_tool_parsing_every_byte_is_as_recorded(record: Record) -> None:
    got, want = await replay_chat(record)
    assert got == want


def unnumbered(body: str) -> str:
    """Leave out the number of a call, which is its tool's position in sglang, and white space
    before calls."""
    return re.sub(
        r'(?:\\n)*(", "reasoning_content")',
        r"\1",
        re.sub(r'"index": \d+(, "type")', r'"index": 0\1', body),
    )


@every((one for one in RECORDS if "body" in one and one["id"] not in DIFFERENT), itemgetter("id"))
async def test_a_whole_answer_with_calls_is_as_recorded_but_for_their_numbers(
    record: Record,
) -> None:
    got, want = await replay_chat(record)
    assert unnumbered(got["body"]) == unnumbered(want["body"])


def shape(value: Any) -> str:
    """Return the keys of an event in their order, without its values."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{key}:{shape(item)}" for key, item in value.items()) + "}"
    return (
        "[" + ",".join({shape(item): "" for item in value}) + "]" if isinstance(value, list) else ""
    )


def shapes(response: dict[str, Any]) -> set[str]:
    return {shape(json.loads(line.removeprefix("data: "))) for line in response["sse"][:-1]}


@every((one for one in RECORDS if "sse" in one and one["id"] not in DIFFERENT), itemgetter("id"))
async def test_the_events_of_a_stream_have_the_recorded_keys_in_the_recorded_order(
    record: Record,
) -> None:
    got, want = await replay_chat(record)
    assert shapes(got) <= shapes(want), "white space between calls is an event more in sglang"


def test_every_listed_difference_has_a_recording() -> None:
    assert set(DIFFERENT) <= {record["id"] for record in RECORDS}
