"""What a log says, in a few numbers: outcomes over time, when it changed, which sandbox, what the
model read."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Container, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Literal

from sfusion_tools.outcome import FAILURES, OUTCOMES, Outcome
from sfusion_tools.sandbox.result import CallResult
from sfusion_tools.sandbox.text import model_text

from .axis import TRIMMED, Durations, TimeBucket, failures, loads
from .changes import LEAST_RATIO, Shift, changed_durations, changed_shares, suspect
from .clocks import Clock, clocks_apart
from .digest import Digest, SandboxCounts
from .lives import Lives

FINE = 1_000
"""Stretches of time in the chart of what was in flight (chosen)."""
STRETCHES = 240
"""Stretches of time in which changes are looked for (chosen)."""

What = Literal["failed", "attempts", "malformed", "programs", "cancelled", "duration"]
SEVERITY: tuple[What, ...] = (
    "failed",
    "attempts",
    "malformed",
    "programs",
    "cancelled",
    "duration",
)
"""The worst first."""
_NEAR = 3
"""Stretches within which two changes are one (chosen)."""
_RAN = (
    Outcome.OK.value,
    Outcome.PROGRAM_ERROR.value,
    Outcome.PROGRAM_TIMEOUT.value,
    Outcome.COMPILE_ERROR.value,
)
"""Outcomes of calls whose program ran to its end, whatever that was."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """What happened in one stretch of time."""

    start: float
    end: float
    calls: int
    failed: int
    outcomes: dict[str, int]
    attempts: dict[str, int]
    """Outcomes of attempts."""
    p50: float | None
    """Of the calls that are counted here, as p95."""
    p95: float | None
    in_flight: float | None
    """None if the log does not tell, as waiting."""
    waiting: float | None


@dataclass(frozen=True, slots=True)
class Turn:
    """A time from which on another share of calls, attempts or programs failed, or calls took
    another time."""

    at: float
    what: What
    before: float
    after: float
    mostly: str = ""
    """The outcome of calls, attempts or programs that there are more of."""

    @property
    def worse(self) -> bool:
        return self.after > self.before


@dataclass(frozen=True, slots=True)
class SandboxRow:
    sandbox: str
    attempts: int
    failed: int
    p50: float | None
    p95: float | None
    outcomes: dict[str, int]


_MINUTE = 60.0
_DAY = 86_400.0
"""Logs that last shorter than these are told with milliseconds, and without dates."""


@dataclass(frozen=True, slots=True)
class Overview:
    """Everything that ``sfusion look`` tells."""

    calls: int
    attempts: int
    start: float
    end: float
    timed: bool
    """False: ``start``, ``end`` and all other times are lines of an access log, or steps of a
    training."""
    unit: Clock
    off_axis: int
    """Calls that are not among those over time: without a time, of another clock, or far from all
    others."""
    outcomes: dict[str, int]
    failed: int
    workers: int
    sources: dict[str, int]
    seconds: dict[str, float | None]
    waits: dict[str, float | None]
    retried: int
    refused: int
    """Calls that the guard did not let through."""
    clocks_apart: float
    """Seconds by which workers began and ended later than others: their clocks may differ."""
    most_in_flight: int | None
    longest_queue: int | None
    """Of calls that waited for a permit. Both are averages over the shortest stretches that the
    page shows, None if the log does not tell."""
    failed_attempts: int
    over_time: list[Stretch]
    turns: list[Turn]
    sandboxes: list[SandboxRow]
    suspect: str
    """The sandbox that does worse than the others; empty if none does."""
    suspect_since: float | None
    suspect_until: float | None
    """When it began and ceased to, if not in all of the log."""
    faults: dict[str, int]
    malformed: dict[str, int]
    read: list[tuple[str, int, str]]
    """What the model read: outcome, number of calls, text. Empty if the log does not know."""
    unknown_texts: list[str] = field(default_factory=list)
    """Texts of a dump's tools that nobody knows and that may be failures."""
    vague_texts: list[str] = field(default_factory=list)
    """Texts of a dump's tools that stand for any failure and for none."""
    lives: Lives | None = None
    """Sandboxes that live and die, if the log has some."""
    losing: int = 0
    """Calls that lost every attempt while most others of their time succeeded."""
    files: list[str] = field(default_factory=list)
    lines: int = 0
    skipped: int = 0
    problems: int = 0
    left_out: list[str] = field(default_factory=list)
    """Files that were given and not read, with the reason."""

    def as_data(self) -> dict[str, Any]:
        return {"look": 1, **asdict(self)}

    def when(self, at: float, *, short: bool = False) -> str:
        """Return a time as people write it."""
        match self.unit:
            case "unix":
                try:
                    moment = datetime.fromtimestamp(at, UTC)
                except (OverflowError, ValueError, OSError):
                    return f"{at:.0f}"
                if not short:
                    return f"{moment:%Y-%m-%d %H:%M:%S} UTC"
                span = self.end - self.start
                if span >= _DAY:
                    return f"{moment:%m-%d %H:%M:%S}"
                if span >= _MINUTE:
                    return f"{moment:%H:%M:%S}"
                milliseconds = f"{moment.microsecond // 1000:03}"
                return f"{moment:%H:%M:%S}.{milliseconds}"
            case "seconds":
                return f"{at:.1f} s"
        return f"{self.unit} {at:.0f}"


def overview(digest: Digest, *, stretches: int = 60) -> Overview:
    """Return what a digest says, with its time divided into at most ``stretches``."""
    axis = digest.axis
    fine = axis.merged(STRETCHES)
    shown = axis.merged(FINE)
    calls_of_clients = digest.sources["client"] + digest.sources["dump"]
    suspected, since, until = suspect(digest.sandboxes, fine)
    rows = map(_sandbox_row, digest.sandboxes.items())
    return Overview(
        calls=digest.calls,
        attempts=digest.attempts,
        start=axis.start,
        end=axis.end,
        timed=digest.timed,
        unit=digest.clock,
        off_axis=digest.off_axis,
        outcomes=dict(digest.kinds.most_common()),
        failed=failures(digest.kinds),
        workers=len(digest.workers),
        sources=dict(digest.sources.most_common()),
        seconds=_percentiles(digest.seconds),
        waits=_percentiles(digest.waits),
        retried=digest.retried,
        refused=digest.refused,
        clocks_apart=clocks_apart(digest.workers.values()),
        most_in_flight=_most(shown, "in_flight", axis.tells),
        longest_queue=_most(shown, "waiting", axis.tells),
        failed_attempts=sum(sandbox.sums.failed for sandbox in digest.sandboxes.values()),
        over_time=_stretches(axis.merged(stretches), axis.tells),
        turns=_turns(fine),
        sandboxes=sorted(rows, key=lambda row: -row.attempts),
        suspect=suspected,
        suspect_since=since,
        suspect_until=until,
        faults=dict(digest.faults.most_common()),
        malformed=dict(digest.problems.most_common()),
        read=_read(digest) if calls_of_clients else [],
        unknown_texts=[
            text.sentence
            for text in digest.texts.suspects(digest.texts_by_step, digest.scores_by_step)
        ],
        vague_texts=[text.sentence for text in digest.vague.most_common()],
        losing=_losing(digest, axis.merged(stretches)),
    )


_HEALTHY = 0.5
"""The least share of calls that must have got a result where one lost every attempt (chosen)."""


def _losing(digest: Digest, merged: Sequence[tuple[float, float, TimeBucket]]) -> int:
    """Count the calls that lost every attempt while most others of their time succeeded."""
    count = 0
    for began in digest.losing:
        for start, end, bucket in merged:
            if start <= began < end:
                fine = bucket.calls - failures(bucket.kinds)
                count += fine >= _HEALTHY * bucket.calls
                break
    return count


def crowd(fine: Sequence[tuple[float, float, TimeBucket]], what: str) -> list[int]:
    """How many were in flight, or waiting, in each stretch: whole ones, as the chart draws them."""
    return [round(value) or (1 if value > 0.05 else 0) for value in loads(fine, what)]


def _read(digest: Digest) -> list[tuple[str, int, str]]:
    """What the model read, word for word where the log has it; else as far as the outcome tells."""
    found: list[tuple[str, int, str]] = []
    for kind, count in digest.kinds.most_common():
        told = [
            (text, times) for (outcome, text), times in digest.read.most_common() if outcome == kind
        ]
        found += [(kind, times, text) for text, times in told]
        rest = count - sum(times for _, times in told)
        if rest > 0 and _text(kind):
            found.append((kind, rest, _text(kind)))
    return found


def _most(
    fine: Sequence[tuple[float, float, TimeBucket]], what: str, told: Container[str]
) -> int | None:
    """Return how many were in flight, or waiting, at most; None if the log does not tell."""
    return max(crowd(fine, what), default=0) if what in told else None


def _stretches(
    merged: Sequence[tuple[float, float, TimeBucket]], told: Container[str]
) -> list[Stretch]:
    rows = zip(merged, loads(merged, "in_flight"), loads(merged, "waiting"), strict=True)
    return [
        Stretch(
            start=start,
            end=end,
            calls=bucket.calls,
            failed=bucket.failed,
            outcomes=dict(bucket.kinds.most_common()),
            attempts=dict(bucket.attempts.most_common()),
            p50=bucket.counted_seconds.percentile(0.5),
            p95=bucket.counted_seconds.percentile(0.95),
            in_flight=in_flight if "in_flight" in told else None,
            waiting=waiting if "waiting" in told else None,
        )
        for (start, end, bucket), in_flight, waiting in rows
    ]


_SAME_NEWS = 1.02
"""Up to this many attempts per call, those that fail are the calls that fail (chosen)."""


def _turns(fine: Sequence[tuple[float, float, TimeBucket]]) -> list[Turn]:
    """Return what changed, and when."""
    buckets = [bucket for _, _, bucket in fine]
    turns = []
    for what, kind, changes in _changes(buckets):
        places = [0, *(change.place for change in changes), len(buckets)]
        for number, change in enumerate(changes):
            before = buckets[places[number] : change.place]
            after = buckets[change.place : places[number + 2]]
            lasting = _lasting(change, before, after) if what == "duration" else change
            if lasting is not None:
                turns.append(
                    Turn(
                        at=fine[change.place][0],
                        what=what,
                        before=lasting.before,
                        after=lasting.after,
                        mostly=_mostly(what, kind, before, after),
                    )
                )
    near = _NEAR * (fine[0][1] - fine[0][0]) if fine else 0.0
    news = _without_failures_as_durations(turns, near)
    return sorted(news, key=lambda turn: (turn.at, SEVERITY.index(turn.what)))


def _changes(buckets: Sequence[TimeBucket]) -> Iterator[tuple[What, str, list[Shift]]]:
    """Yield what may have changed, of which kind, and where it did."""

    def calls_that_were(outcome: Outcome) -> list[Shift]:
        return changed_shares([(bucket.calls, bucket.kinds[outcome.value]) for bucket in buckets])

    yield "failed", "", changed_shares([(bucket.calls, bucket.failed) for bucket in buckets])
    calls = sum(bucket.calls for bucket in buckets)
    if sum(bucket.attempts.total() for bucket in buckets) >= _SAME_NEWS * calls:
        counts = [(bucket.attempts.total(), failures(bucket.attempts)) for bucket in buckets]
        yield "attempts", "", changed_shares(counts)
    yield "malformed", "", calls_that_were(Outcome.BAD_ARGUMENTS)
    yield "cancelled", "", calls_that_were(Outcome.CANCELLED)
    yield "duration", "", changed_durations([bucket.seconds.sums for bucket in buckets])
    # Of the programs that ran: an outage does not make them better.
    ran = [sum(bucket.kinds[kind] for kind in _RAN) for bucket in buckets]
    for kind in _RAN[1:]:
        counts = [(of, bucket.kinds[kind]) for of, bucket in zip(ran, buckets, strict=True)]
        yield "programs", kind, changed_shares(counts)


def _mostly(
    what: What, kind: str, before: Sequence[TimeBucket], after: Sequence[TimeBucket]
) -> str:
    """Return the kind of failure, or of program, that a change is about."""
    if what == "failed":
        return _grown([bucket.kinds for bucket in before], [bucket.kinds for bucket in after])
    if what == "attempts":
        return _grown([bucket.attempts for bucket in before], [bucket.attempts for bucket in after])
    return kind


def _without_failures_as_durations(turns: Sequence[Turn], near: float) -> Iterator[Turn]:
    """Leave out calls that became faster when more of them failed, and that took longer when fewer
    did: calls that fail at once are not faster ones, and a recovery is not slow. A few failures
    do not change the typical duration, which leaves the shortest and longest calls out."""
    failing = [
        turn for turn in turns if turn.what == "failed" and max(turn.before, turn.after) > TRIMMED
    ]
    for turn in turns:
        explained = any(
            turn.worse != other.worse and abs(turn.at - other.at) <= near for other in failing
        )
        if turn.what != "duration" or not explained:
            yield turn


def _lasting(
    change: Shift, before: Sequence[TimeBucket], after: Sequence[TimeBucket]
) -> Shift | None:
    """Return a change of durations without the few odd ones that may have made it; None if that is
    no change."""
    typical = []
    for side in (before, after):
        times = Durations()
        for bucket in side:
            times.merge(bucket.seconds)
        typical.append(times.typical())
    old, new = typical
    if old is None or new is None or 1 / LEAST_RATIO < new / old < LEAST_RATIO:
        return None
    return replace(change, before=old, after=new)


def _grown(before: Sequence[Counter[str]], after: Sequence[Counter[str]]) -> str:
    """Return the kind of failure whose share changed most."""
    shares = []
    for side in (before, after):
        counts = sum(side, Counter[str]())
        whole = counts.total() or 1
        shares.append({kind: counts[kind] / whole for kind in FAILURES})
    return max(sorted(FAILURES), key=lambda kind: abs(shares[1][kind] - shares[0][kind]))


def _sandbox_row(item: tuple[str, SandboxCounts]) -> SandboxRow:
    name, counts = item
    p50 = counts.seconds.percentile(0.5)
    p95 = counts.seconds.percentile(0.95)
    return SandboxRow(
        sandbox=name,
        attempts=counts.sums.attempts,
        failed=counts.sums.failed,
        p50=p50,
        p95=p95,
        outcomes=dict(counts.outcomes.most_common()),
    )


def _percentiles(durations: Durations) -> dict[str, float | None]:
    return {
        name: durations.percentile(share)
        for name, share in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99))
    }


_PROGRAMS = {
    Outcome.OK.value: "the program's output",
    Outcome.PROGRAM_ERROR.value: "the program's output and its error",
    Outcome.PROGRAM_TIMEOUT.value: "[The program timed out …]",
    Outcome.COMPILE_ERROR.value: "[The program did not compile …]",
}


def _text(kind: str) -> str:
    if kind in _PROGRAMS:
        return _PROGRAMS[kind]
    if kind not in OUTCOMES:
        return ""
    text = model_text(
        CallResult("", Outcome(kind)), "code_interpreter", timeout=math.nan, limit=100
    ).rstrip(": ")
    # Whether the code ran is not in the outcome.
    return text.removesuffix("The code did not run.") + (
        "…" if text.endswith("The code did not run.") else ""
    )
