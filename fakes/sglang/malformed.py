"""The ways in which models write tool calls wrongly: a catalogue by seed, each with what a parser
must make of it.

    for text in catalogue(seed=7):
        text.kind, text.grade, text.text, text.calls, text.problems

``calls`` are the calls that survive, ``problems`` the severities and kinds that a parser must
report. A kind that makes no sense in a format (raw text has no escapes to get wrong) is left out
for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any

from sfusion_tools.formats import format_names, get_format

from .dialects import dialect_of
from .keyed_digest import pick, whole
from .malformed_kinds import KINDS, TOOLS, Call, CallSample, Made

__all__ = ["TOOLS", "MalformedText", "catalogue", "kinds", "malformed"]

_CODES = (
    "print(6 * 7)",
    "sum(range(10))",
    "x = [1, 2, 3]; print(x)",
    "print('a', 'b')",
    "import math; print(math.pi)",
)
_QUERIES = ("weather in Paris", "what is 17 * 3", "naïve café 🚀", "prime numbers < 100")


@dataclass(frozen=True, slots=True, kw_only=True)
class MalformedText(Made):
    """One malformed text, and what a good parser makes of it."""

    kind: str
    form: str
    seed: int


def kinds() -> tuple[str, ...]:
    return tuple(KINDS)


def malformed(
    kind: str, form: str, seed: int, call: Call | None = None, sibling: Call | None = None
) -> MalformedText | None:
    """Return the text of one kind in one format; None if the kind makes no sense there.

    ``call`` is the call to spoil and ``sibling`` a good one next to it; by default both are drawn.
    Some kinds need an argument of their own and replace the first one of ``call``.
    """
    found = get_format(form)
    maker, styles = KINDS[kind]
    own = dialect_of(form).malformed
    chosen = own[kind] if kind in own else maker if isinstance(found, styles) else None
    if chosen is None:
        return None
    drawn = _calls(found.name, kind, seed)
    made = chosen(CallSample(found, seed, call or drawn[0], sibling or drawn[1]))
    about = {"calls": tuple(made.calls), "kind": kind, "form": found.name, "seed": seed}
    return MalformedText(
        **{field.name: getattr(made, field.name) for field in fields(Made)} | about
    )


def catalogue(seed: int, forms: Sequence[str] | None = None) -> Iterator[MalformedText]:
    """Yield all kinds in all formats, or in some."""
    for form in forms or format_names():
        for kind in KINDS:
            text = malformed(kind, form, seed)
            if text is not None:
                yield text


def _calls(form: str, kind: str, seed: int) -> tuple[Call, Call]:
    key = ("malformed", form, kind, seed)
    code: dict[str, Any] = {"code": pick(_CODES, *key, "code")}
    if whole(0, 1, *key, "timeout"):
        code["timeout"] = whole(1, 60, *key, "seconds")
    sibling = {"query": pick(_QUERIES, *key, "query"), "top_k": whole(1, 9, *key, "k")}
    return {"name": "code_interpreter", "arguments": code}, {"name": "search", "arguments": sibling}
