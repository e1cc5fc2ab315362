"""The table of the proof, on a terminal and in docs/proof.md."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from sfusion.harness.lab.promises import PROMISES
from sfusion_tools.wording import counted
from tests.proof.proof import Proof, Row

HEAD = ("", "mistake", "caught by", "without outcomes", "breaks too", "held", "played in")
_SECTION = re.compile(r"(<!-- generated: python -m tests.proof --page -->\n).*?(<!-- end -->\n)", re.DOTALL)


def state_of(*rows: Row | None) -> str:
    """Return caught, missed, or (where nothing may break) green or red."""
    given = [row for row in rows if row is not None]
    fine = not any(row.problems for row in given)
    return ("caught" if fine else "missed") if given[0].promise else ("green" if fine else "red")


def table(proof: Proof) -> list[tuple[str, ...]]:
    """Return the cells of all rows, without the head."""
    right = [(state_of(row), row.name, "", "", "", str(len(row.held)), f"{row.cells} cells") for row in proof.right]
    peers = [
        (state_of(one, silent), one.name, one.promise or "", _unstated(one, silent), *_rest(one, silent))
        for one, silent in proof.mistakes
    ]
    ours = [(state_of(row), row.name, row.promise or "", "", *_rest(row, None)) for row in proof.changes]
    return [*right, *peers, *ours]


def _unstated(stated: Row, silent: Row | None) -> str:
    if silent is None:
        return "(is about them)"
    return "the same" if silent.promise == stated.promise else silent.promise or ""


def _rest(row: Row, silent: Row | None) -> tuple[str, str, str]:
    rows = [one for one in (row, silent) if one is not None]
    failed = set().union(*(one.broken | one.unknown for one in rows))
    named = {one.promise for one in rows}
    held = len(set().union(*(one.held for one in rows)) - failed)
    return ", ".join(sorted(failed - named)), str(held), ", ".join(row.shown_in)


def headline(proof: Proof) -> str:
    """Say in a line what was proved."""
    peers, ours = counted(len(proof.mistakes), "mistake"), counted(len(proof.changes), "change")
    missed = [row.name for row in proof.rows.values() if row.promise and row.problems]
    red = [row.name for row in proof.right if row.problems]
    parts = [f"{peers} of other tools and {ours} to our own stack"]
    parts.append(
        f"not caught as they should be: {', '.join(missed)}" if missed else "each caught by the promise that names it"
    )
    if proof.right:
        parts.append(
            f"not green: {', '.join(red)}" if red else f"{' and '.join(row.name for row in proof.right)} green"
        )
    return "; ".join(parts)


def page(text: str, proof: Proof) -> str:
    """Return docs/proof.md with the part between its markers replaced."""
    return _SECTION.sub(lambda found: found[1] + _markdown(proof) + found[2], text)


def _markdown(proof: Proof) -> str:
    peers = [
        (f"`{one.name}`", one.about, f"`{one.promise}`", _code(_unstated(one, silent)), *_marked(one, silent))
        for one, silent in proof.mistakes
    ]
    ours = [(f"`{row.name}`", row.about, f"`{row.promise}`", *_marked(row, None)) for row in proof.changes]
    by_promise = [
        (f"`{name}`", *(_names(rows, name, proof) for rows in (_peers(proof), proof.changes))) for name in PROMISES
    ]
    right = [(f"`{row.name}`", row.about, str(row.cells), str(len(row.held))) for row in proof.right]
    tail = ("breaks too", "held", "played in")
    return "\n".join(
        [
            "### What must be green\n",
            *_rows(("", "what it is", "cells", "promises held"), right),
            "\n### Mistakes of other tools\n",
            *_rows(("mistake", "what it does", "caught by", "without outcomes", *tail), peers),
            "\n### Changes to our own stack\n",
            *_rows(("change", "what it does", "caught by", *tail), ours),
            "\n### What can break each promise\n",
            *_rows(("promise", "mistakes of other tools", "changes to our own stack"), by_promise),
            "",
        ]
    )


def _peers(proof: Proof) -> list[Row]:
    return [row for stated, silent in proof.mistakes for row in (stated, silent) if row is not None]


def _names(rows: Iterable[Row], promise: str, proof: Proof) -> str:
    found = dict.fromkeys(row.name.split(" ")[0] for row in rows if row.promise == promise)
    if found:
        return ", ".join(f"`{name}`" for name in found)
    cls = PROMISES[promise]
    return "not applicable" if cls.of_permits else "(is about the rollout)" if cls.of_rollouts else "**none**"


def _marked(row: Row, silent: Row | None) -> tuple[str, str, str]:
    too, held, shown = _rest(row, silent)
    return ", ".join(map(_code, filter(None, too.split(", ")))), held, ", ".join(map(_code, shown.split(", ")))


def _code(name: str) -> str:
    return name if " " in name or not name else f"`{name}`"


def _rows(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    return [f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows)]
