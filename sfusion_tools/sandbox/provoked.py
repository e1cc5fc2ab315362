"""Did a program perhaps cause the failures of its own call?

Most lost calls say nothing about their program. But a program that kills its server, or hangs it,
loses every attempt while its neighbours succeed. If such samples are left out of training, causing
a loss beats every below-average attempt, and a policy can learn that.
"""

from __future__ import annotations

from sfusion_tools.outcome import CAUSABLE, Outcome
from sfusion_tools.sandbox.fleet import Endpoint

LEAST_FAILURES = 3
"""Attempts that must have failed. Chosen: of two, chance makes one in eleven where 30 % are
lost."""


class Suspicion:
    """Counts the failed attempts of one call, and the answers to other programs between them."""

    __slots__ = ("_excused", "_failures", "_waiting", "_witnessed")

    def __init__(self) -> None:
        self._failures = 0
        self._witnessed = 0
        self._waiting: dict[str, tuple[Endpoint, int]] = {}
        """The last failure at each sandbox, with the answers that it had given until then."""
        self._excused = False

    def failed(self, outcome: Outcome, endpoint: Endpoint | None) -> None:
        """Note how an attempt failed, and whether the sandbox had answered somebody else since the
        failure before."""
        if outcome is Outcome.THROTTLED:
            return
        if outcome not in CAUSABLE or endpoint is None:
            self._excused = True
            return
        if endpoint.url in self._waiting:
            self._witnessed += self._answered_since(endpoint.url)
        self._waiting[endpoint.url] = (endpoint, endpoint.answers)
        self._failures += 1

    @property
    def provoked(self) -> bool:
        """True if every attempt failed, and enough times the sandbox worked for others after it.

        Pauses are random, so two attempts may fail in the same outage: the second adds nothing.
        """
        witnessed = self._witnessed + sum(map(self._answered_since, self._waiting))
        return (
            not self._excused
            and self._failures >= LEAST_FAILURES
            and witnessed >= LEAST_FAILURES - 1
        )

    def _answered_since(self, url: str) -> bool:
        """Has a sandbox answered somebody else since the last failure there?"""
        endpoint, answers = self._waiting[url]
        return endpoint.answers > answers
