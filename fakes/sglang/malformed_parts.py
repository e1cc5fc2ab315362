"""How each format spells a call out of raw parts, so that one part can be spelt wrongly and the others rightly."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from typing import Any, Literal

__all__ = ["Family", "Spelling", "spelling"]

Family = Literal["object", "arguments", "raw", "python"]


class Spelling(ABC):
    """One format, taken apart."""

    family: Family
    closing: str
    """A marker that would end a call if it did not stand inside a string."""

    @abstractmethod
    def block(self, name: str, body: str) -> str:
        """One call whose arguments are given as they are to be written."""

    @abstractmethod
    def join(self, blocks: list[str]) -> str:
        """All calls of a turn."""

    def body(self, arguments: dict[str, Any]) -> str:
        """Arguments, rightly written."""
        return json.dumps(arguments, ensure_ascii=False)

    def thought(self, text: str, *, closed: bool = True) -> str:
        """Thinking with this text in it."""
        return f"<think>\n{text}\n" + ("</think>\n\n" if closed else "")


class _Object(Spelling):
    family = "object"

    def __init__(self, before: str, between: str, after: str, key: str, tag: tuple[str, str], closing: str) -> None:
        self._before, self._between, self._after = before, between, after
        self._key, self._tag, self.closing = key, tag, closing

    def object(self, name: str, body: str) -> str:
        """The object of a call, without the tag around it."""
        return f'{{"name": {json.dumps(name)}, "{self._key}": {body}}}'

    def nameless(self, body: str) -> str:
        """The object of a call that says no name."""
        return self.tagged(f'{{"{self._key}": {body}}}')

    def tagged(self, text: str) -> str:
        """A text in the place of an object."""
        return self._tag[0] + text + self._tag[1]

    def block(self, name: str, body: str) -> str:
        return self.tagged(self.object(name, body))

    def join(self, blocks: list[str]) -> str:
        return self._before + self._between.join(blocks) + self._after


class _Arguments(Spelling):
    family = "arguments"

    def __init__(self, section: tuple[str, str], between: str, call: tuple[str, str, str]) -> None:
        self._section, self._between, self._call = section, between, call
        self.closing = call[2].removeprefix("\n```")

    def block(self, name: str, body: str) -> str:
        head, middle, end = self._call
        return f"{head}{name}{middle}{body}{end}"

    def join(self, blocks: list[str]) -> str:
        return self._section[0] + self._between.join(blocks) + self._section[1]


class _Kimi(_Arguments):
    def join(self, blocks: list[str]) -> str:
        numbered = [block.replace(":0<|tool", f":{number}<|tool", 1) for number, block in enumerate(blocks)]
        return super().join(numbered)


class _Harmony(_Arguments):
    def thought(self, text: str, *, closed: bool = True) -> str:
        return f"<|channel|>analysis<|message|>{text}" + ("<|end|>" if closed else "")


class _Python(Spelling):
    family = "python"
    closing = "]"

    def block(self, name: str, body: str) -> str:
        return f"{name}({body})"

    def body(self, arguments: dict[str, Any]) -> str:
        return ", ".join(f"{key}={value!r}" for key, value in arguments.items())

    def join(self, blocks: list[str]) -> str:
        return f"[{', '.join(blocks)}]"


class _Qwen3Coder(Spelling):
    family = "raw"
    closing = "</tool_call>"

    def block(self, name: str, body: str) -> str:
        return f"<tool_call>\n<function={name}>\n{body}</function>\n</tool_call>"

    def body(self, arguments: dict[str, Any]) -> str:
        return "".join(f"<parameter={key}>\n{_raw(value)}\n</parameter>\n" for key, value in arguments.items())

    def join(self, blocks: list[str]) -> str:
        return "\n".join(blocks)


class _Glm(_Qwen3Coder):
    closing = "</arg_value>"

    def block(self, name: str, body: str) -> str:
        return f"<tool_call>{name}\n{body}</tool_call>"

    def body(self, arguments: dict[str, Any]) -> str:
        return "".join(
            f"<arg_key>{key}</arg_key>\n<arg_value>{_raw(value)}</arg_value>\n" for key, value in arguments.items()
        )


def _raw(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


_TAGS = ("<tool_call>\n", "\n</tool_call>")
_SPELLINGS: dict[str, Spelling] = {
    "hermes": _Object("", "\n", "", "arguments", _TAGS, "</tool_call>"),
    "qwen25": _Object("", "\n", "", "arguments", _TAGS, "</tool_call>"),
    "llama3": _Object("<|python_tag|>", ";", "", "parameters", ("", ""), "<|eom_id|>"),
    "mistral": _Object("[TOOL_CALLS] [", ", ", "]", "arguments", ("", ""), "]"),
    "deepseekv3": _Arguments(
        ("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"),
        "\n",
        ("<｜tool▁call▁begin｜>function<｜tool▁sep｜>", "\n```json\n", "\n```<｜tool▁call▁end｜>"),
    ),
    "deepseekv31": _Arguments(
        ("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"),
        "",
        ("<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>"),
    ),
    "kimi_k2": _Kimi(
        ("<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"),
        "",
        ("<|tool_call_begin|>functions.", ":0<|tool_call_argument_begin|>", "<|tool_call_end|>"),
    ),
    "gpt-oss": _Harmony(
        ("", ""),
        "",
        ("<|start|>assistant<|channel|>commentary to=functions.", " <|constrain|>json<|message|>", "<|call|>"),
    ),
    "pythonic": _Python(),
    "qwen3_coder": _Qwen3Coder(),
    "glm45": _Glm(),
}


def spelling(form: str) -> Spelling:
    """The parts of a format, by the format's own name."""
    return _SPELLINGS[form]


def object_spelling(form: str) -> _Object:
    """The parts of a format that writes a call as an object."""
    parts = _SPELLINGS[form]
    assert isinstance(parts, _Object)
    return parts
