"""An index of a journal by call and source, shared by all promises."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, TypeVar, cast

from sfusion_tools.errors import GuardTripped
from sfusion_tools.outcome import PROGRAM_OUTCOMES
from sfusion_tools.record import ENDINGS, Call, fold_call

from .journal import Event, Journal

if TYPE_CHECKING:
    from .events import (
        BeganEvent,
        CalledEvent,
        ClientEvent,
        LimiterEvent,
        ReturnedEvent,
        SandboxEvent,
    )

E = TypeVar("E", Event, "ClientEvent", "SandboxEvent")

_DISTURBING = (
    "killed",
    "worker_paused",
    "cut_off",
    "limiter_died",
    "limiter_paused",
    "container_killed",
    "cancelled",
)


def attempt_of(event: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return what tells the attempts of all calls apart: each sandbox counts its own."""
    return event.get("sandbox"), event.get("call"), event.get("attempt")


@cache
def _final_kinds() -> frozenset[str]:
    """Return the kinds of faults that leave no result.

    Imported on first use: whoever only looks at a log needs no faults, and they take long to load.
    """
    from ...fakes.faults import KINDS

    return frozenset(name for name, kind in KINDS.items() if kind.final)


def _spoils(strike: SandboxEvent, compiles: bool) -> bool:
    """Does a fault leave no result in the answer, or one that nobody can read?"""
    return strike["kind"] in _final_kinds() or (compiles and strike.get("what") == "not_utf8")


def _by_name(events: list[E]) -> dict[str, list[E]]:
    found: dict[str, list[E]] = {}
    for event in events:
        found.setdefault(event["event"], []).append(event)
    return found


@dataclass
class CallEvents:
    """The events of one call, in order."""

    call: str
    called: CalledEvent | None = None
    endings: list[Event] = field(default_factory=list)
    """World events `returned`, `cancelled` or `lost`; exactly one if all is well."""
    client: list[ClientEvent] = field(default_factory=list)
    server: list[SandboxEvent] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    """All events that name the call."""

    def of_client(self, event: str) -> list[ClientEvent]:
        return self._client_by_name.get(event, [])

    def of_server(self, event: str) -> list[SandboxEvent]:
        return self._server_by_name.get(event, [])

    @cached_property
    def _client_by_name(self) -> dict[str, list[ClientEvent]]:
        return _by_name(self.client)

    @cached_property
    def _server_by_name(self) -> dict[str, list[SandboxEvent]]:
        return _by_name(self.server)

    @cached_property
    def answers(self) -> list[SandboxEvent]:
        """Return the answers that reached the client.

        It had not left, and its time was not up in that very moment.
        """
        ended = self.of_client("attempt_ended")
        gave_up = {event["at"] for event in ended if event["status"] is None}
        return [
            answer
            for answer in self.of_server("answered")
            if not answer.get("client_gone") and answer["at"] not in gave_up
        ]

    @cached_property
    def results(self) -> list[SandboxEvent]:
        """Return the answers of the sandbox that carried a result of the program.

        That is as far as its ledger tells. A SandboxError and a cut body also have status 200, but
        the fault that made them is in the journal.
        """
        kind = self.intent.get("kind")
        if kind in ("sandbox_error", "bad_arguments"):
            return []
        # A program that does not compile has no output that a fault could spoil.
        compiles = kind != "compile_error"
        strikes = self.of_server("strike")
        spoiled = {attempt_of(strike) for strike in strikes if _spoils(strike, compiles)}
        given = [answer for answer in self.answers if answer["status"] == 200]
        whole = [answer for answer in given if attempt_of(answer) not in spoiled]
        return whole or self._given_in_the_end(given)

    def _given_in_the_end(self, given: list[SandboxEvent]) -> list[SandboxEvent]:
        """Return the ends of attempts after these answers that came with the end of their program.

        The sandbox crashed just then: it noted no answer, but may have sent one, and did if the
        tool says so.
        """
        if self.returned is None or self.returned.get("outcome") not in PROGRAM_OUTCOMES:
            return []
        struck = {attempt_of(strike) for strike in self.of_server("strike")}
        finished_at = {
            attempt_of(event): event["at"]
            for event in self.of_server("finished")
            if attempt_of(event) not in struck
        }
        first = self.server.index(given[-1]) if given else 0
        found = []
        for event in self.server[first:]:
            if event["event"] != "unanswered" or event.get("client_gone"):
                continue
            if finished_at.get(attempt_of(event)) == event["at"]:
                found.append(event)
        return found

    @cached_property
    def is_misled(self) -> bool:
        """Did a fault answer in place of the program?

        Then nobody but the fake knows what happened.
        """
        answered = {attempt_of(answer) for answer in self.answers}
        timeouts = [strike for strike in self.of_server("strike") if strike["kind"] == "timeout"]
        return any(attempt_of(strike) in answered for strike in timeouts)

    @property
    def raised(self) -> str | None:
        """Return the type of what the tool raised, if it did.

        A tripped guard does not count: it is meant to end the job.
        """
        kind = None if self.returned is None else self.returned.get("raised")
        return None if kind == GuardTripped.__name__ else kind

    @cached_property
    def succeeded(self) -> bool:
        """Did the caller get a result of the program, from a sandbox that gave one?"""
        returned = self.returned
        if returned is None or returned.get("raised") or not self.results:
            return False
        return returned.get("outcome") in (None, *PROGRAM_OUTCOMES)

    @cached_property
    def returned(self) -> ReturnedEvent | None:
        """Return the event `returned`; None if the call ended in another way."""
        for event in self.endings:
            if event["event"] == "returned":
                return cast("ReturnedEvent", event)
        return None

    @property
    def written_intent(self) -> dict[str, Any]:
        """Return what its program does, as the scenario says."""
        return {} if self.called is None else self.called.get("intent") or {}

    @cached_property
    def intent(self) -> dict[str, Any]:
        """Return what its program does when nothing goes wrong.

        If it was stopped because it must share cores, it is one that takes too long.
        """
        intent = self.written_intent
        if not self._was_stopped:
            return intent
        stopped = {"kind": "program_timeout"}
        for key in ("early", "mark"):
            if key in intent:
                stopped[key] = intent[key]
        return stopped

    @property
    def _was_stopped(self) -> bool:
        """Was the last execution stopped, of those that were answered if one was?"""
        executed = self.of_server("finished")
        if not any(event.get("stopped") for event in executed):
            return False
        answered = {attempt_of(answer) for answer in self.answers}
        read = [event for event in executed if attempt_of(event) in answered]
        return bool((read or executed)[-1].get("stopped"))


class RunEvents:
    """The events of a run by call and by source, which all promises share."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self.calls: dict[str, CallEvents] = {}
        self.world: list[Event] = []
        self.limiter: list[LimiterEvent] = []
        self.server: list[SandboxEvent] = []
        self.engine: list[Event] = []
        self.cache: dict[str, Any] = {}
        """What promises have found out and share."""
        self._repeated: dict[str, list[CallEvents]] = {}
        """Calls that send the same code, by what the sandbox calls it."""
        self._owners: dict[tuple[Any, ...], CallEvents] = {}
        by_source: dict[str, list[Any]] = {
            "world": self.world,
            "limiter": self.limiter,
            "server": self.server,
            "engine": self.engine,
        }
        for event in journal.events:
            if event["source"] in by_source:
                by_source[event["source"]].append(event)
            self._note_call(event)

    def _note_call(self, event: Event) -> None:
        """Add an event to those of its call, if it names one."""
        source = event["source"]
        if event.get("call") is None or source == "limiter":
            return
        call = self._call_of(event)
        call.events.append(event)
        if source == "client":
            call.client.append(cast("ClientEvent", event))
        elif source == "server":
            call.server.append(cast("SandboxEvent", event))
        elif event["event"] == "called":
            call.called = cast("CalledEvent", event)
            mark = (event.get("intent") or {}).get("mark")
            if mark is not None:
                self._repeated.setdefault(mark, []).append(call)
        elif event["event"] in ENDINGS:
            call.endings.append(event)

    def _call_of(self, event: Event) -> CallEvents:
        """Return the call that an event belongs to."""
        name = event["call"]
        if event["source"] == "server" and name in self._repeated:
            return self._repeating(event)
        if name not in self.calls:
            self.calls[name] = CallEvents(name)
        return self.calls[name]

    def _repeating(self, event: Event) -> CallEvents:
        """Return the call that an event of repeated code belongs to.

        A new request is that of the call under way with the fewest requests, and of several the one
        that ends first, so that each call finds a request if it can.
        """
        request = attempt_of(event)
        if request not in self._owners:
            calls = self._repeated[event["call"]]
            under_way = [call for call in calls if not call.endings]
            self._owners[request] = min(under_way or calls[-1:], key=self._need)
        return self._owners[request]

    @cached_property
    def _ends(self) -> dict[str, int]:
        """The places of the events that end calls."""
        return {
            event["call"]: place
            for place, event in enumerate(self.journal.events)
            if event["source"] == "world" and event["event"] in ENDINGS
        }

    def _need(self, call: CallEvents) -> tuple[float, ...]:
        """Order calls by how few requests they have, then by when they end."""
        arrived = sum(event["event"] == "arrived" for event in call.server)
        return arrived, self._ends.get(call.call, math.inf)

    def stood_still(self, since: float, until: float) -> float:
        """Return for how long the machine stood still between two moments, in world wall."""
        seconds = 0.0
        for stop in self.of_world("lagged"):
            began = max(since, stop["at"] - stop["seconds"])
            seconds += max(0.0, min(until, stop["at"]) - began)
        return seconds

    def of_world(self, *events: str) -> list[Event]:
        """Return the world's events with one of these names, in order."""
        known = [name for name in events if name in self._world_by_name]
        if not known:
            return []
        if len(known) == 1:
            return self._world_by_name[known[0]]
        return [event for event in self.world if event["event"] in known]

    @cached_property
    def _world_by_name(self) -> dict[str, list[Event]]:
        return _by_name(self.world)

    @cached_property
    def began(self) -> BeganEvent:
        """Return the world's first event, with the settings of the run."""
        found = self.of_world("began")
        return cast("BeganEvent", found[0]) if found else {}

    @cached_property
    def ended(self) -> Event | None:
        """Return the world's last event; None if the run was broken off."""
        found = self.of_world("ended")
        return found[-1] if found else None

    @cached_property
    def records(self) -> list[Call]:
        """Return all calls in the order in which they began.

        What has no end stops with its worker or the journal. A fault that strikes a connection
        names that in place of a call, which nobody knows yet.
        """
        last = self.journal.last_time
        known = [
            call
            for call in self.calls.values()
            if any(event["event"] != "strike" for event in call.events)
        ]
        folded = [fold_call(call.call, call.events, last, self.deaths) for call in known]
        return sorted(folded, key=lambda call: call.began)

    @cached_property
    def made(self) -> list[CallEvents]:
        """Return the calls that the world made (the server may have seen others)."""
        return [call for call in self.calls.values() if call.called is not None]

    @cached_property
    def places(self) -> dict[int, int]:
        """Return the place of each event in the journal."""
        return {id(event): number for number, event in enumerate(self.journal.events)}

    @cached_property
    def callers(self) -> dict[int, CallEvents]:
        """Return the call of each request that arrived."""
        found: dict[int, CallEvents] = {}
        for call in self.made:
            for request in call.of_server("arrived"):
                found[id(request)] = call
        return found

    @cached_property
    def is_disturbed(self) -> bool:
        """Did something happen to the cluster or a sandbox as a whole?"""
        if self.of_world(*_DISTURBING):
            return True
        return any(event["event"] in ("crash", "wedge") for event in self.server)

    @cached_property
    def foreign(self) -> bool:
        """Is the tool another class than ours?"""
        return bool(self.began.get("foreign"))

    @cached_property
    def states_outcomes(self) -> bool:
        """Does the tool state how calls ended?"""
        return any(
            call.returned is not None and call.returned.get("outcome") is not None
            for call in self.made
        )

    @cached_property
    def has_client(self) -> bool:
        """Does the client report its attempts? Only our own does."""
        return any(call.client for call in self.calls.values())

    @cached_property
    def deaths(self) -> dict[str, float]:
        """Return when each worker died that did."""
        return {event["worker"]: event["at"] for event in self.of_world("worker_died")}
