"""A model's arguments become a program, or a message that helps the model; nothing crashes."""

from __future__ import annotations

import json
from collections.abc import Collection
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfusion_tools.sandbox.arguments import BadArguments, offered_languages, read_arguments
from sfusion_tools.sandbox.config import SandboxToolConfig
from sfusion_tools.sandbox.program import RUNNABLE, Program
from sfusion_tools.schemas import OpenAIFunctionParametersSchema

CONFIG = SandboxToolConfig(sandbox_fusion_url="http://h", default_timeout=30, max_timeout=60)


def refused(parameters: Any, languages: Collection[str] = ()) -> str:
    with pytest.raises(BadArguments) as caught:
        read_arguments(parameters, CONFIG, languages)
    return str(caught.value)


def test_code_alone_is_enough():
    program, remark = read_arguments({"code": "print(1)"}, CONFIG)
    assert (
        program.code,
        program.language,
        program.timeout,
        program.memory_limit_mb,
        program.stdin,
        remark,
    ) == (
        "print(1)",
        "python",
        30.0,
        1024,
        None,
        "",
    )


def test_the_config_applies_where_the_model_sets_nothing():
    config = SandboxToolConfig(
        sandbox_fusion_url="http://h",
        default_timeout=5,
        default_language="cpp",
        memory_limit_mb=-1,
        compile_timeout=3,
    )
    program, _ = read_arguments({"code": "int main(){}"}, config)
    assert (
        program.language,
        program.timeout,
        program.compile_timeout,
        program.memory_limit_mb,
    ) == (
        "cpp",
        5.0,
        3.0,
        -1,
    )


def test_unknown_arguments_are_ignored():
    """The sample of verl's original design has ``"executes": "True"`` next to the code."""
    assert read_arguments({"code": "1", "executes": "True"}, CONFIG)[0].code == "1"


@pytest.mark.parametrize(
    ("parameters", "says"),
    [
        (None, "must be a JSON object, found null"),
        ([{"code": "1"}], "must be a JSON object, found a list"),
        ("print(1)", "must be a JSON object, found a string: 'print(1)'"),
        (
            '{"code": "print(1)"}',
            "must be a JSON object, found an object wrapped into a string; give the object itself",
        ),
        ("[" * 100_000, "must be a JSON object, found a string"),
        (3, "must be a JSON object, found a number"),
        (True, "must be a JSON object, found true or false"),
        ({}, "`code` is missing, found no arguments"),
        ({"cmd": "1"}, "`code` is missing, found only 'cmd'"),
        ({"code": None}, "`code` must be a string, found null"),
        ({"code": 123}, "`code` must be a string, found a number"),
        ({"code": ["print(1)"]}, "`code` must be a string, found a list"),
        ({"code": {"a": 1}}, "`code` must be a string, found an object"),
        ({"code": ""}, "`code` is empty"),
        ({"code": " \n"}, "`code` is empty"),
    ],
)
def test_arguments_without_code_are_refused_with_an_example(parameters, says):
    """In verl a list crashed (radixark/miles#2709), a number was run as text, and missing code as
    an empty program."""
    message = refused(parameters)
    assert says in message
    assert 'call it with an object such as {"code": "print(1 + 1)"}' in message
    assert len(message) < 300


def test_a_lone_surrogate_in_the_code_is_refused():
    assert refused({"code": "print('\ud800')"}) == "`code` contains a lone surrogate at position 7"


NO_TIMES = ["abc", "", -1, 0, "-1", float("nan"), True, False, [5], {"s": 5}, 10**400, 10**5000]


@pytest.mark.parametrize("timeout", NO_TIMES, ids=range(len(NO_TIMES)))
def test_an_invalid_timeout_is_refused(timeout):
    message = refused({"code": "1", "timeout": timeout})
    assert message.startswith("`timeout` must be a number of seconds above 0, at most 60; found ")
    assert len(message) < 200


@pytest.mark.parametrize(
    ("timeout", "seconds"), [(5, 5.0), (0.5, 0.5), ("7", 7.0), (60, 60.0), (None, 30.0)]
)
def test_a_timeout_within_the_limit_is_used(timeout, seconds):
    program, remark = read_arguments({"code": "1", "timeout": timeout}, CONFIG)
    assert (program.timeout, remark) == (seconds, "")


@pytest.mark.parametrize("timeout", [61, 10**9, "1e9", float("inf")])
def test_a_timeout_above_the_limit_is_capped_and_the_model_is_told(timeout):
    program, remark = read_arguments({"code": "1", "timeout": timeout}, CONFIG)
    assert program.timeout == 60.0
    assert "was lowered to 60 s, the most allowed here" in remark


def test_the_longest_timeout_is_never_below_the_default():
    config = SandboxToolConfig(sandbox_fusion_url="http://h", default_timeout=90, max_timeout=10)
    assert read_arguments({"code": "1"}, config)[0].timeout == 90.0
    assert read_arguments({"code": "1", "timeout": 999}, config)[0].timeout == 90.0


@pytest.mark.parametrize(
    ("language", "says"),
    [
        ("python3", "did you mean 'python'?"),
        ("Python", "did you mean 'python'?"),
        ("javascript", "known: bash, python"),
        (["python"], "did you mean 'python'?"),
        ({"a": 1}, "is not known here"),
        (3, "`language` 3 is not known here"),
        ("sql", "`language` 'sql' is not known here"),
        ("x" * 100_000, "is not known here"),
    ],
)
def test_an_unknown_language_is_refused_with_the_nearest_one(language, says):
    assert says in refused({"code": "1", "language": language}, ["bash"])


def test_a_language_that_is_not_offered_is_refused():
    only = "`language` 'bash' is not offered here: leave it out and write python"
    assert refused({"code": "1", "language": "bash"}) == only
    assert "'cpp' is not offered here; known: bash, python" in refused(
        {"code": "1", "language": "cpp"}, ["bash"]
    )


def test_an_offered_language_and_the_default_are_used():
    for language in ("bash", "python"):
        assert (
            read_arguments({"code": "1", "language": language}, CONFIG, ["bash"])[0].language
            == language
        )


@pytest.mark.parametrize(
    ("config", "parameter", "offered"),
    [
        ({}, None, set()),
        ({}, {"type": "string", "enum": ["bash", "python3", 3, ["go"], "sql"]}, {"bash"}),
        ({}, {"type": "string"}, RUNNABLE),
        ({"languages": ["go"]}, None, {"go"}),
        ({"languages": []}, {"type": "string"}, set()),
    ],
)
def test_the_config_or_else_the_schema_says_which_languages_are_offered(config, parameter, offered):
    settings = SandboxToolConfig(sandbox_fusion_url="http://h", **config)
    properties = {"code": {"type": "string"}} | (
        {} if parameter is None else {"language": parameter}
    )
    schema = OpenAIFunctionParametersSchema(type="object", properties=properties)
    assert offered_languages(settings, schema) == offered


def test_only_languages_that_can_run_can_be_offered():
    with pytest.raises(ValueError, match="'sql' is not a language that can be offered"):
        SandboxToolConfig(sandbox_fusion_url="http://h", languages=["bash", "sql"])


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(), max_size=10),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)
ARGUMENTS = st.fixed_dictionaries(
    {"code": st.just("1") | JSON}, optional={"language": JSON, "timeout": JSON}
)


@settings(max_examples=120)
@given(JSON | ARGUMENTS)
def test_any_value_is_accepted_or_refused_with_bad_arguments(parameters):
    with suppress(BadArguments):
        program, _ = read_arguments(parameters, CONFIG)
        assert 0 < program.timeout <= 60
        assert program.body() == as_one_object(program)


def as_one_object(program):
    request = {
        "compile_timeout": program.compile_timeout,
        "run_timeout": program.timeout,
        "memory_limit_MB": program.memory_limit_mb,
        "code": program.code,
        "stdin": program.stdin,
        "language": program.language,
        "files": program.files,
        "fetch_files": program.fetch_files,
    }
    return json.dumps(request).encode()


@pytest.mark.parametrize(
    "program",
    [
        Program('"é"\n', "cpp", timeout=30, stdin='"\\', memory_limit_mb=-1),
        Program("", timeout=30.0, stdin="", memory_limit_mb=-1, files={'"a"': "YQ=="}),
        Program("1", compile_timeout=0.1, fetch_files=["b", "é"]),
    ],
)
def test_a_request_is_the_json_of_every_field(program):
    assert program.body() == as_one_object(program)
