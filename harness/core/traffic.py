"""The requests that a server received, by call, and what they show about the client that sent them.

No adapter is needed, and any language will do: only what passes over the wire is judged.
"""

from __future__ import annotations

import itertools
from collections import Counter, OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from sfusion_tools.wording import counted

MOST_CALLS = 100_000
"""Calls that are remembered. Chosen: as many as a ledger."""
_TRANSIENT = (0, 429, 502, 503, 504)
"""Statuses after which another attempt may bring a result; 0 stands for none at all."""
_OVERLOADED = (429, 503)
_PATIENCE = 30.0
"""Seconds of a Retry-After that a call need not wait for. Chosen: calls may have a deadline."""
_AT_ONCE = 0.05
"""Seconds of the shortest pause. Chosen: longer than a loaded machine needs for a request."""
_HAMMERING = 2
"""How often a call may be refused and sent again without a pause. Chosen: as in a trial."""
_EARLY = 0.01
"""Seconds by which a retry may come before its Retry-After is over: clocks differ. Chosen."""
_NEW_CONNECTIONS = 20
"""Requests from which it matters that each has a connection of its own. Chosen."""
_HARMLESS = frozenset({"delay", "drip", "content_type", "output"})
"""Faults that leave the result in the answer."""

TrafficState = Literal["broken", "advice", "held", "unknown"]


@dataclass
class WireAttempt:
    """One request, from its arrival to its end."""

    number: int
    """Of all requests for work, from 1."""
    at: float
    faults: list[str] = field(default_factory=list)
    """The kinds of faults that struck it."""
    rules: list[str] = field(default_factory=list)
    """The names of their rules."""
    ended: float | None = None
    status: int = 0
    retry_after: float | None = None
    """Seconds that the answer asked to wait."""
    client_gone: bool = False

    @property
    def failed_for_now(self) -> bool:
        """Did it bring no result, though another attempt may?"""
        if self.ended is None:
            return False
        return self.status in _TRANSIENT or bool(set(self.faults) - _HARMLESS)

    @property
    def brought_a_result(self) -> bool:
        complete = self.ended is not None and not self.client_gone
        return complete and self.status == 200 and not set(self.faults) - _HARMLESS

    def __str__(self) -> str:
        told = str(self.status) if self.status else "no answer"
        if self.ended is None:
            told = "in flight"
        details = [*dict.fromkeys(self.rules)]
        if self.retry_after is not None:
            details.append(f"Retry-After {self.retry_after:g}")
        if self.client_gone:
            details.append("client gone")
        return f"{told} ({', '.join(details)})" if details else told


@dataclass(frozen=True)
class TrafficVerdict:
    """What the traffic shows about one thing."""

    check: str
    state: TrafficState
    sentence: str
    remedy: str = ""
    """What a right client does; empty if nothing is wrong."""


class Traffic:
    """The requests of a server, folded from its events as they come."""

    def __init__(self) -> None:
        self.calls: OrderedDict[str, list[WireAttempt]] = OrderedDict()
        self.requests = 0
        self.peak = 0
        """Most requests in flight."""
        self.connections = 0
        self._open: dict[tuple[str, int], WireAttempt] = {}

    def note(self, event: Mapping[str, Any]) -> None:
        """Take in an event of the server."""
        if "attempt" not in event:
            return
        key = event["call"], event["attempt"]
        if event["event"] == "arrived":
            self._open[key] = self._arrived(event)
            return
        attempt = self._open.get(key)
        if attempt is None:
            return
        if event["event"] == "strike":
            attempt.faults.append(event["kind"])
            attempt.rules.append(event["rule"])
        elif event["event"] in ("answered", "unanswered"):
            attempt.ended = event["at"]
            attempt.status = event["status"]
            attempt.client_gone = event["client_gone"]
            attempt.retry_after = _seconds(event.get("retry_after"))
            del self._open[key]

    def _arrived(self, event: Mapping[str, Any]) -> WireAttempt:
        self.requests += 1
        self.peak = max(self.peak, event["in_flight"])
        self.connections = max(self.connections, event.get("connection", 0))
        attempts = self.calls.get(event["call"])
        if attempts is None:
            if len(self.calls) >= MOST_CALLS:
                self.calls.popitem(last=False)
            attempts = self.calls[event["call"]] = []
        attempt = WireAttempt(self.requests, event["at"])
        attempts.append(attempt)
        return attempt

    # -- as text --

    def call_lines(self, most: int) -> list[str]:
        """Return a line for each of the first calls: its requests, and whether it was given up."""
        lines = []
        for number, (name, attempts) in enumerate(self.calls.items(), 1):
            if number > most:
                lines.append(f"and {counted(len(self.calls) - most, 'more call')}")
                break
            told = ", then ".join(map(str, attempts))
            again = "; was not sent again" if _is_lost(attempts) else ""
            lines.append(f"call {number} ({name}): {told}{again}")
        return lines

    @property
    def headline(self) -> str:
        """Return how much there was, as a sentence."""
        calls = counted(len(self.calls), "call")
        requests = counted(self.requests, "request")
        return f"{calls}, {requests}, at most {self.peak} in flight"

    def text(self) -> str:
        """Return the verdicts as lines."""
        lines = [f"Verdict over the traffic: {self.headline}"]
        for verdict in self.verdicts():
            lines.append(f"  {verdict.state:<7}  {verdict.check:<22}  {verdict.sentence}")
            if verdict.remedy:
                lines.append(f"  {'':<7}  {'':<22}  A right client {verdict.remedy}")
        lines.append(
            "  Texts, rewards and how ends are told apart are not on the wire: sfusion judge"
        )
        return "\n".join(lines)

    # -- what it shows --

    def verdicts(self) -> list[TrafficVerdict]:
        """Judge what can be seen, what is broken first."""
        found = [
            self._retry_after(),
            self._pauses(),
            self._retries(),
            self._duplicates(),
            self._refused(),
            self._given_up(),
            self._unended(),
            self._connections(),
        ]
        order = ("broken", "advice", "held", "unknown")
        kept = [verdict for verdict in found if verdict is not None]
        return sorted(kept, key=lambda verdict: order.index(verdict.state))

    def _pairs(self) -> Iterator[tuple[str, WireAttempt, WireAttempt]]:
        """Yield each attempt that ended with the next one of the same call."""
        for number, attempts in enumerate(self.calls.values(), 1):
            for before, after in itertools.pairwise(attempts):
                if before.ended is not None and after.at >= before.ended:
                    yield f"call {number}", before, after

    def _retry_after(self) -> TrafficVerdict:
        early = []
        waits = 0
        for call, before, after in self._pairs():
            if before.retry_after is None or before.ended is None:
                continue
            waits += 1
            missing = before.ended + before.retry_after - after.at
            if missing > _EARLY:
                early.append(f"{call} was sent again {missing:.3g} s before it was over")
        check = "retry_after_honoured"
        if early:
            remedy = "waits as long as Retry-After says before it sends a call again."
            return TrafficVerdict(check, "broken", _first(early), remedy)
        if not waits:
            return TrafficVerdict(check, "unknown", "no call with Retry-After was sent again")
        return TrafficVerdict(check, "held", f"waited for {counted(waits, 'time')}")

    def _pauses(self) -> TrafficVerdict | None:
        hammered: Counter[str] = Counter()
        for call, before, after in self._pairs():
            refused = before.status in _OVERLOADED and before.retry_after is None
            if refused and before.ended is not None and after.at - before.ended < _AT_ONCE:
                hammered[call] += 1
        found = [
            f"{call} was refused {counted(often, 'time')}, and sent again at once each time"
            for call, often in hammered.items()
            if often >= _HAMMERING
        ]
        if not found:
            return None
        remedy = "waits before it sends a call again, longer each time."
        return TrafficVerdict("pauses", "broken", _first(found), remedy)

    def _retries(self) -> TrafficVerdict:
        failed = [attempts for attempts in self.calls.values() if attempts[0].failed_for_now]
        lost = [attempts for attempts in failed if _is_lost(attempts)]
        if not failed:
            return TrafficVerdict("retries", "unknown", self._nothing_to_retry())
        if not lost:
            sentence = f"{_calls(len(failed))} failed at first; all were sent again"
            return TrafficVerdict("retries", "held", sentence)
        statuses = Counter(str(attempts[0].status or "no answer") for attempts in lost)
        by_status = ", ".join(f"{often} after {status}" for status, often in statuses.items())
        share = f"{len(lost)} of {len(failed)} that failed at first"
        sentence = f"not sent again: {share} ({by_status})"
        remedy = (
            "tries again after 429, 503 and lost connections, a few times, with growing pauses."
        )
        return TrafficVerdict("retries", "advice", sentence, remedy)

    def _nothing_to_retry(self) -> str:
        """Say why no retry was to be expected, and how requests failed that need none."""
        transient = ", ".join(str(status) for status in _TRANSIENT if status)
        sentence = f"no call's first request ended with {transient} or without an answer"
        statuses = Counter(attempts[0].status for attempts in self.calls.values())
        others = [
            f"{often} with {status}" for status, often in sorted(statuses.items()) if status >= 400
        ]
        return f"{sentence}; other failures: {', '.join(others)}" if others else sentence

    def _duplicates(self) -> TrafficVerdict:
        again = [call for call, before, _ in self._pairs() if before.brought_a_result]
        check = "no_duplicate_execution"
        if not again:
            return TrafficVerdict(check, "held", "no program was sent again after its result")
        sentence = f"{counted(len(again), 'request')} came after the result of the same program"
        remedy = "sends a program again only if another sample has the same one."
        return TrafficVerdict(check, "advice", sentence, remedy)

    def _refused(self) -> TrafficVerdict | None:
        statuses: Counter[int] = Counter()
        for attempts in self.calls.values():
            own = [attempt.status for attempt in attempts if not attempt.faults]
            statuses.update(status for status in own if 400 <= status < 500 and status != 429)
        if not statuses:
            return None
        told = ", ".join(f"{often} with {status}" for status, often in sorted(statuses.items()))
        sentence = f"the server refused {counted(statuses.total(), 'request')}: {told}"
        remedy = "sends a JSON object with `code` and `language` to /run_code."
        return TrafficVerdict("sent_as_asked", "broken", sentence, remedy)

    def _given_up(self) -> TrafficVerdict | None:
        gone = []
        for number, attempts in enumerate(self.calls.values(), 1):
            for attempt in attempts:
                if attempt.client_gone and not attempt.faults and attempt.ended is not None:
                    took = attempt.ended - attempt.at
                    gone.append(f"call {number} was dropped by the client after {took:.3g} s")
        if not gone:
            return None
        remedy = "waits for the time limit that it sent, unless the call was cancelled."
        return TrafficVerdict("programs_waited_for", "advice", _first(gone), remedy)

    def _unended(self) -> TrafficVerdict | None:
        if not self._open:
            return None
        sentence = f"{counted(len(self._open), 'request')} had not ended"
        return TrafficVerdict("deadline_honoured", "unknown", sentence)

    def _connections(self) -> TrafficVerdict | None:
        if self.requests < _NEW_CONNECTIONS or self.connections < self.requests:
            return None
        sentence = f"each of {self.requests} requests had a connection of its own"
        return TrafficVerdict("connections", "advice", sentence, "keeps one session for all calls.")


def _is_lost(attempts: list[WireAttempt]) -> bool:
    """Was a call sent once, though another attempt might have saved it?"""
    first = attempts[0]
    if len(attempts) > 1 or first.ended is None or not first.failed_for_now:
        return False
    return (first.retry_after or 0.0) < _PATIENCE


def _first(found: Iterable[str]) -> str:
    first, *others = found
    return f"{first} (and {len(others)} more)" if others else first


def _calls(count: int) -> str:
    return counted(count, "call")


def _seconds(value: Any) -> float | None:
    """Return a Retry-After in seconds; None for a date, which another clock would have to read."""
    try:
        return None if value is None else float(value)
    except ValueError:
        return None
