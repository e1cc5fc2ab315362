"""The kinds of malformed text: how each is made, and what a good parser makes of it.

A maker gets a ``CallSample`` and changes what the format writes. ``KINDS`` lists the styles of
format for which a kind makes sense; a dialect can replace a maker for its format, or leave the kind
out.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

from sfusion_tools.formats import Format, Toolbox
from sfusion_tools.formats.argumenttext import ArgumentTextFormat
from sfusion_tools.formats.calllist import ListParser
from sfusion_tools.formats.callobject import ObjectFormat
from sfusion_tools.formats.tags import TagFormat

from .keyed_digest import pick, whole

Call = dict[str, Any]
Problems = tuple[tuple[str, str], ...]
TextGrade = Literal["harmless", "repaired", "lost"]


def _tool(name: str, description: str, required: str, **properties: str) -> dict[str, Any]:
    parameters = {
        "type": "object",
        "properties": {key: {"type": kind} for key, kind in properties.items()},
        "required": [required],
    }
    return {
        "type": "function",
        "function": {"name": name, "description": description, "parameters": parameters},
    }


TOOLS: tuple[dict[str, Any], ...] = (
    _tool("code_interpreter", "Run Python code.", "code", code="string", timeout="integer"),
    _tool("calc_gsm8k_reward", "Score an answer.", "answer", answer="string"),
    _tool(
        "search", "Search documents.", "query", query="string", top_k="integer", filters="object"
    ),
)
"""The tools that the texts call, or try to call."""
_TOOLBOX = Toolbox(TOOLS)
_LAST = {"name": "calc_gsm8k_reward", "arguments": {"answer": "72"}}
"""The good call behind a bad one."""

_PLACE = "\ufffc"
_CUT = "\ufffb"
"""Characters that no sample contains: they stand where a text is inserted or cut."""


@dataclass(frozen=True, slots=True)
class Made:
    """A malformed text, and what a good parser makes of it."""

    text: str
    calls: Sequence[Call] = ()
    """The calls that survive."""
    problems: Problems = ()
    """Severity and kind of every problem to report, in any order."""
    grade: TextGrade = "lost"
    """``harmless``: only poor parsers fail. ``repaired``: all calls survive, with a remark.
    ``lost``: some do not."""
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
        written: list[str] = []
        for place, call in enumerate(calls):
            if isinstance(call, str):
                written.append(call)
            else:
                written.append(self.form.write_call(call["name"], self.arguments(call), place))
        return self.form.write_section(written)

    def spliced(self, value: str) -> str:
        """Write the arguments with ``value`` inserted as it is, between the right quotes."""
        return self.arguments(self.with_value(_PLACE)).replace(_PLACE, value)

    def spoiled(self, arguments: str) -> str:
        """Write a turn with one call, which has these arguments as they are."""
        return self.section(self.form.write_call(self.name, arguments))

    def raw(self, value: str) -> str:
        """Write a turn with one call, whose subject is ``value`` as it is."""
        return self.spoiled(self.spliced(value))

    def with_value(self, value: str) -> Call:
        """Return the call with another value for its subject."""
        key, _ = self.subject
        return {"name": self.name, "arguments": {**self.call["arguments"], key: value}}

    def changed(self, change: Callable[[str], str], *calls: Call, place: int = 0) -> str:
        """Write one call whose JSON was changed, or that of several in the place of one."""
        calls = calls or (self.call,)
        if not isinstance(self.form, ObjectFormat):
            arguments = [self.arguments(call) for call in calls]
            return self.form.write_call(self.name, change("\n".join(arguments)), place)

        objects = [self.form.write_object(call["name"], self.arguments(call)) for call in calls]
        before, after = self.form.tag
        return before + change("\n".join(objects)) + after

    def thinking(self, text: str, *, closed: bool = True) -> str:
        """Write a thought, in which ``{call}`` stands for the call."""
        return self.form.write_thinking(text.format(call=self.section(self.call)), closed=closed)

    def pick(self, items: Sequence[str], key: str) -> str:
        return pick(items, "malformed", self.form.name, self.seed, key)


Maker: TypeAlias = Callable[[CallSample], Made]

# The styles of format for which a kind makes sense.
_ARGUMENTS: tuple[type[Format], ...] = (ArgumentTextFormat,)
_JSON: tuple[type[Format], ...] = (ObjectFormat, ArgumentTextFormat)
_ANY: tuple[type[Format], ...] = (Format,)


def refused(text: str, problem: str, *kept: Call) -> Made:
    """For a text of which only the calls ``kept`` survive."""
    return Made(text, kept, (("refused", problem),))


def repaired(text: str, call: Call, problem: str) -> Made:
    return Made(text, [call], (("repaired", problem),), "repaired")


def noticed(text: str, problem: str, *kept: Call) -> Made:
    return Made(text, kept, (("noticed", problem),), "repaired" if kept else "lost")


def maker_of(kind: str) -> Maker:
    return KINDS[kind][0]


def expecting(kind: str, *problems: tuple[str, str]) -> Maker:
    """Return a maker of the same text with other expected problems."""
    return lambda sample: replace(maker_of(kind)(sample), problems=problems)


def bad_escape(
    sample: CallSample, value: str = "re.findall('\\d+', 'a1')", written: str = ""
) -> Made:
    return repaired(sample.raw(written or value), sample.with_value(value), "bad_escape")


def _missing_name(sample: CallSample) -> Made:
    if isinstance(sample.form, ObjectFormat):
        own = f'{{"{sample.form.parser.keys[1]}": {sample.arguments()}}}'
        block = sample.changed(lambda _: own)
    else:
        block = sample.form.write_call("", sample.arguments())
    return refused(sample.section(block), "missing_name")


def _two_objects(sample: CallSample) -> Made:
    both = [sample.call, sample.sibling]
    text = sample.section(sample.changed(str, *both))
    if not isinstance(sample.form, ObjectFormat):
        return refused(text, "several_arguments")
    if issubclass(sample.form.parser, ListParser):
        return Made(text, both, (("repaired", "bad_separator"),), "repaired")
    return Made(text, both, (("repaired", "several_in_one_tag"),) * 2, "repaired")


def _doubled_payload(sample: CallSample) -> Made:
    text = sample.section(sample.changed(lambda payload: payload * 2))
    if not isinstance(sample.form, ObjectFormat):
        return repaired(text, sample.call, "doubled_payload")
    if issubclass(sample.form.parser, ListParser):
        return Made(text, [sample.call], (("refused", "doubled_payload"),), "repaired")
    problems = (("refused", "doubled_payload"), ("repaired", "several_in_one_tag"))
    return Made(text, [sample.call], problems, "repaired")


def _mixed_escape(sample: CallSample) -> Made:
    return refused(sample.raw("import re\\nre.findall(\\d+, s)"), "ambiguous_escape")


def _latex_escape(sample: CallSample) -> Made:
    """LaTeX in JSON: ``\\f`` of a fraction is read as a form feed."""
    read = sample.with_value("\x0crac{1}{2}")
    return repaired(sample.raw("\\frac{1}{2}"), read, "suspicious_escape")


def _broken_unicode(sample: CallSample) -> Made:
    return refused(sample.raw("\\u12"), "bad_escape")


def _raw_newline(sample: CallSample) -> Made:
    code = "a = 1\nprint(a)"
    return repaired(sample.raw(code), sample.with_value(code), "raw_control")


def _unescaped_quotes(sample: CallSample) -> Made:
    return refused(sample.raw('print("hello")'), "bad_json")


def _unbalanced(sample: CallSample) -> Made:
    return refused(sample.section(sample.changed(_without_last)), "bad_json")


def _extra_brace(sample: CallSample) -> Made:
    return _stray(sample, "}")


def _prose_inside(sample: CallSample) -> Made:
    return _stray(sample, " this is my answer")


def _trailing_prose(sample: CallSample) -> Made:
    text = sample.section(sample.call) + "\nSo the final answer is 72. {not json} [1]"
    return Made(text, [sample.call], (), "harmless")


_DRAFT = "maybe {call} later"


def _call_in_think(sample: CallSample) -> Made:
    return noticed(sample.thinking(_DRAFT) + "The answer is 72.", "call_in_think")


def _draft_then_call(sample: CallSample) -> Made:
    text = sample.thinking(_DRAFT) + sample.section(sample.call)
    return noticed(text, "call_in_think", sample.call)


def _unclosed_think(sample: CallSample) -> Made:
    text = sample.thinking("I call it now.\n{call}", closed=False)
    problems = (("noticed", "call_in_think"), ("refused", "unclosed_think"))
    return Made(text, problems=problems)


def _untagged(sample: CallSample) -> Made:
    return noticed(f"```json\n{json.dumps(sample.call)}\n```", "untagged_call")


def _arguments_list(sample: CallSample) -> Made:
    _, value = sample.subject
    return refused(sample.spoiled(json.dumps([value])), "arguments_not_object")


def _arguments_string(sample: CallSample) -> Made:
    _, value = sample.subject
    return refused(sample.spoiled(json.dumps(value)), "arguments_not_object")


def _double_encoded(sample: CallSample) -> Made:
    arguments = json.dumps(json.dumps(sample.call["arguments"]))
    return repaired(sample.spoiled(arguments), sample.call, "double_encoded")


def _stray(sample: CallSample, more: str) -> Made:
    text = sample.section(sample.changed(lambda payload: payload + more))
    return repaired(text, sample.call, "stray_text")


def _closing_tag_inside(sample: CallSample) -> Made:
    call = sample.with_value(f"print('{sample.form.closing}')\nx = 1")
    return Made(sample.section(call), [call], (), "harmless")


def _unclosed_think_alone(sample: CallSample) -> Made:
    text = sample.thinking("I should call the tool now but I ran out of", closed=False).rstrip("\n")
    return replace(noticed(text, "unclosed_think"), finish_reason="length")


def _truncated(sample: CallSample) -> Made:
    """Cut off inside the last argument, with a finish reason as if the calls were complete."""
    first_line = "total = 0"
    call = sample.with_value(f"{first_line}\nfor n in range(100):\n    total += n\nprint(total)")
    text = sample.section(sample.sibling, call)
    size = whole(1, len(first_line), "malformed", sample.form.name, sample.seed, "cut")
    cut = text[: text.rindex(first_line) + size]

    made = refused(cut, "truncated", sample.sibling)
    if issubclass(sample.form.parser, ListParser):
        made = replace(made, problems=(*made.problems, ("repaired", "missing_close")))
    return replace(made, finish_reason="tool_calls")


def _fenced_code(sample: CallSample) -> Made:
    language = sample.pick(("py", "python"), "fence")
    _, code = sample.subject
    return noticed(f"I run this:\n```{language}\n{code}\n```\n", "fenced_code")


def _unknown_tool(sample: CallSample) -> Made:
    name = sample.pick(("code_interpretr", "CodeInterpreter", "solve_equation"), "name")
    text = sample.section({"name": name, "arguments": sample.call["arguments"]}, sample.sibling)
    return refused(text, "unknown_tool", sample.sibling)


def _invented_reply(sample: CallSample) -> Made:
    reply = "\n<tool_response>\n42\n</tool_response>\nThe answer is 42."
    return noticed(sample.section(sample.call) + reply, "invented_reply", sample.call)


def bad_sibling(sample: CallSample, bad: str = "", problem: str = "bad_json") -> Made:
    """A good call, a broken one, a good one."""
    if not bad and isinstance(sample.form, _JSON):
        bad = sample.changed(_without_last, place=1)
    elif not bad:
        bad = sample.form.write_call("", sample.arguments(), place=1)
        problem = "missing_name"
    return refused(sample.section(sample.sibling, bad, _LAST), problem, sample.sibling, _LAST)


def _without_last(payload: str) -> str:
    return payload[:-1]


def unclosed_string(sample: CallSample, quote: str = '"', problem: str = "bad_json") -> Made:
    """A good call, one with a string that never ends, a good one."""
    _, end = sample.spliced(_CUT).split(_CUT)
    closed = sample.spliced(f"x = 1{_CUT}")
    unclosed = closed.replace(f"{_CUT}{end}", end.removeprefix(quote))
    bad = sample.form.write_call(sample.name, unclosed, place=1)
    return bad_sibling(sample, bad, problem)


def _misspelt_tag(sample: CallSample) -> Made:
    """A good call, one in which a tag after a value is misspelt, a good one."""
    call = sample.form.write_call(sample.name, sample.arguments(), place=1)
    tag = sample.form.parser.tags.closing  # type: ignore[attr-defined]
    return bad_sibling(sample, call.replace(tag, tag.replace("a", "", 1), 1), "bad_layout")


KINDS: dict[str, tuple[Maker, tuple[type[Format], ...]]] = {
    "bad_escape": (bad_escape, _JSON),
    "mixed_escape": (_mixed_escape, _JSON),
    "latex_escape": (_latex_escape, _JSON),
    "broken_unicode": (_broken_unicode, _JSON),
    "raw_newline": (_raw_newline, _JSON),
    "unescaped_quotes": (_unescaped_quotes, _JSON),
    "unbalanced": (_unbalanced, _JSON),
    "extra_brace": (_extra_brace, _JSON),
    "missing_name": (_missing_name, _ANY),
    "two_objects": (_two_objects, _JSON),
    "doubled_payload": (_doubled_payload, _JSON),
    "trailing_prose": (_trailing_prose, _ANY),
    "prose_inside": (_prose_inside, _ARGUMENTS),
    "closing_tag_inside": (_closing_tag_inside, _ANY),
    "call_in_think": (_call_in_think, _ANY),
    "draft_then_call": (_draft_then_call, _ANY),
    "unclosed_think": (_unclosed_think, _ANY),
    "unclosed_think_alone": (_unclosed_think_alone, _ANY),
    "truncated": (_truncated, _ANY),
    "fenced_code": (_fenced_code, _ANY),
    "untagged": (_untagged, _ANY),
    "arguments_list": (_arguments_list, _JSON),
    "arguments_string": (_arguments_string, _JSON),
    "double_encoded": (_double_encoded, _JSON),
    "unknown_tool": (_unknown_tool, _ANY),
    "invented_reply": (_invented_reply, _ANY),
    "bad_sibling": (bad_sibling, _ANY),
    "misspelt_tag": (_misspelt_tag, (TagFormat,)),
    "unclosed_string": (unclosed_string, _JSON),
}
"""The maker of each kind, and the styles of format for which it makes sense.

A dialect can add a kind to its format.
"""
