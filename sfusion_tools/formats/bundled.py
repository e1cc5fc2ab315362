"""The formats that come with sfusion and can be declared.

The few that need code of their own are in ``families``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from .declared import Declared
from .families.deepseek import MARK as DEEPSEEK_MARK

_MARK = re.compile(r"</?tool_call>?", re.IGNORECASE)
_PARTS_MARK = re.compile(r"<function[= ]|</?arg_(?:key|value)>", re.IGNORECASE)
"""The tags inside a call, of all formats together: models mix them up."""
_CHATML = ("<|im_end|>", "<|endoftext|>")
_OBJECT = "<tool_call>\n{object}\n</tool_call>"
_FUNCTION = "<function={name}>\n{arguments}</function>"
_GLM: dict[str, Any] = {
    "marks": (_MARK, _PARTS_MARK),
    "ends": ("<|observation|>", "<|user|>", "<|endoftext|>"),
}
_DSML: dict[str, Any] = {
    "call": '<｜DSML｜invoke name="{name}">\n{arguments}</｜DSML｜invoke>',
    "argument": '<｜DSML｜parameter name="{key}" string="{string}">{value}</｜DSML｜parameter>\n',
    "ends": ("<｜end▁of▁sentence｜>",),
}
_COHERE = (
    "<|START_RESPONSE|>",
    "<|END_RESPONSE|>",
    "<|START_TEXT|>",
    "<|END_TEXT|>",
    "<|END_OF_TURN_TOKEN|>",
)
_KIMI = (
    "<|open|>response<|sep|>",
    "<|close|>response<|sep|>",
    "<|open|>message<|sep|>",
    "<|close|>message<|sep|>",
)


def _hunyuan_v3(name: str, suffix: str = "", **own: Any) -> Declared:
    """Return a format of Hy3, whose published tokenizer adds the suffix to every marker."""
    end = f"{suffix}>"
    return Declared(
        name,
        call=f"<tool_call{end}{{name}}<tool_sep{end}\n{{arguments}}</tool_call{end}",
        argument=(
            f"<arg_key{end}{{key}}</arg_key{end}\n<arg_value{end}{{value}}</arg_value{end}\n"
        ),
        section=(f"<tool_calls{end}\n", f"\n</tool_calls{end}"),
        think=(f"<think{end}", f"</think{end}"),
        **{**_GLM, "ends": (*_GLM["ends"], f"<｜hy_eos{suffix}｜>")},
        signs=tuple(filter(None, ("tool_sep", "arg_key", "arg_value", "tool_calls", suffix))),
        **own,
    )


DECLARED: Sequence[Declared] = (
    Declared(
        "hermes",
        call=_OBJECT,
        ends=_CHATML,
        marks=(_MARK,),
        signs=("<tool_call>",),
        models=(
            "hermes|granite-?4|smollm3|reka|mimo-vl|internlm-?3|bielik|exaone-?4"
            r"|ernie-?4\.5.*thinking|trinity-(mini|nano)|\b(ling|ring)-(lite|plus|mini|flash|1t|2)"
        ),
    ),
    Declared(
        "qwen25",
        call=_OBJECT,
        ends=_CHATML,
        marks=(_MARK,),
        signs=("<tool_call>", "<|im_start|>"),
        models=r"qwen-?2\.5|qwen-?3|qwq",
        aliases=("qwen",),
    ),
    Declared(
        "qwen3_coder",
        call=_FUNCTION,
        argument="<parameter={key}>\n{value}\n</parameter>\n",
        section=("<tool_call>\n", "\n</tool_call>"),
        each=True,
        ends=_CHATML,
        marks=(_MARK, _PARTS_MARK),
        signs=("<function=", "<parameter=", "</parameter>"),
        models=(
            r"qwen-?3.*coder|qwen-?3\.[56]|.*nemotron-?3|step(fun)?-?3\.5|mimo-v2|trinity-large"
            "|minicpm-v-?4|intern-s2"
        ),
    ),
    Declared(
        "deepseekv31",
        call="<｜tool▁call▁begin｜>{name}<｜tool▁sep｜>{arguments}<｜tool▁call▁end｜>",
        section=("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"),
        between="",
        ends=("<｜end▁of▁sentence｜>",),
        marks=(DEEPSEEK_MARK,),
        signs=("<｜tool▁calls▁begin｜>",),
        models=r"deepseek-?v3\.?(1|2-exp)",
    ),
    Declared(
        "glm45",
        call="<tool_call>{name}\n{arguments}</tool_call>",
        argument="<arg_key>{key}</arg_key>\n<arg_value>{value}</arg_value>\n",
        empty=False,
        **_GLM,
        signs=("<arg_key>", "<arg_value>", "</arg_value>"),
        models=r"glm-?4\.[56]|laguna|\bring-2\.6|\bling-3\.0-tiny",
        aliases=("glm",),
    ),
    Declared(
        "pythonic",
        call="{name}({arguments})",
        section=("[", "]"),
        between=", ",
        ends=("<|python_start|>", "<|python_end|>", "<|eot_id|>", "<|eom|>", "<|eot|>"),
        marks=(),
        signs=("func_name1(param",),
        models="llama-?4|toolace|gemma-?3",
    ),
    Declared(
        "glm47",
        call="<tool_call>{name}{arguments}</tool_call>",
        argument="<arg_key>{key}</arg_key><arg_value>{value}</arg_value>",
        between="",
        **_GLM,
        signs=("<arg_key>", "</arg_key><arg_value>", "</arg_value>"),
        models=r"glm-?(4\.7|5)|\bling-?3",
    ),
    _hunyuan_v3("hunyuan_v3", aliases=("hy3",)),
    _hunyuan_v3("hunyuan_v3_open", ":opensource", models="hy-?3|hunyuan-?3"),
    Declared(
        "minimax_m2",
        call='<invoke name="{name}">\n{arguments}</invoke>',
        argument='<parameter name="{key}">{value}</parameter>\n',
        section=("<minimax:tool_call>\n", "\n</minimax:tool_call>"),
        ends=("[e~[",),
        models="minimax-?m2",
        aliases=("minimax",),
    ),
    Declared(
        "dots",
        call='<invoke name="{name}">\n{arguments}</invoke>',
        argument='<parameter name="{key}">{value}</parameter>\n',
        section=("<dots_function_call>\n", "\n</dots_function_call>"),
        models=r"dots\.?3",
    ),
    Declared(
        "functionary_v31",
        call="<function={name}>{arguments}</function>",
        between="",
        ends=("<|eom_id|>", "<|eot_id|>"),
        marks=(re.compile(r"<function=|\}\s*+</function>"),),
        signs=("<function=", "</function>", "<|start_header_id|>"),
        models=r"functionary.*v3\.1",
    ),
    Declared(
        "minicpm5",
        call='<function name="{name}">{arguments}</function>',
        argument='<param name="{key}">{value}</param>',
        cdata=True,
        openers=("<function name='", '<functionname="'),
        ends=_CHATML,
        marks=(
            re.compile(r"<function ?name=|\">\s*+<param name=\"[\w.-]+\">|</param>\s*+</function>"),
        ),
        signs=('<function name="', '<param name="'),
        models=r"minicpm-?5",
    ),
    Declared(
        "gigachat3",
        call="<|function_call|>{object}",
        between="",
        openers=("function call<|role_sep|>",),
        ends=("<|message_sep|>", "</s>"),
        signs=("<|role_sep|>", "<|message_sep|>", "function call"),
        models="gigachat-?3",
    ),
    Declared(
        "granite_20b_fc",
        call="<function_call> {object}",
        ends=("<|endoftext|>",),
        signs=("<function_call>", "<|function_call_library|>"),
        models="granite-20b-func",
    ),
    Declared(
        "functionary_v32",
        call=">>>{name}\n{arguments}",
        header=(">>>", "", "\n", "all"),
        between="",
        ends=("<|eot_id|>", "<|eom_id|>"),
        marks=(re.compile(r">>>(?:[\w.]+\n|[^\s>][^\n]{0,80}\n\{\")"),),
        signs=(">>>", "recipient"),
        models=r"functionary.*v3\.2",
    ),
    Declared(
        "muse_glimmer",
        call='<atem:invoke name="{name}">\n{arguments}</atem:invoke>',
        argument='<atem:parameter name="{key}">{value}</atem:parameter>\n',
        section=("<atem:function_calls>\n", "\n</atem:function_calls>"),
        each=True,
        header=("<|start|>assistant", " to=", "<|message|>", "user"),
        between="<|eom|>",
        think=("to=self<|message|>", "<|eom|>"),
        ends=("<|eom|>", "<|eot|>"),
        signs=("<atem:invoke", "<|message|>"),
        models="muse-?glimmer",
    ),
    Declared(
        "inkling",
        call="<|content_invoke_tool_json|>{object}<|end_message|>",
        keys=("name", "args", "id"),
        header=("<|message_model|>", "", "<|content_invoke_tool_json|>", ""),
        between="",
        openers=("<|content_invoke_tool_text|>",),
        think=("<|content_thinking|>", "<|end_message|>"),
        ends=("<|content_text|>", "<|end_message|>", "<|content_model_end_sampling|>"),
        models="inkling",
    ),
    Declared(
        "deepseekv32",
        section=("<｜DSML｜function_calls>\n", "\n</｜DSML｜function_calls>"),
        **_DSML,
        signs=("｜DSML｜", "function_calls>"),
        models=r"deepseek-?v3\.2(?!-exp)",
    ),
    Declared(
        "deepseekv4",
        section=("<｜DSML｜tool_calls>\n", "\n</｜DSML｜tool_calls>"),
        **_DSML,
        signs=("｜DSML｜", "tool_calls"),
        models="deepseek-?v4",
    ),
    Declared(
        "seed_oss",
        call=_FUNCTION,
        argument="<parameter={key}>{value}</parameter>\n",
        section=("<seed:tool_call>\n", "\n</seed:tool_call>"),
        each=True,
        think=("<seed:think>", "</seed:think>"),
        ends=("<seed:eos>",),
        signs=("seed:tool_call", "<function=", "<parameter="),
        models="seed-?oss",
    ),
    Declared(
        "step3",
        call=(
            '<｜tool_call_begin｜>function<｜tool_sep｜><steptml:invoke name="{name}">\n'
            "{arguments}</steptml:invoke><｜tool_call_end｜>"
        ),
        argument='<steptml:parameter name="{key}">{value}</steptml:parameter>\n',
        section=("<｜tool_calls_begin｜>\n", "\n<｜tool_calls_end｜>"),
        around=("<｜tool_call_begin｜>function<｜tool_sep｜>", "<｜tool_call_end｜>"),
        signs=("steptml:",),
        models=r"step-?3(?!\.5)",
    ),
    Declared(
        "kimi_k3",
        call=('<|open|>call tool="{name}" index="{number}"<|sep|>{arguments}<|close|>call<|sep|>'),
        argument=(
            '<|open|>argument key="{key}" type="{type}"<|sep|>{value}<|close|>argument<|sep|>'
        ),
        section=("<|open|>tools<|sep|>", "<|close|>tools<|sep|>"),
        between="",
        think=("<|open|>think<|sep|>", "<|close|>think<|sep|>"),
        ends=(*_KIMI, "<|end_of_msg|>", "[EOS]"),
        signs=("<|open|>", "<|sep|>"),
        models="kimi-?k3",
    ),
    Declared(
        "gemma4",
        call="<|tool_call>call:{name}{arguments}<tool_call|>",
        quote='<|"|>',
        think=("<|channel>thought", "<channel|>"),
        ends=("<|tool_response>", "<turn|>"),
        models="gemma-?4",
    ),
    Declared(
        "functiongemma",
        call="<start_function_call>call:{name}{arguments}<end_function_call>",
        quote="<escape>",
        ends=("<end_of_turn>", "<start_function_response>"),
        models="functiongemma",
    ),
    Declared(
        "command_r7b",
        call="{object}",
        section=("<|START_ACTION|>[\n    ", "\n]<|END_ACTION|>"),
        between=",\n    ",
        keys=("tool_name", "parameters", "tool_call_id"),
        think=("<|START_THINKING|>", "<|END_THINKING|>"),
        ends=_COHERE,
        models="command-?(r7b|a)|cohere2|c4ai",
        aliases=("cohere",),
    ),
    Declared(
        "hunyuan_a13b",
        call="{object}",
        section=("<tool_calls>[", "]</tool_calls>"),
        between=", ",
        models="hunyuan|jamba|apriel",
        aliases=("hunyuan", "jamba"),
    ),
    Declared(
        "nemotron",
        call="{object}",
        section=("<TOOLCALL>[", "]</TOOLCALL>"),
        between=", ",
        ends=("<SPECIAL_12>",),
        models="(llama-?3.*)?nemotron",
    ),
    Declared(
        "granite",
        call="{object}",
        section=("<|tool_call|>[", "]"),
        between=", ",
        openers=("<tool_call>",),
        ends=("<|end_of_text|>",),
        signs=("<|start_of_role|>", "<|tool_call|>"),
        models="granite-?3",
    ),
    Declared(
        "phi4_mini",
        call="{object}",
        section=("functools[", "]"),
        between=", ",
        openers=("<|tool_call|>",),
        ends=("<|/tool_call|>", "<|end|>"),
        marks=(re.compile(r"\bfunctools\["),),
        models="phi-?4-mini|firefunction",
    ),
    Declared(
        "xlam",
        call="{object}",
        section=("[", "]"),
        between=", ",
        openers=tuple(f'[{gap}{{"name' for gap in ("", " ", "\n", "\n  ", "\n    ")),
        ends=("<|eot_id|>", "<|im_end|>"),
        marks=(),
        signs=("calls in a single JSON array",),
        models="xlam",
    ),
    Declared(
        "apertus",
        call="{object}",
        section=("<|tools_prefix|>[", "]<|tools_suffix|>"),
        between=", ",
        keys=("", "arguments", "id"),
        think=("<|inner_prefix|>", "<|inner_suffix|>"),
        ends=("<|assistant_end|>",),
        models="apertus",
    ),
    Declared(
        "internlm",
        call="<|action_start|><|plugin|>\n{object}<|action_end|>",
        between="",
        keys=("name", "parameters", "id"),
        openers=("<|action_start|> <|plugin|>",),
        ends=("<|im_end|>",),
        signs=("<|plugin|>",),
        models="internlm-?2|intern-s1",
    ),
    Declared(
        "longcat",
        call="<longcat_tool_call>\n{object}\n</longcat_tool_call>",
        think=("<longcat_think>", "</longcat_think>"),
        ends=("</longcat_s>",),
        models="longcat",
    ),
    Declared(
        "olmo3",
        call="{name}({arguments})",
        section=("<function_calls>\n", "\n</function_calls>"),
        ends=_CHATML,
        models="olmo-?3",
    ),
    Declared(
        "solar_open",
        call=(
            "<|tool_call:begin|>{id}<|tool_call:name|>{name}"
            "<|tool_call:args|>{arguments}<|tool_call:end|>"
        ),
        section=("<|tool_calls|>", "<|calls|>"),
        between="",
        think=("<|think|>", "<|end|>"),
        ends=("<|end|>", "<|content|>", "<|begin|>assistant"),
        models="solar-?open",
    ),
)
