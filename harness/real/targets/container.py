"""One container with a sandbox in it, removed whatever happens."""

from __future__ import annotations

import atexit
import os
import secrets
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from sfusion.harness.errors import MissingTarget
from sfusion.harness.real.targets.docker_engine import ContainerEngine, architecture, error_text
from sfusion.harness.real.targets.options import PREFIX, DockerOptions, size
from sfusion.harness.real.targets.owner import LABEL, Owner
from sfusion.harness.real.targets.ping import is_ready

IMAGE_LABEL = "sfusion.image"
"""The name of the image; the container itself is created from the digest that the name had at the time."""
PORT = 8080
"""The port inside the container, the default of Sandbox Fusion images."""
KEPT_CAPABILITIES = ("CHOWN", "DAC_OVERRIDE", "FOWNER", "KILL", "SETGID", "SETUID")
"""All others are dropped. Our own server needs none of them; the published image runs programs as root, and those that
unpack archives or change users expect these."""
LOG_LINES, LINE_LENGTH = 20, 300
_STEP, _PING = 0.1, 2.0
_HOST = "127.0.0.1"
_SIGKILLED = 137


class Container:
    killable = True

    def __init__(
        self, engine: ContainerEngine, image: Any, image_name: str, options: DockerOptions, number: int = 1
    ) -> None:
        self.name = f"docker-{number}"
        self.container_name = f"sfusion-{os.getpid()}-{secrets.token_hex(4)}"
        """The name on the engine, chosen in advance so that the container can be removed even if its start fails."""
        self.url = ""
        self._engine = engine
        self._image, self._image_name = image, image_name
        self._options = options
        self._container: Any = None

    def start(self) -> None:
        """Create and start it without waiting for it to answer."""
        _STARTED.add(self)
        options, engine = self._options, self._engine
        with engine.reporting_errors(f"no container of {self._image_name} could be created"):
            self._container = engine.client.containers.create(
                self._image.id,
                name=self.container_name,
                labels={LABEL: Owner.here().label(), IMAGE_LABEL: self._image_name},
                environment={"HOST": "0.0.0.0"},  # newer images listen on loopback by default
                ports={f"{PORT}/tcp": (_HOST, options.port or None)},
                mem_limit=options.memory,
                memswap_limit=options.memory,
                nano_cpus=int(min(options.cpus, engine.cpus) * 1e9),
                pids_limit=options.pids,
                cap_drop=["ALL"],
                cap_add=list(KEPT_CAPABILITIES),
                security_opt=["no-new-privileges"],
                log_config={"type": "json-file", "config": {"max-size": "8m", "max-file": "1"}},
            )
        self._run()

    def wait(self) -> None:
        """Wait for its ping; raises MissingTarget with its last log lines if it exits or does not answer in time."""
        deadline = time.monotonic() + self._options.ready
        while not (self.url and is_ready(self.url, _PING)):
            with self._engine.reporting_errors(f"{self.container_name} cannot be inspected"):
                self._container.reload()
            if self._container.status not in ("created", "running", "restarting"):
                raise MissingTarget(self._dead())
            if time.monotonic() >= deadline:
                raise MissingTarget(self._silent())
            time.sleep(_STEP)

    def kill(self) -> None:
        """Send SIGKILL and wait until it is dead: its connections break, and nothing listens any more."""
        from docker.errors import APIError

        with self._engine.reporting_errors(f"{self.container_name} could not be killed"):
            try:
                self._container.kill()
            except APIError as error:
                if error.status_code != 409:  # already dead
                    raise
            self._container.wait()

    def revive(self) -> None:
        """Start it again, perhaps on another port, and wait until it answers."""
        self._run()
        self.wait()

    def remove(self) -> None:
        """Kill and remove it with its anonymous volumes; does nothing if it is gone already."""
        from docker.errors import APIError, NotFound

        try:
            self._engine.client.api.remove_container(self.container_name, force=True, v=True)
        except NotFound:
            pass
        except APIError as error:
            if error.status_code != 409:  # already being removed
                raise
        _STARTED.discard(self)

    def _run(self) -> None:
        from docker.errors import APIError

        what = f"the container of {self._image_name} could not be started"
        with self._engine.reporting_errors(what):
            try:
                self._container.start()
            except APIError as error:
                if problem := self._known_problem(error_text(error)):
                    raise MissingTarget(problem) from None
                raise
            self._container.reload()
        ports = self._container.attrs["NetworkSettings"]["Ports"].get(f"{PORT}/tcp") or []
        self.url = f"http://{_HOST}:{ports[0]['HostPort']}" if ports else ""

    def _known_problem(self, output: str) -> str | None:
        if "exec format error" in output:
            theirs, ours = architecture(self._image), self._engine.architecture
            known = f" ({theirs})" if theirs != ours else ""  # some images do not say, or say something wrong
            return (
                f"{self._image_name} is for another architecture{known} than this engine's ({ours}): exec format "
                f"error; use an image built for {ours}, or install an emulator (qemu-user-static with binfmt-support)"
            )
        if "port is already allocated" in output or "address already in use" in output:
            return (
                f"port {self._options.port} of {_HOST} is already in use, so the container cannot listen there; unset "
                f"{PREFIX}PORT to use any free port"
            )
        return None

    def _dead(self) -> str:
        state, lines = self._container.attrs["State"], self._last_lines()
        if problem := self._known_problem("\n".join(lines)):
            return problem
        if state.get("OOMKilled") or state.get("ExitCode") == _SIGKILLED:
            # The engine hears of the memory limit and of the exit from two sources, in either order.
            surely = "killed" if state.get("OOMKilled") else f"killed (exit code {_SIGKILLED}), most likely"
            why = f"{surely} at its memory limit of {size(self._options.memory)}"
            hint = f"raise it with {PREFIX}MEMORY"
        else:
            why = f"exit code {state.get('ExitCode')}"
            hint = f"try it alone with: docker run --rm -e HOST=0.0.0.0 {self._image_name}"
        if state.get("Error"):
            why += f", {' '.join(str(state['Error']).split())}"
        return f"the container of {self._image_name} exited before it answered: {why}; {hint}{_quoted(lines)}"

    def _silent(self) -> str:
        hint = f"is it a Sandbox Fusion server listening on port {PORT}? {PREFIX}READY gives it more seconds"
        if Path("/.dockerenv").exists():
            hint += "; this command itself runs in a container, from which the engine's loopback cannot be reached"
        return (
            f"the container of {self._image_name} runs, but did not answer /v1/ping within {self._options.ready:g} s"
            f"; {hint}{_quoted(self._last_lines())}"
        )

    def _last_lines(self) -> list[str]:
        with self._engine.reporting_errors(f"the log of {self.container_name} cannot be read"):
            text = self._container.logs(tail=LOG_LINES).decode("utf-8", "replace")
        lines = ("".join(letter if letter.isprintable() else " " for letter in line) for line in text.splitlines())
        return [line.rstrip()[:LINE_LENGTH] for line in lines if line.strip()]


def _quoted(lines: list[str]) -> str:
    if not lines:
        return "\nIts log is empty."
    return "\nThe last lines of its log:\n" + "\n".join(f"  | {line}" for line in lines)


_STARTED: set[Container] = set()


@atexit.register
def _remove_all() -> None:
    """Last resort if a context was not closed; anything this misses is removed by the next run."""
    if not _STARTED:
        return  # the SDK may not even be installed
    from docker.errors import DockerException

    for container in list(_STARTED):
        if container.container_name.split("-")[1] == str(os.getpid()):  # not in a forked child
            with suppress(DockerException, OSError):
                container.remove()
