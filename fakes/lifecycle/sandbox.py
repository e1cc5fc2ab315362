"""One sandbox of a ledger: its state, its times, its files and what was executed in it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

SandboxState = Literal["pending", "running", "dead", "deleting", "deleted"]
LIVE: frozenset[SandboxState] = frozenset({"pending", "running", "deleting"})
"""States in which a sandbox counts against the limit on live ones."""

MOST_COMMANDS = 1000
"""Commands of a sandbox that are told apart (chosen: ten times what an episode executes)."""


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file that a client wrote."""

    content: bytes
    writer: str
    """Who wrote it: the mark inside it, else the episode of its sandbox."""


@dataclass(slots=True)
class Sandbox:
    """What the ledger knows of one sandbox. Times are those that the ledger was given."""

    id: str
    episode: str
    """The tag under which it was created; empty if the client gave none."""
    name: str
    labels: Mapping[str, str]
    created: float
    settings: Mapping[str, Any] = field(default_factory=dict)
    """What else the create asked for, for the face to show."""
    state: SandboxState = "pending"
    why: str = ""
    """Why it died."""
    is_booting: bool = False
    """It starts now, and does not wait for its turn."""
    ttl: float | None = None
    idle: float | None = None
    ready: float | None = None
    expires: float | None = None
    """When its time is up."""
    expire_timer: float | None = None
    idle_timer: float | None = None
    """When the ledger looks next whether it has ended; at most one timer of each kind is set."""
    used: float = 0.0
    """When it was used last."""
    ended: float | None = None
    """When it died, or else when it was deleted."""
    deletes: int = 0
    """How often a delete was asked for while it was there."""
    executing: int = 0
    executions: int = 0
    steps: int = 0
    """Commands that ended since the episode began."""
    commands: OrderedDict[str, int] = field(default_factory=OrderedDict)
    """How often each of the last commands began to run, by its call."""
    files: dict[str, StoredFile] = field(default_factory=dict)

    @property
    def is_live(self) -> bool:
        return self.state in LIVE

    @property
    def is_orphan(self) -> bool:
        """It is there, and nobody has asked to delete it."""
        return self.state in ("pending", "running")

    @property
    def idles_out(self) -> float | None:
        """When it ends for want of use, as things stand."""
        if self.idle is None or self.executing or self.state != "running":
            return None
        return self.used + self.idle

    def count_command(self, call: str) -> None:
        self.executing += 1
        self.executions += 1
        self.commands[call] = self.commands.get(call, 0) + 1
        if len(self.commands) > MOST_COMMANDS:
            self.commands.popitem(last=False)

    def as_dict(self) -> dict[str, Any]:
        """The sandbox as plain data, without its files' contents."""
        return {
            "id": self.id,
            "episode": self.episode,
            "name": self.name,
            "state": self.state,
            "why": self.why,
            "created": self.created,
            "ready": self.ready,
            "expires": self.expires,
            "ended": self.ended,
            "deletes": self.deletes,
            "executions": self.executions,
            "repeated": [call for call, count in self.commands.items() if count > 1],
            "files": {path: stored.writer for path, stored in self.files.items()},
        }
