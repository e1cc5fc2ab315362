"""The container engine: where it is, whether it may be used, and which images it has."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from sfusion.harness.errors import MissingTarget, TargetError
from sfusion.harness.targets.options import size
from sfusion.harness.targets.pulling import PullProgress
from sfusion_tools.hosts import is_this_machine

DEFAULT_ADDRESS = "unix:///var/run/docker.sock"
KNOCK = 5.0
"""Seconds until the engine must take a connection."""
PATIENCE = 60
"""Seconds for one answer of the engine; a pull is streamed and may take longer in all."""


class Engine:
    """A connection to the engine that answers at ``address``."""

    def __init__(self, client: Any, address: str) -> None:
        self.client = client
        self.address = address
        with self.telling("the engine does not say what it is"):
            self.architecture = str(client.version().get("Arch", ""))
            self.cpus = int(client.info().get("NCPU") or 1)

    def image(self, name: str, say: Callable[[str], None]) -> Any:
        """The image of that name, pulled when the engine has none."""
        from docker.errors import ImageNotFound

        with self.telling(f"the engine cannot look for {name}"):
            try:
                image = self.client.images.get(name)
            except ImageNotFound:
                self._pull(name, say)
                image = self.client.images.get(name)
        if (found := architecture(image)) and self.architecture and found != self.architecture:
            say(f"{name} is made for {found} and the engine runs {self.architecture}: it starts only if emulated")
        return image

    def _pull(self, name: str, say: Callable[[str], None]) -> None:
        from docker.errors import APIError

        say(f"pulling {name}: the engine has no such image yet")
        progress, failed = PullProgress(name), ""
        try:
            for event in self.client.api.pull(name, stream=True, decode=True):
                failed = str(event.get("error") or failed)  # the last word; reading on lets the connection close
                if line := progress.hear(event, time.monotonic()):
                    say(line)
        except APIError as error:
            failed = told(error)
        if failed:
            raise _not_pulled(name, failed, self.architecture)
        total = sum(layer.total for layer in progress.layers.values())
        say(f"pulled {name}" + (f" ({size(total)})" if total else ""))

    @contextmanager
    def telling(self, what: str) -> Iterator[None]:
        """Whatever the engine refuses inside becomes an error that begins with what was tried."""
        from docker.errors import DockerException

        try:
            yield
        except (DockerException, OSError) as error:  # what requests raises is an OSError
            raise MissingTarget(f"{what} (engine at {self.address}): {told(error)}") from None


@contextmanager
def connected(environ: Mapping[str, str] | None = None) -> Iterator[Engine]:
    """The engine that the environment names, or the one of the docker command's current context."""
    environ = os.environ if environ is None else environ
    try:
        from docker import DockerClient
        from docker.errors import DockerException
    except ImportError:
        raise MissingTarget(
            "a docker target needs the docker SDK for Python, and it is not installed: pip install 'sfusion[docker]'"
        ) from None
    address, named_by = _address(environ)
    _must_be_here(address, named_by)
    try:
        _knock(address)
        client = DockerClient.from_env(environment={**environ, "DOCKER_HOST": address}, timeout=PATIENCE)
    except (DockerException, OSError, ValueError) as error:
        raise _unreachable(address, named_by, error) from None
    try:
        yield Engine(client, address)
    finally:
        client.close()


def architecture(image: Any) -> str:
    """The architecture that an image says it is made for."""
    return str(image.attrs.get("Architecture") or "")


def told(error: BaseException) -> str:
    """What an engine or a registry said, in one line."""
    text = str(getattr(error, "explanation", None) or error) or type(error).__name__
    return " ".join(text.split()).removeprefix("Error response from daemon: ")


def _address(environ: Mapping[str, str]) -> tuple[str, str]:
    """Where the engine is, and who says so."""
    if address := environ.get("DOCKER_HOST", "").strip():
        return address, "DOCKER_HOST"
    from docker.context import ContextAPI
    from docker.errors import DockerException

    try:
        context = ContextAPI.get_context(environ.get("DOCKER_CONTEXT") or None)
        if context is not None and context.name != "default" and context.Host:
            return str(context.Host), f"docker context {context.name}"
    except (DockerException, OSError, KeyError, ValueError):
        pass  # a context that cannot be read names nothing
    return DEFAULT_ADDRESS, "the default, for DOCKER_HOST is not set"


def _must_be_here(address: str, named_by: str) -> None:
    """A container's port is published to loopback, so its engine must be on this machine."""
    parts = urlsplit(address)
    if parts.scheme == "ssh" or (
        parts.scheme in ("tcp", "http", "https") and not is_this_machine(parts.hostname or "")
    ):
        raise MissingTarget(
            f"the engine at {_shown(address)} ({named_by}) is on another machine, where the loopback address of a "
            "container cannot be reached from here; start the container there by hand, and give its address instead"
        )


def _knock(address: str) -> None:
    """Open and close a connection: why it fails is clearer here than in what the SDK makes of it."""
    parts = urlsplit(address)
    if parts.scheme == "unix" and hasattr(socket, "AF_UNIX"):
        with socket.socket(socket.AF_UNIX) as door:
            door.settimeout(KNOCK)
            door.connect(parts.path)
    elif parts.scheme in ("tcp", "http", "https") and parts.port:
        socket.create_connection((parts.hostname, parts.port), timeout=KNOCK).close()


def _unreachable(address: str, named_by: str, error: Exception) -> TargetError:
    where = f"the container engine at {_shown(address)} ({named_by})"
    if isinstance(error, PermissionError):
        return MissingTarget(
            f"{where} may not be used by this user: permission denied; add the user to the group of the socket "
            "(usually docker, then log in again), or name an engine of your own in DOCKER_HOST"
        )
    if isinstance(error, FileNotFoundError | ConnectionRefusedError):
        why = "there is no such socket" if isinstance(error, FileNotFoundError) else "connection refused"
        return MissingTarget(
            f"{where} does not answer: {why}; start Docker (for example `systemctl start docker`), or name a "
            "running engine in DOCKER_HOST"
        )
    return MissingTarget(f"{where} does not answer as one: {told(error)}; is DOCKER_HOST right, and does Docker run?")


def _shown(address: str) -> str:
    scheme, mark, rest = address.partition("://")
    return f"{scheme}{mark}{rest.rpartition('@')[2]}"


def _not_pulled(name: str, why: str, ours: str) -> MissingTarget:
    why = " ".join(why.split())
    if "no matching manifest" in why or "does not match the specified platform" in why:
        return MissingTarget(
            f"{name} has no image for this engine's architecture ({ours}): {why}; take an image made for {ours}"
        )
    return MissingTarget(
        f"there is no image {name} on the engine, and it could not be pulled: {why}; check the name, log in to its "
        "registry (docker login), or bring the image there yourself (docker load, docker import, docker build)"
    )
