"""No call is altered in silence, and none is dropped without a problem, however it is spelt."""

from __future__ import annotations

import itertools
import json
import re
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from sfusion_tools.formats import Toolbox, format_names, get_format
from sfusion_tools.formats.braces import BraceFormat
from sfusion_tools.formats.families.minimax import MiniMaxM3
from sfusion_tools.formats.pythonic import PythonFormat
from sfusion_tools.formats.tags import TagFormat, TagParser
from tests.cases import every
from tests.sfusion_tools.formats.recordings import TOOLS, chunkings, every_parser, plain, streamed
from tests.sfusion_tools.formats.test_properties import SNIPPETS, cut

TYPED = [
    {
        "function": {
            "name": "TOOL",
            "parameters": {
                "type": "object",
                "properties": {"KEY": {"type": "string"}, "OBJECT": {"type": "object"}},
            },
        }
    }
]
DEEPSEEK, DEEPSEEK_END = "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"
KIMI, KIMI_END = "<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"
CODER = "<tool_call>\n<function=TOOL>\n<parameter={}>\n{}\n</parameter>\n</function>\n</tool_call>"
GLM = "<tool_call>TOOL\n<arg_key>{}</arg_key>\n<arg_value>{}</arg_value>\n</tool_call>"
LLAMA = '{"name": "TOOL", "parameters": {"KEY": "x"}}'
TWICE = '{"a": 1, "a": 2}'
HARMONY = "<|start|>{}<|channel|>commentary{} <|constrain|>json<|message|>{{}}<|call|>"


@pytest.mark.parametrize(
    ("name", "text", "arguments", "problems"),
    [
        ("pythonic", "[TOOL(KEY='s = ''; print(len(s))')]", None, ["refused adjacent_strings"]),
        ("pythonic", '[TOOL(KEY="a""b")]', None, ["refused adjacent_strings"]),
        ("pythonic", "[TOOL(KEY=['a''b'])]", None, ["refused adjacent_strings"]),
        ("pythonic", "[TOOL(KEY='a' 'b''c')]", None, ["refused adjacent_strings"]),
        ("pythonic", "[TOOL(KEY='a'\n  'b')]", {"KEY": "ab"}, ["repaired adjacent_strings"]),
        ("pythonic", "[TOOL(KEY='print(' '.join(words))')]", None, ["refused adjacent_strings"]),
        (
            "pythonic",
            "[TOOL(KEY='for w in l:\\n\\tprint(' '.join(w))')]",
            None,
            ["refused adjacent_strings"],
        ),
        ("pythonic", '[TOOL(KEY="x = " " * 3")]', None, ["refused adjacent_strings"]),
        ("pythonic", "[TOOL(KEY=['a' 'b', 's = ' ' * 3'])]", None, ["refused adjacent_strings"]),
        (
            "pythonic",
            "[TOOL(KEY='x = 1; ' 'y = 2')]",
            {"KEY": "x = 1; y = 2"},
            ["repaired adjacent_strings"],
        ),
        (
            "llama3",
            "<|python_tag|>{'name': 'TOOL', 'parameters': {'KEY': 's = ''; f()'}}",
            None,
            ["adjacent_strings"],
        ),
        ("glm45", GLM.format("OBJECT", "{'a': 'x''y'}"), None, ["refused adjacent_strings"]),
        ("pythonic", "[TOOL(KEY='''a\r\nb''')]", {"KEY": "a\r\nb"}, []),
        ("pythonic", "[TOOL(KEY='''a\\\\\r\nb\rc''')]", {"KEY": "a\\\r\nb\rc"}, []),
        ("pythonic", "[TOOL(KEY=r'''\\d'\r\nb''')]", {"KEY": "\\d'\r\nb"}, []),
        ("pythonic", "[TOOL(KEY='a\r\nb')]", {"KEY": "a\r\nb"}, ["repaired raw_control"]),
        ("pythonic", "[TOOL(KEY='''a\nb''',\r\n OBJECT={})]", {"KEY": "a\nb", "OBJECT": {}}, []),
        ("pythonic", "[TOOL(ＫEY=1)]", None, ["refused bad_literal"]),
        ("qwen3_coder", CODER.format("KEY", "a\nb").replace("\n", "\r\n"), {"KEY": "a\r\nb"}, []),
        ("qwen3_coder", CODER.format("KEY", "").replace("\n", "\r\n"), {"KEY": ""}, []),
        ("qwen3_coder", CODER.format("KEY", "a\r"), {"KEY": "a\r"}, []),
        ("glm45", GLM.format("KEY", "a\nb").replace("\n", "\r\n"), {"KEY": "a\r\nb"}, []),
        (
            "qwen3_coder",
            CODER.format("KEY", "a</parameter></function>b"),
            None,
            ["bad_layout", "noticed stray_text"],
        ),
        ("qwen3_coder", CODER.format("KEY", "a") + "</function>", {"KEY": "a"}, []),
        ("pythonic", "[TOOL(KEY=1, KEY=2)]", None, ["refused duplicate_key"]),
        ("pythonic", "[TOOL(KEY=[{'a': 1, 'a': 2}])]", None, ["refused duplicate_key"]),
        (
            "llama3",
            "<|python_tag|>{'name': 'TOOL', 'parameters': {'KEY': 1, 'KEY': 2}}",
            None,
            ["duplicate_key"],
        ),
        (
            "llama3",
            "{'name': 'TOOL', 'parameters': {'KEY': [{'a': 1, 'a': 2}]}}",
            None,
            ["duplicate_key"],
        ),
        ("glm45", GLM.format("OBJECT", TWICE), None, ["refused duplicate_key"]),
        (
            "qwen3_coder",
            CODER.format("OBJECT", TWICE.replace('"', "'")),
            None,
            ["refused duplicate_key"],
        ),
        (
            "deepseekv31",
            f'{DEEPSEEK}TOOL {{"KEY": 1}}{DEEPSEEK_END}',
            None,
            ["refused no_call_object"],
        ),
        (
            "deepseekv3",
            f"{DEEPSEEK}TOOL {{}}",
            None,
            ["refused no_call_object", "noticed unclosed_section"],
        ),
        ("kimi_k2", f"{KIMI}functions.TOOL:0 {{}}{KIMI_END}", None, ["refused no_call_object"]),
        ("kimi_k2", f"{KIMI}\n<|tool_call", None, ["refused truncated"]),
        ("pythonic", "Well: [await TOOL(KEY='x')]", {"KEY": "x"}, ["repaired python_spelling"]),
        ("pythonic", '[TOOL(KEY="say [")]\' \'")]', None, ["refused stray_text"]),
        ("pythonic", "[TOOL(KEY='x')] then [TOOL(KEY='y')]", [{"KEY": "x"}, {"KEY": "y"}], []),
        ("pythonic", "[TO<OL(KEY='x')]", None, ["noticed stray_marker"]),
        ("pythonic", "[TO\nOL(KEY='x')]", None, ["noticed stray_marker"]),
        ("pythonic", "[await further instructions (or not)]", None, []),
        ("gpt-oss", HARMONY.format("assistant", " to=functions.TOOL"), {}, []),
        ("gpt-oss", HARMONY.format("", " to=functions.TOOL"), {}, ["repaired wrong_sender"]),
        ("gpt-oss", HARMONY.format("user", " to=functions.TOOL"), None, ["refused wrong_sender"]),
        ("gpt-oss", HARMONY.format("system to=functions.TOOL", ""), None, ["refused wrong_sender"]),
        (
            "gpt-oss",
            HARMONY.format("functions.TOOL to=assistant", ""),
            None,
            ["noticed invented_reply"],
        ),
        (
            "gpt-oss",
            HARMONY.format("assistant to=functions.X", " to=functions.TOOL"),
            None,
            ["several_recipients"],
        ),
        (
            "gpt-oss",
            HARMONY.format("assistant", " to=functions.TOOL,functions.X"),
            None,
            ["several_recipients"],
        ),
        ("gpt-oss", HARMONY.format("assistant to=functions.TOOL", " to=functions.TOOL"), {}, []),
        ("gpt-oss", " to=functions.TOOL<|channel|>commentary json<|message|>{}<|call|>", {}, []),
        ("gpt-oss", "to=functions.TOOL", None, ["refused truncated"]),
        ("glm47", "<tool_call>TOOL</tool_call>", {}, []),
        ("llama3", f"<|python_tag|>{LLAMA[1:]};{LLAMA}", {"KEY": "x"}, ["refused left_over"]),
        (
            "llama3",
            f"<|python_tag|>{LLAMA[1:]};{LLAMA}".replace('"', "'"),
            {"KEY": "x"},
            ["refused left_over", "repaired python_spelling"],
        ),
        ("llama3", f"<|python_tag|>Let's go: {LLAMA}", {"KEY": "x"}, ["repaired stray_text"]),
        ("llama3", f'<|python_tag|>{LLAMA} and "that" is it', {"KEY": "x"}, []),
    ],
)
def test_a_spelling_is_read_exactly_or_reported(
    name: str, text: str, arguments: Any, problems: list[str]
) -> None:
    form = get_format(name)
    parsed = form.parse(text, TYPED)
    expected = arguments if isinstance(arguments, list) else [arguments] * (arguments is not None)
    assert [call.arguments for call in parsed.calls] == expected
    found = [f"{problem.severity} {problem.kind}" for problem in parsed.problems]
    assert found == [problem if " " in problem else f"refused {problem}" for problem in problems]
    for pieces in chunkings(text):
        assert streamed(form, pieces, TYPED) == parsed


CODE = '"arguments": {"code": "print(1)"}'
ATTEMPTS = [
    '{"type": "function", "name": "code_interpreter", ' + CODE + "}",
    '{"id": "call_1", "name": "code_interpreter", ' + CODE + "}",
    '{"name": "code_interpreter", "id": "call_1", ' + CODE + "}",
    '{"id": 0, "type": "function", "function": {"name": "code_interpreter", ' + CODE + "}}",
    "{'name': 'code_interpreter', 'arguments': {'code': 'print(1)'}}",
    '<invoke name="code_interpreter"><parameter name="code">print(1)</parameter></invoke>',
    "<function_calls>code_interpreter</function_calls>",
    'functions.code_interpreter({"code": "print(1)"})',
    'Then functions.code_interpreter:0{"code": "print(1)"}',
    "[await code_interpreter(code='print(1)')]",
    "await code_interpreter(code='print(1)')",
    "[code_\u200binterpreter(code='print(1)')]",
    "I call [code_interpreter\u2060(code='print(1)')] now",
    "<tool_\u200bcall>\n{}\n</tool_call>",
    "<|tool_call|>code_interpreter",
    '<|python_t}g|>{"name": "code_interpreter", "para": {}}',
    '[TOOL_CALL [{"name": "code_interpreter", "argument: {}}]',
    '{"tool": "code_interpreter", "args": {"code": "print(1)"}}',
    '{"action": "code_interpreter", "action_input": {"code": "print(1)"}}',
    "Thought: I count.\nAction: code_interpreter\nAction Input: print(1)",
    "(code_interpreter(code='print(1)')]",
    "code_interpreter(code='print(1)')]",
    "{code_interpreter(code='print(1)')}",
    '[{"code_interpreter": {"code": "print(1)"}}]',
    "{'code_interpreter': {}}",
]


@every(ATTEMPTS, str)
def test_an_attempt_in_another_spelling_is_never_dropped_without_a_problem(text: str) -> None:
    search = {"name": "search", "arguments": {"query": "x"}}
    for form in map(get_format, format_names()):
        alone = form.parse(text, TOOLS)
        beside = form.parse(f"{form.render([search], tools=TOOLS)}\n\n{text}", TOOLS)
        assert alone.calls or alone.problems, form.name
        assert plain(beside)[0] == search
        assert len(beside.calls) > 1 or beside.problems, form.name
        for problem in alone.problems:
            assert text[problem.position :][:1] == problem.excerpt[:1]


@pytest.mark.parametrize(
    "name", ["command_r7b", "hunyuan_a13b", "nemotron", "granite", "phi4_mini", "apertus"]
)
def test_a_list_of_calls_without_its_opening_marker_is_reported(name: str) -> None:
    form = get_format(name)
    text = form.example.replace(form.parser.openers[0], "", 1)
    for tools in (None, TYPED):
        parsed = form.parse(text, tools)
        assert parsed.calls == ()
        assert [problem.severity for problem in parsed.problems] == ["noticed"]


TAG = re.compile(r"<!\[CDATA\[|\]\]>|<[^<>]*>|\\n")


TAGGED = [name for name in format_names() if isinstance(get_format(name), TagFormat)]


@every(itertools.product(TAGGED, ["", "x", " ", ">", "doubled"]), str)
def test_a_misspelt_tag_never_becomes_part_of_a_value(case: tuple[str, str]) -> None:
    """Damage every character of the tags around two values, one at a time."""
    name, new = case
    form = get_format(name)
    call = {"name": "code_interpreter", "arguments": {"code": "a = 1\nb = 2", "timeout": 5}}
    text = form.render([call], tools=TOOLS)
    begin, end = text.index("code_interpreter") + len("code_interpreter"), len(text)
    for tag in TAG.finditer(text, begin, end):
        for at in range(tag.start(), tag.end()):
            if text[at] == "\n" or any(
                at in range(key.start(), key.end()) for key in re.finditer("code|timeout", text)
            ):
                continue
            if new == "doubled" and text[at] in "<>[]":
                continue  # it is part of the value
            spoiled = text[:at] + (text[at] * 2 if new == "doubled" else new) + text[at + 1 :]
            parsed = form.parse(spoiled, TOOLS)
            for found in plain(parsed):
                code = found["arguments"].get("code", "")
                assert "<" not in code, spoiled
                assert "param" not in code, spoiled
                assert "arg" not in code, spoiled
            assert (
                parsed.problems
                or plain(parsed) == [call]
                or set(plain(parsed)[0]["arguments"]) != {*call["arguments"]}
            )


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (
            "qwen3_coder",
            CODER.format("KEY", "x").replace(
                "</function>", "<param=OBJECT>\n3\n</parameter>\n</function>"
            ),
        ),
        (
            "qwen3_coder",
            CODER.format("KEY", "x").replace(
                "</function>", "<parameter OBJECT>\n3\n</parameter>\n</function>"
            ),
        ),
        ("qwen3_coder", CODER.format("KEY", "x\n</paramter>\n<parameter=OBJECT>\n{}")),
        ("qwen3_coder", CODER.format("KEY", "x").replace("</parameter>", "</paramter>")),
        ("glm45", GLM.format("KEY", "x</arg_value>\n<arg_ky>OBJECT</arg_key>\n<arg_vale>{}")),
        ("glm45", GLM.format("KEY", "x</arg_vale>\n<arg_key>OBJECT</arg_key>\n<arg_value>{}")),
    ],
)
def test_an_argument_behind_a_misspelt_tag_is_not_swallowed(name: str, text: str) -> None:
    parsed = get_format(name).parse(text, TYPED)
    assert parsed.calls == ()
    assert [problem.kind for problem in parsed.refused] == ["bad_layout"]


@every([name for name in TAGGED if issubclass(get_format(name).parser, TagParser)], str)
def test_a_parameter_before_its_function_is_not_thrown_away(name: str) -> None:
    """The other call in the section is made."""
    form = get_format(name)
    tags = form.parser.tags
    if tags.open == tags.call:
        return  # without a section, what is before a call is content
    text = form.example
    parameter = form.write_argument("KEY", "VALUE")
    function = text[text.index(tags.call) : text.index(tags.call_end) + len(tags.call_end)]
    swapped = parameter + function.replace(parameter, "")
    parsed = form.parse(text.replace(function, swapped))
    assert parsed.calls == ()
    assert [problem.kind for problem in parsed.problems] == ["bad_layout"]

    beside = form.parse(text.replace(function, f"{swapped}\n{function}"))
    assert plain(beside) == [{"name": "TOOL", "arguments": {"KEY": "VALUE"}}]
    assert [problem.kind for problem in beside.problems] == ["bad_layout"]


PAIR = [
    {"name": "search", "arguments": {"query": "a = 1\nb = 2", "top_k": 3}},
    {"name": "search", "arguments": {"query": "zebra"}},
]


@every(itertools.product(TAGGED, ["", "\n", "\n\n"]), str)
def test_a_doubled_closing_tag_is_no_part_of_a_value(case: tuple[str, str]) -> None:
    name, gap = case
    form = get_format(name)
    closing = form.parser.tags.closing
    text = form.render(PAIR, tools=TOOLS)
    parsed = form.parse(text.replace(closing, closing + gap + closing, 1), TOOLS)
    assert plain(parsed) == PAIR[1:]
    assert [problem.kind for problem in parsed.refused] == ["bad_layout"]


@every(TAGGED, str)
def test_an_argument_does_not_swallow_the_next_one_if_its_closing_tag_is_missing(name: str) -> None:
    form = get_format(name)
    text = form.render(PAIR, tools=TOOLS)
    closing = form.parser.tags.closing
    parsed = form.parse(re.sub(rf"\n?{re.escape(closing)}", "", text, count=1), TOOLS)
    assert plain(parsed) == PAIR[len(parsed.refused) :]
    assert parsed.problems


@pytest.mark.parametrize(
    ("name", "shape", "value"),
    [
        ("qwen3_coder", CODER, "<parameter=a>\nx\n</parameter>"),
        ("qwen3_coder", CODER, "print('</parameter>')\nx = 1"),
        ("qwen3_coder", CODER, "print('<parameter=a>')"),
        ("glm45", GLM, "<arg_value>x</arg_value>"),
        ("glm45", GLM, "s = '<arg_value>'\nprint(s)"),
    ],
)
def test_tags_in_a_value_are_kept_if_there_is_one_reading(
    name: str, shape: str, value: str
) -> None:
    (call,) = get_format(name).parse(shape.format("KEY", value), TYPED).calls
    assert call.arguments == {"KEY": value}


@pytest.mark.parametrize(
    ("schema", "value", "read"),
    [
        ({"$ref": "#/$defs/City"}, "42", "42"),
        ({"allOf": [{"$ref": "#/$defs/City"}], "description": "where"}, "null", "null"),
        ({"anyOf": [{"$ref": "#/$defs/City"}, {"type": "null"}]}, "null", None),
        ({"$ref": "#/$defs/Loop"}, "42", 42),
        ({"const": "1"}, "1", "1"),
        ({"type": "str"}, "42", "42"),
        ({"type": "STRING"}, "42", "42"),
        ({"type": "float"}, "42", 42),
        ({"type": "int"}, "42", 42),
        ({"type": "bool"}, "true", True),
        ({"type": "dict"}, '{"a": 1}', {"a": 1}),
        ({"type": "list"}, "[1]", [1]),
        ({"type": "any"}, "42", 42),
        ({"type": "uuid"}, "42", "42"),
        ({"type": ["int", "none"]}, "null", None),
    ],
)
def test_a_value_has_the_type_that_its_schema_declares_in_any_spelling(
    schema: Any, value: str, read: Any
) -> None:
    defs = {"City": {"enum": ["42", "null"]}, "Loop": {"$ref": "#/$defs/Loop"}}
    parameters = {"type": "object", "properties": {"KEY": schema}, "$defs": defs}
    tools = [{"function": {"name": "TOOL", "parameters": parameters}}]
    for name, shape in (("glm45", GLM), ("qwen3_coder", CODER)):
        (call,) = get_format(name).parse(shape.format("KEY", value), tools).calls
        assert json.dumps(call.arguments) == json.dumps({"KEY": read})


@pytest.mark.parametrize(
    "text",
    [
        'A record such as {"name": "Ann", "type": "person", "id": 3} has no call.',
        'The schema is {"type": "object", "properties": {"name": {"type": "string"}}}.',
        "I would use code_interpreter (a tool) to invoke the functions. [await the result]",
        "zero\u200bwidth",
    ],
)
def test_prose_about_tools_is_not_taken_for_a_call(text: str) -> None:
    for name in format_names():
        parsed = get_format(name).parse(text, TOOLS)
        assert (parsed.calls, parsed.problems, parsed.content) == ((), (), text)


def spellings(name: str, body: str) -> list[tuple[str, str]]:
    """Ways to write a call whose only argument is ``body``, with nothing in it escaped; each
    with its argument."""
    form = get_format(name)
    if isinstance(form, TagFormat | BraceFormat | MiniMaxM3):
        return [(form.example.replace("VALUE", body), body)]
    quoted = [(f"{quote}{body}{quote}", between(quote, body)) for quote in QUOTES]
    if isinstance(form, PythonFormat):
        return [
            (form.write_section([f"TOOL({prefix}{text})"]), argument)
            for prefix in ("KEY=", "KEY=r")
            for text, argument in quoted
        ]
    texts = [(form.example.replace('"VALUE"', f'"{body}"'), body)]
    if name == "llama3":
        texts += [
            (f"{{'name': 'TOOL', 'parameters': {{'KEY': {text}}}}}", argument)
            for text, argument in quoted
        ]
    return texts


def between(quote: str, body: str) -> str:
    """What Python reads: a body that begins and ends with two more quotes is between three of
    them."""
    has_three = len(quote) == 1 and len(body) >= 4 and body[:2] == body[-2:] == quote * 2
    return body[2:-2] if has_three else body


QUOTES = ("'", '"', "'''", '"""')
# Without = and :, with which a body could close the argument and be another one, and without
# escapes.
BODIES = st.lists(
    st.one_of(
        SNIPPETS.filter(lambda text: not set("=:\\") & set(text)),
        st.sampled_from(
            [
                "''",
                '""',
                "' '",
                "\r",
                "\n",
                "\r\n",
                "(",
                ")",
                ", ",
                "]",
                "}",
                "#",
                "\u200b",
                "x",
                "print()",
            ]
        ),
    ),
    max_size=6,
).map("".join)


@pytest.mark.parametrize("name", every_parser())
@given(body=BODIES, places=st.lists(st.integers(0, 10**6), max_size=4))
@example(body="s = ''; print(len(s))".replace("=", "is"), places=[])
@example(body="a\r\nb", places=[])
@example(body="print(' ')", places=[])
@example(body="''''", places=[])
@example(body="''x''", places=[])
@settings(max_examples=25, suppress_health_check=[HealthCheck.too_slow])
def test_an_argument_is_read_exactly_as_it_was_written_or_there_is_a_problem(
    name: str, body: str, places: list[int]
) -> None:
    form = get_format(name)
    for text, argument in spellings(name, body):
        parsed = form.parse(text, TYPED)
        assert streamed(form, cut(text, places), TYPED) == parsed
        exact = [call.arguments for call in parsed.calls] == [{"KEY": argument}]
        assert exact or parsed.problems, text


@pytest.mark.parametrize("name", every_parser())
@given(
    keys=st.lists(st.sampled_from(["a", "b", "KEY"]), min_size=2, max_size=4), nested=st.booleans()
)
@settings(max_examples=15)
def test_a_repeated_key_is_refused_in_every_spelling(
    name: str, keys: list[str], nested: bool
) -> None:
    form = get_format(name)
    unique = len(set(keys)) == len(keys)
    pairs = list(enumerate(keys))
    inner = "{" + ", ".join(f'"{key}": {number}' for number, key in pairs) + "}"
    written = inner
    values = [("OBJECT", inner)] if nested else [(key, str(number)) for number, key in pairs]
    if isinstance(form, MiniMaxM3):
        written = "".join(f"{SPACE}<{key}>{value}{SPACE}</{key}>" for key, value in values)
    elif isinstance(form, TagFormat):
        written = "".join(
            form.write_argument(key, "VALUE").replace("VALUE", value) for key, value in values
        )
        written = written.replace('string="true"', 'string="false"').replace(
            'type="string"', 'type="object"'
        )
    elif isinstance(form, PythonFormat):
        written = (
            f"OBJECT={inner}" if nested else ", ".join(f"{key}={number}" for number, key in pairs)
        )
    elif isinstance(form, BraceFormat):
        bare = inner.replace('"', "")
        written = f"{{OBJECT:{bare}}}" if nested else bare
    elif nested:
        written = f'{{"OBJECT": {inner}}}'
    texts = [form.write_section([form.write_call("TOOL", written)])]
    if isinstance(form, TagFormat) and nested and not form.parser.tags.hint:
        texts.append(texts[0].replace(inner, inner.replace('"', "'")))
    if name == "llama3":
        texts.append(texts[0].replace('"', "'"))
    for text in texts:
        parsed = form.parse(text, TYPED)
        assert len(parsed.calls) == unique, text
        assert ["duplicate_key"] * (not unique) == [problem.kind for problem in parsed.refused], (
            text
        )
        json.dumps([call.arguments for call in parsed.calls])


SPACE = "]<]minimax[>["
TREE: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "store",
        "parameters": {
            "type": "object",
            "properties": {
                "label": {"type": "string"},
                "tags": {"type": "array", "items": {"$ref": "#/$defs/tag"}},
                "entry": {
                    "anyOf": [
                        {"type": "object", "properties": {"id": {"type": "string"}}},
                        {"type": "null"},
                    ]
                },
            },
            "$defs": {"tag": {"type": "string"}},
        },
    },
}


@pytest.mark.parametrize(
    ("body", "arguments"),
    [
        ("", {}),
        ("<label>3</label>", {"label": "3"}),
        ("<label>a</label> b\n<c></label>", None),
        ("<tags><item>1</item><item>b</item></tags>", {"tags": ["1", "b"]}),
        (
            "<tags></tags><entry><id>7</id><n>7</n></entry>",
            {"tags": [], "entry": {"id": "7", "n": 7}},
        ),
        ('<tags>["x"]</tags>', {"tags": ["x"]}),
        ("<other><item><a>true</a></item></other>", {"other": [{"a": True}]}),
        ("<label><text>hi</text></label>", None),
        ("<entry>x<id>7</id></entry>", None),
        ("<entry><id>7</id><id>8</id></entry>", None),
        ("<entry><id>7</entry></id>", None),
    ],
)
def test_minimax_m3_writes_objects_and_lists_as_tags(
    body: str, arguments: dict[str, Any] | None
) -> None:
    marked = re.sub(r"(</?\w+>)", rf"{SPACE}\1", body)
    text = (
        f"{SPACE}<tool_call>\n{SPACE}<invoke "
        f'name="store">{marked}{SPACE}</invoke>\n{SPACE}</tool_call>'
    )
    form = get_format("minimax_m3")
    parsed = form.parse(text, [TREE])
    assert [call.arguments for call in parsed.calls] == ([] if arguments is None else [arguments])
    assert len(parsed.refused) == (arguments is None)
    if arguments is not None and '["x"]' not in body:
        assert form.render(parsed.calls, tools=[TREE]) == text


def test_minimax_m3_keeps_tags_in_a_value_that_have_no_namespace_token() -> None:
    code = "print('</code></invoke>')"
    form = get_format("minimax_m3")
    text = form.render([{"name": "run", "arguments": {"code": code}}])
    assert [call.arguments for call in form.parse(text).calls] == [{"code": code}]
    assert form.parse(text.replace(f"{SPACE}</code>", "</code>")).refused


def left_over_texts(name: str) -> list[str]:
    """Return sections with a good call and, between their markers, something that is none."""
    form = get_format(name)
    begin, _, end = form.section
    is_list = begin.rstrip().endswith("[")
    opening = begin.rstrip()[:-1] if is_list else begin
    closing = end.lstrip()[1:] if is_list else end
    if not opening.strip() or not closing.strip():
        return []
    call = form.write_call("TOOL", form.write_arguments("TOOL", {"KEY": "VALUE"}, Toolbox()))
    other = '{"name": "TOOL", "arguments": {"KEY": 2}}'
    texts: list[str] = []
    for gap in ("\n", " ", ", ", ";", "", "and"):
        texts.append(f"{opening}{call}{gap}{other}{closing}")
        texts.append(f"{begin}{call}{end.removesuffix(closing)}{gap}{other}{closing}")
    return texts


LEFT_OVER = [(name, text) for name in format_names() for text in left_over_texts(name)]


@every(LEFT_OVER, lambda case: f"{case[0]} {case[1]}")
def test_what_is_left_over_between_markers_is_a_refused_call(case: tuple[str, str]) -> None:
    name, text = case
    form = get_format(name)
    parsed = form.parse(text)
    refused = sum(problem.excerpt.count("TOOL") for problem in parsed.refused)
    assert len(parsed.calls) + refused >= 2, parsed
    for pieces in chunkings(text):
        assert streamed(form, pieces, None) == parsed


def test_objects_on_lines_of_their_own_between_markers_are_all_made() -> None:
    lines = '{"name": "TOOL", "arguments": {"KEY": 1}}\n{"name": "TOOL", "arguments": {"KEY": 2}}'
    parsed = get_format("hunyuan_a13b").parse(f"Well.\n<tool_calls>\n{lines}\n</tool_calls>")
    assert [call.arguments for call in parsed.calls] == [{"KEY": 1}, {"KEY": 2}]
    assert parsed.content == "Well."
    assert not parsed.refused
