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
    """False if constrained decoding does not support the format: forced calls are then a plain JSON
    array."""
    shown_name: str | None = None
    """The name in ``/model_info``, where sglang replaces a deprecated one."""
    numbered_ids: bool = False
    """Call ids are ``functions.NAME:NUMBER``, numbered across the conversation."""
    malformed: Mapping[str, Maker | None] = field(default_factory=dict)
    """Kinds of malformed text that are different in this format, or None for kinds that do not
    exist in it."""


def dialect_of(form: str) -> Dialect:
    """Return the dialect of a format, by any of the format's names."""
    return _DIALECTS.get(get_format(form).name, _PLAIN)


def is_written_as_array(form: str | None) -> bool:
    """Return whether a forced call is a plain JSON array, because the format has no grammar."""
    return form is None or not dialect_of(form).has_grammar


def shown_name(form: str | None) -> str | None:
    """Return the name in ``/model_info``, where deprecated names are replaced."""
    return None if form is None else dialect_of(form).shown_name or get_format(form).name


def _unclosed(sample: CallSample) -> str:
    return sample.form.write_call(sample.name, sample.arguments())[:-1]


def _pythonic_escape(sample: CallSample) -> Made:
    value = "re.findall(r\"\\d+\", 'a1')"
    return bad_escape(sample, value, value.replace("'", "\\'"))


def _misspelt_key(sample: CallSample) -> Made:
    call, (key, _) = sample.form.write_call(sample.name, sample.arguments(), 1), sample.subject
    return bad_sibling(sample, call.replace(f"</{key}>", f"</{key}s>"), "bad_layout")


_PLAIN = Dialect()
_HERMES = {"prose_inside": maker_of("prose_inside")}
_SEPARATOR = ("repaired", "bad_separator")
_DIALECTS = {
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
        malformed={
            "bad_sibling": lambda s: bad_sibling(
                s, f"<tool_call>{s.name}</tool_call>", "bad_layout"
            )
        },
    ),
    "kimi_k2": Dialect(
        numbered_ids=True,
        malformed={
            # An id without a name is repaired, because only one tool fits the arguments.
            "missing_name": lambda s: repaired(
                s.section(s.form.write_call("", s.arguments())), s.call, "bad_id"
            )
        },
    ),
    "qwen3_coder": Dialect(
        malformed={
            "bad_sibling": lambda s: bad_sibling(
                s, f"<tool_call>\n<function={s.name}\n</tool_call>", "missing_name"
            )
        }
    ),
    "pythonic": Dialect(
        has_grammar=False,
        malformed={
            "bad_escape": _pythonic_escape,
            "mixed_escape": maker_of("mixed_escape"),
            "raw_newline": maker_of("raw_newline"),
            "unescaped_quotes": lambda s: refused(s.raw("print('hello')"), "bad_literal"),
            "unbalanced": lambda s: refused(s.section(_unclosed(s)), "unbalanced"),
            "arguments_list": lambda s: refused(
                s.spoiled(repr(s.subject[1])), "positional_argument"
            ),
            "bad_sibling": lambda s: bad_sibling(s, _unclosed(s), "unbalanced"),
            "unclosed_string": lambda s: unclosed_string(s, "'", "unbalanced"),
        },
    ),
    "minimax_m3": Dialect(malformed={"misspelt_tag": _misspelt_key}),
    # Without a name, an object is not known to be a call; where the name is a key, any key is a
    # name.
    "xlam": Dialect(
        malformed={"missing_name": expecting("missing_name", ("noticed", "untagged_call"))}
    ),
    "apertus": Dialect(
        malformed={"missing_name": expecting("missing_name", ("refused", "unknown_tool"))}
    ),
}
