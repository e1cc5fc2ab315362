"""What a server and the catalogue of malformed texts do differently for some formats."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sfusion_tools.formats import get_format

from .malformed_kinds import (
    CallSample,
    Made,
    Maker,
    bad_escape,
    bad_sibling,
    expecting,
    maker_of,
    refused,
    repaired,
    unclosed_string,
)


@dataclass(frozen=True)
class Dialect:
    """What is special about one format; the defaults suit most."""

    has_grammar: bool = True
    """Whether constrained decoding supports the format; if not, a forced call is a JSON array."""
    shown_name: str | None = None
    """The name in ``/model_info``, where sglang replaces a deprecated one."""
    numbered_ids: bool = False
    """Call ids are ``functions.NAME:NUMBER``, numbered across the conversation."""
    malformed: Mapping[str, Maker | None] = field(default_factory=dict)
    """Makers of the malformed texts that differ in this format; None if a kind is not in it."""


def dialect_of(form: str) -> Dialect:
    """Return the dialect of a format, by any of the format's names."""
    return _DIALECTS.get(get_format(form).name, _PLAIN)


def is_written_as_array(form: str | None) -> bool:
    """Return whether a forced call is a plain JSON array, because the format has no grammar."""
    return form is None or not dialect_of(form).has_grammar


def shown_name(form: str | None) -> str | None:
    """Return the name in ``/model_info``, where deprecated names are replaced."""
    if form is None:
        return None
    return dialect_of(form).shown_name or get_format(form).name


def _unclosed(sample: CallSample) -> str:
    """Return a call without its last character, which closes it."""
    return sample.form.write_call(sample.name, sample.arguments())[:-1]


def _pythonic_escape(sample: CallSample) -> Made:
    value = "re.findall(r\"\\d+\", 'a1')"
    return bad_escape(sample, value, value.replace("'", "\\'"))


def _misspelt_key(sample: CallSample) -> Made:
    call = sample.form.write_call(sample.name, sample.arguments(), place=1)
    key, _ = sample.subject
    return bad_sibling(sample, call.replace(f"</{key}>", f"</{key}s>"), "bad_layout")


def _glm_without_arguments(sample: CallSample) -> Made:
    return bad_sibling(sample, f"<tool_call>{sample.name}</tool_call>", "bad_layout")


def _kimi_without_name(sample: CallSample) -> Made:
    """An id without a name is repaired, because only one tool fits the arguments."""
    text = sample.section(sample.form.write_call("", sample.arguments()))
    return repaired(text, sample.call, "bad_id")


def _qwen_unclosed_function(sample: CallSample) -> Made:
    bad = f"<tool_call>\n<function={sample.name}\n</tool_call>"
    return bad_sibling(sample, bad, "missing_name")


def _pythonic_quotes(sample: CallSample) -> Made:
    return refused(sample.raw("print('hello')"), "bad_literal")


def _pythonic_unclosed(sample: CallSample) -> Made:
    return refused(sample.section(_unclosed(sample)), "unbalanced")


def _pythonic_positional(sample: CallSample) -> Made:
    _, value = sample.subject
    return refused(sample.spoiled(repr(value)), "positional_argument")


def _pythonic_sibling(sample: CallSample) -> Made:
    return bad_sibling(sample, _unclosed(sample), "unbalanced")


def _pythonic_unclosed_string(sample: CallSample) -> Made:
    return unclosed_string(sample, "'", "unbalanced")


_PLAIN = Dialect()
_HERMES = {"prose_inside": maker_of("prose_inside")}
_SEPARATOR = ("repaired", "bad_separator")
# A call without a closing marker goes on to the end of the text if its object is not closed.
_ENDLESS = Dialect(malformed={"unbalanced": expecting("unbalanced", ("refused", "truncated"))})
_DIALECTS = {
    "gigachat3": _ENDLESS,
    "granite_20b_fc": _ENDLESS,
    "functionary_v32": Dialect(malformed={**_ENDLESS.malformed, "prose_inside": None}),
    # The marker after a call also ends the thinking.
    "inkling": Dialect(
        malformed={"unclosed_think": expecting("unclosed_think", ("noticed", "call_in_think"))}
    ),
    "hermes": Dialect(malformed=_HERMES),
    "qwen25": Dialect(shown_name="qwen", malformed=_HERMES),
    "llama3": Dialect(
        malformed={
            "unbalanced": expecting("unbalanced", ("refused", "truncated")),
            "two_objects": expecting("two_objects", _SEPARATOR, _SEPARATOR),
            "doubled_payload": expecting(
                "doubled_payload", ("refused", "doubled_payload"), _SEPARATOR
            ),
            "untagged": None,
        }
    ),
    "glm45": Dialect(
        has_grammar=False,
        shown_name="glm",
        malformed={"bad_sibling": _glm_without_arguments},
    ),
    "kimi_k2": Dialect(numbered_ids=True, malformed={"missing_name": _kimi_without_name}),
    "qwen3_coder": Dialect(malformed={"bad_sibling": _qwen_unclosed_function}),
    "pythonic": Dialect(
        has_grammar=False,
        malformed={
            "bad_escape": _pythonic_escape,
            "mixed_escape": maker_of("mixed_escape"),
            "raw_newline": maker_of("raw_newline"),
            "unescaped_quotes": _pythonic_quotes,
            "unbalanced": _pythonic_unclosed,
            "arguments_list": _pythonic_positional,
            "bad_sibling": _pythonic_sibling,
            "unclosed_string": _pythonic_unclosed_string,
        },
    ),
    "minimax_m3": Dialect(malformed={"misspelt_tag": _misspelt_key}),
    # Without a name, an object is not known to be a call.
    "xlam": Dialect(
        malformed={"missing_name": expecting("missing_name", ("noticed", "untagged_call"))}
    ),
    # The name is a key, so any key is a name.
    "apertus": Dialect(
        malformed={"missing_name": expecting("missing_name", ("refused", "unknown_tool"))}
    ),
}
