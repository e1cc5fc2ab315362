"""A catalogue of the ways in which models write tool calls wrongly, by seed.

Each text comes with what a parser must make of it:

    for text in catalogue(seed=7):
        text.kind, text.grade, text.text, text.calls, text.problems

``calls`` are the calls that survive, ``problems`` the severities and kinds that a parser must
report. A kind that makes no sense in a format (raw text has no escapes to get wrong) is left out
for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from sfusion_tools.formats import Format, format_names, get_format

from .dialects import dialect_of
from .keyed_digest import pick, whole
from .malformed_kinds import KINDS, TOOLS, Call, CallSample, Made, Maker

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
    """Return the names of all kinds."""
    return tuple(KINDS)


def malformed(
    kind: str, form: str, seed: int, call: Call | None = None, sibling: Call | None = None
) -> MalformedText | None:
    """Return the text of one kind in one format; None if the kind makes no sense there.

    ``call`` is the call to spoil and ``sibling`` a good one next to it; by default both are drawn.
    Some kinds need an argument of their own and replace the first one of ``call``.
    """
    found = get_format(form)
    maker = _maker(kind, found)
    if maker is None:
        return None

    drawn_call, drawn_sibling = _calls(found.name, kind, seed)
    made = maker(CallSample(found, seed, call or drawn_call, sibling or drawn_sibling))
    return MalformedText(
        text=made.text,
        calls=tuple(made.calls),
        problems=made.problems,
        grade=made.grade,
        finish_reason=made.finish_reason,
        kind=kind,
        form=found.name,
        seed=seed,
    )


def _maker(kind: str, form: Format) -> Maker | None:
    """Return what makes a kind of text in a format; None if the kind makes no sense there."""
    own = dialect_of(form.name).malformed
    if kind in own:
        return own[kind]
    maker, styles = KINDS[kind]
    return maker if isinstance(form, styles) else None


def catalogue(seed: int, forms: Sequence[str] | None = None) -> Iterator[MalformedText]:
    """Yield all kinds in all formats, or in some."""
    for form in forms or format_names():
        for kind in KINDS:
            text = malformed(kind, form, seed)
            if text is not None:
                yield text


def _calls(form: str, kind: str, seed: int) -> tuple[Call, Call]:
    """Draw a call to spoil, and a good call next to it."""
    key = ("malformed", form, kind, seed)
    code: dict[str, Any] = {"code": pick(_CODES, *key, "code")}
    if whole(0, 1, *key, "timeout"):
        code["timeout"] = whole(1, 60, *key, "seconds")
    query = {"query": pick(_QUERIES, *key, "query"), "top_k": whole(1, 9, *key, "k")}

    call = {"name": "code_interpreter", "arguments": code}
    sibling = {"name": "search", "arguments": query}
    return call, sibling
