"""One container with a sandbox in it: started, waited for, killed, revived, and removed whatever happens."""

from __future__ import annotations

import atexit
import os
import secrets
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from sfusion.harness.errors import MissingTarget
from sfusion.harness.targets.engine import ContainerEngine, architecture, told
from sfusion.harness.targets.options import PREFIX, DockerOptions, size
from sfusion.harness.targets.owner import LABEL, Owner
from sfusion.harness.targets.ping import is_ready

IMAGE_LABEL = "sfusion.image"
"""What the image was called: the container is made of its digest, whatever the name means by then."""
PORT = 8080
"""Where the server listens inside; images of Sandbox Fusion do unless told otherwise."""
KEPT_CAPABILITIES = ("CHOWN", "DAC_OVERRIDE", "FOWNER", "KILL", "SETGID", "SETUID")
"""All others are dropped. Our own server needs none of them; the published image runs everything as root, and programs
that unpack archives or change users expect these."""
LOG_LINES, LINE_LENGTH = 20, 300
_STEP, _PING = 0.1, 2.0
_HOST = "127.0.0.1"


class Container:
    """A sandbox in a container of its own."""

    killable = True

    def __init__(
        self, engine: ContainerEngine, image: Any, image_name: str, options: DockerOptions, number: int = 1
    ) -> None:
        self.name = f"docker-{number}"
        self.container_name = f"sfusion-{os.getpid()}-{secrets.token_hex(4)}"
        """Its name on the engine, chosen before it exists, so that it can be removed however far the start came."""
        self.url = ""
        self._engine = engine
        self._image, self._image_name = image, image_name
        self._options = options
        self._container: Any = None

    def start(self) -> None:
        """Create and start it; it may not answer yet."""
        _STARTED.add(self)
        options, engine = self._options, self._engine
        with engine.reporting_errors(f"no container of {self._image_name} could be created"):
            self._container = engine.client.containers.create(
                self._image.id,
                name=self.container_name,
                labels={LABEL: Owner.here().label(), IMAGE_LABEL: self._image_name},
                environment={"HOST": "0.0.0.0"},  # newer images listen on the container's own loopback otherwise
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
        """Return when it answers its ping; an error with its last words when it dies or stays silent."""
        deadline = time.monotonic() + self._options.ready
        while not (self.url and is_ready(self.url, _PING)):
            with self._engine.reporting_errors(f"{self.container_name} cannot be looked at"):
                self._container.reload()
            if self._container.status not in ("created", "running", "restarting"):
                raise MissingTarget(self._dead())
            if time.monotonic() >= deadline:
                raise MissingTarget(self._silent())
            time.sleep(_STEP)

    def kill(self) -> None:
        """SIGKILL; its connections break, and nothing listens any more when this returns."""
        from docker.errors import APIError

        with self._engine.reporting_errors(f"{self.container_name} could not be killed"):
            try:
                self._container.kill()
            except APIError as error:
                if error.status_code != 409:  # it was dead already
                    raise
            self._container.wait()

    def revive(self) -> None:
        """Start it again, on another port perhaps, and return when it answers."""
        self._run()
        self.wait()

    def remove(self) -> None:
        """Kill it and take it away, with its anonymous volumes; not there any more is as good."""
        from docker.errors import APIError, NotFound

        try:
            self._engine.client.api.remove_container(self.container_name, force=True, v=True)
        except NotFound:
            pass
        except APIError as error:
            if error.status_code != 409:  # somebody removes it already
                raise
        _STARTED.discard(self)

    def _run(self) -> None:
        from docker.errors import APIError

        what = f"the container of {self._image_name} could not be started"
        with self._engine.reporting_errors(what):
            try:
                self._container.start()
            except APIError as error:
                if problem := self._known_problem(told(error)):
                    raise MissingTarget(problem) from None
                raise
            self._container.reload()
        ports = self._container.attrs["NetworkSettings"]["Ports"].get(f"{PORT}/tcp") or []
        self.url = f"http://{_HOST}:{ports[0]['HostPort']}" if ports else ""

    def _known_problem(self, said: str) -> str | None:
        if "exec format error" in said:
            theirs, ours = architecture(self._image), self._engine.architecture
            known = f" ({theirs})" if theirs != ours else ""  # some images say nothing, or what is not true
            return (
                f"{self._image_name} is for another architecture{known} than this engine's ({ours}): exec format "
                f"error; take an image made for {ours}, or install an emulator (qemu-user-static with binfmt-support)"
            )
        if "port is already allocated" in said or "address already in use" in said:
            return (
                f"port {self._options.port} of {_HOST} is taken, so the container cannot answer there; leave "
                f"{PREFIX}PORT unset, and any free port is used"
            )
        return None

    def _dead(self) -> str:
        state, lines = self._container.attrs["State"], self._last_lines()
        if problem := self._known_problem("\n".join(lines)):
            return problem
        if state.get("OOMKilled"):
            limit = size(self._options.memory)
            why, hint = f"killed at its memory limit of {limit}", f"give it more with {PREFIX}MEMORY"
        else:
            why = f"exit code {state.get('ExitCode')}"
            hint = f"see it alone with: docker run --rm -e HOST=0.0.0.0 {self._image_name}"
        if state.get("Error"):
            why += f", {' '.join(str(state['Error']).split())}"
        return f"the container of {self._image_name} ended before it answered: {why}; {hint}{_quoted(lines)}"

    def _silent(self) -> str:
        hint = f"is that a Sandbox Fusion, listening on port {PORT}? {PREFIX}READY gives it more seconds"
        if Path("/.dockerenv").exists():
            hint += "; this command runs in a container itself, where the loopback of the engine is not reached"
        return (
            f"the container of {self._image_name} runs, and nothing answered /v1/ping within {self._options.ready:g} s"
            f"; {hint}{_quoted(self._last_lines())}"
        )

    def _last_lines(self) -> list[str]:
        with self._engine.reporting_errors(f"the log of {self.container_name} cannot be read"):
            text = self._container.logs(tail=LOG_LINES).decode("utf-8", "replace")
        lines = ("".join(letter if letter.isprintable() else " " for letter in line) for line in text.splitlines())
        return [line.rstrip()[:LINE_LENGTH] for line in lines if line.strip()]


def _quoted(lines: list[str]) -> str:
    if not lines:
        return "\nIt wrote nothing."
    return "\nIts last lines:\n" + "\n".join(f"  | {line}" for line in lines)


_STARTED: set[Container] = set()


@atexit.register
def _remove_all() -> None:
    """The last resort, when a context was not closed; what even this misses is left to the next run."""
    if not _STARTED:
        return  # also where there is no SDK, and so never was a container
    from docker.errors import DockerException

    for container in list(_STARTED):
        if container.container_name.split("-")[1] == str(os.getpid()):  # not in a child that was forked from the owner
            with suppress(DockerException, OSError):
                container.remove()
