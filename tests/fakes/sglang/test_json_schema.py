"""``response_format`` and ``json_schema``: the answer is JSON that the schema allows, whatever the
policy says."""

from __future__ import annotations

import json
from enum import StrEnum
from typing import Any, Literal

import pytest
from jsonschema import validate
from pydantic import BaseModel, ConfigDict, Field

from sfusion.fakes.errors import BadValue, NothingToSay
from sfusion.fakes.sglang import FakeSGLangServer, ScriptedPolicy
from sfusion.fakes.sglang.json_schema import constrained, smallest
from tests.fakes.sglang.client import CODE_TOOL, HI, chat, post
from tests.lazy import Lazy

openai: Any = Lazy("openai")

SAID = '{"steps": [{"text": "6 * 7", "kind": "product"}], "answer": 42, "note": null}'


class Kind(StrEnum):
    SUM = "sum"
    PRODUCT = "product"


class ProofStep(BaseModel):
    model_config = ConfigDict(extra="forbid")
    text: str = Field(min_length=1)
    kind: Kind


class Solution(BaseModel):
    model_config = ConfigDict(extra="forbid")
    steps: list[ProofStep] = Field(min_length=1)
    answer: int
    note: str | None


SCHEMA = Solution.model_json_schema()
FORMAT = {"type": "json_schema", "json_schema": {"name": "solution", "schema": SCHEMA}}


@pytest.mark.parametrize(
    "said", [SAID, f"<think>\nSix times seven.\n</think>\n\n{SAID}", "It is 42."]
)
@pytest.mark.parametrize("reasoning", [None, "qwen3"])
def test_parse_of_the_openai_sdk_works(said: str, reasoning: str | None) -> None:
    server = FakeSGLangServer(ScriptedPolicy([], otherwise=said), reasoning_parser=reasoning)
    with (
        server,
        openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client,
    ):
        answer = client.chat.completions.parse(model="m", messages=HI, response_format=Solution)  # type: ignore[arg-type]
        with client.chat.completions.stream(
            model="m", messages=HI, response_format=Solution
        ) as stream:  # type: ignore[arg-type]
            streamed = stream.get_final_completion()
    parsed = answer.choices[0].message.parsed
    assert parsed is not None
    assert streamed.choices[0].message.parsed == parsed
    if SAID in said:
        assert parsed == Solution.model_validate_json(SAID)
    if reasoning and "<think>" in said:
        assert "Six times seven." in answer.choices[0].message.reasoning_content  # type: ignore[attr-defined]


async def test_every_route_is_bound_by_a_schema() -> None:
    schema = json.dumps(SCHEMA)
    async with FakeSGLangServer(ScriptedPolicy([], otherwise="no JSON")) as server:
        texts = [
            (
                await chat(
                    server.url, response_format=FORMAT, tools=[CODE_TOOL], tool_choice="required"
                )
            ).json,
            (
                await post(
                    server.url,
                    "/v1/completions",
                    {"prompt": "x", "json_schema": schema, "max_tokens": 99},
                )
            ).json,
            (
                await post(
                    server.url,
                    "/v1/completions",
                    {"prompt": "x", "response_format": FORMAT, "max_tokens": 99},
                )
            ).json,
            (
                await post(
                    server.url,
                    "/generate",
                    {"text": "x", "sampling_params": {"json_schema": schema}},
                )
            ).json,
            (await chat(server.url, response_format={"type": "json_object"})).json,
            (await chat(server.url, response_format={"type": "text"})).json,
        ]
        broken = [
            await post(
                server.url, "/generate", {"text": "x", "sampling_params": {"json_schema": schema}}
            )
            for schema in ('{"type": 1}', {"type": "object"})
        ]
    assert texts[0]["choices"][0]["message"]["tool_calls"] is None
    said = [
        texts[0]["choices"][0]["message"]["content"],
        *(texts[n]["choices"][0]["text"] for n in (1, 2)),
        texts[3]["text"],
    ]
    for text in said:
        Solution.model_validate_json(text)
    assert texts[4]["choices"][0]["message"]["content"] == "{}"
    assert texts[5]["choices"][0]["message"]["content"] == "no JSON"
    for answer in broken:
        assert (answer.status, "Failed to compile json_schema grammar" in answer.text) == (
            400,
            True,
        )


class Node(BaseModel):
    value: int = Field(gt=3, multiple_of=5)
    share: float = Field(gt=0, lt=1)
    children: list[Node] = Field(max_length=3)
    parent: Node | None
    kind: Literal["leaf"]


@pytest.mark.parametrize(
    "schema",
    [
        Node.model_json_schema(),
        {"oneOf": [{"type": "integer", "maximum": -2, "multipleOf": 3}, {"type": "string"}]},
        {
            "allOf": [
                {"required": ["a"], "properties": {"a": {"type": "boolean"}}},
                {"required": ["b"]},
            ]
        },
        {
            "type": ["array", "null"],
            "minItems": 2,
            "prefixItems": [{"const": "x"}],
            "items": {"enum": [7]},
        },
        {"type": "number", "minimum": 2.5, "exclusiveMaximum": 3},
        {"$defs": {"a/b": {"type": "string", "minLength": 2}}, "$ref": "#/$defs/a~1b"},
        {},
    ],
    ids=range(7),
)
def test_the_smallest_value_is_allowed_by_the_schema(schema: Any) -> None:
    validate(smallest(schema), schema)


def test_a_schema_that_the_fake_cannot_satisfy_asks_for_a_policy_that_can() -> None:
    schema = json.dumps({"type": "string", "pattern": "^[0-9]{3}$"})
    assert constrained('"123"', schema) == '"123"'
    with pytest.raises(NothingToSay, match="let the policy answer with one"):
        constrained("123", schema)
    with pytest.raises(NothingToSay, match="'#/nowhere', which it does not contain"):
        smallest({"$ref": "#/nowhere"})
    with pytest.raises(BadValue, match="Failed to compile"):
        constrained("1", "{")
