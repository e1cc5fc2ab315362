"""The declarations of the formats that come with sfusion, besides the few in ``families`` that need
code."""

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
_KIMI = tuple(
    f"<|{tag}|>{part}<|sep|>" for part in ("response", "message") for tag in ("open", "close")
)

# fmt: off
DECLARED: Sequence[Declared] = (
    Declared("hermes", _OBJECT, marks=(_MARK,), ends=_CHATML, signs=("<tool_call>",),
             models="hermes|granite-?4|smollm3|reka|mimo-vl|internlm-?3"),
    Declared("qwen25", _OBJECT, marks=(_MARK,), ends=_CHATML, aliases=("qwen",),
             signs=("<tool_call>", "<|im_start|>"), models=r"qwen-?2\.5|qwen-?3|qwq"),
    Declared("qwen3_coder", _FUNCTION, "<parameter={key}>\n{value}\n</parameter>\n", each=True,
             section=("<tool_call>\n", "\n</tool_call>"), marks=(_MARK, _PARTS_MARK), ends=_CHATML,
             signs=("<function=", "<parameter=", "</parameter>"),
             models=r"qwen-?3.*coder|qwen-?3\.[56]|.*nemotron-?3|step(fun)?-?3\.5"),
    Declared("deepseekv31", "<｜tool▁call▁begin｜>{name}<｜tool▁sep｜>{arguments}<｜tool▁call▁end｜>", between="",
             section=("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"), marks=(DEEPSEEK_MARK,),
             ends=("<｜end▁of▁sentence｜>",), signs=("<｜tool▁calls▁begin｜>",), models=r"deepseek-?v3\.?(1|2-exp)"),
    Declared("glm45", "<tool_call>{name}\n{arguments}</tool_call>", empty=False, aliases=("glm",),
             argument="<arg_key>{key}</arg_key>\n<arg_value>{value}</arg_value>\n", **_GLM,
             signs=("<arg_key>", "<arg_value>", "</arg_value>"), models=r"glm-?4\.[56]|laguna"),
    Declared("pythonic", "{name}({arguments})", section=("[", "]"), between=", ", marks=(),
             ends=("<|python_start|>", "<|python_end|>", "<|eot_id|>", "<|eom|>", "<|eot|>"),
             signs=("func_name1(param",), models="llama-?4|toolace|gemma-?3"),
    Declared("glm47", "<tool_call>{name}{arguments}</tool_call>", between="", **_GLM,
             argument="<arg_key>{key}</arg_key><arg_value>{value}</arg_value>",
             signs=("<arg_key>", "</arg_key><arg_value>", "</arg_value>"), models=r"glm-?(4\.7|5)"),
    Declared("hunyuan_v3", "<tool_call>{name}<tool_sep>\n{arguments}</tool_call>",
             "<arg_key>{key}</arg_key>\n<arg_value>{value}</arg_value>\n", **_GLM, aliases=("hy3",),
             section=("<tool_calls>\n", "\n</tool_calls>"), models="hy-?3|hunyuan-?3",
             signs=("tool_sep", "arg_key", "arg_value", "tool_calls")),
    Declared("minimax_m2", '<invoke name="{name}">\n{arguments}</invoke>', aliases=("minimax",),
             argument='<parameter name="{key}">{value}</parameter>\n', ends=("[e~[",),
             section=("<minimax:tool_call>\n", "\n</minimax:tool_call>"), models="minimax-?m2"),
    Declared("deepseekv32", **_DSML, section=("<｜DSML｜function_calls>\n", "\n</｜DSML｜function_calls>"),
             signs=("｜DSML｜", "function_calls>"), models=r"deepseek-?v3\.2(?!-exp)"),
    Declared("deepseekv4", **_DSML, section=("<｜DSML｜tool_calls>\n", "\n</｜DSML｜tool_calls>"),
             signs=("｜DSML｜", "tool_calls"), models="deepseek-?v4"),
    Declared("seed_oss", _FUNCTION, "<parameter={key}>{value}</parameter>\n", each=True, ends=("<seed:eos>",),
             section=("<seed:tool_call>\n", "\n</seed:tool_call>"), think=("<seed:think>", "</seed:think>"),
             signs=("seed:tool_call", "<function=", "<parameter="), models="seed-?oss"),
    Declared("step3", '<｜tool_call_begin｜>function<｜tool_sep｜><steptml:invoke name="{name}">\n'
             "{arguments}</steptml:invoke><｜tool_call_end｜>",
             '<steptml:parameter name="{key}">{value}</steptml:parameter>\n',
             around=("<｜tool_call_begin｜>function<｜tool_sep｜>", "<｜tool_call_end｜>"),
             section=("<｜tool_calls_begin｜>\n", "\n<｜tool_calls_end｜>"), signs=("steptml:",),
             models=r"step-?3(?!\.5)"),
    Declared("kimi_k3", ('<|open|>call tool="{name}" index="{number}"<|sep|>{arguments}<|close|>call<|sep|>'),
             ('<|open|>argument key="{key}" type="{type}"<|sep|>{value}<|close|>argument<|sep|>'), between="",
             section=("<|open|>tools<|sep|>", "<|close|>tools<|sep|>"), ends=(*_KIMI, "<|end_of_msg|>", "[EOS]"),
             think=("<|open|>think<|sep|>", "<|close|>think<|sep|>"), signs=("<|open|>", "<|sep|>"), models="kimi-?k3"),
    Declared("gemma4", "<|tool_call>call:{name}{arguments}<tool_call|>", quote='<|"|>', models="gemma-?4",
             ends=("<|tool_response>", "<turn|>"), think=("<|channel>thought", "<channel|>")),
    Declared("functiongemma", "<start_function_call>call:{name}{arguments}<end_function_call>", quote="<escape>",
             ends=("<end_of_turn>", "<start_function_response>"), models="functiongemma"),
    Declared("command_r7b", "{object}", keys=("tool_name", "parameters", "tool_call_id"), between=",\n    ",
             section=("<|START_ACTION|>[\n    ", "\n]<|END_ACTION|>"), ends=_COHERE, aliases=("cohere",),
             think=("<|START_THINKING|>", "<|END_THINKING|>"), models="command-?(r7b|a)|cohere2|c4ai"),
    Declared("hunyuan_a13b", "{object}", section=("<tool_calls>[", "]</tool_calls>"), between=", ",
             aliases=("hunyuan", "jamba"), models="hunyuan|jamba|apriel"),
    Declared("nemotron", "{object}", section=("<TOOLCALL>[", "]</TOOLCALL>"), between=", ", ends=("<SPECIAL_12>",),
             models="(llama-?3.*)?nemotron"),
    Declared("granite", "{object}", section=("<|tool_call|>[", "]"), between=", ", openers=("<tool_call>",),
             ends=("<|end_of_text|>",), signs=("<|start_of_role|>", "<|tool_call|>"), models="granite-?3"),
    Declared("phi4_mini", "{object}", section=("functools[", "]"), between=", ", openers=("<|tool_call|>",),
             ends=("<|/tool_call|>", "<|end|>"), marks=(re.compile(r"\bfunctools\["),),
             models="phi-?4-mini|firefunction"),
    Declared("xlam", "{object}", section=("[", "]"), between=", ", marks=(), models="xlam",
             openers=tuple(f'[{gap}{{"name' for gap in ("", " ", "\n", "\n  ", "\n    ")),
             signs=("calls in a single JSON array",), ends=("<|eot_id|>", "<|im_end|>")),
    Declared("apertus", "{object}", keys=("", "arguments", "id"), section=("<|tools_prefix|>[", "]<|tools_suffix|>"),
             between=", ", think=("<|inner_prefix|>", "<|inner_suffix|>"), ends=("<|assistant_end|>",),
             models="apertus"),
    Declared("internlm", "<|action_start|><|plugin|>\n{object}<|action_end|>", between="", ends=("<|im_end|>",),
             keys=("name", "parameters", "id"), openers=("<|action_start|> <|plugin|>",), signs=("<|plugin|>",),
             models="internlm-?2|intern-s1"),
    Declared("longcat", "<longcat_tool_call>\n{object}\n</longcat_tool_call>", ends=("</longcat_s>",),
             think=("<longcat_think>", "</longcat_think>"), models="longcat"),
    Declared("olmo3", "{name}({arguments})", section=("<function_calls>\n", "\n</function_calls>"), models="olmo-?3",
             ends=_CHATML),
    Declared("lfm2", "{name}({arguments})", section=("<|tool_call_start|>[", "]<|tool_call_end|>"), between=", ",
             ends=("<|im_end|>",), signs=("<|im_start|>", "<|tool_"), models="lfm-?2"),
    Declared("solar_open",
             "<|tool_call:begin|>{id}<|tool_call:name|>{name}<|tool_call:args|>{arguments}<|tool_call:end|>",
             section=("<|tool_calls|>", "<|calls|>"), between="", ends=("<|end|>", "<|content|>", "<|begin|>assistant"),
             think=("<|think|>", "<|end|>"), models="solar-?open"),
)
# fmt: on
