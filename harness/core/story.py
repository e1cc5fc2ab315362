"""An index of a journal by call and source, shared by all promises."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any

from sfusion_tools.errors import GuardTripped
from sfusion_tools.outcome import PROGRAM_OUTCOMES
from sfusion_tools.record import ENDINGS, Call, fold_call

from .journal import Event, Journal

_DISTURBING = (
    "killed",
    "worker_paused",
    "cut_off",
    "limiter_died",
    "limiter_paused",
    "container_killed",
    "cancelled",
)


def attempt_of(event: Event) -> tuple[Any, ...]:
    """Return what tells the attempts of all calls apart: each sandbox counts its own."""
    return event.get("sandbox"), event.get("call"), event.get("attempt")


@cache
def _final_kinds() -> frozenset[str]:
    """Return the kinds of faults that leave no result.

    Imported on first use: whoever only looks at a log needs no faults, and they take long to load.
    """
    from ...fakes.faults import KINDS

    return frozenset(name for name, kind in KINDS.items() if kind.final)


def _spoils(strike: Event, compiles: bool) -> bool:
    """Does a fault leave no result in the answer, or one that nobody can read?"""
    return strike["kind"] in _final_kinds() or (compiles and strike.get("what") == "not_utf8")


def _by_name(events: list[Event]) -> dict[str, list[Event]]:
    found: dict[str, list[Event]] = {}
    for event in events:
        found.setdefault(event["event"], []).append(event)
    return found


@dataclass
class CallStory:
    """The events of one call, in order."""

    call: str
    called: Event | None = None
    endings: list[Event] = field(default_factory=list)
    """World events `returned`, `cancelled` or `lost`; exactly one if all is well."""
    client: list[Event] = field(default_factory=list)
    server: list[Event] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    """All events that name the call."""

    def of_client(self, event: str) -> list[Event]:
        return self._by_name[0].get(event, [])

    def of_server(self, event: str) -> list[Event]:
        return self._by_name[1].get(event, [])

    @cached_property
    def _by_name(self) -> tuple[dict[str, list[Event]], dict[str, list[Event]]]:
        return _by_name(self.client), _by_name(self.server)

    @cached_property
    def answers(self) -> list[Event]:
        """Return the answers that reached the client: it had not left, and its time was not up in
        that very moment."""
        gave_up = {one["at"] for one in self.of_client("attempt_ended") if one["status"] is None}
        return [
            one
            for one in self.of_server("answered")
            if not one.get("client_gone") and one["at"] not in gave_up
        ]

    @cached_property
    def results(self) -> list[Event]:
        """Return the answers of the sandbox that carried a result of the program, as far as its
        ledger tells.

        A SandboxError and a cut body also have status 200, but the fault that made them is in the
        journal.
        """
        if self.intent.get("kind") in ("sandbox_error", "bad_arguments"):
            return []
        compiles = (
            self.intent.get("kind") != "compile_error"
        )  # then there is no output to be spoilt
        spoiled = {attempt_of(one) for one in self.of_server("strike") if _spoils(one, compiles)}
        given = [one for one in self.answers if one["status"] == 200]
        return [one for one in given if attempt_of(one) not in spoiled] or self._given_in_the_end(
            given
        )

    def _given_in_the_end(self, given: list[Event]) -> list[Event]:
        """Return attempts after these answers that ended with their program, as where the sandbox
        crashed just then.

        Their answer may have been sent, and was if the tool says so.
        """
        if (self.returned or {}).get("outcome") not in PROGRAM_OUTCOMES:
            return []
        struck = {attempt_of(one) for one in self.of_server("strike")}
        ran = {
            attempt_of(one): one["at"]
            for one in self.of_server("finished")
            if attempt_of(one) not in struck
        }
        later = self.server[self.server.index(given[-1]) :] if given else self.server
        left = [one for one in later if one["event"] == "unanswered" and not one.get("client_gone")]
        return [one for one in left if ran.get(attempt_of(one)) == one["at"]]

    @cached_property
    def is_misled(self) -> bool:
        """Did a fault answer in place of the program, so that nobody but the fake knows what
        happened?"""
        told = {attempt_of(one) for one in self.answers}
        return any(
            one["kind"] == "timeout" and attempt_of(one) in told for one in self.of_server("strike")
        )

    @property
    def raised(self) -> str | None:
        """Return the type of what the tool raised; None if nothing, or the guard that is meant to
        end the job."""
        kind = (self.returned or {}).get("raised")
        return None if kind == GuardTripped.__name__ else kind

    @cached_property
    def succeeded(self) -> bool:
        """Did the caller get a result of the program, from a sandbox that gave one?"""
        returned = self.returned
        if returned is None or returned.get("raised") or not self.results:
            return False
        return returned.get("outcome") in (None, *PROGRAM_OUTCOMES)

    @cached_property
    def returned(self) -> Event | None:
        """Return the event `returned`; None if the call ended in another way."""
        return next((one for one in self.endings if one["event"] == "returned"), None)

    @cached_property
    def intent(self) -> dict[str, Any]:
        """Return what its program does when nothing goes wrong, unless it is stopped because it
        must share cores."""
        intent = (self.called or {}).get("intent") or {}
        executed = self.of_server("finished")
        if any(one.get("stopped") for one in executed):
            read = {attempt_of(one) for one in self.answers}
            executed = [one for one in executed if attempt_of(one) in read] or executed
        if executed and executed[-1].get("stopped"):
            return {"kind": "program_timeout"} | {
                key: intent[key] for key in ("early", "mark") if key in intent
            }
        return intent


class Story:
    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self.calls: dict[str, CallStory] = {}
        by_source: defaultdict[str, list[Event]] = defaultdict(list)
        self.world, self.limiter = by_source["world"], by_source["limiter"]
        self.server, self.engine = by_source["server"], by_source["engine"]
        self.cache: dict[str, Any] = {}
        """What promises have found out and share."""
        self._repeated: dict[str, list[CallStory]] = {}
        """Calls that send the same code, by what the sandbox calls it."""
        self._owners: dict[tuple[Any, ...], CallStory] = {}
        for event in journal.events:
            source, call = event["source"], event.get("call")
            by_source[source].append(event)
            if call is None or source == "limiter":
                continue
            story = (
                self._repeating(event)
                if source == "server" and call in self._repeated
                else self.calls.get(call)
            )
            if story is None:
                story = self.calls[call] = CallStory(call)
            story.events.append(event)
            if source == "client":
                story.client.append(event)
            elif source == "server":
                story.server.append(event)
            elif event["event"] == "called":
                story.called = event
                if (mark := (event.get("intent") or {}).get("mark")) is not None:
                    self._repeated.setdefault(mark, []).append(story)
            elif event["event"] in ENDINGS:
                story.endings.append(event)

    def _repeating(self, event: Event) -> CallStory:
        """Return the call that an event of repeated code belongs to: a new request is that of the
        call under way with the fewest requests, and of several the one that ends first, so that
        each call finds a request if it can."""
        key = attempt_of(event)
        if key not in self._owners:
            calls = self._repeated[event["call"]]
            under_way = [call for call in calls if not call.endings] or calls[-1:]
            self._owners[key] = min(under_way, key=self._need)
        return self._owners[key]

    @cached_property
    def _ends(self) -> dict[str, int]:
        """The places of the events that end calls."""
        return {
            one["call"]: place
            for place, one in enumerate(self.journal.events)
            if one["source"] == "world" and one["event"] in ENDINGS
        }

    def _need(self, call: CallStory) -> tuple[float, ...]:
        arrived = sum(one["event"] == "arrived" for one in call.server)
        return arrived, self._ends.get(call.call, math.inf)

    def of_world(self, *events: str) -> list[Event]:
        found = [self._world_by_name[event] for event in events if event in self._world_by_name]
        return (
            found[0]
            if len(found) == 1
            else [one for one in self.world if found and one["event"] in events]
        )

    @cached_property
    def _world_by_name(self) -> dict[str, list[Event]]:
        return _by_name(self.world)

    @cached_property
    def began(self) -> Event:
        """Return the world's first event, with the settings of the run."""
        found = self.of_world("began")
        return found[0] if found else {}

    @cached_property
    def ended(self) -> Event | None:
        """Return the world's last event; None if the run was broken off."""
        found = self.of_world("ended")
        return found[-1] if found else None

    @cached_property
    def records(self) -> list[Call]:
        """Return all calls in the order in which they began; what has no end stops with its worker
        or the journal.

        A fault that strikes a connection names that in place of a call, which nobody knows yet.
        """
        last = self.journal.last_time
        known = [
            one
            for one in self.calls.values()
            if any(event["event"] != "strike" for event in one.events)
        ]
        folded = [fold_call(one.call, one.events, last, self.deaths) for one in known]
        return sorted(folded, key=lambda call: call.began)

    @cached_property
    def made(self) -> list[CallStory]:
        """Return the calls that the world made (the server may have seen others)."""
        return [story for story in self.calls.values() if story.called is not None]

    @cached_property
    def places(self) -> dict[int, int]:
        """Return the place of each event in the journal."""
        return {id(event): number for number, event in enumerate(self.journal.events)}

    @cached_property
    def callers(self) -> dict[int, CallStory]:
        """Return the call of each request that arrived."""
        return {id(one): call for call in self.made for one in call.of_server("arrived")}

    @cached_property
    def is_disturbed(self) -> bool:
        """Did something happen to the cluster or a sandbox as a whole?"""
        return bool(self.of_world(*_DISTURBING)) or any(
            one["event"] in ("crash", "wedge") for one in self.server
        )

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
        return any(story.client for story in self.calls.values())

    @cached_property
    def deaths(self) -> dict[str, float]:
        return {one["worker"]: one["at"] for one in self.of_world("worker_died")}
