"""What a log says about sandboxes that live and die: how many were created, how they ended, and
how many nobody deleted.

Any length of log is counted in little memory: what has ended is forgotten, and stretches of time
are merged as the log gets longer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ...core.logs.own_lines import name, number

_STRETCHES = 1_024
"""Stretches of time that are counted apart, at most. Chosen: far more than a table has rows."""
_FINEST = 2.0**-6
"""Seconds of a stretch in the beginning. Chosen."""
_MOST_LIVE = 1_000_000
"""Sandboxes whose end has not come that are remembered. Chosen: about 200 MB."""
_COUNTED = {
    "sandbox_created": "created",
    "sandbox_refused": "refused",
    "sandbox_died": "died",
    "sandbox_deleted": "deleted",
}


@dataclass
class LivesRow:
    """Sandboxes in one stretch of time."""

    start: float
    """Seconds after the first event about a sandbox."""
    created: int = 0
    refused: int = 0
    died: int = 0
    deleted: int = 0
    live: int = 0
    """At its end."""
    left: int = 0
    """Those created in it that live at the end of the log, and for which no delete came."""


@dataclass
class Lives:
    """All sandboxes of a log."""

    created: int = 0
    refused: dict[str, int] = field(default_factory=dict)
    died: dict[str, int] = field(default_factory=dict)
    deleted: int = 0
    live: int = 0
    left: int = 0
    most_live: int = 0
    over_time: list[LivesRow] = field(default_factory=list)

    def as_data(self) -> dict[str, Any]:
        return asdict(self)

    @property
    def text(self) -> str:
        """Return the counts in one line."""
        died = ", ".join(f"{why} {count:,}" for why, count in self.died.items())
        refused = ", ".join(f"{why} {count:,}" for why, count in self.refused.items())
        parts = [f"{self.created:,} created"]
        parts += [f"creates refused: {refused}"] if refused else []
        parts += [f"died: {died}"] if died else []
        parts += [f"{self.deleted:,} deleted", f"{self.most_live:,} live at most"]
        return "; ".join(parts)


@dataclass
class _Born:
    """A sandbox that has not ended."""

    at: float
    was_asked: bool = False
    """A delete came for it, or its client has closed the connection to which it belongs."""


class LivesDigest:
    """Counts the sandboxes of journals, line by line."""

    def __init__(self) -> None:
        self._live: dict[tuple[Path, str], _Born] = {}
        self._counts: Counter[tuple[str, int]] = Counter()
        self._width = _FINEST
        self._died: Counter[str] = Counter()
        self._refused: Counter[str] = Counter()
        self._peak = 0
        self._zero: float | None = None
        """The time of the first event, in the log's own clock."""

    def add(self, file: Path, record: Mapping[str, Any]) -> None:
        """Add an event of a journal that is about a sandbox; raise BadLine."""
        event = name(record, "event")
        moment = number(record, "at")
        if self._zero is None:
            self._zero = moment
        at = max(0.0, moment - self._zero)
        key = file, name(record, "instance")
        if event in _COUNTED:
            self._count(_COUNTED[event], at)
        if event == "sandbox_created":
            if len(self._live) < _MOST_LIVE:
                self._live[key] = _Born(at)
            self._peak = max(self._peak, len(self._live))
        elif event == "sandbox_refused":
            self._refused[name(record, "why") or "unknown"] += 1
        elif event == "sandbox_died":
            self._died[name(record, "why") or "unknown"] += 1
        if event in ("sandbox_died", "sandbox_deleted") and self._live.pop(key, None) is not None:
            self._count("gone", at)
        elif event in ("sandbox_deleting", "sandbox_left") and key in self._live:
            self._live[key].was_asked = True

    def _count(self, what: str, at: float) -> None:
        while at / self._width >= _STRETCHES:
            self._merge()
        self._counts[what, int(at / self._width)] += 1

    def _merge(self) -> None:
        """Let a stretch be twice as long."""
        merged: Counter[tuple[str, int]] = Counter()
        for (what, place), count in self._counts.items():
            merged[what, place // 2] += count
        self._counts = merged
        self._width *= 2

    def found(self, rows: int) -> Lives | None:
        """Return the counts, with at most so many rows over time; None if there is no sandbox."""
        if not self._counts:
            return None
        left = [born for born in self._live.values() if not born.was_asked]
        over_time = self._rows(rows, left)
        totals: Counter[str] = Counter()
        for (what, _), count in self._counts.items():
            totals[what] += count
        return Lives(
            created=totals["created"],
            refused=dict(self._refused.most_common()),
            died=dict(self._died.most_common()),
            deleted=totals["deleted"],
            live=len(self._live),
            left=len(left),
            most_live=self._peak,
            over_time=over_time,
        )

    def _rows(self, most: int, left: list[_Born]) -> list[LivesRow]:
        last = max(place for _, place in self._counts)
        step = -(-(last + 1) // most)
        found = [LivesRow(start * self._width) for start in range(0, last + 1, step)]
        for (what, place), count in self._counts.items():
            row = found[place // step]
            if what == "gone":
                row.live -= count
            else:
                setattr(row, what, getattr(row, what) + count)
        for born in left:
            found[int(born.at / self._width) // step].left += 1
        live = 0
        for row in found:
            live += row.created + row.live
            row.live = max(0, live)
        return found
