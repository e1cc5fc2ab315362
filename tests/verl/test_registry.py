"""verl's registry makes our tool from a tool config."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest
import verl.tools.schemas as verl_schemas
from verl.experimental.agent_loop.tool_parser import FunctionCall
from verl.tools.schemas import OpenAIFunctionToolSchema, ToolResponse

import sfusion_tools.schemas as our_schemas
from sfusion.fakes.sandbox import FakeSandbox
from sfusion_tools.sandbox_fusion_tools import SandboxFusionTool
from tests.verl.releases import (
    NEW,
    agent_data,
    initialize_tools_from_config,
    make_loop,
    trainer_config,
)
from tests.verl.tools import OURS, SCHEMA, THEIRS, quick, verl_config, write_tools

URL = "http://127.0.0.1:8080/run_code"

OLD_FILE = f"""\
tools:
  - class_name: "{THEIRS}"
    config:
      sandbox_fusion_url: "{URL}"
      num_workers: 10
      enable_global_rate_limit: true
      rate_limit: 10
      default_timeout: 30
      default_language: "python"
      memory_limit_mb: 1024
      type: native
    tool_schema:
      type: "function"
      function:
        name: "code_interpreter"
        description: "A tool for executing code."
        parameters:
          type: "object"
          properties:
            code:
              type: "string"
              description: "The code to execute."
          required: ["code"]
"""


def test_a_config_of_verls_own_tool_only_needs_another_class_name(tmp_path: Path) -> None:
    file = tmp_path / "tools.yaml"
    file.write_text(OLD_FILE.replace(THEIRS, OURS))
    (tool,) = initialize_tools_from_config(str(file))
    assert type(tool) is SandboxFusionTool
    assert (tool.name, tool.settings.rate_limit, tool.settings.default_timeout) == (
        "code_interpreter",
        10,
        30,
    )
    assert tool.settings.memory_limit_mb == 1024


def test_the_schema_is_an_object_of_verls_class_and_stays_unchanged(tmp_path: Path) -> None:
    (tool,) = initialize_tools_from_config(
        str(write_tools(tmp_path / "tools.yaml", verl_config(URL)))
    )
    assert type(tool.tool_schema) is OpenAIFunctionToolSchema
    assert tool.get_openai_tool_schema() is tool.tool_schema
    assert tool.tool_schema.model_dump(exclude_unset=True, exclude_none=True) == SCHEMA


def test_without_a_schema_the_tool_uses_its_default(tmp_path: Path) -> None:
    (tool,) = initialize_tools_from_config(
        str(write_tools(tmp_path / "tools.yaml", verl_config(URL), schema=None))
    )
    shown = tool.tool_schema.model_dump(exclude_unset=True, exclude_none=True)
    assert (
        OpenAIFunctionToolSchema.model_validate(shown).function.name
        == tool.name
        == "code_interpreter"
    )
    assert list(shown["function"]["parameters"]["properties"]) == ["code"]


def test_several_sandboxes_and_our_own_keys_pass_through_verls_registry(tmp_path: Path) -> None:
    urls = ["http://127.0.0.1:8080", "http://127.0.0.1:8081"]
    config = verl_config(urls, headers={"X-Team": "rl"}, rate_limit_mismatch="apply")
    (tool,) = initialize_tools_from_config(str(write_tools(tmp_path / "tools.yaml", config)))
    assert tool.settings.sandbox_fusion_url == urls
    assert tool.settings.headers == {"X-Team": "rl"}


def test_a_misspelt_key_is_an_error_that_names_it(tmp_path: Path) -> None:
    file = write_tools(tmp_path / "tools.yaml", verl_config(URL, rate_limt=3))
    with pytest.raises(ValueError, match=r"rate_limt.*rate_limit"):
        initialize_tools_from_config(str(file))


def test_a_tool_of_verls_registry_can_be_pickled(tmp_path: Path) -> None:
    (tool,) = initialize_tools_from_config(
        str(write_tools(tmp_path / "tools.yaml", verl_config(URL)))
    )
    copy = pickle.loads(pickle.dumps(tool))
    assert (copy.name, copy.config, copy.tool_schema) == (tool.name, tool.config, tool.tool_schema)


async def test_the_agent_loop_shows_the_model_the_schema_of_the_file(
    model: Path, tmp_path: Path
) -> None:
    file = write_tools(tmp_path / "tools.yaml", verl_config(URL))
    loop = make_loop(trainer_config(model, file))
    assert list(loop.tools) == ["code_interpreter"]
    assert loop.tool_schemas == [SCHEMA]
    prompt = loop.tokenizer.apply_chat_template(
        [{"role": "user", "content": "?"}], tools=loop.tool_schemas, tokenize=False
    )
    assert json.dumps(SCHEMA) in prompt


async def test_the_tools_response_has_the_interface_of_verls() -> None:
    tool = SandboxFusionTool(
        {"sandbox_fusion_url": URL}, OpenAIFunctionToolSchema.model_validate(SCHEMA)
    )
    instance, created = await tool.create(create_kwargs={"ground_truth": "3"})
    answer, reward, _ = await tool.execute(instance, {})
    for ours in (created, answer):
        theirs = ToolResponse(**ours.model_dump(exclude_none=True))
        assert (ours.text, ours.image, ours.video) == (theirs.text, theirs.image, theirs.video)
        assert (ours.is_empty(), bool(ours.is_text_only())) == (
            theirs.is_empty(),
            bool(theirs.is_text_only()),
        )
    assert reward is None


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("OpenAIFunctionToolSchema", SCHEMA),
        (
            "OpenAIFunctionToolCall",
            {"id": "1", "function": {"name": "f", "arguments": {"code": None}}},
        ),
        ("OpenAIFunctionParsedSchema", {"name": "f", "arguments": "{}"}),
        ("ToolResponse", {"text": "3", "image": ["a picture"]}),
    ],
)
def test_our_models_equal_verls_of_the_same_content(name: str, content: dict[str, Any]) -> None:
    ours, theirs = (
        getattr(package, name).model_validate(content) for package in (our_schemas, verl_schemas)
    )
    assert ours == theirs
    assert ours != getattr(verl_schemas, name).model_validate({**content, **OTHERS[name]})


OTHERS: dict[str, dict[str, Any]] = {
    "OpenAIFunctionToolSchema": {"function": {**SCHEMA["function"], "description": "Another one."}},
    "OpenAIFunctionToolCall": {"function": {"name": "f", "arguments": {}}},
    "OpenAIFunctionParsedSchema": {"arguments": "[]"},
    "ToolResponse": {"image": []},
}


@pytest.mark.skipif(not NEW, reason="function tools were added after 0.7")
def test_function_tools_can_be_used_next_to_it(tmp_path: Path) -> None:
    from verl.tools.tool_registry import load_all_tools

    functions = tmp_path / "functions.py"
    functions.write_text(
        "from verl.tools.function_tool import function_tool\n\n\n@function_tool\ndef "
        "add(a: int, b: int) -> str:\n"
        '    """Add two numbers.\n\n    Args:\n        a: One.\n        b: Another.\n '
        '   """\n    return str(a + b)\n'
    )
    file = write_tools(tmp_path / "tools.yaml", verl_config(URL))
    assert [tool.name for tool in load_all_tools(str(file), str(functions))] == [
        "code_interpreter",
        "add",
    ]


@pytest.mark.skipif(not NEW, reason="function tools were added after 0.7")
async def test_the_function_tool_runs_code_in_the_agent_loop(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Our file, named in verl's config, with the sandbox in the environment."""
    from verl.tools.function_tool import FUNCTION_TOOL_REGISTRY
    from verl.tools.tool_registry import load_all_tools

    import sfusion_tools.function_tool

    async with FakeSandbox(
        faults=[{"call": "a", "first_attempts": 1, "what": {"status": 503}}]
    ) as sandbox:
        config = quick(sandbox.url, limiter="local", max_attempts=2)
        monkeypatch.setenv("SFUSION_TOOL_CONFIG", str(write_tools(tmp_path / "tools.yaml", config)))
        (tool,) = load_all_tools(None, sfusion_tools.function_tool.__file__)
        assert tool.tool_schema.model_dump(exclude_none=True, exclude_unset=True) == SCHEMA
        loop = make_loop(trainer_config(model, tmp_path / "tools.yaml"))
        loop.tools = {tool.name: tool}
        answers = []
        for arguments in ({"code": '3  # sfusion:call=a prints="3"'}, {"cod": "3"}, {"code": "1"}):
            call = FunctionCall(name=tool.name, arguments=json.dumps(arguments))
            answers.append(await loop._call_tool(call, {}, agent_data()))
            if len(answers) == 2:
                sandbox.server.crash()
    texts = [response.text for response, _, _ in answers]
    assert texts[0] == "3"
    assert "`code` is missing, found only 'cod'" in texts[1]
    assert "could not be reached" in texts[2]
    assert [metrics["outcome"] for _, _, metrics in answers] == [
        "ok",
        "bad_arguments",
        "unreachable",
    ]
    FUNCTION_TOOL_REGISTRY.clear()
