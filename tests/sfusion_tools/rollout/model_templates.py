"""Chat templates of current models, written down from what is publicly known about them, and what
they must render.

A template here writes the same tokens in the same places as the model's own; the wording of system
prompts is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

TEMPLATES = Path(__file__).parent / "templates"
REPLIES = ("3\n", "149", "<|x|> ½ \\d")
"""What the tools say: to the only call of the first turn and to the two calls of the second."""

CHATML = ("<|im_start|>", "<|im_end|>")
DEEPSEEK = ("<｜User｜>", "<｜Assistant｜>", "<｜end▁of▁sentence｜>")
GLM = ("[gMASK]", "<sop>", "<|system|>", "<|user|>", "<|assistant|>", "<|observation|>")
HARMONY = (
    "<|start|>",
    "<|channel|>",
    "<|constrain|>",
    "<|message|>",
    "<|end|>",
    "<|call|>",
    "<|return|>",
)
KIMI = ("<|im_system|>", "<|im_user|>", "<|im_assistant|>", "<|im_middle|>", "<|im_end|>", "[EOS]")
LLAMA = ("<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "<|eom_id|>", "<|python_tag|>")
MISTRAL = ("</s>", "[INST]", "[/INST]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]")
MISTRAL += ("[TOOL_CALLS]", "[TOOL_RESULTS]", "[/TOOL_RESULTS]")
THINKING = {"on": {}, "off": {"enable_thinking": False}}


@dataclass(frozen=True, eq=False)
class Model:
    """A model's template, how it writes calls, and the text between its turns."""

    name: str
    file: str
    format: str
    eos: str
    special: tuple[str, ...]
    between: Callable[[Sequence[str], str], str]
    """The text after a turn with calls, given the replies and the thinking mode."""
    call_end: str = ""
    """The token with which the engine ends a turn that has calls; ``eos`` if empty."""
    modes: Mapping[str, Mapping[str, Any]] = field(default_factory=lambda: {"": {}})
    thought: Mapping[str, str] = field(default_factory=dict)
    """What the model writes first, by thinking mode."""
    one_call: bool = False
    """The engine ends the turn after one call."""

    @property
    def template(self) -> str:
        return (TEMPLATES / f"{self.file}.jinja").read_text(encoding="utf-8")


def qwen(replies: Sequence[str], mode: str) -> str:
    told = "".join(f"\n<tool_response>\n{reply}\n</tool_response>" for reply in replies)
    empty = "<think>\n\n</think>\n\n" if mode == "off" else ""
    return f"\n<|im_start|>user{told}<|im_end|>\n<|im_start|>assistant\n{empty}"


def qwen_coder(replies: Sequence[str], mode: str) -> str:
    told = "".join(f"<tool_response>\n{reply}\n</tool_response>\n" for reply in replies)
    return f"\n<|im_start|>user\n{told}<|im_end|>\n<|im_start|>assistant\n"


def hermes(replies: Sequence[str], mode: str) -> str:
    told = "\n".join(f"<tool_response>\n{reply}\n</tool_response>" for reply in replies)
    return f"\n<|im_start|>tool\n{told}<|im_end|><|im_start|>assistant\n"


def llama(replies: Sequence[str], mode: str) -> str:
    told = (
        f"<|start_header_id|>ipython<|end_header_id|>\n\n{quoted(reply)}<|eot_id|>"
        for reply in replies
    )
    return f"{''.join(told)}<|start_header_id|>assistant<|end_header_id|>\n\n"


def mistral(replies: Sequence[str], mode: str) -> str:
    return "".join(
        f'[TOOL_RESULTS]{{"content": {reply}, "call_id": "ID"}}[/TOOL_RESULTS]' for reply in replies
    )


def deepseek(replies: Sequence[str], mode: str) -> str:
    return "".join(f"<｜tool▁output▁begin｜>{reply}<｜tool▁output▁end｜>" for reply in replies)


def glm(replies: Sequence[str], mode: str) -> str:
    told = "".join(f"\n<tool_response>\n{reply}\n</tool_response>" for reply in replies)
    return f"{told}<|assistant|>" + ("\n<think></think>" if mode == "off" else "")


def kimi(replies: Sequence[str], mode: str) -> str:
    head = "<|im_system|>code_interpreter<|im_middle|>## Return of functions.code_interpreter:"
    told = (f"{head}{place}\n{reply}<|im_end|>" for place, reply in enumerate(replies))
    return f"{''.join(told)}<|im_assistant|>assistant<|im_middle|>"


def harmony(replies: Sequence[str], mode: str) -> str:
    head = "<|start|>functions.code_interpreter to=assistant<|channel|>commentary<|message|>"
    return "".join(f"{head}{quoted(reply)}<|end|>" for reply in replies) + "<|start|>assistant"


def quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace("\n", "\\n") + '"'


MODELS = [
    Model("Qwen2.5", "qwen2.5", "qwen25", "<|im_end|>", CHATML, qwen),
    Model(
        "Qwen3",
        "qwen3",
        "qwen25",
        "<|im_end|>",
        CHATML,
        qwen,
        modes=THINKING,
        thought={"on": "<think>\nhm\n</think>\n\n"},
    ),
    Model("Qwen3-Coder", "qwen3-coder", "qwen3_coder", "<|im_end|>", CHATML, qwen_coder),
    Model(
        "Llama-3.1, 3.3", "llama-3.1", "llama3", "<|eot_id|>", LLAMA, llama, call_end="<|eom_id|>"
    ),
    Model("Mistral-Nemo", "mistral-nemo", "mistral", "</s>", MISTRAL, mistral),
    Model(
        "DeepSeek-V3.1",
        "deepseek-v3.1",
        "deepseekv31",
        "<｜end▁of▁sentence｜>",
        DEEPSEEK,
        deepseek,
        modes={"on": {"thinking": True}, "off": {}},
        thought={"on": "hm</think>"},
    ),
    Model(
        "GLM-4.5",
        "glm-4.5",
        "glm45",
        "<|endoftext|>",
        GLM,
        glm,
        call_end="<|observation|>",
        modes=THINKING,
        thought={"on": "\n<think>hm</think>\n"},
    ),
    Model("Kimi-K2", "kimi-k2", "kimi_k2", "[EOS]", KIMI, kimi, call_end="<|im_end|>"),
    Model(
        "gpt-oss",
        "gpt-oss",
        "gpt-oss",
        "<|return|>",
        HARMONY,
        harmony,
        call_end="<|call|>",
        modes={"on": {}},
        thought={"on": "<|channel|>analysis<|message|>hm<|end|>"},
        one_call=True,
    ),
    Model("Hermes-3", "hermes-3", "hermes", "<|im_end|>", CHATML, hermes),
]
