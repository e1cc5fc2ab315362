"""The sandboxes that calls go to.

They share the load by their speed, and a failing one is set aside for a while.

The state is shared by all tools of a process, because some trainers make a tool for every
trajectory.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto
from functools import partial

from sfusion_tools._loops import DeferringLock, tells_real_time
from sfusion_tools.runtime import LoopResource, LoopScope, runtime

# All of these are chosen. tests/sfusion_tools/sandbox/test_fleet.py plays fleets with them: load
# follows speed, and an endpoint that fails or recovers is noticed.

FIRST_PAUSE = 1.0
LONGEST_PAUSE = 30.0
"""Seconds that an endpoint is set aside: after its first failure, doubled with each failure in a
row, and at most."""

MOST_FAILURES = 16
"""Failures in a row that are counted: long before, the pause has its greatest length."""

LONGEST_ASKED = 300.0
"""The longest that an endpoint is set aside because its Retry-After asks for it."""

NEWEST_SHARE = 0.05
"""The weight of the newest answer in an endpoint's speed: programs differ far more than sandboxes
do."""

QUICKEST = 0.01
"""Seconds below which an answer is as good as any."""

NOISE = 1.5
SLOWEST = 8.0
"""Times as slow as the fastest: up to NOISE an endpoint is as good as it, and none counts as worse
than SLOWEST."""

HALF_LIFE = 30.0
"""Seconds without an answer after which half of an endpoint's slowness is forgotten, so that it is
tried again."""

REFUSES_MORE = 0.4
"""An endpoint fails if the share of attempts that it refuses is higher by this than that of another
endpoint."""


class Health(Enum):
    """What the end of an attempt says about its endpoint."""

    ANSWERED = auto()
    FAILED = auto()
    REFUSED = auto()
    """It does not work, or the request is at fault; only the other endpoints can tell."""


@dataclass(slots=True)
class Endpoint:
    """One sandbox, its load, its speed and its recent health."""

    url: str
    in_flight: int = 0
    failures: int = 0
    failed_at: float = -math.inf
    set_aside_until: float = -math.inf
    last_used: int = 0
    speed: float | None = None
    """The smoothed logarithm of the seconds to an answer; None before the first one."""
    answered_at: float = -math.inf
    refused: float = 0.0
    """The smoothed share of attempts that it refused."""
    answers: int = 0
    """Results of programs that it has given, to all calls of this process."""


class Slot:
    """One attempt on the best of some endpoints.

    It lasts from entering this context manager to leaving it.
    """

    __slots__ = ("_asked", "_began", "_ended", "_fleet", "_health", "_held", "_urls", "endpoint")

    def __init__(self, slots: LoopSlots, urls: Sequence[str], now: float) -> None:
        self._fleet = slots.fleet
        self._held = slots.held
        self._urls = urls
        self._began = self._ended = now
        self._health: Health | None = None
        self._asked: float | None = None
        self.endpoint: Endpoint

    def __enter__(self) -> Slot:
        self.endpoint = self._fleet._take(self._urls, self._began)
        self._held.add(self)
        return self

    def __exit__(self, *_: object) -> None:
        # A slot returns once, even if its loop ended first and gave it back.
        if self in self._held:
            self._held.discard(self)
            self._fleet._lock.defer(partial(self._fleet._give, self))

    def report(self, now: float, health: Health, *, asked: float | None = None) -> None:
        """Say how the attempt ended, if that says anything about the endpoint.

        ``asked`` is its Retry-After.
        """
        self._ended = now
        self._health = health
        self._asked = asked


class Fleet:
    """Chooses the endpoint of the next attempt.

    It is the one that will probably answer first, and round-robin on a tie.
    """

    def __init__(self) -> None:
        self._lock = DeferringLock()
        self._known: dict[str, Endpoint] = {}
        self._turn = 0

    def endpoint(self, url: str) -> Endpoint:
        """Return the state of the endpoint with this base URL."""
        with self._lock:
            return self._endpoint(url)

    def forget(self) -> None:
        """Forget every endpoint that no attempt uses.

        Tests start other sandboxes on the same ports.
        """
        with self._lock:
            self._known = {url: known for url, known in self._known.items() if known.in_flight}

    def _endpoint(self, url: str) -> Endpoint:
        known = self._known.get(url)
        if known is None:
            known = self._known[url] = Endpoint(url)
        return known

    def _take(self, urls: Sequence[str], now: float) -> Endpoint:
        with self._lock:
            if len(urls) == 1:
                chosen = self._known.get(urls[0]) or self._endpoint(urls[0])
            else:
                chosen = _best([self._endpoint(url) for url in urls], now)
            self._turn += 1
            chosen.last_used = self._turn
            chosen.in_flight += 1
        return chosen

    def _give(self, slot: Slot) -> None:
        """Take an attempt's end into account."""
        endpoint = slot.endpoint
        now = slot._ended
        endpoint.in_flight -= 1
        match slot._health:
            case Health.ANSWERED:
                endpoint.answers += 1
                endpoint.failures = 0
                endpoint.set_aside_until = -math.inf
                endpoint.refused -= NEWEST_SHARE * endpoint.refused
                speed = math.log(max(now - slot._began, QUICKEST))
                before = endpoint.speed
                if before is None:
                    before = self._usual_speed(speed)
                endpoint.speed = before + NEWEST_SHARE * (speed - before)
                endpoint.answered_at = now
            case Health.REFUSED:
                # With one endpoint there is nothing to compare with: it is never set aside.
                endpoint.refused += NEWEST_SHARE * (1.0 - endpoint.refused)
                least = min(self._endpoint(url).refused for url in slot._urls)
                if endpoint.refused > least + REFUSES_MORE:
                    _set_aside(endpoint, slot)
            case Health.FAILED:
                _set_aside(endpoint, slot)

    def _usual_speed(self, default: float) -> float:
        # One answer says little about an endpoint: it begins at what is usual for the others.
        speeds = [endpoint.speed for endpoint in self._known.values()]
        known = [speed for speed in speeds if speed is not None]
        return sum(known) / len(known) if known else default


def _set_aside(endpoint: Endpoint, slot: Slot) -> None:
    now = slot._ended
    if slot._began > endpoint.failed_at:
        # A crash fails every attempt in flight at once: count it as one failure, not as many in a
        # row.
        endpoint.failed_at = now
        endpoint.set_aside_until = now + min(LONGEST_PAUSE, FIRST_PAUSE * 2.0**endpoint.failures)
        endpoint.failures = min(endpoint.failures + 1, MOST_FAILURES)
    if slot._asked is not None:
        asked_until = now + min(slot._asked, LONGEST_ASKED)
        endpoint.set_aside_until = max(endpoint.set_aside_until, asked_until)


def _best(endpoints: list[Endpoint], now: float) -> Endpoint:
    """Return the best endpoint; if all are set aside, the one that returns first."""
    awake = [endpoint for endpoint in endpoints if endpoint.set_aside_until <= now]
    if not awake:
        return min(endpoints, key=lambda endpoint: (endpoint.set_aside_until, endpoint.last_used))

    # An endpoint that failed gets a single attempt at a time until one succeeds.
    fit = [endpoint for endpoint in awake if not (endpoint.failures and endpoint.in_flight)]
    fit = fit or awake
    speeds = [endpoint.speed for endpoint in fit if endpoint.speed is not None]
    fastest = min(speeds, default=0.0)

    def cost(endpoint: Endpoint) -> tuple[float, int]:
        slowness = _slowness(endpoint, fastest, now)
        return (endpoint.in_flight + 1) * slowness, endpoint.last_used

    return min(fit, key=cost)


def _slowness(endpoint: Endpoint, fastest: float, now: float) -> float:
    """Return how many times as slow as the fastest an endpoint counts.

    One without an answer counts as fast. The result has one decimal, so that endpoints of about the
    same speed tie and take turns.
    """
    if endpoint.speed is None:
        return 1.0
    times_as_slow = min(math.exp(endpoint.speed - fastest), SLOWEST)
    beyond_noise = max(times_as_slow / NOISE - 1.0, 0.0)
    silent_for = max(now - endpoint.answered_at, 0.0)
    remembered = math.exp2(-silent_for / HALF_LIFE)
    return 1.0 + round(beyond_noise * remembered, 1)


class LoopSlots(LoopResource):
    """The slots held in one event loop: they return when it ends, however it does."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self.held: set[Slot] = set()

    def abandon(self) -> None:
        for slot in list(self.held):
            slot.__exit__()


def slots_of(scope: LoopScope, fleet: Fleet | None = None) -> LoopSlots:
    """Return the slots of this loop on a fleet; the default is the fleet of this process."""
    if fleet is not None:
        return scope.get(fleet, lambda: LoopSlots(fleet))
    return scope.get(
        LoopSlots, lambda: LoopSlots(process_fleet() if tells_real_time(scope.loop) else Fleet())
    )


def process_fleet() -> Fleet:
    """Return the fleet that all loops of this process share.

    Loops that keep their own time have fleets of their own.
    """
    return runtime.shared(Fleet, Fleet)
