"""The kinds of malformed text: how each is made from a good call, and what a good parser makes of it.

A maker gets a ``CallSample`` and changes what the format writes. ``KINDS`` lists the styles of format for which a kind
makes sense; a dialect can replace a maker for its format, or leave the kind out.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

from sfusion.fakes.sglang.keyed_digest import pick, whole
from sfusion_tools.formats import Format, Toolbox
from sfusion_tools.formats.argumenttext import ArgumentTextFormat
from sfusion_tools.formats.callobject import ObjectFormat

Call = dict[str, Any]
Problems = tuple[tuple[str, str], ...]
TextGrade = Literal["harmless", "repaired", "lost"]


def _tool(name: str, description: str, required: str, **properties: str) -> dict[str, Any]:
    parameters = {
        "type": "object",
        "properties": {key: {"type": kind} for key, kind in properties.items()},
        "required": [required],
    }
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}


TOOLS: tuple[dict[str, Any], ...] = (
    _tool("code_interpreter", "Run Python code.", "code", code="string", timeout="integer"),
    _tool("calc_gsm8k_reward", "Score an answer.", "answer", answer="string"),
    _tool("search", "Search documents.", "query", query="string", top_k="integer", filters="object"),
)
"""The tools that the texts call, or try to call."""
_TOOLBOX = Toolbox(TOOLS)
_LAST = {"name": "calc_gsm8k_reward", "arguments": {"answer": "72"}}


@dataclass(frozen=True, slots=True)
class Made:
    """A malformed text, and what a good parser makes of it."""

    text: str
    calls: Sequence[Call] = ()
    """The calls that survive."""
    problems: Problems = ()
    """Severity and kind of every problem to report, in any order."""
    grade: TextGrade = "lost"
    """``harmless``: only poor parsers fail. ``repaired``: all calls survive, with a remark. ``lost``: some do not."""
    finish_reason: str = "stop"
    """The finish reason that the engine reports."""


@dataclass(frozen=True, slots=True)
class CallSample:
    """The material of a malformed text: a format, a call to spoil and a good call next to it."""

    form: Format
    seed: int
    call: Call
    sibling: Call

    @property
    def name(self) -> str:
        return str(self.call["name"])

    @property
    def subject(self) -> tuple[str, str]:
        """The argument to spoil and its value."""
        key, value = next(iter(self.call["arguments"].items()))
        return key, str(value)

    def arguments(self, call: Call | None = None) -> str:
        """Write the arguments of a call correctly; by default of the one to spoil."""
        call = call or self.call
        return self.form.write_arguments(call["name"], call["arguments"], _TOOLBOX)

    def section(self, *calls: Call | str) -> str:
        """Write a turn with these calls; a string is used as it is in place of a call."""
        return self.form.write_section(
            [
                call if isinstance(call, str) else self.form.write_call(call["name"], self.arguments(call), place)
                for place, call in enumerate(calls)
            ]
        )

    def spliced(self, value: str) -> str:
        """Write the arguments with ``value`` inserted as it is, between the right quotes."""
        marker = "\ufffc"
        return self.arguments(self.with_value(marker)).replace(marker, value)

    def spoiled(self, arguments: str) -> str:
        """Write a turn with one call, which has these arguments as they are."""
        return self.section(self.form.write_call(self.name, arguments))

    def with_value(self, value: str) -> Call:
        """Return the call with another value for its subject."""
        key, _ = self.subject
        return {"name": self.name, "arguments": {**self.call["arguments"], key: value}}

    def without_last_brace(self, place: int) -> str:
        """Write the call without the last brace of its JSON."""
        if not isinstance(self.form, ObjectFormat):
            return self.form.write_call(self.name, self.arguments()[:-1], place)
        return self.tagged(self.object()[:-1])

    def object(self, call: Call | None = None) -> str:
        """Write the object of a call, without its tag."""
        assert isinstance(self.form, ObjectFormat)
        call = call or self.call
        return self.form.write_object(call["name"], self.arguments(call))

    def tagged(self, text: str) -> str:
        """Write the tag of an object around ``text``."""
        assert isinstance(self.form, ObjectFormat)
        before, after = self.form.tag
        return before + text + after

    def pick(self, items: Sequence[str], key: str) -> str:
        return pick(items, "malformed", self.form.name, self.seed, key)


Maker: TypeAlias = Callable[[CallSample], Made]


def expecting(maker: Maker, *problems: tuple[str, str]) -> Maker:
    """Return a maker of the same text with other expected problems."""
    return lambda sample: replace(maker(sample), problems=problems)


def bad_escape(sample: CallSample, value: str = "re.findall('\\d+', 'a1')", written: str = "") -> Made:
    text = sample.spoiled(sample.spliced(written or value))
    return Made(text, [sample.with_value(value)], (("repaired", "bad_escape"),), "repaired")


def mixed_escape(sample: CallSample) -> Made:
    text = sample.spoiled(sample.spliced("import re\\nre.findall(\\d+, s)"))
    return Made(text, (), (("refused", "ambiguous_escape"),))


def latex_escape(sample: CallSample) -> Made:
    call = sample.with_value("\x0crac{1}{2}")
    text = sample.spoiled(sample.spliced("\\frac{1}{2}"))
    return Made(text, [call], (("repaired", "suspicious_escape"),), "repaired")


def broken_unicode(sample: CallSample) -> Made:
    return Made(sample.spoiled(sample.spliced("\\u12")), (), (("refused", "bad_escape"),))


def raw_newline(sample: CallSample) -> Made:
    text = sample.spoiled(sample.spliced("a = 1\nprint(a)"))
    return Made(text, [sample.with_value("a = 1\nprint(a)")], (("repaired", "raw_control"),), "repaired")


def unescaped_quotes(sample: CallSample) -> Made:
    return Made(sample.spoiled(sample.spliced('print("hello")')), (), (("refused", "bad_json"),))


def unbalanced(sample: CallSample) -> Made:
    return Made(sample.section(sample.without_last_brace(0)), (), (("refused", "bad_json"),))


def extra_brace(sample: CallSample) -> Made:
    if isinstance(sample.form, ObjectFormat):
        text = sample.section(sample.tagged(sample.object() + "}"))
    else:
        text = sample.spoiled(sample.arguments() + "}")
    return Made(text, [sample.call], (("repaired", "stray_text"),), "repaired")


def missing_name(sample: CallSample) -> Made:
    if isinstance(sample.form, ObjectFormat):
        block = sample.tagged(f'{{"{sample.form.parser.own_key}": {sample.arguments()}}}')
    else:
        block = sample.form.write_call("", sample.arguments())
    return Made(sample.section(block), (), (("refused", "missing_name"),))


def two_objects(sample: CallSample) -> Made:
    both = [sample.call, sample.sibling]
    if not isinstance(sample.form, ObjectFormat):
        text = sample.spoiled("\n".join(map(sample.arguments, both)))
        return Made(text, (), (("refused", "several_arguments"),))
    text = sample.section(sample.tagged("\n".join(map(sample.object, both))))
    return Made(text, both, (("repaired", "several_in_one_tag"),) * 2, "repaired")


def doubled_payload(sample: CallSample) -> Made:
    if not isinstance(sample.form, ObjectFormat):
        text = sample.spoiled(sample.arguments() * 2)
        return Made(text, [sample.call], (("repaired", "doubled_payload"),), "repaired")
    text = sample.section(sample.tagged(sample.object() * 2))
    problems = (("refused", "doubled_payload"), ("repaired", "several_in_one_tag"))
    return Made(text, [sample.call], problems, "repaired")


def trailing_prose(sample: CallSample) -> Made:
    text = f"{sample.section(sample.call)}\nSo the final answer is 72. {{not json}} [1]"
    return Made(text, [sample.call], (), "harmless")


def prose_inside(sample: CallSample) -> Made:
    prose = " this is my answer"
    if isinstance(sample.form, ObjectFormat):
        text = sample.section(sample.tagged(sample.object() + prose))
    else:
        text = sample.spoiled(sample.arguments() + prose)
    return Made(text, [sample.call], (("repaired", "stray_text"),), "repaired")


def closing_tag_inside(sample: CallSample) -> Made:
    call = sample.with_value(f"print('{sample.form.closing}')\nx = 1")
    return Made(sample.section(call), [call], (), "harmless")


def call_in_think(sample: CallSample) -> Made:
    text = sample.form.write_thinking(f"maybe {sample.section(sample.call)} later") + "The answer is 72."
    return Made(text, (), (("noticed", "call_in_think"),))


def draft_then_call(sample: CallSample) -> Made:
    text = sample.form.write_thinking(f"maybe {sample.section(sample.call)} later") + sample.section(sample.call)
    return Made(text, [sample.call], (("noticed", "call_in_think"),), "repaired")


def unclosed_think(sample: CallSample) -> Made:
    text = sample.form.write_thinking(f"I call it now.\n{sample.section(sample.call)}", closed=False)
    return Made(text, (), (("noticed", "call_in_think"), ("refused", "unclosed_think")))


def unclosed_think_alone(sample: CallSample) -> Made:
    text = sample.form.write_thinking("I should call the tool now but I ran out of", closed=False).rstrip("\n")
    return Made(text, (), (("noticed", "unclosed_think"),), finish_reason="length")


def truncated(sample: CallSample) -> Made:
    """Cut off inside the last argument, with a finish reason as if the calls were complete."""
    call = sample.with_value("total = 0\nfor n in range(100):\n    total += n\nprint(total)")
    text = sample.section(sample.sibling, call)
    size = whole(1, len("total = 0"), "malformed", sample.form.name, sample.seed, "cut")
    cut = text[: text.rindex("total = 0") + size]
    return Made(cut, [sample.sibling], (("refused", "truncated"),), finish_reason="tool_calls")


def fenced_code(sample: CallSample) -> Made:
    text = f"I run this:\n```{sample.pick(('py', 'python'), 'fence')}\n{sample.subject[1]}\n```\n"
    return Made(text, (), (("noticed", "fenced_code"),))


def untagged(sample: CallSample) -> Made:
    return Made(f"```json\n{json.dumps(sample.call)}\n```", (), (("noticed", "untagged_call"),))


def arguments_list(sample: CallSample) -> Made:
    return Made(sample.spoiled(json.dumps([sample.subject[1]])), (), (("refused", "arguments_not_object"),))


def arguments_string(sample: CallSample) -> Made:
    return Made(sample.spoiled(json.dumps(sample.subject[1])), (), (("refused", "arguments_not_object"),))


def double_encoded(sample: CallSample) -> Made:
    text = sample.spoiled(json.dumps(json.dumps(sample.call["arguments"])))
    return Made(text, [sample.call], (("repaired", "double_encoded"),), "repaired")


def unknown_tool(sample: CallSample) -> Made:
    name = sample.pick(("code_interpretr", "CodeInterpreter", "solve_equation"), "name")
    text = sample.section({"name": name, "arguments": sample.call["arguments"]}, sample.sibling)
    return Made(text, [sample.sibling], (("refused", "unknown_tool"),))


def invented_reply(sample: CallSample) -> Made:
    text = f"{sample.section(sample.call)}\n<tool_response>\n42\n</tool_response>\nThe answer is 42."
    return Made(text, [sample.call], (("noticed", "invented_reply"),), "repaired")


def bad_sibling(sample: CallSample, bad: str = "", problem: str = "bad_json") -> Made:
    """A good call, a broken one, a good one."""
    text = sample.section(sample.sibling, bad or sample.without_last_brace(1), _LAST)
    return Made(text, [sample.sibling, _LAST], (("refused", problem),))


def unclosed_string(sample: CallSample, quote: str = '"', problem: str = "bad_json") -> Made:
    """A good call, one with a string that never ends, a good one."""
    end = sample.spliced("\ufffb").split("\ufffb")[1]
    arguments = sample.spliced("x = 1\ufffb").replace(f"\ufffb{end}", end.removeprefix(quote))
    return bad_sibling(sample, sample.form.write_call(sample.name, arguments, 1), problem)


_OBJECT: tuple[type[Format], ...] = (ObjectFormat,)
_ARGUMENTS: tuple[type[Format], ...] = (ArgumentTextFormat,)
_JSON = _OBJECT + _ARGUMENTS
_ANY: tuple[type[Format], ...] = (Format,)

KINDS: dict[str, tuple[Maker, tuple[type[Format], ...]]] = {
    "bad_escape": (bad_escape, _JSON),
    "mixed_escape": (mixed_escape, _JSON),
    "latex_escape": (latex_escape, _JSON),
    "broken_unicode": (broken_unicode, _JSON),
    "raw_newline": (raw_newline, _JSON),
    "unescaped_quotes": (unescaped_quotes, _JSON),
    "unbalanced": (unbalanced, _JSON),
    "extra_brace": (extra_brace, _JSON),
    "missing_name": (missing_name, _ANY),
    "two_objects": (two_objects, _JSON),
    "doubled_payload": (doubled_payload, _JSON),
    "trailing_prose": (trailing_prose, _ANY),
    "prose_inside": (prose_inside, _ARGUMENTS),
    "closing_tag_inside": (closing_tag_inside, _ANY),
    "call_in_think": (call_in_think, _ANY),
    "draft_then_call": (draft_then_call, _ANY),
    "unclosed_think": (unclosed_think, _ANY),
    "unclosed_think_alone": (unclosed_think_alone, _ANY),
    "truncated": (truncated, _ANY),
    "fenced_code": (fenced_code, _ANY),
    "untagged": (untagged, _ANY),
    "arguments_list": (arguments_list, _JSON),
    "arguments_string": (arguments_string, _JSON),
    "double_encoded": (double_encoded, _JSON),
    "unknown_tool": (unknown_tool, _ANY),
    "invented_reply": (invented_reply, _ANY),
    "bad_sibling": (bad_sibling, _JSON),
    "unclosed_string": (unclosed_string, _JSON),
}
"""The maker of each kind and the formats for which it makes sense; a dialect can add it to others."""
