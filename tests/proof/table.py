"""The table of the proof, on a terminal and in docs/proof.md."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from sfusion.harness.lab.promises import PROMISES
from sfusion_tools.wording import counted
from tests.proof.mistake import in_cells
from tests.proof.proof import MISTAKES, Proof, Row

HEAD = ("", "mistake", "caught by", "breaks too", "held", "played in")
_SECTION = re.compile(r"(<!-- generated: python -m tests.proof --page -->\n).*?(<!-- end -->\n)", re.DOTALL)


def state_of(row: Row) -> str:
    """Return caught, missed, or (where nothing may break) green or red."""
    fine = not row.problems
    return ("caught" if fine else "missed") if row.promise else ("green" if fine else "red")


def table(proof: Proof) -> list[tuple[str, ...]]:
    """Return the cells of all rows, without the head."""
    right = [(state_of(row), row.name, "", "", str(len(row.held)), f"{row.cells} cells") for row in proof.right]
    wrong = [(state_of(row), row.name, row.promise or "", *_rest(row)) for row in (*proof.mistakes, *proof.changes)]
    return [*right, *wrong]


def _rest(row: Row) -> tuple[str, str, str]:
    failed = row.broken | row.unknown
    return ", ".join(sorted(failed - {row.promise})), str(len(row.held - failed)), ", ".join(row.shown_in)


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
    peers, ours = (
        [(f"`{row.name}`", row.about, f"`{row.promise}`", *_marked(row)) for row in rows]
        for rows in (proof.mistakes, proof.changes)
    )
    by_promise = [(f"`{name}`", *(_names(rows, name) for rows in (proof.mistakes, proof.changes))) for name in PROMISES]
    right = [(f"`{row.name}`", row.about, str(row.cells), str(len(row.held))) for row in proof.right]
    played = {one.name for one in in_cells()}
    others = [(f"`{name}`", one.about) for name, one in MISTAKES.items() if name not in played]
    tail = ("breaks too", "held", "played in")
    return "\n".join(
        [
            "### What must be green\n",
            *_rows(("", "what it is", "cells", "promises held"), right),
            "\n### Mistakes of other tools\n",
            *_rows(("mistake", "what it does", "caught by", *tail), peers),
            "\n### Mistakes of other tools that the trial catches\n",
            *_rows(("mistake", "what it does"), others),
            "\n### Changes to our own stack\n",
            *_rows(("change", "what it does", "caught by", *tail), ours),
            "\n### What can break each promise\n",
            *_rows(("promise", "mistakes of other tools", "changes to our own stack"), by_promise),
            "",
        ]
    )


def _names(rows: Iterable[Row], promise: str) -> str:
    found = [row.name for row in rows if row.promise == promise]
    if found:
        return ", ".join(f"`{name}`" for name in found)
    cls = PROMISES[promise]
    return "not applicable" if cls.of_permits else "(is about the rollout)" if cls.of_rollouts else "**none**"


def _marked(row: Row) -> tuple[str, str, str]:
    too, held, shown = _rest(row)
    return ", ".join(map(_code, filter(None, too.split(", ")))), held, ", ".join(map(_code, shown.split(", ")))


def _code(name: str) -> str:
    return name if " " in name or not name else f"`{name}`"


def _rows(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    return [f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows)]
