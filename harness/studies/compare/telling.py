"""A comparison for people and programs: on the terminal, as a page and as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from sfusion.harness.lab.journal import Event
from sfusion.harness.reports.html import render_page
from sfusion.harness.studies.compare.comparison import FirstDifference, RunChange, RunComparison, rank_change
from sfusion.harness.terminal import ProgressReporter
from sfusion_tools.outcome import FAILURES
from sfusion_tools.wording import counted

SHOWN = 5
"""Changes of one kind that are shown; JSON has all of them."""
_NAMES = {
    "throughput": "calls ok per second",
    "seconds": "time of all calls",
    "p50": "call p50",
    "p95": "call p95",
    "p99": "call p99",
    "wait_p50": "wait for a permit p50",
    "wait_p95": "wait for a permit p95",
}
_COUNTS = ("throughput", "attempts", "refused", "wasted")
_STYLES = {"better": "green", "worse": "red", "": ""}
Line = tuple[str, str]
"""A text, and whether it is ``better`` or ``worse``; empty if it is neither."""


def sections(one: RunComparison) -> list[tuple[str, list[Line]]]:
    """What changed, as headings with lines; without what did not."""
    if one.same:
        return []
    found: list[tuple[str, list[Line]]] = [
        ("settings", _listed(one.settings)),
        (
            "promises",
            [(f"{_arrow(it)}{f': {it.note}' if it.note else ''}", _sign(rank_change(it))) for it in one.promises],
        ),
        ("outcomes", [(_arrow(it), _outcome_sign(it)) for it in one.outcomes]),
        ("figures", [(_figure(it), _figure_sign(it, one)) for it in one.figures]),
        ("calls that ended differently", _listed(one.calls)),
        ("texts that the model reads", _listed(one.texts)),
        ("first event that differs", _first(one.first) if one.first is not None else []),
    ]
    if one.first is None and not one.same_journal:
        found[-1] = ("events", [("not compared one by one: a run in real time never repeats its events", "")])
    return [(heading, lines) for heading, lines in found if lines]


def as_dict(one: RunComparison) -> dict[str, Any]:
    kinds = ("settings", "promises", "outcomes", "figures", "calls", "texts")
    return {
        "before": one.before.name,
        "after": one.after.name,
        "same": one.same,
        "worse": one.worse,
        "sentence": one.sentence,
        **{kind: [asdict(change) for change in getattr(one, kind)] for kind in kinds},
        "first": None if one.first is None else asdict(one.first),
    }


def render_comparison(found: Sequence[RunComparison], before: str, after: str) -> str:
    """Return the page. It loads nothing, and no script runs on it but its own."""
    worse, same = sum(one.worse for one in found), sum(one.same for one in found)
    ordered = sorted(found, key=lambda one: (not one.worse, one.same))
    return render_page(
        "compare.html.j2",
        headline=f"{counted(worse, 'run')} got worse" if worse else "No promise got worse",
        before=before,
        after=after,
        facts=[("runs", str(len(found))), ("the same", str(same)), ("changed", str(len(found) - same))],
        runs=[(one, sections(one)) for one in ordered],
    )


class CompareReporter(ProgressReporter):
    """Prints each run that changed, and one line about all of them."""

    def finish(self, found: Sequence[RunComparison], gone: Sequence[str], new: Sequence[str]) -> None:
        for one in found:
            if not one.same or len(found) == 1:
                self._print_one(one)
        for names, where in ((gone, "first"), (new, "second")):
            if names:
                self.print(f"only in the {where} folder: {', '.join(names)}", "yellow")
        worse, same = sum(one.worse for one in found), sum(one.same for one in found)
        if len(found) > 1:
            text = f"{counted(len(found), 'run')}: {same} the same, {len(found) - same} changed, {worse} worse"
            self.print(text, "bold red" if worse else "green")

    def _print_one(self, one: RunComparison) -> None:
        name = one.before.name if one.before.name == one.after.name else f"{one.before.name} -> {one.after.name}"
        self.print(f"{name}: {one.sentence}", "bold red" if one.worse else "bold")
        if one.before.journal.header["scenario"] != one.after.journal.header["scenario"]:
            self.print("  these are runs of different scenarios: calls are matched by their ids", "yellow")
        for heading, lines in sections(one):
            self.print(f"  {heading}")
            for line, sign in lines:
                self.print(f"    {line}", _STYLES[sign])
        self.print()


def _sign(change: float) -> str:
    return "worse" if change > 0 else "better" if change < 0 else ""


def _outcome_sign(change: RunChange) -> str:
    grown = change.after - change.before
    return _sign(-grown if change.what == "ok" else grown if change.what in FAILURES else 0)


def _figure_sign(change: RunChange, one: RunComparison) -> str:
    """Shorter is not better where it is because fewer calls got a result."""
    if change.what != "throughput" and any(it.what == "ok" and it.after < it.before for it in one.outcomes):
        return "worse" if change.what in ("refused", "wasted") and change.after > change.before else ""
    grown = float(change.after) - float(change.before)
    return _sign(-grown if change.what == "throughput" else grown)


def _listed(changes: Sequence[RunChange]) -> list[Line]:
    more = [(f"and {len(changes) - SHOWN} more", "")] if len(changes) > SHOWN else []
    return [*((_arrow(change), "") for change in changes[:SHOWN]), *more]


def _arrow(change: RunChange) -> str:
    return f"{change.what}: {_value(change.before)} -> {_value(change.after)}"


def _value(value: Any) -> str:
    if value is None:
        return "(none)"
    text = value if isinstance(value, str) and value.isprintable() and value else json.dumps(value, default=str)
    return text if len(text) <= 120 else f"{text[:117]}..."


def _figure(change: RunChange) -> str:
    before, after = float(change.before), float(change.after)
    share = f" ({(after - before) / before:+.1%})" if before else ""
    unit = "" if change.what in _COUNTS else " s"
    return f"{_NAMES.get(change.what, change.what)}: {before:.4g}{unit} -> {after:.4g}{unit}{share}"


def _first(first: FirstDifference) -> list[Line]:
    lines = [f"number {first.number}", *(f"  {_event(event)}" for event in first.context)]
    return [(line, "") for line in (*lines, f"- {_event(first.before)}", f"+ {_event(first.after)}")]


def _event(event: Event | None) -> str:
    if event is None:
        return "(the journal ends)"
    rest = {key: value for key, value in event.items() if key not in ("at", "source", "event")}
    facts = " ".join(f"{key}={_value(value)}" for key, value in rest.items())
    return f"{event['at']:.6f} {event['source']} {event['event']} {facts}".rstrip()
