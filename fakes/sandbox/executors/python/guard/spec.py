"""The messages between server and guard about one command, as plain JSON."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Literal

UserKind = Literal["", "root-of-own", "own", "own-reading"]
"""Whose programs run: the server's user, one of its own that calls itself root, one of its own, or one of its own that
may read what root may, because it could not even start Python otherwise."""
CommandEvent = Literal["exited", "timeout", "stopped", "error"]


@dataclass(frozen=True, slots=True)
class ResourceBounds:
    """The upper bounds for one request, whatever it asks for."""

    processes: int = 256
    tasks: int = 2048
    """Processes and threads together."""
    memory: int = 4 * 2**30
    """Bytes of memory of all processes together."""
    file_size: int = 2**30
    """Maximum bytes of a single file."""
    shared_memory: int = 512 * 2**20
    """Bytes in its private /dev/shm, if it has one."""


@dataclass(frozen=True, slots=True)
class CommandSpec:
    """One command line for bash, and how to confine it."""

    command: str
    cwd: str
    env: dict[str, str]
    timeout: float
    writable: list[str]
    """The only directories that it may change."""
    memory_limit: int
    """The limit of the request in bytes; 0 for none."""
    namespaces: bool
    landlock: bool
    bounds: ResourceBounds
    mounts: dict[str, str]
    """The command's own directory for each of these, if it has namespaces."""
    needed: list[str]
    """What it sees of the machine's beneath them, read-only."""
    user: int | None
    """Its own user; None for the server's."""
    user_kind: UserKind
    seccomp: bool
    """Filter its system calls."""
    control_group: bool
    """The kernel bounds its memory and processes."""

    def to_json(self) -> dict[str, object]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, object]) -> CommandSpec:
        fields = dict(data)
        fields["bounds"] = ResourceBounds(**fields["bounds"])  # type: ignore[arg-type]  # our own JSON, written above
        return cls(**fields)  # type: ignore[arg-type]  # the same


@dataclass(frozen=True, slots=True)
class CommandReport:
    """How a command ended."""

    event: CommandEvent
    seconds: float = 0.0
    code: int | None = None
    """Exit code; negative for a signal."""
    leftovers: int = 0
    """Processes that were still alive after the end of the program; the guard kills them."""
    bound: str = ""
    """The bound for which the guard killed the program, in words."""
    message: str = ""

    def to_json(self) -> dict[str, object]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Abilities:
    """What this machine lets the guard do."""

    namespaces: bool
    landlock: int
    users: tuple[int, int] | None
    """First id and number of the users that programs may become."""
    root_of_own: bool
    """A program can be root of a user namespace."""
    seccomp: bool
    control_groups: bool
    bubblewrap: bool
    """The guard itself is inside bubblewrap's namespaces."""
