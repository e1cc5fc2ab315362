"""Formats of models of 2026: whole, cut at every place, with several calls, and broken."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from sfusion_tools.formats import format_for, format_names, get_format
from tests.sfusion_tools.formats.recordings import plain, streamed

LOOK = {"name": "look_up", "arguments": {"word": "zebra"}}
ADD = {"name": "add", "arguments": {"numbers": [1, 2], "exact": True}}
TOOLS: list[dict[str, Any]] = [
    {
        "type": "function",
        "function": {
            "name": "look_up",
            "parameters": {"type": "object", "properties": {"word": {"type": "string"}}},
        },
    },
    {
        "type": "function",
        "function": {
            "name": "add",
            "parameters": {
                "type": "object",
                "properties": {"numbers": {"type": "array"}, "exact": {"type": "boolean"}},
            },
        },
    },
]


@dataclass(frozen=True)
class Sample:
    """What a model wrote, and what is read in it."""

    form: str
    text: str
    calls: tuple[dict[str, Any], ...]
    content: str = ""
    problems: tuple[tuple[str, str], ...] = ()


HY3 = (
    "<tool_calls:opensource>\n"
    "<tool_call:opensource>look_up<tool_sep:opensource>\n"
    "<arg_key:opensource>word</arg_key:opensource>\n"
    "<arg_value:opensource>zebra</arg_value:opensource>\n"
    "</tool_call:opensource>\n"
    "<tool_call:opensource>add<tool_sep:opensource>\n"
    "<arg_key:opensource>numbers</arg_key:opensource>\n"
    "<arg_value:opensource>[1, 2]</arg_value:opensource>\n"
    "<arg_key:opensource>exact</arg_key:opensource>\n"
    "<arg_value:opensource>true</arg_value:opensource>\n"
    "</tool_call:opensource>\n"
    "</tool_calls:opensource><｜hy_eos:opensource｜>"
)
DOTS = (
    '<dots_function_call>\n<invoke name="look_up">\n<parameter name="word">zebra</parameter>\n'
    '</invoke>\n<invoke name="add">\n<parameter name="numbers">[1, 2]</parameter>\n'
    '<parameter name="exact">true</parameter>\n</invoke>\n</dots_function_call>'
)
FUNCTIONARY_31 = (
    '<function=look_up>{"word": "zebra"}</function>'
    '<function=add>{"numbers": [1, 2], "exact": true}</function><|eom_id|>'
)
OBJECTS = (
    '{"name": "look_up", "arguments": {"word": "zebra"}}',
    '{"name": "add", "arguments": {"numbers": [1, 2], "exact": true}}',
)
GIGACHAT_3 = f"Well.<|message_sep|>\n\nfunction call<|role_sep|>\n{OBJECTS[0]}<|message_sep|>\n\n"
GIGACHAT_31 = f"Well.<|function_call|>{OBJECTS[0]}<|message_sep|>\n\n"
GRANITE_20B = "".join(f"<function_call> {item}\n" for item in OBJECTS) + "<|endoftext|>"
UNESCAPED = '{"name": "look_up", "arguments": {"word": "a"}} b"}}'
FUNCTIONARY_32 = '>>>look_up\n{"word": "zebra"}>>>add\n{"numbers": [1, 2], "exact": true}<|eot_id|>'
ATEM = (
    '<atem:function_calls>\n<atem:invoke name="look_up">\n'
    '<atem:parameter name="word">zebra</atem:parameter>\n</atem:invoke>\n</atem:function_calls>'
)
ATEM_ADD = (
    '<atem:function_calls>\n<atem:invoke name="add">\n'
    '<atem:parameter name="numbers">[1, 2]</atem:parameter>\n'
    '<atem:parameter name="exact">true</atem:parameter>\n</atem:invoke>\n</atem:function_calls>'
)
MUSE = f" to=look_up<|message|>{ATEM}<|eom|><|start|>assistant to=add<|message|>{ATEM_ADD}<|eot|>"
INKLING = (
    'look_up<|content_invoke_tool_json|>{"name":"look_up","args":{"word":"zebra"}}<|end_message|>'
    "<|message_model|>add<|content_invoke_tool_json|>"
    '{"name":"add","args":{"numbers":[1,2],"exact":true}}<|end_message|>'
    "<|content_model_end_sampling|>"
)
MINICPM5 = (
    '<function name="look_up"><param name="word">zebra</param></function>\n'
    '<function name="add"><param name="numbers"><![CDATA[[1,\n2]]]></param>'
    '<param name="exact">true</param></function><|im_end|>'
)
PROGRAM = "if a[b[0]]>5 and c<3 & d:\n    print('</param></function>')\n"
IN_BLOCK = f'<function name="look_up"><param name="word"><![CDATA[{PROGRAM}]]></param></function>'
LFM2_JSON = f"<|tool_call_start|>[{', '.join(OBJECTS)}]<|tool_call_end|>"
LFM2_CALL = "<|tool_call_start|>[look_up(word='zebra')]<|tool_call_end|>"
SAMPLES = [
    Sample("minicpm5", f"Two things.\n{MINICPM5}", (LOOK, ADD), "Two things."),
    Sample("minicpm5", IN_BLOCK, ({"name": "look_up", "arguments": {"word": PROGRAM}},)),
    Sample(
        "minicpm5",
        IN_BLOCK.replace("[CDATA[", "[CDATA[<![CDATA[x]]></param>", 1),
        ({"name": "look_up", "arguments": {"word": f"<![CDATA[x]]></param>{PROGRAM}"}},),
    ),
    Sample(
        "minicpm5",
        MINICPM5.replace("<![CDATA[[1,\n2]]]>", "\n<![CDATA[[1,\n2]]]>\n"),
        (LOOK, ADD),
    ),
    Sample(
        "minicpm5",
        MINICPM5.replace("2]]]>", "2]") + MINICPM5,
        (LOOK, LOOK, ADD),
        problems=(("refused", "bad_layout"),),
    ),
    Sample(
        "minicpm5",
        IN_BLOCK[: IN_BLOCK.index("print")],
        (),
        problems=(("refused", "truncated"),),
    ),
    Sample(
        "minicpm5",
        MINICPM5.replace("zebra", "a &lt;&amp; b"),
        ({"name": "look_up", "arguments": {"word": "a <& b"}}, ADD),
        problems=(("repaired", "xml_escape"),),
    ),
    Sample(
        "minicpm5",
        MINICPM5.replace("zebra", "a < &lt;"),
        ({"name": "look_up", "arguments": {"word": "a < &lt;"}}, ADD),
    ),
    Sample(
        "minicpm5",
        MINICPM5.replace('name="look_up"', "name='look_up'"),
        (ADD,),
        problems=(("refused", "missing_name"),),
    ),
    Sample("lfm2", f"Two things.\n{LFM2_JSON}<|im_end|>", (LOOK, ADD), "Two things."),
    Sample(
        "lfm2",
        f"<|tool_call_start|>{OBJECTS[0]}<|tool_call_end|>",
        (LOOK,),
        problems=(("repaired", "bad_layout"),),
    ),
    Sample(
        "lfm2",
        LFM2_JSON.replace('"zebra"', '"zebra') + LFM2_CALL,
        (ADD, LOOK),
        problems=(("refused", "bad_json"),),
    ),
    Sample(
        "lfm2",
        LFM2_JSON[: LFM2_JSON.index("exact")],
        (LOOK,),
        problems=(("refused", "truncated"), ("repaired", "missing_close")),
    ),
    Sample(
        "lfm2",
        LFM2_JSON.replace("]<|tool", "] and more <|tool"),
        (LOOK, ADD),
        problems=(("refused", "left_over"),),
    ),
    Sample(
        "lfm2",
        f"{LFM2_CALL}[look_up(word='zebra')]<|tool_call_end|>Well.",
        (LOOK,),
        "Well.",
        (("refused", "doubled_payload"),),
    ),
    Sample("lfm2", f"{LFM2_CALL}Again: {LFM2_CALL}", (LOOK, LOOK), "Again:"),
    Sample("lfm2", "Well.<|tool_call_start|>", (), "Well.", (("refused", "truncated"),)),
    Sample(
        "lfm2",
        "<|tool_call_start|>look_up(wor",
        (),
        "look_up(wor",
        (("refused", "truncated"),),
    ),
    Sample(
        "lfm2",
        f"<think>{LFM2_JSON}</think>Well.",
        (),
        f"<think>{LFM2_JSON}</think>Well.",
        (("noticed", "call_in_think"),),
    ),
    Sample("functionary_v32", f"all\nTwo things.{FUNCTIONARY_32}", (LOOK, ADD), "Two things."),
    Sample("functionary_v32", FUNCTIONARY_32.removeprefix(">>>"), (LOOK, ADD)),
    Sample("functionary_v32", "Hi.\nIn Python: >>> 1 + 1\n2", (), "Hi.\nIn Python: >>> 1 + 1\n2"),
    Sample("functionary_v32", "No\nand no.", (), "No\nand no."),
    Sample("functionary_v32", "look_up\n", (), problems=(("refused", "truncated"),)),
    Sample("functionary_v32", "all\nWell.>>>look", (), "Well.", (("refused", "truncated"),)),
    Sample(
        "functionary_v32",
        FUNCTIONARY_32.replace('"zebra"', '"zebra', 1),
        (ADD,),
        problems=(("refused", "bad_json"),),
    ),
    Sample(
        "functionary_v32", ">>>python\nprint(1)<|eot_id|>", (), problems=(("refused", "bad_json"),)
    ),
    Sample(
        "functionary_v32",
        FUNCTIONARY_32.replace("look_up\n", "", 1),
        (ADD,),
        problems=(("refused", "bad_layout"),),
    ),
    Sample("functionary_v32", ">>> {1: 2}\n{1: 2}", (), ">>> {1: 2}\n{1: 2}"),
    Sample("muse_glimmer", MUSE, (LOOK, ADD)),
    Sample("muse_glimmer", MUSE.removeprefix(" "), (LOOK, ADD)),
    Sample("muse_glimmer", " to=user<|message|>Two things.<|eot|>", (), "Two things."),
    Sample("muse_glimmer", "to=5 is what it says.", (), "to=5 is what it says."),
    Sample(
        "muse_glimmer",
        f" to=self<|message|>Look.<|eom|><|start|>assistant{MUSE}",
        (LOOK, ADD),
        " to=self<|message|>Look.<|eom|>",
    ),
    Sample(
        "muse_glimmer",
        f" to=self<|message|>{ATEM}<|eom|><|start|>assistant to=user<|message|>Well.<|eot|>",
        (),
        f" to=self<|message|>{ATEM}<|eom|>Well.",
        (("noticed", "call_in_think"),),
    ),
    Sample(
        "muse_glimmer",
        f" to=look_up<|message|>zebra<|eom|><|start|>assistant to=add<|message|>{ATEM_ADD}<|eot|>",
        (ADD,),
        problems=(("refused", "no_call_object"),),
    ),
    Sample("muse_glimmer", " to=look_up<|mess", (), problems=(("refused", "truncated"),)),
    Sample(
        "muse_glimmer",
        f"{MUSE}<|start|>assistant to=lo",
        (LOOK, ADD),
        problems=(("refused", "truncated"),),
    ),
    Sample("inkling", INKLING, (LOOK, ADD)),
    Sample(
        "inkling",
        "<|content_text|>Two things.<|end_message|><|message_model|>" + INKLING,
        (LOOK, ADD),
        "Two things.",
    ),
    Sample(
        "inkling",
        "<|content_thinking|>Look.<|end_message|><|message_model|>" + INKLING,
        (LOOK, ADD),
        "<|content_thinking|>Look.<|end_message|>",
    ),
    Sample(
        "inkling", INKLING.replace('"zebra"', "zebra"), (ADD,), problems=(("refused", "bad_json"),)
    ),
    Sample(
        "inkling",
        "<|content_invoke_tool_text|>look up zebra<|end_message|>",
        (),
        problems=(("refused", "no_call_object"),),
    ),
    Sample("gigachat3", GIGACHAT_3, (LOOK,), "Well."),
    Sample("gigachat3", GIGACHAT_31, (LOOK,), "Well."),
    Sample("gigachat3", GIGACHAT_31.removesuffix("<|message_sep|>\n\n"), (LOOK,), "Well."),
    Sample("gigachat3", f"{GIGACHAT_31}Is it right?", (LOOK,), "Well.\n\nIs it right?"),
    Sample(
        "gigachat3",
        f"{GIGACHAT_31[:-20]}<|message_sep|>{GIGACHAT_31}",
        (LOOK,),
        "Well.Well.",
        (("refused", "bad_json"),),
    ),
    Sample(
        "gigachat3",
        f"<|function_call|>{UNESCAPED}<|message_sep|>",
        (),
        problems=(("refused", "stray_text"),),
    ),
    Sample("granite_20b_fc", GRANITE_20B, (LOOK, ADD)),
    Sample(
        "granite_20b_fc",
        "<function_call> " + "\n".join(OBJECTS),
        (LOOK, ADD),
        problems=(("repaired", "several_in_one_tag"),) * 2,
    ),
    Sample(
        "granite_20b_fc",
        GRANITE_20B.replace('"zebra"', '"zebra', 1),
        (ADD,),
        problems=(("refused", "bad_json"),),
    ),
    Sample(
        "granite_20b_fc",
        "<function_call> I would look it up.",
        (),
        "I would look it up.",
        (("refused", "no_call_object"),),
    ),
    Sample(
        "granite_20b_fc",
        f"<function_call> {OBJECTS[0]}}} Done.",
        (LOOK,),
        "Done.",
        (("repaired", "stray_text"),),
    ),
    Sample("hunyuan_v3_open", HY3, (LOOK, ADD)),
    Sample(
        "hunyuan_v3_open",
        HY3.replace("<arg_value:opensource>[1, 2]</arg_value:opensource>\n", "", 1),
        (LOOK,),
        problems=(("refused", "bad_layout"),),
    ),
    Sample("dots", f"Two things.\n{DOTS}", (LOOK, ADD), "Two things."),
    Sample(
        "dots",
        DOTS.replace("zebra</parameter>", "zebra"),
        (ADD,),
        problems=(("refused", "bad_layout"),),
    ),
    Sample("functionary_v31", f"Two things.{FUNCTIONARY_31}", (LOOK, ADD), "Two things."),
    Sample(
        "functionary_v31",
        FUNCTIONARY_31.replace('"zebra"', "zebra"),
        (ADD,),
        problems=(("refused", "bad_json"),),
    ),
]


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.form)
def test_a_text_is_read_as_a_whole_and_cut_at_every_place(sample: Sample) -> None:
    form = get_format(sample.form)
    whole = form.parse(sample.text, TOOLS)
    assert plain(whole) == list(sample.calls)
    assert whole.content == sample.content
    assert tuple((problem.severity, problem.kind) for problem in whole.problems) == sample.problems
    for at in range(1, len(sample.text)):
        assert streamed(form, [sample.text[:at], sample.text[at:]], TOOLS) == whole, at
    assert streamed(form, list(sample.text), TOOLS) == whole


@pytest.mark.parametrize("name", sorted({sample.form for sample in SAMPLES}))
def test_a_text_that_is_cut_off_loses_the_last_call_with_a_reason(name: str) -> None:
    form = get_format(name)
    text = form.render([LOOK, ADD], tools=TOOLS)
    for at in range(1, text.lower().rindex("true") + 2):
        parsed = form.parse(text[:at], TOOLS, finish_reason="length")
        assert plain(parsed) in ([], [LOOK]), at
    assert parsed.refused


LEFT_OF_CALLS = [
    ("minicpm5", MINICPM5.partition("\n")[0].removeprefix('<function name="')),
    ("minicpm5", '<function_name="look_up"><param name="word">zebra</param></function>'),
    ("functionary_v31", FUNCTIONARY_31.partition("<function=add")[0].removeprefix("<function=")),
    ("functionary_v31", 'look_up {"word": "zebra"}</function>'),
    ("functionary_v32", 'Well.\nlook_up\n{"word": "zebra"}'),
    ("functionary_v32", '>>>look}up\n{"word": "zebra"}'),
    ("dots", DOTS.replace("<dots_function_call>\n", "").replace("\n</dots_function_call>", "")),
    ("hunyuan_v3_open", HY3.replace("<tool_call:opensource>", "")),
    ("gigachat3", GIGACHAT_31.replace("<|function_call|>", "")),
    ("granite_20b_fc", f"function_call {OBJECTS[0]}"),
    ("lfm2", LFM2_JSON.replace("<|tool_call_start|>", "")),
    ("lfm2", "look_up(word='zebra')]<|tool_call_end|>"),
    ("lfm2", "<tool_call_start>look_up(word='zebra')]<|tool_call_end|>"),
    ("dots", DOTS.replace("<dots_function_call>\n<invoke ", "invoke ")),
    ("muse_glimmer", ATEM.replace("<atem:function_calls>\n<atem:invoke ", "invoke ")),
    ("hunyuan_v3_open", "look_up zebra</tool_calls:opensource>"),
    ("muse_glimmer", ATEM.replace("<atem:function_calls>\n", "")),
    ("inkling", '{"name":"look_up","args":{"word":"zebra"}}<|end_message|>'),
]
"""What is left of a call if its opening marker is missing or misspelt."""


@pytest.mark.parametrize(("name", "text"), LEFT_OF_CALLS)
def test_a_call_without_its_opening_marker_is_made_or_told(name: str, text: str) -> None:
    parsed = get_format(name).parse(text, TOOLS)
    assert parsed.calls or parsed.problems


@pytest.mark.parametrize("name", format_names())
def test_prose_and_code_are_no_calls(name: str) -> None:
    """Such as comments of C# and HTML with params, JSON, and a tool's name in a sentence."""
    prose = (
        '/// <param name="x">The x.</param>\npublic void add(int x) {}\n'
        '<object data="m"><param name="movie" value="a"></object>\n'
        'I add {"a": 1} to it, and look_up is a tool. Then f() => {} and {"a": [1]}.'
    )
    parsed = get_format(name).parse(prose, TOOLS)
    assert parsed.content == prose
    assert not parsed.calls
    assert not parsed.problems


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("tencent/Hy3", "hunyuan_v3_open"),
        ("dots-studio/dots3-note-prev", "dots"),
        ("rednote-hilab/dots.llm1.inst", None),
        ("meetkai/functionary-small-v3.1", "functionary_v31"),
        ("meetkai/functionary-small-v2.5", None),
        ("openbmb/MiniCPM5-1B", "minicpm5"),
        ("openbmb/MiniCPM4-8B", None),
        ("LiquidAI/LFM2.5-8B-A1B", "lfm2"),
        ("ai-sage/GigaChat3-10B-A1.8B", "gigachat3"),
        ("ibm-granite/granite-20b-functioncalling", "granite_20b_fc"),
        ("meetkai/functionary-small-v3.2", "functionary_v32"),
        ("meta-models/Muse-Glimmer-30B", "muse_glimmer"),
        ("thinkingmachines/Inkling-Small", "inkling"),
        ("inclusionAI/Ling-1T", "hermes"),
        ("inclusionAI/Ling-2.6-flash", "hermes"),
        ("inclusionAI/Ling-3.0-flash", "glm47"),
        ("inclusionAI/Ling-3.0-tiny", "glm45"),
        ("inclusionAI/Ring-2.5-1T", "hermes"),
        ("inclusionAI/Ring-2.6-1T", "glm45"),
        ("someone/sparkling-flash", None),
        ("baidu/ERNIE-4.5-21B-A3B-Thinking", "hermes"),
        ("baidu/ERNIE-4.5-21B-A3B-PT", None),
        ("XiaomiMiMo/MiMo-V2-Flash", "qwen3_coder"),
        ("XiaomiMiMo/MiMo-VL-7B-RL", "hermes"),
        ("arcee-ai/Trinity-Mini", "hermes"),
        ("arcee-ai/Trinity-Large-Thinking", "qwen3_coder"),
        ("LGAI-EXAONE/EXAONE-4.0-32B", "hermes"),
        ("LGAI-EXAONE/EXAONE-Deep-32B", None),
    ],
)
def test_the_id_of_a_model_tells_its_format(model: str, name: str | None) -> None:
    form = format_for(model=model)
    assert (form and form.name) == name


def test_a_value_of_mimo_needs_no_lines_of_its_own() -> None:
    """MiMo-V2 writes qwen3_coder without the line breaks around a value."""
    text = (
        "<tool_call>\n<function=look_up>\n<parameter=word>zebra</parameter>\n</function>\n"
        "</tool_call>"
    )
    parsed = get_format("qwen3_coder").parse(text, TOOLS)
    assert plain(parsed) == [LOOK]
    assert not parsed.problems
