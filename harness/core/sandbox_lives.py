"""An index of a journal of episodes: which sandboxes there were, what each request to them was
about, and how each episode ended."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from .journal import Event, Journal

_ENDING = ("answered", "unanswered")
_USES = ("exec", "file")
_CUTTING = ("body",)
"""Phases of a fault in which an answer is spoiled on its way."""
_GOOD = range(200, 300)


@dataclass
class SandboxRequest:
    """One request that arrived, with what its client received."""

    arrived: Event
    on: str
    """What it does: create, ready, exec, file, renew, delete."""
    instance: str = ""
    """The sandbox that it is about; of a create the one that it made, if it made one."""
    started: bool = False
    """It had its effect, or began to."""
    ended: Event | None = None
    is_spoiled: bool = False

    @property
    def at(self) -> float:
        return float(self.arrived["at"])

    @property
    def call(self) -> str:
        return str(self.arrived["call"])

    @property
    def status(self) -> int | None:
        """Return the status that its client received; None if it received none."""
        if self.ended is None or self.ended["event"] == "unanswered":
            return None
        return None if self.ended.get("client_gone") else int(self.ended["status"])

    @property
    def succeeded(self) -> bool:
        """Did its client receive a whole and good answer?"""
        return self.status in _GOOD and not self.is_spoiled

    @property
    def uses(self) -> bool:
        """Does it use a sandbox: run something in it, or read and write its files?"""
        return self.on in _USES


@dataclass
class SandboxLife:
    """One sandbox, from its creation to its end."""

    id: str
    created: Event
    request: SandboxRequest | None
    """The create that made it."""
    died: Event | None = None
    deleting: Event | None = None
    left: Event | None = None
    """Its client closed the connection to which it belongs, while a command ran."""
    ttl: float | None = None
    idle: float | None = None
    """Seconds without use after which it ends."""
    pending_until: float | None = None
    requests: list[SandboxRequest] = field(default_factory=list)
    """Those about it, but for its create."""

    @property
    def at(self) -> float:
        return float(self.created["at"])

    @property
    def tag(self) -> str:
        """Return the episode that its client named; perhaps empty."""
        return str(self.created.get("episode") or "")

    @property
    def was_lost(self) -> bool:
        """Did its client not learn of it from the answer to its create?"""
        return self.request is None or not self.request.succeeded

    @property
    def has_ended(self) -> bool:
        """Is it gone: deleted, on the way to that, or dead?"""
        return any(end is not None for end in (self.deleting, self.left, self.died))

    def ends_within(self, seconds: float) -> bool:
        """Does it end by itself in this time, if nobody uses it any more?"""
        limits = [limit for limit in (self.ttl, self.idle) if limit is not None]
        return bool(limits) and min(limits) <= seconds

    @property
    def uses(self) -> list[SandboxRequest]:
        return [request for request in self.requests if request.uses]

    @property
    def deletes(self) -> list[SandboxRequest]:
        return [request for request in self.requests if request.on == "delete"]


@dataclass
class Episode:
    """One episode: what it was to do, and how it ended."""

    started: Event
    ended: Event | None = None

    @property
    def name(self) -> str:
        return str(self.started["episode"])

    @property
    def steps(self) -> list[dict[str, Any]]:
        return list(self.started["steps"])

    @property
    def was_killed(self) -> bool:
        """Was the process of its client killed?"""
        return self.ended is not None and self.ended.get("end") == "killed"

    @property
    def score(self) -> float | None:
        return None if self.ended is None else self.ended.get("score")


class SandboxLives:
    """Everything that promises about episodes ask for."""

    def __init__(self, journal: Journal) -> None:
        self.requests: list[SandboxRequest] = []
        self.lives: dict[str, SandboxLife] = {}
        self.episodes: dict[str, Episode] = {}
        self.refused: list[Event] = []
        self.file_events: list[Event] = []
        self._open: dict[tuple[Any, Any], SandboxRequest] = {}
        for event in journal.events:
            if event["source"] == "server":
                self._add(event)
            elif event["event"] == "episode_started":
                self.episodes[str(event["episode"])] = Episode(event)
            elif event["event"] == "episode_ended":
                self.episodes[str(event["episode"])].ended = event

    def _add(self, event: Event) -> None:
        """Add an event of the service."""
        name = event["event"]
        request = self._open.get((event.get("call"), event.get("attempt")))
        if name == "arrived":
            self._arrived(event)
        elif name.startswith("sandbox_"):
            self._of_sandbox(event, request)
        elif name in ("file_written", "file_read"):
            self.file_events.append(event)
        elif request is None:
            return
        elif name == "started":
            request.started = True
        elif name == "strike":
            request.is_spoiled = request.is_spoiled or event.get("phase") in _CUTTING
        elif name in _ENDING:
            request.ended = event

    def _arrived(self, event: Event) -> None:
        sent = event.get("sent") or {}
        if "on" not in sent:
            return
        request = SandboxRequest(event, str(sent["on"]), str(sent.get("instance") or ""))
        self.requests.append(request)
        self._open[event.get("call"), event.get("attempt")] = request
        life = self.lives.get(request.instance)
        if life is not None:
            life.requests.append(request)

    def _of_sandbox(self, event: Event, request: SandboxRequest | None) -> None:
        name = event["event"]
        if name == "sandbox_created":
            life = SandboxLife(
                str(event["instance"]),
                event,
                request,
                ttl=event.get("ttl"),
                idle=event.get("idle"),
            )
            self.lives[life.id] = life
            if request is not None:
                request.instance = life.id
            return
        if name == "sandbox_refused":
            self.refused.append(event)
            return
        found = self.lives.get(str(event["instance"]))
        if found is None:
            return
        if name in ("sandbox_ready", "sandbox_died") and found.pending_until is None:
            found.pending_until = event["at"]
        if name == "sandbox_died":
            found.died = event
        elif name == "sandbox_deleting":
            found.deleting = found.deleting or event
        elif name == "sandbox_left":
            found.left = event
        elif name == "sandbox_renewed":
            found.ttl = event.get("ttl") or found.ttl

    # -- who used what --

    def is_step(self, call: str) -> bool:
        """Is it the name of a step, not that of a command of the client's own?"""
        return call.rpartition(".")[0] in self.episodes

    def episode_of(self, request: SandboxRequest) -> str:
        """Return the episode that a request was made for: by the mark in it, else by its sandbox;
        empty if that is not known."""
        named = request.call.rpartition(".")[0]
        if named in self.episodes:
            return named
        life = self.lives.get(request.instance)
        return "" if life is None else self.owner_of(life)

    def owner_of(self, life: SandboxLife) -> str:
        """Return the episode that a sandbox was created for; empty if that is not known."""
        if life.tag in self.episodes:
            return life.tag
        for request in life.requests:
            named = request.call.rpartition(".")[0]
            if named in self.episodes:
                return named
        return ""

    @cached_property
    def by_step(self) -> dict[str, list[SandboxRequest]]:
        """Return the commands by the step that they are."""
        found: dict[str, list[SandboxRequest]] = {}
        for request in self.requests:
            if request.on == "exec":
                found.setdefault(request.call, []).append(request)
        return found

    def lives_of(self, episode: str) -> list[SandboxLife]:
        return [life for life in self.lives.values() if self.owner_of(life) == episode]

    def of_kind(self, on: str) -> Iterable[SandboxRequest]:
        return (request for request in self.requests if request.on == on)

    def uses_of(self, episode: str) -> Iterator[SandboxRequest]:
        """Yield the commands and files of an episode, in order."""
        for request in self.requests:
            if request.uses and self.episode_of(request) == episode:
                yield request
