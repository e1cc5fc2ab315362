"""The messages between server and guard, as plain JSON."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Literal

UserKind = Literal["", "root-of-own", "own", "own-reading"]
"""Whose programs run: the server's user, one of its own that calls itself root, one of its own, or
one of its own that may read what root may, because it could not even start Python otherwise."""
CommandEvent = Literal["exited", "timeout", "stopped", "error"]


@dataclass(frozen=True, slots=True)
class ResourceBounds:
    """The upper bounds for one command, whatever the request asks for."""

    tasks: int = 2048
    """Processes and threads together."""
    memory: int = 4 * 2**30
    """Bytes of memory: of all processes together with a control group, else of each."""
    file_size: int = 2**30
    """Maximum bytes of a single file."""
    shared_memory: int = 512 * 2**20
    """Bytes in its private /dev/shm, if it has one."""
    cpus: float | None = None
    """Processors' worth of time, with a control group; None for as many as there are."""


@dataclass(frozen=True, slots=True)
class GuardOptions:
    """What the guard needs to know at its start; each layer is used if it may be and the machine
    offers it."""

    room: str
    """The directory to remove if the server is killed."""
    lock: int
    """A descriptor that marks the room as in use."""
    bounds: ResourceBounds = field(default_factory=ResourceBounds)
    namespaces: bool = True
    landlock: bool = True
    control_groups: bool = True
    hidden: list[str] = field(default_factory=list)
    """Directories and files that look empty in a namespace, but for what is needed beneath them."""
    needed: list[str] = field(default_factory=list)
    known: list[str] = field(default_factory=list)
    """What was in `/` when the server started; in a namespace, what came later looks empty."""
    network: bool = False
    """Programs use the machine's network."""
    bubblewrap: str = ""
    """The path of bubblewrap, if it may be used."""
    wrapped: bool = False
    """The guard is inside bubblewrap's namespaces."""

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> GuardOptions:
        fields = json.loads(text)
        return cls(**fields | {"bounds": ResourceBounds(**fields["bounds"])})


@dataclass(frozen=True, slots=True)
class Abilities:
    """Which layers are in force, given the machine and the options."""

    namespaces: bool = False
    landlock: int = 0
    """The kernel's version of it."""
    users: tuple[int, int] | None = None
    """First id and number of the users that programs may become."""
    root_of_own: bool = False
    """A program can be root of a user namespace."""
    seccomp: bool = False
    control_groups: bool = False
    bubblewrap: bool = False
    own_network: bool = False
    """Programs have a network of their own, without a way out."""


@dataclass(frozen=True, slots=True)
class CommandSpec:
    """One command line for bash, and what is its own."""

    command: str
    cwd: str
    env: dict[str, str]
    timeout: float
    writable: list[str]
    """The only directories that it may change."""
    memory_limit: int
    """The limit of the request in bytes; 0 for none."""
    mounts: dict[str, str]
    """The command's own directory in the room for each of these, if it has namespaces."""
    program: str
    """The file of the program that the command names with its arguments: it is run as bash would,
    which takes longer to start than most programs. Empty if bash must find it."""
    user: int | None
    """Its own user; None for the server's."""
    user_kind: UserKind


@dataclass(frozen=True, slots=True)
class CommandReport:
    """How a command ended; no process of it is left then."""

    event: CommandEvent
    seconds: float = 0.0
    code: int | None = None
    """Exit code; negative for a signal."""
    leftovers: int = 0
    """Processes that were still alive after the end of the program; the guard has killed them."""
    bound: str = ""
    """The bound that the kernel enforced, in words."""
    message: str = ""
