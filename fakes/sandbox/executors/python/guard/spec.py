"""What the server tells the guard about one command, and what the guard tells back. Plain JSON both ways."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Literal

CommandEvent = Literal["exited", "timeout", "stopped", "error"]


@dataclass(frozen=True, slots=True)
class ResourceBounds:
    """What one request may use at most, whatever it asks for."""

    processes: int = 256
    tasks: int = 2048
    """Processes and threads together."""
    memory: int = 4 * 2**30
    """Bytes of memory of all its processes together."""
    file_size: int = 2**30
    """Bytes of any one file it writes."""
    shared_memory: int = 512 * 2**20
    """Bytes in its private /dev/shm, where it has one."""


@dataclass(frozen=True, slots=True)
class CommandSpec:
    """One command line for bash, and how to hold it."""

    command: str
    cwd: str
    env: dict[str, str]
    timeout: float
    writable: list[str]
    """The only directories in which it may change anything."""
    memory_limit: int
    """The limit in bytes that the request asked for; 0 is none."""
    namespaces: bool
    landlock: bool
    bounds: ResourceBounds

    def to_json(self) -> dict[str, object]:
        """Give what crosses the socket."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, object]) -> CommandSpec:
        """Rebuild what `to_json` gave."""
        fields = dict(data)
        fields["bounds"] = ResourceBounds(**fields["bounds"])  # type: ignore[arg-type]  # our own JSON, written above
        return cls(**fields)  # type: ignore[arg-type]  # the same


@dataclass(frozen=True, slots=True)
class CommandReport:
    """How a command ended, as the guard saw it."""

    event: CommandEvent
    seconds: float = 0.0
    code: int | None = None
    """Exit code; negative for a signal."""
    leftovers: int = 0
    """Processes still alive when the program had ended; the guard kills them."""
    bound: str = ""
    """The bound that made the guard kill the program, in words."""
    message: str = ""

    def to_json(self) -> dict[str, object]:
        """Give what crosses the socket."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Abilities:
    """What this machine lets the guard do."""

    namespaces: bool
    landlock: int
