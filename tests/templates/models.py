"""Small chat templates of more than forty models, written after the public ones: the same marks in
the same places."""

from __future__ import annotations

import json
import re
from pathlib import Path

from sfusion_tools.formats import Format, get_format
from sfusion_tools.formats.braces import BraceFormat
from sfusion_tools.formats.families.minimax import SPACE, MiniMaxM3
from sfusion_tools.formats.pythonic import PythonFormat

FILES = Path(__file__).parents[1] / "sfusion_tools" / "rollout" / "templates"
_FRAME = """{{ bos_token }}{% if tools %}<<system>>{% endif %}\
{% for m in messages %}{% if m.role == 'tool' %}\
{% if loop.previtem.role != 'tool' %}<<before>>{% endif %}<<reply>>\
{% if loop.last or loop.nextitem.role != 'tool' %}<<after>>{% endif %}\
{% elif m.role == 'assistant' %}<<assistant>>{{ m.content }}\
{% if m.tool_calls %}<<begin>>{% for c in m.tool_calls %}\
{% if not loop.first %}<<between>>{% endif %}<<call>>{% endfor %}<<end>>{% endif %}<<close>>\
{% else %}<<user>>{% endif %}{% endfor %}{% if add_generation_prompt %}<<prompt>>{% endif %}"""
_PLACES = {
    "role": "m.role",
    "content": "m.content",
    "json": "(m.content | tojson)",
    "id": "m.tool_call_id",
    "reply_name": "m.name",
    "tools": "(tools | tojson)",
    "name": "c.function.name",
    "arguments": "(c.function.arguments | tojson)",
    "object": "({'name': c.function.name, 'arguments': c.function.arguments} | tojson)",
    "number": "loop.index0",
    "key": "k",
    "value": "v",
    "value_json": "(v | tojson)",
    "string": "'true'",
    "type": "'string'",
    "thought": "('' if enable_thinking is false else '<think>\\n')",
    "opened": "('</think>' if enable_thinking is false else '<think>')",
    "skipped": "('\\n<think></think>' if enable_thinking is false else '')",
}


def _jinja(text: str) -> str:
    """Write a text with places as an expression."""
    parts = re.split(r"\{(\w+)\}", text)
    return "".join(
        "{{ " + (_PLACES[part] if at % 2 else json.dumps(part, ensure_ascii=False)) + " }}"
        for at, part in enumerate(parts)
        if part
    )


def _arguments(form: Format) -> str:
    """Write the arguments of a call one by one, for a format in which they are not JSON."""
    before = after = ""
    between = "{{ ',' if not loop.first }}"
    if isinstance(form, PythonFormat):
        one = between + _jinja("{key}={value_json}")
    elif isinstance(form, BraceFormat):
        quote = form.parser.quote
        one = between + _jinja(f"{{key}}:{quote}{{value}}{quote}")
        before = "{{ '{' }}"
        after = "{{ '}' }}"
    elif isinstance(form, MiniMaxM3):
        one = _jinja(f"{SPACE}<{{key}}>{{value}}{SPACE}</{{key}}>")
    elif getattr(form, "argument", ""):
        one = _jinja(form.argument)  # type: ignore[attr-defined]
    else:
        return ""
    return f"{before}{{% for k, v in c.function.arguments.items() %}}{one}{{% endfor %}}{after}"


def shaped(form: str, **parts: str) -> str:
    """Return the template of a model whose turns look like this and whose calls are those of a
    format."""
    found = get_format(form)
    begin, between, end = getattr(found, "section", ("", getattr(found, "between", ""), ""))
    if isinstance(getattr(found.parser, "section", None), tuple):
        begin, end = found.parser.section  # type: ignore[attr-defined]
    call = getattr(found, "call", "{name}{arguments}")
    if hasattr(found, "write_object"):
        before, after = found.tag  # type: ignore[attr-defined]
        own = (
            found.write_object("NAME", "ARGS")
            .replace('"NAME"', '"{name}"')
            .replace("ARGS", "{arguments}")
        )
        call = before + own + after
    elif hasattr(found.parser, "quote"):
        call = f"{found.parser.openers[0]}call:{{name}}{{arguments}}{found.parser.close}"  # type: ignore[attr-defined]
    elif not hasattr(found, "call"):
        call = "{name}({arguments})"
    written = _jinja(call)
    own_arguments = _arguments(found)
    if own_arguments:
        head, tail = call.split("{arguments}")
        written = _jinja(head) + own_arguments + _jinja(tail)
    filled = {
        "system": "{tools}",
        "before": "",
        "after": "",
        "begin": begin,
        "between": between,
        "end": end,
    } | parts
    frame = _FRAME.replace("<<call>>", written)
    return re.sub("<<(.*?)>>", lambda place: _jinja(filled[place[1]]), frame)


def chatml(form: str, reply: str = "user", **parts: str) -> str:
    shown = {
        "user": (
            "<|im_start|>user",
            "\n<tool_response>\n{content}\n</tool_response>",
            "<|im_end|>\n",
        ),
        "tool": ("", "<|im_start|>tool\n{content}<|im_end|>\n", ""),
    }
    before, each, after = shown.get(reply, ("", reply, ""))
    own = {
        "system": "<|im_start|>system\n{tools}<|im_end|>\n",
        "user": "<|im_start|>{role}\n{content}<|im_end|>\n",
    }
    turn = {
        "assistant": "<|im_start|>assistant\n",
        "close": "<|im_end|>\n",
        "prompt": "<|im_start|>assistant\n",
    }
    return shaped(form, **own | {"before": before, "reply": each, "after": after} | turn | parts)


def llama(
    form: str,
    mark: str = "eot_id",
    head: tuple[str, str] = ("start_header_id", "end_header_id"),
    about: str = "",
) -> str:
    def turn(role: str, body: str) -> str:
        return f"<|{head[0]}|>{role}<|{head[1]}|>\n\n{body}"

    end = f"<|{mark}|>"
    return shaped(
        form,
        system=turn("system", about + "{tools}" + end),
        user=turn("{role}", "{content}" + end),
        assistant=turn("assistant", ""),
        close=end,
        reply=turn("ipython", "{json}" + end),
        prompt=turn("assistant", ""),
        **({"begin": ""} if form == "llama3" else {}),
    )


def deepseek(form: str, before: str, reply: str, after: str = "", **parts: str) -> str:
    own = {
        "user": "<｜User｜>{content}",
        "assistant": "<｜Assistant｜>",
        "close": "<｜end▁of▁sentence｜>",
    }
    return shaped(
        form,
        **own
        | {"before": before, "reply": reply, "after": after, "prompt": "<｜Assistant｜>"}
        | parts,
    )


def roles(form: str, role: str, close: str, reply: str, ai: str = "assistant", **parts: str) -> str:
    """Turns that begin with a mark of their role and end with another one."""
    own = {
        "user": role.replace("ROLE", "{role}") + "{content}" + close,
        "assistant": role.replace("ROLE", ai),
    }
    own |= {
        "system": role.replace("ROLE", "system") + "{tools}" + close,
        "close": close,
        "reply": reply,
    }
    return shaped(form, **own | {"prompt": own["assistant"]} | parts)


_MISTRAL = {"user": "[INST]{content}[/INST]", "assistant": "", "close": "</s>", "prompt": ""}
_GLM = {
    "user": "<|{role}|>\n{content}",
    "assistant": "<|assistant|>",
    "close": "",
    "prompt": "<|assistant|>",
}
_MINIMAX = {
    "user": "]~b]{role}\n{content}[e~[\n",
    "assistant": "]~b]ai\n",
    "close": "[e~[\n",
    "prompt": "]~b]ai\n",
}

MODELS: dict[str, str] = {
    **{path.stem: path.read_text(encoding="utf-8") for path in sorted(FILES.glob("*.jinja"))},
    "QwQ-32B": chatml("qwen25", prompt="<|im_start|>assistant\n<think>\n"),
    "Qwen3.5": chatml("qwen3_coder", prompt="<|im_start|>assistant\n{thought}"),
    "Qwen3-Next": chatml("qwen25"),
    "Hermes-2-Pro": chatml("hermes", "tool"),
    "SmolLM3": chatml("hermes", "<|im_start|>user\n{content}<|im_end|>\n"),
    "MiMo-VL": chatml("hermes"),
    "xLAM-2-qwen": chatml(
        "xlam",
        "tool",
        system="<|im_start|>system\nMake calls in a single JSON array. {tools}<|im_end|>\n",
    ),
    "LFM2": chatml(
        "lfm2",
        "<|im_start|>tool\n<|tool_response_start|>{content}<|tool_response_end|><|im_end|>\n",
    ),
    "Step-3.5-Flash": chatml("qwen3_coder", "<|im_start|>tool_response\n{content}<|im_end|>\n"),
    "InternLM2.5": chatml(
        "internlm", "<|im_start|>environment name=<|plugin|>\n{content}<|im_end|>\n"
    ),
    "OLMo-3": chatml("olmo3", "<|im_start|>environment\n{content}<|im_end|>\n"),
    "Nemotron-3-Nano": chatml("qwen3_coder", prompt="<|im_start|>assistant\n{thought}"),
    "Llama-3.2": llama("llama3"),
    "ToolACE-2": llama("pythonic", about="[func_name1(params_name1=1)] "),
    "Llama-4 pythonic": llama(
        "pythonic", "eot", ("header_start", "header_end"), "[func_name1(param1=1)] "
    ),
    "Llama-xLAM-2": llama("xlam", about="Make calls in a single JSON array. "),
    "Mistral-Small-3.2": shaped(
        "mistral", **_MISTRAL, reply="[TOOL_RESULTS]{id}[TOOL_CONTENT]{content}[/TOOL_RESULTS]"
    ),
    "Devstral-Small": shaped("mistral", **_MISTRAL, reply="[TOOL_RESULTS]{content}[/TOOL_RESULTS]"),
    "DeepSeek-V3-0324": deepseek(
        "deepseekv3",
        "<｜tool▁outputs▁begin｜>",
        "<｜tool▁output▁begin｜>{content}<｜tool▁output▁end｜>",
        "<｜tool▁outputs▁end｜>",
    ),
    "DeepSeek-V4": deepseek("deepseekv4", "<｜User｜>", "<tool_result>{content}</tool_result>"),
    "GLM-4.6": shaped(
        "glm45",
        **_GLM | {"prompt": "<|assistant|>{skipped}"},
        before="<|observation|>",
        reply="\n<tool_response>\n{content}\n</tool_response>",
    ),
    "GLM-4.7": shaped(
        "glm47",
        **_GLM | {"prompt": "<|assistant|>{opened}"},
        before="<|observation|>",
        reply="<tool_response>{content}</tool_response>",
    ),
    "MiniMax-M2": shaped(
        "minimax_m2",
        **_MINIMAX | {"prompt": "]~b]ai\n<think>\n"},
        before="]~b]tool",
        reply="\n<response>{content}</response>",
        after="[e~[\n",
    ),
    "MiniMax-M3": shaped(
        "minimax_m3",
        **_MINIMAX,
        before="]~b]tool",
        reply="\n<response>{content}</response>",
        after="[e~[\n",
    ),
    "Seed-OSS": roles(
        "seed_oss", "<seed:bos>ROLE\n", "<seed:eos>", "<seed:bos>tool\n{content}<seed:eos>"
    ),
    "Command-A": roles(
        "command_r7b",
        "<|START_OF_TURN_TOKEN|><|ROLE|>",
        "<|END_OF_TURN_TOKEN|>",
        '{"tool_call_id": "{id}", "results": {"0": {json}}}',
        before="<|START_OF_TURN_TOKEN|><|SYSTEM_TOKEN|><|START_TOOL_RESULT|>[",
        after="]<|END_TOOL_RESULT|><|END_OF_TURN_TOKEN|>",
    ),
    "Hunyuan-A13B": roles(
        "hunyuan_a13b",
        "<|ROLE|>",
        "<|eos|>",
        "<tool_response>{content}</tool_response>",
        after="<|extra_0|>",
    ),
    "Hy3": roles(
        "hunyuan_v3_open",
        "<｜hy_ROLE:opensource｜>",
        "<｜hy_eos:opensource｜>",
        "<tool_response>\n{content}\n</tool_response>\n",
    ),
    "Granite-3.3": roles(
        "granite",
        "<|start_of_role|>ROLE<|end_of_role|>",
        "<|end_of_text|>\n",
        "<|start_of_role|>tool<|end_of_role|>{content}<|end_of_text|>\n",
    ),
    "Granite-4.0": roles(
        "hermes",
        "<|start_of_role|>ROLE<|end_of_role|>",
        "<|end_of_text|>\n",
        "\n<tool_response>\n{content}\n</tool_response>",
        before="<|start_of_role|>user<|end_of_role|>",
        after="<|end_of_text|>\n",
    ),
    "Phi-4-mini": roles("phi4_mini", "<|ROLE|>", "<|end|>", "<|tool|>{content}<|end|>"),
    "Step3": roles("step3", "<|BOT|>ROLE\n", "<|EOT|>", "<|BOT|>tool_response\n{content}<|EOT|>"),
    "LongCat-Flash": roles(
        "longcat", "[Round 0] ROLE:", "</longcat_s>", "TOOL:{content}</longcat_s>"
    ),
    "Apertus": roles("apertus", "<|ROLE_start|>", "<|assistant_end|>", "[{content}]"),
    "Jamba-1.6": roles("jamba", "<|bom|><|ROLE|> ", "<|eom|>", "<|bom|><|tool|> {content}<|eom|>"),
    "Nemotron-Nano-v2": roles(
        "nemotron",
        "<SPECIAL_11>ROLE\n",
        "\n<SPECIAL_12>\n",
        "{content}",
        before="<SPECIAL_11>User\n<TOOL_RESPONSE>[",
        after="]</TOOL_RESPONSE>",
        prompt="<SPECIAL_11>Assistant\n<think>\n",
    ),
    "FunctionGemma": roles(
        "functiongemma",
        "<start_of_turn>ROLE\n",
        "<end_of_turn>\n",
        "<start_function_response>response:{reply_name}{value:<escape>{content}<escape>}<end_function_response>",
        ai="model",
    ),
    "Gemma-3 pythonic": roles(
        "pythonic",
        "<start_of_turn>ROLE\n",
        "<end_of_turn>\n",
        "<start_of_turn>user\n{content}<end_of_turn>\n",
        ai="model",
    ),
}
