"""The terminal summary of ``sfusion look``."""

from __future__ import annotations

from collections import Counter

from sfusion_tools.outcome import FAILURES, Outcome
from sfusion_tools.wording import counted, many

from ...reports.run_report import duration
from ...terminal import ReadingReporter
from .overview import Overview, SandboxRow, Stretch, Turn

_BARS = " ▁▂▃▄▅▆▇█"
ROWS = 12
"""Rows of a table (chosen: what fits on a screen)."""
_SHOWN = 8
"""Names of one kind that are listed (chosen)."""
_DOES_WORSE = "does worse than the others"
_NOTICED = 0.05
"""The share of failed attempts from which on they are told beside calls (chosen)."""


class LookReporter(ReadingReporter):
    """Shows how much has been read, and then what the log says."""

    def tell(self, found: Overview, rows: list[Stretch], following: str = "") -> None:
        """Print the summary; ``rows`` is its table over time, ``following`` the command to give
        next."""
        self._tell_lives(found)
        if not found.calls and found.lives is not None:
            return
        if not found.calls:
            self._tell_nothing(found)
            return
        self.print(title(found) + blame(found), "bold")
        for line in notes(found):
            self.print(line, "yellow")
        self.print()
        self.table(
            [
                (kind, f"{count:,}", _share(count, found.calls))
                for kind, count in found.outcomes.items()
            ],
            ("outcome", "calls", ""),
            [_style(kind) for kind in found.outcomes],
            texts=1,
        )
        self.print()
        self.table(
            [_row(found, row) for row in rows],
            (
                "from",
                "calls",
                "failed",
                "attempts failed",
                "mostly",
                "p50",
                "p95",
                "in flight",
                "waiting",
            ),
            ["red" if row.failed else "" for row in rows],
            texts=1,
        )
        self.print()
        failing = [
            bucket.failed / bucket.calls if bucket.calls else 0.0 for bucket in found.over_time
        ]
        if max(failing):
            self.print(f"failed    {sparkline(failing)}  up to {max(failing):.0%}")
        self.print(f"calls     {sparkline([bucket.calls for bucket in found.over_time])}")
        self.print()
        for turn in found.turns:
            self.print(sentence(found, turn), "bold red" if turn.worse else "green")
        if not found.turns:
            self.print("No change for the worse stands out.")
        self._tell_parts(found)
        if following:
            self.print()
            self.print(f"Next: {following}")

    def _tell_nothing(self, found: Overview) -> None:
        """Say that the log has no call, and what was left out of it."""
        self.print(f"no call in {counted(len(found.files), 'file')} of {many(found.lines, 'line')}")
        for line in found.left_out:
            self.print(line, "yellow")

    def _tell_lives(self, found: Overview) -> None:
        """Print what became of sandboxes that live and die."""
        if found.lives is None:
            return
        self.print(lives_text(found), "bold red" if found.lives.left else "bold")
        self.table(
            lives_rows(found),
            LIVES,
            ["red" if row.left or row.died else "" for row in found.lives.over_time],
            texts=1,
        )
        self.print()

    def _tell_parts(self, found: Overview) -> None:
        if [row for row in found.sandboxes if row.sandbox]:
            self.print()
            self.table(
                [sandbox_cells(row) for row in found.sandboxes[:_SHOWN]],
                ("sandbox", "attempts", "failed", "p50", "p95"),
                ["bold red" if row.sandbox == found.suspect else "" for row in found.sandboxes],
                texts=1,
            )
            if found.suspect:
                self.print(f"{suspicion(found)}.", "bold red")
        for name, counts in (
            ("faults applied", found.faults),
            ("malformed calls", found.malformed),
        ):
            if counts:
                listed = ", ".join(
                    f"{name} ({count:,})" for name, count in list(counts.items())[:_SHOWN]
                )
                self.print()
                self.print(f"{name}: {listed}" if len(counts) <= _SHOWN else f"{name}: {listed}, …")
        if found.read:
            self.print()
            self.table(
                [(kind, text, f"{count:,}") for kind, count, text in found.read],
                ("outcome", "what the model read", "calls"),
                [_style(kind) for kind, _, _ in found.read],
            )


LIVES = ("after", "created", "refused", "died", "deleted", "live", "left")
"""The columns of sandboxes over time."""


def lives_text(found: Overview) -> str:
    """Return what became of the sandboxes, in a sentence; empty if the log has none."""
    lives = found.lives
    if lives is None:
        return ""
    left = f"{lives.left:,} left behind: they live at the end, and no delete came for them"
    return f"sandboxes: {lives.text}; {left if lives.left else 'none left behind'}"


def lives_rows(found: Overview) -> list[tuple[str, ...]]:
    """Return the cells of sandboxes over time."""
    rows = found.lives.over_time if found.lives is not None else []
    return [
        (
            duration(row.start),
            *(f"{count:,}" for count in (row.created, row.refused, row.died)),
            *(f"{count:,}" for count in (row.deleted, row.live, row.left)),
        )
        for row in rows
    ]


def title(found: Overview) -> str:
    """Return the first line of a summary."""
    if attempts_stand_out(found):
        share = failing(found)
    else:
        share = f"{_share(found.failed, found.calls)} failed"
    parts = [f"{many(found.calls, 'call')}, {share}"]
    lasted = f" ({duration(max(0.0, found.end - found.start))})" if found.timed else ""
    parts.append(f"{found.when(found.start)} to {found.when(found.end)}{lasted}")
    if found.workers:
        parts.append(many(found.workers, "worker"))
    return ", ".join(parts)


def attempts_stand_out(found: Overview) -> bool:
    """Did many more attempts fail than calls, because others made up for them?"""
    whole = found.failed / found.calls if found.calls else 0.0
    tried = found.failed_attempts / found.attempts if found.attempts else 0.0
    return tried >= max(_NOTICED, 2 * whole)


def failing(found: Overview) -> str:
    """Return the share of calls that failed, and of attempts where that says more."""
    text = f"{_share(found.failed, found.calls)} of calls failed"
    if not attempts_stand_out(found):
        return text
    counts = sum((Counter(row.outcomes) for row in found.sandboxes), Counter[str]())
    mostly = max(
        (kind for kind in counts if kind in FAILURES), key=lambda kind: counts[kind], default=""
    )
    return (
        f"{_share(found.failed_attempts, found.attempts)} of attempts failed, mostly "
        f"{mostly}, and {text}"
    )


def notes(found: Overview) -> list[str]:
    """Return what a reader must know to trust the numbers."""
    lines = []
    if not found.timed and found.unit == "line":
        if found.off_axis:
            lack = "Most calls have no time: lines stand"
        else:
            lack = "The log has no times: its lines stand"
        lines.append(f"{lack} for them, and durations are unknown.")
    if found.off_axis:
        if found.timed:
            why = "have none, or one that is far from all others"
        else:
            why = "have other times than most"
        lines.append(f"Not on the time axis, because they {why}: {many(found.off_axis, 'call')}.")
    lines += found.left_out
    if found.problems:
        lines.append(f"Left out, because they could not be read: {many(found.problems, 'line')}.")
    if found.skipped:
        lines.append(f"Left out, because they are not about calls: {many(found.skipped, 'line')}.")
    if found.clocks_apart:
        lines.append(
            f"Workers began and ended up to {duration(found.clocks_apart)} apart: if they "
            "ran side by side, their "
            "clocks differ, and times here are those of their own clocks."
        )
    lines += [
        f"A text that nobody knows, perhaps of lost calls: {text}. `sfusion poison DUMP` shows "
        "how to count it."
        for text in found.unknown_texts[:_SHOWN]
    ]
    lines += [
        f"A text that stands for any failure and for none: {text}. `sfusion poison DUMP` shows how "
        "to count it."
        for text in found.vague_texts[:_SHOWN]
    ]
    if found.losing:
        lines.append(
            f"{many(found.losing, 'call')} lost every attempt while most others of that time "
            "succeeded: perhaps their programs cause it."
        )
    if found.refused:
        lines.append(
            "Refused by the guard, because too many calls had failed: "
            f"{many(found.refused, 'call')}."
        )
    if set(found.sources) == {"access"}:
        lines.append(
            "An access log does not tell how programs ended: status 200 counts as answered."
        )
    return lines


def sentence(found: Overview, turn: Turn) -> str:
    """Return what changed, and when."""
    at = found.when(turn.at)
    more = "more" if turn.worse else "fewer"
    match turn.what:
        case "duration":
            verb = "took longer" if turn.worse else "became faster"
            return (
                f"{at}: calls {verb}: typically {duration(turn.after)} instead of "
                f"{duration(turn.before)}"
            )
        case "malformed" | "cancelled":
            return (
                f"{at}: {more} calls were {turn.what}: {turn.after:.1%} instead of "
                f"{turn.before:.1%}"
            )
        case "programs":
            return (
                f"{at}: {more} programs failed: {turn.after:.1%} {turn.mostly} instead "
                f"of {turn.before:.1%}"
            )
    verb = "it got worse" if turn.worse else "it got better"
    whose = "calls" if turn.what == "failed" else "attempts"
    mostly = f", mostly {turn.mostly}" if turn.worse else ""
    return f"{at}: {verb}: {turn.after:.1%} of {whose} failed instead of {turn.before:.1%}{mostly}"


def sandbox_cells(row: SandboxRow) -> tuple[str, ...]:
    """Return the row of a sandbox: its address, attempts, share of failures, p50 and p95."""
    failed = _share(row.failed, row.attempts)
    return row.sandbox or "(not named)", f"{row.attempts:,}", failed, took(row.p50), took(row.p95)


def blame(found: Overview) -> str:
    """Return which sandbox does worse than the others, as the end of a headline."""
    return f"; {found.suspect} {_DOES_WORSE}" if found.suspect else ""


def suspicion(found: Overview) -> str:
    """Return which sandbox does worse than the others, and when."""
    text = f"{found.suspect} {_DOES_WORSE}"
    if found.suspect_since is not None:
        text += (
            f" from {found.when(found.suspect_since)}{' on' if found.suspect_until is None else ''}"
        )
    if found.suspect_until is not None:
        text += (
            f" {'to' if found.suspect_since is not None else 'until'} "
            f"{found.when(found.suspect_until)}"
        )
    return text


def brief(turn: Turn) -> str:
    """Return what changed as a label."""
    if turn.what == "duration":
        return f"{duration(turn.before)} → {duration(turn.after)} a call"
    what = {"attempts": "attempts failed", "programs": turn.mostly}.get(turn.what, turn.what)
    return f"{what} {turn.before:.1%} → {turn.after:.1%}"


def sparkline(values: list[float] | list[int]) -> str:
    """Return a row of bars; the highest value is a full one, and anything above 0 is seen."""
    most = max(values, default=0)
    if not most:
        return _BARS[0] * len(values)
    return "".join(_BARS[max(1, round(value / most * 8)) if value > 0 else 0] for value in values)


def _row(found: Overview, row: Stretch) -> tuple[str, ...]:
    failed = {
        kind: count for kind, count in (row.attempts or row.outcomes).items() if kind in FAILURES
    }
    tries = sum(row.attempts.values())
    return (
        found.when(row.start, short=True),
        f"{row.calls:,}",
        _share(row.failed, row.calls) if row.calls else "",
        _share(sum(failed.values()), tries) if tries else "",
        max(failed, key=lambda kind: failed[kind], default=""),
        took(row.p50),
        took(row.p95),
        "" if row.in_flight is None else f"{row.in_flight:.1f}",
        "" if row.waiting is None else f"{row.waiting:.1f}",
    )


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.1%}" if whole else ""


def took(seconds: float | None) -> str:
    """Return a duration as people write it; empty if it is not known."""
    return "" if seconds is None else duration(seconds)


def _style(kind: str) -> str:
    if kind == Outcome.OK.value:
        return "green"
    return "red" if kind in FAILURES else ""
