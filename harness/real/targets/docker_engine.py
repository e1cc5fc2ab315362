"""The container engine: finding it, connecting to it, getting images from it; and the limits of
containers."""

from __future__ import annotations

import math
import os
import re
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from sfusion_tools.errors import MissingExtra
from sfusion_tools.hosts import is_this_machine

from ...errors import BadTarget, MissingTarget, TargetError

MEMORY = 4 * 2**30
"""Bytes of memory per container, including swap: a hundred small programs, or four that use 1
GiB each."""
CPUS = 4.0
"""CPUs per container; fewer if the engine has fewer (chosen)."""
PIDS = 4096
"""Processes and threads per container; stops fork bombs (chosen)."""
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
        """Read ``SFUSION_DOCKER_MEMORY``, ``_CPUS``, ``_PIDS``, ``_READY`` and ``_PORT``; raises
        BadTarget."""
        values = {
            name: environ[PREFIX + name].strip()
            for name in _READERS
            if environ.get(PREFIX + name, "").strip()
        }
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
    "MEMORY": (
        _bytes,
        lambda size: size >= 6 * 2**20,
        "an amount of memory of at least 6m, such as 4g or 512m",
    ),
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


EVERY = 5.0
"""Minimum seconds between two lines (chosen)."""
_DONE = ("Pull complete", "Already exists")


@dataclass
class Layer:
    current: int = 0
    total: int = 0
    done: bool = False


@dataclass
class PullProgress:
    """Sums up the events of all layers into an occasional line."""

    image: str
    layers: dict[str, Layer] = field(default_factory=dict)
    last_line: str = ""
    _next: float = float("-inf")

    def update(self, event: Mapping[str, Any], now: float) -> str | None:
        """Add an event; return a line if there is news and the last line is old enough."""
        name = str(event.get("id", ""))
        status = str(event.get("status", ""))
        if not name or status.startswith("Pulling from"):
            return None
        layer = self.layers.setdefault(name, Layer())
        if status == "Downloading":
            detail = event.get("progressDetail") or {}
            layer.current = int(detail.get("current", 0))
            layer.total = int(detail.get("total", layer.total))
        elif status in ("Verifying Checksum", "Download complete"):
            layer.current = layer.total
        layer.done = layer.done or status in _DONE
        if now < self._next or self.text == self.last_line:
            return None
        self._next = now + EVERY
        self.last_line = self.text
        return self.last_line

    @property
    def text(self) -> str:
        done = sum(layer.done for layer in self.layers.values())
        line = f"pulling {self.image}: {done} of {len(self.layers)} layers"
        total = sum(layer.total for layer in self.layers.values())
        if not total:
            return line
        loaded = sum(layer.current for layer in self.layers.values())
        return f"{line}, {size(loaded)} of {size(total)}"


DEFAULT_ADDRESS = "unix:///var/run/docker.sock"
CONNECT_TIMEOUT = 5.0
"""Seconds within which the engine must accept a connection (chosen)."""
PATIENCE = 60
"""Seconds to wait for an answer of the engine; a pull is streamed and may take longer in total
(chosen)."""


class ContainerEngine:
    """A connection to the engine at ``address``."""

    def __init__(self, client: Any, address: str) -> None:
        self.client = client
        self.address = address
        with self.reporting_errors("the engine does not report its version"):
            self.architecture = str(client.version().get("Arch", ""))
            self.cpus = int(client.info().get("NCPU") or 1)

    def image(self, name: str, say: Callable[[str], None]) -> Any:
        """Return the image of that name, pulling it if the engine does not have it."""
        from docker.errors import ImageNotFound

        with self.reporting_errors(f"the engine cannot look up {name}"):
            try:
                image = self.client.images.get(name)
            except ImageNotFound:
                self._pull(name, say)
                image = self.client.images.get(name)
        if (found := architecture(image)) and self.architecture and found != self.architecture:
            say(
                f"{name} is built for {found} and the engine runs {self.architecture}: it "
                "only starts with an emulator"
            )
        return image

    def _pull(self, name: str, say: Callable[[str], None]) -> None:
        from docker.errors import APIError

        say(f"pulling {name}: the engine does not have this image yet")
        progress = PullProgress(name)
        failed = ""
        try:
            for event in self.client.api.pull(name, stream=True, decode=True):
                failed = str(
                    event.get("error") or failed
                )  # keep the last one; reading on lets the connection close
                if line := progress.update(event, time.monotonic()):
                    say(line)
        except APIError as error:
            failed = error_text(error)
        if failed:
            raise _not_pulled(name, failed, self.architecture)
        total = sum(layer.total for layer in progress.layers.values())
        say(f"pulled {name}" + (f" ({size(total)})" if total else ""))

    def remove(self, container: str) -> bool:
        """Kill and remove a container with its anonymous volumes; False if it is gone, or
        another run removes it."""
        from docker.errors import APIError

        try:
            self.client.api.remove_container(container, force=True, v=True)
        except APIError as error:
            if error.status_code not in (404, 409):
                raise
            return False
        return True

    @contextmanager
    def reporting_errors(self, what: str) -> Iterator[None]:
        """Turn errors of the engine into MissingTarget with a message that begins with ``what``."""
        from docker.errors import DockerException

        try:
            yield
        except (DockerException, OSError) as error:  # what requests raises is an OSError
            raise MissingTarget(f"{what} (engine at {self.address}): {error_text(error)}") from None


@contextmanager
def connected() -> Iterator[ContainerEngine]:
    """Connect to the engine that DOCKER_HOST names, or else to that of the current docker
    context."""
    try:
        from docker import DockerClient
        from docker.errors import DockerException
    except ImportError as error:
        raise MissingTarget(str(MissingExtra("a docker sandbox", "docker", error))) from None
    address, named_by = _address(os.environ)
    _must_be_here(address, named_by)
    try:
        _try_connecting(address)
        client = DockerClient.from_env(
            environment={**os.environ, "DOCKER_HOST": address}, timeout=PATIENCE
        )
    except (DockerException, OSError, ValueError) as error:
        raise _unreachable(address, named_by, error) from None
    try:
        yield ContainerEngine(client, address)
    finally:
        client.close()


def architecture(image: Any) -> str:
    """The architecture that an image claims to be built for; may be empty."""
    return str(image.attrs.get("Architecture") or "")


def error_text(error: BaseException) -> str:
    """The message of an engine or a registry, on one line."""
    text = str(getattr(error, "explanation", None) or error) or type(error).__name__
    return " ".join(text.split()).removeprefix("Error response from daemon: ")


def _address(environ: Mapping[str, str]) -> tuple[str, str]:
    """Return the address of the engine, and where it comes from."""
    if address := environ.get("DOCKER_HOST", "").strip():
        return address, "DOCKER_HOST"
    from docker.context import ContextAPI
    from docker.errors import DockerException

    try:
        context = ContextAPI.get_context(environ.get("DOCKER_CONTEXT") or None)
        if context is not None and context.name != "default" and context.Host:
            return str(context.Host), f"docker context {context.name}"
    except (DockerException, OSError, KeyError, ValueError):
        pass  # ignore a context that cannot be read
    return DEFAULT_ADDRESS, "the default, as DOCKER_HOST is not set"


def _must_be_here(address: str, named_by: str) -> None:
    """A container's port is published on loopback, so the engine must be on this machine."""
    parts = urlsplit(address)
    if parts.scheme == "ssh" or (
        parts.scheme in ("tcp", "http", "https") and not is_this_machine(parts.hostname or "")
    ):
        raise MissingTarget(
            f"the engine at {_shown(address)} ({named_by}) is on another machine, and the "
            "loopback address of a "
            "container there cannot be reached from here; start the container by hand, and "
            "give its address instead"
        )


def _try_connecting(address: str) -> None:
    """Open and close a connection: the errors are clearer than those of the SDK."""
    parts = urlsplit(address)
    if parts.scheme == "unix" and hasattr(socket, "AF_UNIX"):
        with socket.socket(socket.AF_UNIX) as door:
            door.settimeout(CONNECT_TIMEOUT)
            door.connect(parts.path)
    elif parts.scheme in ("tcp", "http", "https") and parts.port:
        socket.create_connection((parts.hostname, parts.port), timeout=CONNECT_TIMEOUT).close()


def _unreachable(address: str, named_by: str, error: Exception) -> TargetError:
    where = f"the container engine at {_shown(address)} ({named_by})"
    if isinstance(error, PermissionError):
        return MissingTarget(
            f"{where} may not be used by this user: permission denied; add the user to the "
            "group of the socket "
            "(usually docker; then log in again), or point DOCKER_HOST to your own engine"
        )
    if isinstance(error, FileNotFoundError | ConnectionRefusedError):
        if isinstance(error, FileNotFoundError):
            why = "there is no such socket"
        else:
            why = "connection refused"
        return MissingTarget(
            f"{where} does not answer: {why}; start Docker (for example `systemctl start "
            "docker`), or point "
            "DOCKER_HOST to a running engine"
        )
    why = error_text(error)
    return MissingTarget(
        f"{where} does not answer like Docker: {why}; is DOCKER_HOST right, and is Docker running?"
    )


def _shown(address: str) -> str:
    scheme, mark, rest = address.partition("://")
    return f"{scheme}{mark}{rest.rpartition('@')[2]}"


def _not_pulled(name: str, why: str, ours: str) -> MissingTarget:
    why = " ".join(why.split())
    if "no matching manifest" in why or "does not match the specified platform" in why:
        return MissingTarget(
            f"{name} has no image for this engine's architecture ({ours}): {why}; use an "
            f"image built for {ours}"
        )
    return MissingTarget(
        f"there is no image {name} on the engine, and it could not be pulled: {why}; check "
        "the name, log in to the "
        "registry (docker login), or load the image yourself (docker load, docker import, "
        "docker build)"
    )
