"""Tools from a config file: verl's format works unchanged, and errors name their place.

The name ``tools_registration`` is that of the test in verl's original design.
"""

from __future__ import annotations

import re
import textwrap
from pathlib import Path
from typing import Any

import pytest

from sfusion_tools.base_tool import BaseTool
from sfusion_tools.errors import ConfigError
from sfusion_tools.gsm8k_tool import Gsm8kTool
from sfusion_tools.sandbox_fusion_tools import SandboxFusionTool
from sfusion_tools.schemas import OpenAIFunctionToolSchema
from sfusion_tools.tool_registry import initialize_tools_from_config
from sfusion_tools.utils.tool_registry import (
    initialize_tools_from_config as initialize_tools_at_the_old_place,
)

VERL = """
    tools:
      - class_name: "sfusion_tools.sandbox_fusion_tools.SandboxFusionTool"
        config:
          type: native
          sandbox_fusion_url: "http://127.0.0.1:8080/run_code"
          num_workers: 10
          enable_global_rate_limit: true
          rate_limit: 10
          default_timeout: 30
          default_language: "python"
          memory_limit_mb: 1024
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
      - class_name: "sfusion_tools.gsm8k_tool.Gsm8kTool"
        config:
          type: native
        tool_schema:
          type: "function"
          function:
            name: "calc_gsm8k_reward"
            description: "A tool for calculating the reward of gsm8k"
            parameters:
              type: "object"
              properties:
                answer:
                  type: "string"
                  description: "The model's answer to the GSM8K math problem"
              required: ["answer"]
"""
"""Two tool configs of verl in one file, with only ``verl.tools.`` replaced."""

SANDBOX = "sfusion_tools.sandbox_fusion_tools.SandboxFusionTool"
GSM8K = "sfusion_tools.gsm8k_tool.Gsm8kTool"


class Elsewhere(BaseTool):
    """A third-party tool with a required key."""

    def __init__(self, config: dict[str, Any], tool_schema: OpenAIFunctionToolSchema) -> None:
        super().__init__(config, tool_schema)
        self.path = config["path"]


class Nameless:
    """Has execute() but never calls BaseTool.__init__."""

    def __init__(self, config: dict[str, Any], tool_schema: object) -> None:
        pass

    async def execute(self) -> None: ...

    create = release = execute


class Unmade:
    async def execute(self) -> None: ...


class NoTool:
    """Has no execute()."""


@pytest.fixture
def write(tmp_path):
    def write(text: str) -> Path:
        path = tmp_path / "tools.yaml"
        path.write_text(textwrap.dedent(text), encoding="utf-8")
        return path

    return write


@pytest.fixture
def refused(write):
    """Return a function that reads a config file and returns the error, without path and line."""

    def refused(text: str) -> str:
        path = write(text)
        with pytest.raises(ConfigError) as caught:
            initialize_tools_from_config(path)
        place = re.match(rf"{re.escape(str(path))}:\d+: ", str(caught.value))
        assert place is not None, caught.value
        assert "\n" not in str(caught.value)
        return str(caught.value).removeprefix(place[0])

    return refused


def one(class_name: str, config: str = "{type: native}", schema: str = "null") -> str:
    return f"tools: [{{class_name: {class_name!r}, config: {config}, tool_schema: {schema}}}]"


def test_tools_registration(write):
    """The test of verl's original design: tools are made from verl's YAML."""
    tools = initialize_tools_from_config(write(VERL))
    assert [type(tool) for tool in tools] == [SandboxFusionTool, Gsm8kTool]
    assert [tool.name for tool in tools] == ["code_interpreter", "calc_gsm8k_reward"]
    assert tools[0].settings.sandbox_fusion_url == "http://127.0.0.1:8080/run_code"
    assert tools[0].settings.rate_limit == 10
    dumped = tools[0].get_openai_tool_schema().model_dump()
    assert (
        dumped["function"]["parameters"]["properties"]["code"]["description"]
        == "The code to execute."
    )
    assert initialize_tools_at_the_old_place is initialize_tools_from_config


def test_the_path_may_be_a_string(write):
    assert len(initialize_tools_from_config(str(write(VERL)))) == 2


def test_a_tool_with_a_default_schema_needs_none(write):
    config = f"""
        tools:
          - class_name: {SANDBOX}
            config: {{sandbox_fusion_url: "http://127.0.0.1:8080"}}
          - class_name: {GSM8K}
    """
    names = [tool.name for tool in initialize_tools_from_config(write(config))]
    assert names == ["code_interpreter", "calc_gsm8k_reward"]


def test_an_empty_list_of_tools_is_valid(write):
    assert initialize_tools_from_config(write("tools: []")) == []


@pytest.mark.parametrize(
    ("class_name", "says"),
    [
        (
            "sfusion_tools.sandbox_fusion_tools.SandboxFusonTool",
            "no class 'SandboxFusonTool'; did you mean 'SandboxFusionTool'?",
        ),
        (
            "sfusion_tools.sandbox_fusion_tool.SandboxFusionTool",
            (
                "no module 'sfusion_tools.sandbox_fusion_tool'; did you mean "
                "'sfusion_tools.sandbox_fusion_tools'?"
            ),
        ),
        (
            "sfusion_tols.gsm8k_tool.Gsm8kTool",
            "no module 'sfusion_tols'; did you mean 'sfusion_tools.gsm8k_tool.Gsm8kTool'?",
        ),
        ("verl.tools.sandbox_fusion_tools.SandboxFusionTool", f"did you mean '{SANDBOX}'?"),
        ("SandboxFusionTool", f"class_name needs a module, as in '{SANDBOX}'"),
        ("sfusion_tools.tool_registry.near", "is not a class but a function"),
        (
            "tests.sfusion_tools.test_tool_registry.NoTool",
            "is not a tool: it has no execute(); derive it from BaseTool",
        ),
        (
            "tests.sfusion_tools.test_tool_registry.Nameless",
            "the tool has no name; call BaseTool.__init__",
        ),
        (".Tool", "could not be imported"),
        ("a..b.Tool", "there is no module 'a'"),
    ],
)
def test_a_wrong_class_is_named_with_the_nearest_valid_one(refused, class_name, says):
    """In verl, a wrong class name raised: 'NoneType' object has no attribute 'loader'."""
    message = refused(one(class_name))
    assert message.startswith(f"tools[0] ({class_name}): ")
    assert says in message


def test_a_module_that_fails_to_import_says_why(refused, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "broken_import_of_a_tool.py").write_text("import not_there_at_all\n")
    (tmp_path / "broken_syntax_of_a_tool.py").write_text("def (\n")
    (tmp_path / "broken_start_of_a_tool.py").write_text("raise RuntimeError('no GPU here')\n")
    assert "No module named 'not_there_at_all'" in refused(one("broken_import_of_a_tool.Tool"))
    assert "SyntaxError" in refused(one("broken_syntax_of_a_tool.Tool"))
    assert "RuntimeError: no GPU here" in refused(one("broken_start_of_a_tool.Tool"))


@pytest.mark.parametrize(
    ("config", "says"),
    [
        (
            "{type: nativ, sandbox_fusion_url: 'http://h'}",
            "config.type 'nativ' is not supported; did you mean 'native'?",
        ),
        ("{type: other}", "config.type 'other' is not supported; known: mcp, native"),
        ("[1]", "config must be a mapping, found [1]"),
        (
            "{sandbox_fusion_url: 'http://h', rate_limt: 3}",
            "unknown key 'rate_limt'; did you mean 'rate_limit'?",
        ),
        (
            "{sandbox_fusion_url: 'http://h', strict: 3}",
            "unknown key 'strict'; known: adaptive_rate_limit, ",
        ),
        ("{}", "sandbox_fusion_url is missing: address of the sandbox"),
        (
            "{sandbox_fusion_url: sandbox_url}",
            "sandbox_fusion_url must be the address of a Sandbox Fusion server",
        ),
        ("{sandbox_fusion_url: []}", "sandbox_fusion_url is empty"),
        (
            "{sandbox_fusion_url: 12}",
            "sandbox_fusion_url: Input should be a valid string, found int",
        ),
        (
            "{sandbox_fusion_url: 'http://h', rate_limit: 0}",
            "rate_limit: Input should be greater than or equal to 1, found 0",
        ),
        ("{sandbox_fusion_url: 'http://h', rate_limit: -1}", "rate_limit: "),
        (
            "{sandbox_fusion_url: 'http://h', rate_limit: 2.5}",
            "rate_limit: Input should be a valid integer, found 2.5",
        ),
        (
            "{sandbox_fusion_url: 'http://h', rate_limit: '10'}",
            "rate_limit: Input should be a valid integer, found '10'",
        ),
        (
            "{sandbox_fusion_url: 'http://h', rate_limit: true}",
            "rate_limit: Input should be a valid integer, found True",
        ),
        (
            "{sandbox_fusion_url: 'http://h', default_timeout: 0}",
            "default_timeout: Input should be greater than 0",
        ),
        (
            "{sandbox_fusion_url: 'http://h', default_timeout: .inf}",
            "default_timeout: Input should be a finite number",
        ),
        (
            "{sandbox_fusion_url: 'http://h', default_language: pyhton}",
            (
                "default_language: 'pyhton' is not a language of Sandbox Fusion; did you "
                "mean 'python'?"
            ),
        ),
        (
            "{sandbox_fusion_url: 'http://h', limiter: redis}",
            "limiter: Input should be 'auto', 'ray', 'host' or 'local', found 'redis'",
        ),
        (
            "{sandbox_fusion_url: 'http://h', requests_burst: 3}",
            "requests_burst is set but requests_per_second is not; it has no meaning without it",
        ),
        (
            "{sandbox_fusion_url: 'http://h', headers: {'a b': x}}",
            "headers: 'a b' is not the name of a header",
        ),
        (
            '{sandbox_fusion_url: "http://h", headers: {A: "x\\ny"}}',
            "headers: the value of 'A' contains a line break or a NUL character",
        ),
        (
            "{sandbox_fusion_url: ['http://g', 'http://u:secret@h'], headers: "
            "{authorization: Bearer x}}",
            (
                "sandbox_fusion_url contains a user name and headers an Authorization; a "
                "request carries only one of them"
            ),
        ),
        ("{sandbox_fusion_url: 'http://h', 1: 2}", "1: Keys should be strings"),
    ],
)
def test_a_wrong_key_of_our_tool_is_named(refused, config, says):
    message = refused(one(SANDBOX, config))
    assert message.startswith(f"tools[0] ({SANDBOX}): ")
    assert says in message
    assert "secret" not in message


def test_all_errors_are_reported_at_once(refused):
    message = refused(one(SANDBOX, "{sandbox_fusion_url: x, rate_limt: 3, default_timeout: soon}"))
    assert all(key in message for key in ("sandbox_fusion_url", "rate_limt", "default_timeout"))


def test_errors_do_not_repeat_secrets_of_a_config(refused):
    config = (
        "{sandbox_fusion_url: 'user:hunter2@h', headers: {Authorization: [hunter2], "
        "'X Y': hunter2}}"
    )
    assert "hunter2" not in refused(one(SANDBOX, config))


def test_a_wrong_key_of_gsm8k_is_named(refused):
    assert "unknown key 'metod'; did you mean 'method'?" in refused(one(GSM8K, "{metod: strict}"))
    assert "method is 'strct'; did you mean 'strict'?" in refused(one(GSM8K, "{method: strct}"))


def test_an_exception_of_a_third_party_tool_is_reported_with_its_place(refused):
    schema = "{type: function, function: {name: f, description: d}}"
    name = "tests.sfusion_tools.test_tool_registry.Elsewhere"
    message = refused(one(name, "{type: native}", schema))
    assert message == f"tools[0] ({name}): the tool refused its config: KeyError: 'path'"
    message = refused(one("sfusion_tools.base_tool.BaseTool"))
    assert "BaseTool got no tool_schema and has no default one" in message


def test_two_tools_with_the_same_name_are_refused(refused):
    message = refused(f"tools: [{{class_name: {GSM8K}}}, {{class_name: {GSM8K}}}]")
    assert message.startswith(
        f"tools[1] ({GSM8K}) and tools[0] ({GSM8K}) both define a tool named 'calc_gsm8k_reward'"
    )
    assert "rename one in its tool_schema" in message


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "expected a mapping with a list `tools:`, found nothing"),
        ("{}", "found a dict"),
        ("[1]", "found a list"),
        ("tols: []", "found tols; did you mean 'tools'?"),
        ("tools: null", "found `tools: None`"),
        ("tools: [", "not YAML: "),
        (
            "tools: [3]",
            "tools[0]: expected a mapping with class_name, config and tool_schema, found 3",
        ),
        ("tools: [{}]", "tools[0]: class_name is missing or not a string"),
        ("tools: [{class_name: 3}]", "tools[0]: class_name is missing or not a string"),
        ("tools: [{class: x}]", "tools[0]: unknown key 'class'; did you mean 'class_name'?"),
        (
            f"tools: [{{class_name: {GSM8K}, tool_scheme: {{}}}}]",
            "unknown key 'tool_scheme'; did you mean 'tool_schema'?",
        ),
        ("tools: [!!python/object/apply:os.getcwd []]", "tags such as !!python are not loaded"),
    ],
)
def test_a_file_with_the_wrong_structure_is_refused(refused, text, says):
    assert says in refused(text)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("tools:\n- class_name: 3\n", 2),
        (f"tools:\n- class_name: {GSM8K}\n- config: {{}}\n  clas: x\n", 4),
        (f"tools:\n- class_name: {GSM8K}\n\n- class_name: {GSM8K}\n", 4),
        (f"tools:\n- class_name: {GSM8K}\n  class_name: {GSM8K}\n", 3),
        ("# tools\ntolls: []\n", 1),
        ("tools:\n\t- x\n", 2),
    ],
)
def test_errors_name_the_line(write, text, line):
    path = write(text)
    with pytest.raises(ConfigError, match=re.escape(f"{path}:{line}: ")):
        initialize_tools_from_config(path)


def test_errors_in_a_schema_name_the_key(refused):
    message = refused(one(GSM8K, schema="{type: function, function: {nme: f, description: 3}}"))
    assert "tool_schema.function.name is missing: found 'nme', 'description'" in message
    assert "tool_schema.function.description: input should be a valid string, found 3" in message


def test_a_missing_or_binary_file_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"nowhere.yaml:1: cannot be read: No such file"):
        initialize_tools_from_config(tmp_path / "nowhere.yaml")
    (tmp_path / "bytes.yaml").write_bytes(b"tools: \xff")
    with pytest.raises(ConfigError, match=r"bytes.yaml:1: not UTF-8 text"):
        initialize_tools_from_config(tmp_path / "bytes.yaml")


async def test_base_tool_has_verls_interface():
    schema = OpenAIFunctionToolSchema.model_validate(
        {"type": "function", "function": {"name": "f", "description": ""}}
    )
    tool = BaseTool({"type": "native"}, schema)
    assert (tool.name, tool.get_openai_tool_schema(), tool.config) == (
        "f",
        schema,
        {"type": "native"},
    )
    instance, response = await tool.create(create_kwargs={"ground_truth": "3"})
    assert instance != (await tool.create())[0]
    assert (await tool.create("mine"))[0] == "mine"
    assert response.is_empty()
    response, reward, metrics = await tool.execute(instance, {}, agent_data=None)
    assert (type(response.text), reward, metrics) == (str, 0.0, {})
    assert await tool.calc_reward(instance) == 0.0
    assert await tool.release(instance) is None
    assert await tool.release("unknown") is None
