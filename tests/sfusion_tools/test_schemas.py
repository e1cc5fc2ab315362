"""The function-tool models keep schemas unchanged and report arguments that are not an object."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError, create_model

from sfusion_tools import schemas
from sfusion_tools.sandbox.tool import CODE_INTERPRETER
from sfusion_tools.schemas import (
    OpenAIFunctionCallSchema,
    OpenAIFunctionParsedSchema,
    OpenAIFunctionToolCall,
    OpenAIFunctionToolSchema,
    ToolResponse,
)
from tests.lazy import Lazy

faker: Any = Lazy("faker")
PLAN = {
    "type": "function",
    "function": {
        "name": "code_interpreter",
        "description": "A tool for executing code.",
        "parameters": {
            "type": "object",
            "properties": {
                "code": {"type": "string", "description": "The code to execute.", "enum": None}
            },
            "required": ["code"],
        },
        "strict": False,
    },
}
"""As in the sample prompt of verl's original design."""


def _schema(fake: Any, *, strict: bool) -> dict[str, Any]:
    """Return a plausible tool with keys that our models have no field for."""
    names = fake.words(nb=4, unique=True)
    properties: dict[str, Any] = {
        names[0]: {"type": "string", "description": fake.sentence(), "enum": fake.words(nb=3)},
        names[1]: {"type": ["integer", "null"], "minimum": fake.random_int(), "default": None},
        names[2]: {
            "type": "array",
            "description": fake.sentence(),
            "items": {"type": "string", "pattern": r"^\d+$"},
        },
        names[3]: {
            "type": "object",
            "properties": {"inner": {"type": "number"}},
            "additionalProperties": False,
        },
    }
    return {
        "type": "function",
        "function": {
            "name": "_".join(fake.words(nb=2)),
            "description": fake.paragraph(),
            "parameters": {
                "type": "object",
                "properties": properties,
                "required": names[:2],
                "additionalProperties": False,
            },
            "strict": strict,
        },
        "x-origin": fake.url(),
    }


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("locale", ["en_US", "zh_CN", "ar_EG"])
def test_a_schema_round_trips_unchanged(seed, locale):
    fake = faker.Faker(locale)
    fake.seed_instance(seed)
    written = _schema(fake, strict=bool(seed % 2))
    schema = OpenAIFunctionToolSchema.model_validate(
        yaml.safe_load(yaml.safe_dump(written, allow_unicode=True))
    )
    assert schema.model_dump(exclude_unset=True) == written
    assert json.loads(schema.model_dump_json(exclude_unset=True)) == written
    for again in (
        OpenAIFunctionToolSchema.model_validate(schema.model_dump()),
        OpenAIFunctionToolSchema.model_validate_json(schema.model_dump_json()),
        OpenAIFunctionToolSchema.model_validate(
            yaml.safe_load(yaml.safe_dump(schema.model_dump()))
        ),
    ):
        assert again == schema
        assert again.model_dump() == schema.model_dump()


def test_the_schema_of_verls_original_design_is_dumped_unchanged():
    """The model reads this in its prompt, including ``enum: null`` and ``strict: false``."""
    assert OpenAIFunctionToolSchema.model_validate(PLAN).model_dump() == PLAN
    assert CODE_INTERPRETER.model_dump() == PLAN
    assert json.dumps(CODE_INTERPRETER.model_dump()) == json.dumps(PLAN)


def test_enum_and_strict_are_kept():
    written = json.loads(json.dumps(PLAN))
    written["function"]["strict"] = True
    written["function"]["parameters"]["properties"]["code"]["enum"] = ["a", 1, None]
    dumped = OpenAIFunctionToolSchema.model_validate(written).model_dump()
    assert dumped["function"]["strict"] is True
    assert dumped["function"]["parameters"]["properties"]["code"]["enum"] == ["a", 1, None]


def test_a_function_without_parameters_takes_none():
    schema = OpenAIFunctionToolSchema.model_validate(
        {"type": "function", "function": {"name": "now", "description": "The time."}}
    )
    assert schema.function.parameters.model_dump() == {
        "type": "object",
        "properties": {},
        "required": [],
    }


def _decode(arguments: str) -> tuple[dict[str, Any], bool]:
    parsed = OpenAIFunctionParsedSchema(name="f", arguments=arguments)
    call, failed = OpenAIFunctionCallSchema.from_openai_function_parsed_schema(parsed)
    assert call.name == "f"
    return call.arguments, failed


def test_arguments_are_decoded():
    assert _decode('{"code": "print(1)\\n", "n": [1, null]}') == (
        {"code": "print(1)\n", "n": [1, None]},
        False,
    )
    assert _decode("{}") == ({}, False)


@pytest.mark.parametrize(
    "arguments",
    [
        "",
        "{",
        '{"code": "\\d"}',
        '{"a": 1} {"b": 2}',
        "[1]",
        '"{}"',
        "null",
        "3",
        "[" * 100_000,
        "9" * 5000,
        "{'a': 1}",
    ],
)
def test_arguments_that_are_not_an_object_are_reported(arguments):
    """verl#5668, verl#7177 and radixark/miles#2709: backslashes, two objects, lists, objects
    encoded twice."""
    assert _decode(arguments) == ({}, True)


@settings(max_examples=60)
@given(st.text(max_size=50))
def test_any_argument_text_is_decoded_or_reported(arguments):
    decoded, failed = _decode(arguments)
    assert failed or isinstance(decoded, dict)


@settings(max_examples=25)
@given(
    st.dictionaries(
        st.text(max_size=5), st.none() | st.integers() | st.text(max_size=9), max_size=4
    )
)
def test_every_object_is_decoded(arguments):
    assert _decode(json.dumps(arguments)) == (arguments, False)


def test_a_tool_call_is_dumped_like_openais():
    call = OpenAIFunctionToolCall(id="1", function={"name": "f", "arguments": {"a": 1}})
    assert call.model_dump() == {
        "id": "1",
        "type": "function",
        "function": {"name": "f", "arguments": {"a": 1}},
    }


def test_response_reports_whether_it_is_empty_or_text_only():
    assert ToolResponse().is_empty()
    assert ToolResponse(text="").is_empty()
    assert ToolResponse(text="3").is_text_only()
    assert not ToolResponse(text="3", image=["i"]).is_text_only()
    assert not ToolResponse(video=["v"]).is_empty()
    assert ToolResponse().model_dump() == {"text": None, "image": None, "video": None}


def test_the_text_of_a_response_must_be_a_string():
    """verl#3964: a ToolResponse as the text of a ToolResponse."""
    with pytest.raises(ValidationError):
        ToolResponse(text=ToolResponse(text="3"))


def _elsewhere(name: str, /, **fields: Any) -> Any:
    """Return a model like those of another package, which ignores the keys that it does not
    know."""
    return create_model(name, **{key: (kind, ...) for key, kind in fields.items()})


def test_a_schema_equals_the_same_schema_of_another_package():
    property_ = _elsewhere("OpenAIFunctionPropertySchema", type=str, description=str)
    parameters = _elsewhere(
        "OpenAIFunctionParametersSchema",
        type=str,
        properties=dict[str, property_],
        required=list[str],
    )
    function = _elsewhere(
        "OpenAIFunctionSchema", name=str, description=str, parameters=parameters, strict=bool
    )
    theirs = _elsewhere("OpenAIFunctionToolSchema", type=str, function=function).model_validate(
        PLAN
    )
    ours = OpenAIFunctionToolSchema.model_validate(PLAN)
    assert ours == theirs
    theirs.function.parameters.properties["code"].description = "Another one."
    assert ours != theirs
    theirs.function.parameters.properties["code"].description = "The code to execute."
    assert OpenAIFunctionToolSchema.model_validate({**PLAN, "x-origin": "kept"}) != theirs
    assert ours != PLAN
    assert ours != _elsewhere("Renamed", type=str, function=function).model_validate(PLAN)


def test_the_exports_are_classes_in_sorted_order():
    for name in schemas.__all__:
        assert isinstance(getattr(schemas, name), type)
    assert schemas.__all__ == sorted(schemas.__all__)
