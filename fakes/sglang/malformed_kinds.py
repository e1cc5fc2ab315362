"""The kinds of malformed text: how each is made from a good call, and what a good parser makes of
it.

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
from sfusion_tools.formats.callobject import ListParser, ObjectFormat
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
        return self.form.write_section(
            [
                call
                if isinstance(call, str)
                else self.form.write_call(call["name"], self.arguments(call), place)
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
            return self.form.write_call(
                self.name, change("\n".join(map(self.arguments, calls))), place
            )
        objects = [self.form.write_object(call["name"], self.arguments(call)) for call in calls]
        before, after = self.form.tag
        return before + change("\n".join(objects)) + after

    def thinking(self, text: str, *, closed: bool = True) -> str:
        return self.form.write_thinking(text.format(call=self.section(self.call)), closed=closed)

    def pick(self, items: Sequence[str], key: str) -> str:
        return pick(items, "malformed", self.form.name, self.seed, key)


Maker: TypeAlias = Callable[[CallSample], Made]


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


def _stray(sample: CallSample, more: str) -> Made:
    return repaired(
        sample.section(sample.changed(lambda payload: payload + more)), sample.call, "stray_text"
    )


def _closing_tag_inside(sample: CallSample) -> Made:
    call = sample.with_value(f"print('{sample.form.closing}')\nx = 1")
    return Made(sample.section(call), [call], (), "harmless")


def _unclosed_think_alone(sample: CallSample) -> Made:
    text = sample.thinking("I should call the tool now but I ran out of", closed=False).rstrip("\n")
    return replace(noticed(text, "unclosed_think"), finish_reason="length")


def _truncated(sample: CallSample) -> Made:
    """Cut off inside the last argument, with a finish reason as if the calls were complete."""
    call = sample.with_value("total = 0\nfor n in range(100):\n    total += n\nprint(total)")
    text = sample.section(sample.sibling, call)
    size = whole(1, len("total = 0"), "malformed", sample.form.name, sample.seed, "cut")
    cut = text[: text.rindex("total = 0") + size]
    made = refused(cut, "truncated", sample.sibling)
    if issubclass(sample.form.parser, ListParser):
        made = replace(made, problems=(*made.problems, ("repaired", "missing_close")))
    return replace(made, finish_reason="tool_calls")


def _fenced_code(sample: CallSample) -> Made:
    text = f"I run this:\n```{sample.pick(('py', 'python'), 'fence')}\n{sample.subject[1]}\n```\n"
    return noticed(text, "fenced_code")


def _unknown_tool(sample: CallSample) -> Made:
    name = sample.pick(("code_interpretr", "CodeInterpreter", "solve_equation"), "name")
    text = sample.section({"name": name, "arguments": sample.call["arguments"]}, sample.sibling)
    return refused(text, "unknown_tool", sample.sibling)


def _invented_reply(sample: CallSample) -> Made:
    text = (
        f"{sample.section(sample.call)}\n<tool_response>\n42\n</tool_response>\nThe answer is 42."
    )
    return noticed(text, "invented_reply", sample.call)


def bad_sibling(sample: CallSample, bad: str = "", problem: str = "bad_json") -> Made:
    """A good call, a broken one, a good one."""
    if not bad and not isinstance(sample.form, _JSON):
        bad, problem = sample.form.write_call("", sample.arguments(), 1), "missing_name"
    bad = bad or sample.changed(_without_last, place=1)
    return refused(sample.section(sample.sibling, bad, _LAST), problem, sample.sibling, _LAST)


def _without_last(payload: str) -> str:
    return payload[:-1]


def unclosed_string(sample: CallSample, quote: str = '"', problem: str = "bad_json") -> Made:
    """A good call, one with a string that never ends, a good one."""
    end = sample.spliced("\ufffb").split("\ufffb")[1]
    arguments = sample.spliced("x = 1\ufffb").replace(f"\ufffb{end}", end.removeprefix(quote))
    return bad_sibling(sample, sample.form.write_call(sample.name, arguments, 1), problem)


def _misspelt_tag(sample: CallSample) -> Made:
    """A good call, one in which a tag after a value is misspelt, a good one."""
    call = sample.form.write_call(sample.name, sample.arguments(), 1)
    tag = sample.form.parser.tags.closing  # type: ignore[attr-defined]
    return bad_sibling(sample, call.replace(tag, tag.replace("a", "", 1), 1), "bad_layout")


_ARGUMENTS: tuple[type[Format], ...] = (ArgumentTextFormat,)
_JSON: tuple[type[Format], ...] = (ObjectFormat, ArgumentTextFormat)
_ANY: tuple[type[Format], ...] = (Format,)
_DRAFT = "maybe {call} later"
_PROSE = "\nSo the final answer is 72. {not json} [1]"

KINDS: dict[str, tuple[Maker, tuple[type[Format], ...]]] = {
    "bad_escape": (bad_escape, _JSON),
    "mixed_escape": (
        lambda s: refused(s.raw("import re\\nre.findall(\\d+, s)"), "ambiguous_escape"),
        _JSON,
    ),
    "latex_escape": (
        lambda s: repaired(
            s.raw("\\frac{1}{2}"), s.with_value("\x0crac{1}{2}"), "suspicious_escape"
        ),
        _JSON,
    ),
    "broken_unicode": (lambda s: refused(s.raw("\\u12"), "bad_escape"), _JSON),
    "raw_newline": (
        lambda s: repaired(
            s.raw("a = 1\nprint(a)"), s.with_value("a = 1\nprint(a)"), "raw_control"
        ),
        _JSON,
    ),
    "unescaped_quotes": (lambda s: refused(s.raw('print("hello")'), "bad_json"), _JSON),
    "unbalanced": (lambda s: refused(s.section(s.changed(_without_last)), "bad_json"), _JSON),
    "extra_brace": (lambda s: _stray(s, "}"), _JSON),
    "missing_name": (_missing_name, _ANY),
    "two_objects": (_two_objects, _JSON),
    "doubled_payload": (_doubled_payload, _JSON),
    "trailing_prose": (lambda s: Made(s.section(s.call) + _PROSE, [s.call], (), "harmless"), _ANY),
    "prose_inside": (lambda s: _stray(s, " this is my answer"), _ARGUMENTS),
    "closing_tag_inside": (_closing_tag_inside, _ANY),
    "call_in_think": (
        lambda s: noticed(s.thinking(_DRAFT) + "The answer is 72.", "call_in_think"),
        _ANY,
    ),
    "draft_then_call": (
        lambda s: noticed(s.thinking(_DRAFT) + s.section(s.call), "call_in_think", s.call),
        _ANY,
    ),
    "unclosed_think": (
        lambda s: Made(
            s.thinking("I call it now.\n{call}", closed=False),
            problems=(("noticed", "call_in_think"), ("refused", "unclosed_think")),
        ),
        _ANY,
    ),
    "unclosed_think_alone": (_unclosed_think_alone, _ANY),
    "truncated": (_truncated, _ANY),
    "fenced_code": (_fenced_code, _ANY),
    "untagged": (lambda s: noticed(f"```json\n{json.dumps(s.call)}\n```", "untagged_call"), _ANY),
    "arguments_list": (
        lambda s: refused(s.spoiled(json.dumps([s.subject[1]])), "arguments_not_object"),
        _JSON,
    ),
    "arguments_string": (
        lambda s: refused(s.spoiled(json.dumps(s.subject[1])), "arguments_not_object"),
        _JSON,
    ),
    "double_encoded": (
        lambda s: repaired(
            s.spoiled(json.dumps(json.dumps(s.call["arguments"]))), s.call, "double_encoded"
        ),
        _JSON,
    ),
    "unknown_tool": (_unknown_tool, _ANY),
    "invented_reply": (_invented_reply, _ANY),
    "bad_sibling": (bad_sibling, _ANY),
    "misspelt_tag": (_misspelt_tag, (TagFormat,)),
    "unclosed_string": (unclosed_string, _JSON),
}
"""The maker of each kind and the formats for which it makes sense; a dialect can add it to
others."""
