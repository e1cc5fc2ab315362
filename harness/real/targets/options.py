"""Resource limits of containers, and how long they may take to answer."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
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
        read = {name.lower(): _READERS[name](name, text) for name, text in values.items()}
        return cls(**read)  # type: ignore[arg-type] # each reader returns the type of its field


def size(count: float) -> str:
    """Format a number of bytes."""
    for unit in ("bytes", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} {unit}"
        count /= 1024
    return f"{count:.1f}".removesuffix(".0") + " GiB"


def _memory(name: str, text: str) -> int:
    found = _SIZE.fullmatch(text)
    count = int(float(found[1]) * _UNITS[found[2].lower()]) if found else 0
    if count < 6 * 2**20:
        raise _bad(name, text, "an amount of memory of at least 6m, such as 4g or 512m")
    return count


def _positive(name: str, text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not (number > 0 and math.isfinite(number)):
        raise _bad(name, text, "a number above 0")
    return number


def _whole(name: str, text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise _bad(name, text, "a whole number above 0")
    return int(text)


def _port(name: str, text: str) -> int:
    if not text.isdecimal() or int(text) > 65535:
        raise _bad(name, text, "a port from 1 to 65535, or 0 for any free one")
    return int(text)


def _bad(name: str, text: str, wanted: str) -> BadTarget:
    return BadTarget(f"{PREFIX}{name}={text!r} in the environment: expected {wanted}")


_READERS = {"MEMORY": _memory, "CPUS": _positive, "PIDS": _whole, "READY": _positive, "PORT": _port}
