"""The table of the proof, on a terminal and in docs/proof.md."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from sfusion.harness.lab.promises import PROMISES
from sfusion_tools.wording import counted
from tests.proof.mistake import in_cells
from tests.proof.proof import MISTAKES, Proof, Row

HEAD = ("", "mistake", "caught by", "breaks too", "held", "played in")
_SECTION = re.compile(
    r"(<!-- generated: python -m tests.proof --page -->\n).*?(<!-- end -->\n)", re.DOTALL
)


def state_of(row: Row) -> str:
    """Return caught, missed, or (where nothing may break) green or red."""
    fine = not row.problems
    return ("caught" if fine else "missed") if row.promise else ("green" if fine else "red")


def table(proof: Proof) -> list[tuple[str, ...]]:
    """Return the cells of all rows, without the head."""
    right = [
        (state_of(row), row.name, "", "", str(len(row.held)), f"{row.cells} cells")
        for row in proof.right
    ]
    wrong = [
        (state_of(row), row.name, row.promise or "", *_rest(row))
        for row in (*proof.mistakes, *proof.changes)
    ]
    return [*right, *wrong]


def _rest(row: Row) -> tuple[str, str, str]:
    failed = row.broken | row.unknown
    return (
        ", ".join(sorted(failed - {row.promise})),
        str(len(row.held - failed)),
        ", ".join(row.shown_in),
    )


def headline(proof: Proof) -> str:
    """Say in a line what was proved."""
    peers, ours = counted(len(proof.mistakes), "mistake"), counted(len(proof.changes), "change")
    missed = [row.name for row in proof.rows.values() if row.promise and row.problems]
    red = [row.name for row in proof.right if row.problems]
    parts = [f"{peers} of other tools and {ours} to our own stack"]
    parts.append(
        f"not caught as they should be: {', '.join(missed)}"
        if missed
        else "each caught by the promise that names it"
    )
    if proof.right:
        parts.append(
            f"not green: {', '.join(red)}"
            if red
            else f"{' and '.join(row.name for row in proof.right)} green"
        )
    return "; ".join(parts)


def page(text: str, proof: Proof) -> str:
    """Return docs/proof.md with the part between its markers replaced."""
    return _SECTION.sub(lambda found: found[1] + _markdown(proof) + found[2], text)


def _markdown(proof: Proof) -> str:
    green = ", ".join(f"`{row.name}` {counted(row.cells, 'cell')}" for row in proof.right)
    shown = [
        name
        for name, cls in PROMISES.items()
        if not cls.of_episodes and not cls.model_construct().only_single_calls
    ]
    by_promise = [
        (f"`{name}`", _names(proof.mistakes, name), _names(proof.changes, name)) for name in shown
    ]
    played = {one.name for one in in_cells()}
    others = counted(sum(name not in played for name in MISTAKES), "further mistake")
    head = ("promise", "mistakes of other tools", "changes to our own stack")
    return "\n".join(
        [f"Green: {green}.\n", *_rows(head, by_promise), f"\nThe trial catches {others}.\n"]
    )


def _names(rows: Iterable[Row], promise: str) -> str:
    found = [row.name for row in rows if row.promise == promise]
    if found:
        return ", ".join(f"`{name}`" for name in found)
    cls = PROMISES[promise]
    if cls.of_permits:
        return "not applicable"
    return "(is about the rollout)" if cls.of_rollouts else "**none**"


def _rows(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    return [f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows)]
