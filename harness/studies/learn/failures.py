"""Finds what kinds of failures a log has, how often, and when: a steady rate, bursts, or
outages."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, combinations
from operator import itemgetter
from typing import Any, Literal

from sfusion_tools.wording import counted

from ...core.logs.access_records import RESTARTED
from .attempts import Known, TimedAttempt
from .distributions import fit, rounded

_CELLS = 120
"""Parts of the log between which a burst is looked for (chosen: all pairs of them are tried)."""
_MOST_BURSTS = 8
"""Bursts of one kind of failure that are told apart (chosen)."""
_TIMES_DENSER = 3.0
"""How many times as dense as elsewhere failures of a burst are (chosen)."""
_CLEAR = 8.0
"""How much likelier, as a logarithm, a burst must be than a steady rate (chosen)."""
_ALL = 0.9
"""The share of requests that fail in an outage (chosen: some may slip through)."""
_FEWEST_OF_AN_OUTAGE = 4
"""Failures from which on an outage needs no other sign (chosen)."""
_APART = 1.0
"""Seconds between failures that make an outage of fewer, which few see where a client has other
sandboxes (chosen)."""

Family = tuple[str, int | None]
"""The ending of a request, and its status."""


def family_of(request: TimedAttempt) -> Family:
    """Return what failures that belong together have in common."""
    return request.ending, request.attempt.status if request.ending == "status" else None


@dataclass(frozen=True, slots=True)
class FailureFit:
    """Failures of one kind at one rate and time."""

    kind: Literal["rate", "burst", "crash", "wedge"]
    family: Family
    failed: int
    of: int
    """Requests in the same time."""
    what: dict[str, Any]
    """The fault as a scenario writes it; empty for an outage."""
    phase: str | None
    says: str
    evidence: str
    between: tuple[float, float] | None = None
    """Without an end (infinite) for an outage that the log does not see the end of."""
    after: int | None = None
    """How many requests came before a burst, where a log has no times."""

    @property
    def rate(self) -> float:
        return self.failed / self.of

    def explains(self, request: TimedAttempt) -> bool:
        """True if a request failed in this way and time."""
        if family_of(request) != self.family:
            return False
        return self.between is None or (
            self.between[0] <= request.ended and request.began <= self.between[1]
        )


def find_failures(
    requests: Sequence[TimedAttempt], explained: frozenset[int], usual: float, known: Known
) -> list[FailureFit]:
    """Return the failures that nothing else explains; ``usual`` is the median of seconds of an
    answer."""
    found = list(_restarts(requests))
    seen = []
    for place, request in enumerate(requests):
        if request.ending != "unknown" and request.attempt.detail != RESTARTED:
            seen.append(place)
    families: dict[Family, list[int]] = {}
    for place in seen:
        if requests[place].ending != "answered" and place not in explained:
            families.setdefault(family_of(requests[place]), []).append(place)
    for family, places in sorted(families.items(), key=lambda item: -len(item[1])):
        found += _fits(_Family(requests, seen, family, places, usual=usual, known=known))
    return found


def _restarts(requests: Sequence[TimedAttempt]) -> Iterator[FailureFit]:
    """Yield the restarts that the server's own log has: what ran then is lost, and until the next
    request nobody knows when it was back."""
    lost: dict[float, list[TimedAttempt]] = {}
    for request in requests:
        if request.attempt.detail == RESTARTED:
            lost.setdefault(request.ended, []).append(request)
    for dead, struck in sorted(lost.items(), key=itemgetter(0)):
        later = (request.began for request in requests if request.began > dead)
        end = max(min(later, default=math.inf), dead + 0.01)
        yield FailureFit(
            kind="crash",
            family=family_of(struck[0]),
            failed=len(struck),
            of=len(struck),
            what={},
            phase=None,
            says=f"the server was restarted: down {_lasting(dead, end)}, at most",
            evidence=(
                f"its own log has the start; {counted(len(struck), 'command')} had no end before it"
            ),
            between=(dead, end),
        )


@dataclass(frozen=True, slots=True)
class _Family:
    """The failures of one kind, and what they are compared with."""

    requests: Sequence[TimedAttempt]
    seen: Sequence[int]
    """Places of the requests whose end was seen."""
    family: Family
    places: Sequence[int]
    """Places of the failures."""
    usual: float
    known: Known

    @property
    def name(self) -> str:
        return _name(self.family)


def _fits(of: _Family) -> Iterator[FailureFit]:
    """Yield the bursts and outages of a kind of failures, and what is left at a steady rate."""
    what, phase = _what(of.family, [of.requests[place] for place in of.places], of.usual)
    failed = set(of.places)
    rest = len(of.seen)
    for first, last in bursts([place in failed for place in of.seen]):
        inside = of.seen[first:last]
        struck = failed.intersection(inside)
        failed -= struck
        rest -= len(inside)
        burst = _Burst(of, first, last, sorted(struck))
        yield burst.fit(what, phase)

    if failed:
        evidence = f"{len(failed):,} of {counted(rest, 'request')}, at no particular time"
        if of.family[1] == 429:
            evidence += "; neither requests in flight nor their rate tell which"
        yield FailureFit(
            kind="rate",
            family=of.family,
            failed=len(failed),
            of=rest,
            what=what,
            phase=phase,
            says=f"{of.name}: {len(failed) / rest:.2%} of the requests",
            evidence=evidence,
        )


@dataclass(frozen=True, slots=True)
class _Burst:
    """Failures of a kind that are much denser from one request to another than around them."""

    of: _Family
    first: int
    last: int
    """Places in ``of.seen``, without the last."""
    hit: Sequence[int]
    """Places of the failures in it."""

    def fit(self, what: dict[str, Any], phase: str | None) -> FailureFit:
        """Say what it was: an outage, or a time with failures."""
        if self.of.known == "order":
            return self._without_times(what, phase)
        outage = None
        if self.of.known == "durations" and self.of.family[0] == "lost":
            outage = self._crash()
        elif self.of.known == "durations" and self.of.family[0] == "hang":
            outage = self._wedge()
        return outage or self._failures(what, phase)

    @property
    def _inside(self) -> Sequence[int]:
        return self.of.seen[self.first : self.last]

    @property
    def _share(self) -> float:
        return len(self.hit) / len(self._inside)

    @property
    def _count(self) -> str:
        return f"{len(self.hit):,} of {counted(len(self._inside), 'request')}"

    @property
    def _span(self) -> tuple[float, float]:
        """From between the last request before it and its first failure, and so on after it."""
        requests = self.of.requests
        seen = self.of.seen
        before = requests[seen[self.first - 1]].began if self.first else 0.0
        if self.last < len(seen):
            after = requests[seen[self.last]].began
        else:
            after = requests[seen[-1]].began + 1.0
        began = (before + requests[self.hit[0]].began) / 2
        ended = (requests[self.hit[-1]].began + after) / 2
        return began, ended

    def _without_times(self, what: dict[str, Any], phase: str | None) -> FailureFit:
        lasting = f"from request {self.first + 1} to request {self.last}"
        burst = self._burst(what, phase, lasting)
        return replace(burst, evidence=f"{self._count}; when is not in the log", after=self.first)

    def _burst(self, what: dict[str, Any], phase: str | None, lasting: str) -> FailureFit:
        """Return failures of some of the requests in a stretch of the log."""
        return FailureFit(
            kind="burst",
            family=self.of.family,
            failed=len(self.hit),
            of=len(self._inside),
            what=what,
            phase=phase,
            says=f"{self.of.name} {lasting}, {self._share:.0%} of the requests",
            evidence=self._count,
        )

    def _crash(self) -> FailureFit | None:
        """What was in flight died with the server; later attempts found nobody there."""
        requests = self.of.requests
        dead = min(requests[place].ended for place in self.hit)
        struck = set(self.hit)
        after_death = [
            place for place in self._inside if requests[place].ended > dead or place in struck
        ]
        if not _is_outage(requests, self.hit, after_death):
            return None
        end = math.inf
        if self.last < len(self.of.seen):
            end = max(self._span[1], dead + 0.01)
        return FailureFit(
            kind="crash",
            family=self.of.family,
            failed=len(self.hit),
            of=len(after_death),
            what={},
            phase=None,
            says=f"down {_lasting(dead, end)}",
            evidence=(
                f"{len(self.hit):,} of {counted(len(after_death), 'request')} in that time "
                "found no connection or lost it"
            ),
            between=(dead, end),
        )

    def _wedge(self) -> FailureFit | None:
        """Requests were accepted, and none was answered in between."""
        requests = self.of.requests
        silent = _silence(requests, self.hit, self.of.usual)
        answered = _answered_within(requests, self._inside, *silent)
        if not _is_outage(requests, self.hit, [*self.hit, *answered]):
            return None
        return FailureFit(
            kind="wedge",
            family=self.of.family,
            failed=len(self.hit),
            of=len(self._inside),
            what={},
            phase=None,
            says=f"no answers {_lasting(*silent)}, though requests were accepted",
            evidence=(
                f"{self._count} of that time got no answer, and none was answered in between"
            ),
            between=silent,
        )

    def _failures(self, what: dict[str, Any], phase: str | None) -> FailureFit:
        began, ended = self._span
        rate = len(self.hit) / max(ended - began, 1e-9)
        burst = self._burst(what, phase, f"from {began:.4g} s to {ended:.4g} s")
        return replace(
            burst,
            evidence=f"{self._count} in that time ({rate:.3g} per second)",
            between=(max(0.0, began), max(ended, began + 0.001)),
        )


def _is_outage(requests: Sequence[TimedAttempt], hit: Sequence[int], of: Sequence[int]) -> bool:
    """True if nearly all failed, and either many did or some time passed between the first and
    the last."""
    if len(hit) < _ALL * len(of):
        return False
    apart = max(requests[place].began for place in hit) - min(
        requests[place].ended for place in hit
    )
    return len(hit) >= _FEWEST_OF_AN_OUTAGE or apart >= _APART


def _lasting(start: float, end: float) -> str:
    if end < math.inf:
        return f"for {end - start:.3g} s, from {start:.4g} s on"
    return f"from {start:.4g} s to the end of the log"


def _answered_within(
    requests: Sequence[TimedAttempt], places: Sequence[int], start: float, end: float
) -> list[int]:
    return [
        place
        for place in places
        if requests[place].ending == "answered"
        and start <= requests[place].began
        and requests[place].ended < end
    ]


def bursts(flags: Sequence[bool]) -> list[tuple[int, int]]:
    """Return the intervals in which flags are much denser than around them, in order: none lies
    around another one."""
    found: list[tuple[int, int]] = []
    parts = [(0, len(flags))]
    while parts and len(found) < _MOST_BURSTS:
        start, end = parts.pop(0)
        if (burst := _burst(flags[start:end])) is not None:
            first = start + burst[0]
            last = start + burst[1]
            found.append((first, last))
            parts += [(start, first), (last, end)]
    return sorted(found)


def _burst(flags: Sequence[bool]) -> tuple[int, int] | None:
    """The places of the interval in which failures are densest, cut to its first and last one;
    None if none is."""
    size = len(flags)
    total = sum(flags)
    if total < 3 or total == size:
        return None
    sums = list(accumulate(flags, initial=0))

    def gain(interval: tuple[int, int]) -> float:
        first, last = interval
        hit = sums[last] - sums[first]
        count = last - first
        others = total - hit
        rest = size - count
        if not rest or hit / count <= _TIMES_DENSER * others / rest:
            return 0.0
        return _likelihood(hit, count) + _likelihood(others, rest) - _likelihood(total, size)

    cells = min(_CELLS, size)
    found = max(combinations([size * k // cells for k in range(cells + 1)], 2), key=gain)
    if gain(found) < _CLEAR:
        return None
    first, last = found
    # It may begin and end within the next cell.
    half = sum(flags[first:last]) / (last - first) / 2
    cell = -(-size // cells)
    early = (place for place in range(max(0, first - cell), first) if flags[place])
    first = next(
        (place for place in early if sum(flags[place:first]) >= half * (first - place)), first
    )
    late = (place + 1 for place in range(min(size, last + cell) - 1, last - 1, -1) if flags[place])
    last = next((place for place in late if sum(flags[last:place]) >= half * (place - last)), last)
    inside = [place for place in range(first, last) if flags[place]]
    return inside[0], inside[-1] + 1


def _likelihood(hit: int, count: int) -> float:
    if hit in (0, count):
        return 0.0
    share = hit / count
    return hit * math.log(share) + (count - hit) * math.log(1 - share)


def _silence(
    requests: Sequence[TimedAttempt], hit: Sequence[int], usual: float
) -> tuple[float, float]:
    """When a server that gave no answers stopped and began again to give them."""
    start = requests[hit[0]].began
    last = max(requests[place].began for place in hit)
    again = min(
        (
            request.ended
            for request in requests
            if request.ending == "answered" and request.ended > last
        ),
        default=None,
    )
    if again is None:
        return start, math.inf
    return start, max(again - usual, start + 0.001, last)


def _what(
    family: Family, failed: Sequence[TimedAttempt], usual: float
) -> tuple[dict[str, Any], str | None]:
    """The fault, and its phase: how long the failures took tells whether the program had run."""
    ending, status = family
    if ending == "hang":
        return {"hang": True}, None
    if ending == "bad_response":
        return {"malformed": "json"}, None
    took = [request.seconds for request in failed if request.attempt.seconds is not None]
    middle = statistics.median(took) if took else 0.0
    phase = None
    delay = {}
    if middle > max(0.01, 0.2 * usual):
        if usual / 2 <= middle <= 2 * usual:
            phase = "after"
        else:
            delay = {"delay": fit(took).yaml}
    if ending == "lost":
        return {"reset": True, **delay}, phase
    if ending == "sandbox_error":
        return {"sandbox_error": True, **delay}, phase
    asked = [
        request.attempt.retry_after for request in failed if request.attempt.retry_after is not None
    ]
    retry_after = (
        {"retry_after": rounded(statistics.median(asked))} if len(asked) > len(failed) / 2 else {}
    )
    return {"status": status, **retry_after, **delay}, phase


def _name(family: Family) -> str:
    return {
        ("status", 429): "refused (429) by an unknown limit",
        ("status", 502): "bad gateway (502)",
        ("status", 503): "unavailable (503)",
        ("status", 504): "gateway timeout (504)",
        ("hang", None): "requests without an answer",
        ("lost", None): "lost connections",
        ("bad_response", None): "garbled answers",
        ("sandbox_error", None): "errors of the sandbox itself",
    }.get(family, f"status {family[1]}")
