"""Finds what kinds of failures a log has, how often, and when: a steady rate, bursts, or
outages."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, combinations
from typing import Any, Literal

from sfusion_tools.wording import counted

from .attempts import Known, TimedAttempt
from .distributions import fit, rounded

_CELLS = 120
_MOST_BURSTS = 8
_TIMES_DENSER = 3.0
_CLEAR = 8.0
"""How much likelier, as a logarithm, a burst must be than a steady rate."""
_ALL = 0.9
_FEWEST_OF_AN_OUTAGE = 4
_APART = 1.0
"""Seconds between failures that make an outage of fewer, which few see where a client has other
sandboxes."""

Family = tuple[str, int | None]
"""The ending of a request, and its status."""


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

    def explains(self, one: TimedAttempt) -> bool:
        """True if a request failed in this way and time."""
        family = one.ending, one.attempt.status if one.ending == "status" else None
        if family != self.family:
            return False
        return self.between is None or (
            self.between[0] <= one.ended and one.began <= self.between[1]
        )


def find_failures(
    requests: Sequence[TimedAttempt], explained: frozenset[int], usual: float, known: Known
) -> list[FailureFit]:
    """Return the failures that nothing else explains; ``usual`` is the median of seconds of an
    answer."""
    seen = [place for place, one in enumerate(requests) if one.ending != "unknown"]
    families: dict[Family, list[int]] = {}
    for place in seen:
        one = requests[place]
        if one.ending != "answered" and place not in explained:
            status = one.attempt.status if one.ending == "status" else None
            families.setdefault((one.ending, status), []).append(place)
    found: list[FailureFit] = []
    for family, places in sorted(families.items(), key=lambda item: -len(item[1])):
        found += _fits(requests, seen, family, places, usual, known)
    return found


def _fits(
    requests: Sequence[TimedAttempt],
    seen: list[int],
    family: Family,
    places: list[int],
    usual: float,
    known: Known,
) -> Iterator[FailureFit]:
    failed, rest = set(places), len(seen)
    what, phase = _what(family, [requests[place] for place in places], usual)
    name, sees_outages = _name(family), known == "durations"
    for first, last in bursts([place in failed for place in seen]):
        inside = seen[first:last]
        struck = failed.intersection(inside)
        hit = sorted(struck)
        failed -= struck
        rest -= len(inside)
        share, part = f"{len(hit):,} of {counted(len(inside), 'request')}", len(hit) / len(inside)
        if known == "order":
            yield FailureFit(
                "burst", family, len(hit), len(inside), what, phase,
                f"{name} from request {first + 1} to request {last}, {part:.0%} of the requests",
                f"{share}; when is not in the log",
                after=first,
            )  # fmt: skip
            continue
        before = requests[seen[first - 1]].began if first else 0.0
        after = requests[seen[last]].began if last < len(seen) else requests[seen[-1]].began + 1.0
        began = (before + requests[hit[0]].began) / 2
        ended = (requests[hit[-1]].began + after) / 2
        dead = min(requests[place].ended for place in hit)
        silent = _silence(requests, hit, usual)
        after_death = [one for one in inside if requests[one].ended > dead or one in struck]
        if sees_outages and family[0] == "lost" and _is_outage(requests, hit, after_death):
            # What was in flight died with the server; later attempts found nobody there.
            end = max(ended, dead + 0.01) if last < len(seen) else math.inf
            yield FailureFit(
                "crash", family, len(hit), len(after_death), {}, None, ("down " f"{_lasting(dead, end)}"),
                (f"{len(hit):,} of {counted(len(after_death), 'request')} in " "that time found no connection or lost it"),
                (dead, end),
            )  # fmt: skip
        elif (
            sees_outages
            and family[0] == "hang"
            and _is_outage(requests, hit, [*hit, *_answered_within(requests, inside, *silent)])
        ):
            yield FailureFit(
                "wedge", family, len(hit), len(inside), {}, None,
                f"no answers {_lasting(*silent)}, though requests were accepted",
                f"{share} of that time got no answer, and none was answered in between",
                silent,
            )  # fmt: skip
        else:
            yield FailureFit(
                "burst", family, len(hit), len(inside), what, phase,
                f"{name} from {began:.4g} s to {ended:.4g} s, {part:.0%} of the requests",
                f"{share} in that time ({len(hit) / max(ended - began, 1e-9):.3g} per second)",
                (max(0.0, began), max(ended, began + 0.001)),
            )  # fmt: skip
    if failed:
        evidence = f"{len(failed):,} of {counted(rest, 'request')}, at no particular time"
        if family[1] == 429:
            evidence += "; neither requests in flight nor their rate tell which"
        says = f"{name}: {len(failed) / rest:.2%} of the requests"
        yield FailureFit("rate", family, len(failed), rest, what, phase, says, evidence)


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
    return (
        f"for {end - start:.3g} s, from {start:.4g} s on"
        if end < math.inf
        else f"from {start:.4g} s to the end of the log"
    )


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
            first, last = start + burst[0], start + burst[1]
            found.append((first, last))
            parts += [(start, first), (last, end)]
    return sorted(found)


def _burst(flags: Sequence[bool]) -> tuple[int, int] | None:
    """The places of the interval in which failures are densest, cut to its first and last one;
    None if none is."""
    size, total = len(flags), sum(flags)
    if total < 3 or total == size:
        return None
    sums = list(accumulate(flags, initial=0))

    def gain(interval: tuple[int, int]) -> float:
        first, last = interval
        hit, count = sums[last] - sums[first], last - first
        others, rest = total - hit, size - count
        if not rest or hit / count <= _TIMES_DENSER * others / rest:
            return 0.0
        return _likelihood(hit, count) + _likelihood(others, rest) - _likelihood(total, size)

    cells = min(_CELLS, size)
    found = max(combinations([size * k // cells for k in range(cells + 1)], 2), key=gain)
    if gain(found) < _CLEAR:
        return None
    first, last = found
    # It may begin and end within the next cell.
    half, cell = sum(flags[first:last]) / (last - first) / 2, -(-size // cells)
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


def _silence(requests: Sequence[TimedAttempt], hit: list[int], usual: float) -> tuple[float, float]:
    """When a server that gave no answers stopped and began again to give them."""
    start = requests[hit[0]].began
    last = max(requests[place].began for place in hit)
    again = min(
        (one.ended for one in requests if one.ending == "answered" and one.ended > last),
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
    took = [one.seconds for one in failed if one.attempt.seconds is not None]
    middle = statistics.median(took) if took else 0.0
    phase, delay = None, {}
    if middle > max(0.01, 0.2 * usual):
        if usual / 2 <= middle <= 2 * usual:
            phase = "after"
        else:
            delay = {"delay": fit(took).yaml}
    if ending == "lost":
        return {"reset": True, **delay}, phase
    if ending == "sandbox_error":
        return {"sandbox_error": True, **delay}, phase
    asked = [one.attempt.retry_after for one in failed if one.attempt.retry_after is not None]
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
