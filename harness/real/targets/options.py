"""Resource limits of containers, and how long they may take to answer."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from sfusion.harness.errors import BadTarget

MEMORY = 4 * 2**30
"""Bytes of memory per container, including swap: a hundred small programs, or four that use 1 GiB each."""
CPUS = 4.0
"""CPUs per container; fewer if the engine has fewer."""
PIDS = 4096
"""Processes and threads per container; stops fork bombs."""
READY_WITHIN = 60.0
"""Seconds within which a container must answer its ping; the published image takes about 6."""

PREFIX = "SFUSION_DOCKER_"
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?)i?b?", re.IGNORECASE)
_UNITS = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}


@dataclass(frozen=True)
class DockerOptions:
    memory: int = MEMORY
    cpus: float = CPUS
    pids: int = PIDS
    ready: float = READY_WITHIN
    port: int = 0
    """The port on 127.0.0.1 where the container answers; 0 picks a free one."""

    @classmethod
    def from_environ(cls, environ: Mapping[str, str]) -> DockerOptions:
        """Read ``SFUSION_DOCKER_MEMORY``, ``_CPUS``, ``_PIDS``, ``_READY`` and ``_PORT``; raises BadTarget."""
        values = {name: environ[PREFIX + name].strip() for name in _READERS if environ.get(PREFIX + name, "").strip()}
        read = {name.lower(): _read(name, text) for name, text in values.items()}
        return cls(**read)  # type: ignore[arg-type] # each is parsed to the type of its field


def size(count: float) -> str:
    """Format a number of bytes."""
    for unit in ("bytes", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} {unit}"
        count /= 1024
    return f"{count:.1f}".removesuffix(".0") + " GiB"


def _bytes(text: str) -> int:
    if (found := _SIZE.fullmatch(text)) is None:
        raise ValueError
    return int(float(found[1]) * _UNITS[found[2].lower()])


_READERS: dict[str, tuple[Callable[[str], float], Callable[[float], bool], str]] = {
    "MEMORY": (_bytes, lambda size: size >= 6 * 2**20, "an amount of memory of at least 6m, such as 4g or 512m"),
    "CPUS": (float, lambda number: 0 < number < math.inf, "a number above 0"),
    "PIDS": (int, lambda number: number > 0, "a whole number above 0"),
    "READY": (float, lambda number: 0 < number < math.inf, "a number above 0"),
    "PORT": (int, lambda port: 0 <= port <= 65535, "a port from 1 to 65535, or 0 for any free one"),
}
"""Variables with how they are parsed, which values are allowed, and what to say about others."""


def _read(name: str, text: str) -> float:
    parse, fits, wanted = _READERS[name]
    try:
        if fits(value := parse(text)):
            return value
    except ValueError:
        pass
    raise BadTarget(f"{PREFIX}{name}={text!r} in the environment: expected {wanted}")
