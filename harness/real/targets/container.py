"""The containers of a run, each with a sandbox in it: removed however it ends, with those that
earlier runs left."""

from __future__ import annotations

import atexit
import os
import secrets
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

from ...errors import MissingTarget
from .docker_engine import (
    PREFIX,
    ContainerEngine,
    DockerOptions,
    architecture,
    connected,
    error_text,
    size,
)
from .owner import LABEL, Owner
from .target import DockerTarget, RealSandbox, is_ready

IMAGE_LABEL = "sfusion.image"
"""The name of the image; the container itself is created from the digest that the name had at the
time."""
PORT = 8080
"""The port inside the container, the default of Sandbox Fusion images."""
KEPT_CAPABILITIES = ("CHOWN", "DAC_OVERRIDE", "FOWNER", "KILL", "SETGID", "SETUID")
"""All others are dropped. Our own server needs none of them; the published image runs programs as
root, and those that unpack archives or change users expect these."""
LOG_LINES = 20
"""Lines of a container's log that an error quotes (chosen)."""
LINE_LENGTH = 300
"""Characters of each of them (chosen)."""
_STEP = 0.1
"""Seconds between two looks at a container that starts (chosen)."""
_PING = 2.0
"""Seconds that a ping may take (chosen)."""
_HOST = "127.0.0.1"
_SIGKILLED = 137
"""The exit code of a process that got SIGKILL, 128 + 9."""


class Container(RealSandbox):
    killable = True

    def __init__(
        self,
        engine: ContainerEngine,
        image: Any,
        image_name: str,
        options: DockerOptions,
        number: int = 1,
    ) -> None:
        super().__init__(f"docker-{number}", "")
        self.container_name = f"sfusion-{os.getpid()}-{secrets.token_hex(4)}"
        """The name on the engine, chosen in advance so that the container can be removed even if
        its start fails."""
        self._engine = engine
        self._image = image
        self._image_name = image_name
        self._options = options
        self._container: Any = None

    def start(self) -> None:
        """Create and start it without waiting for it to answer."""
        _STARTED.add(self)
        options = self._options
        engine = self._engine
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
        """Wait for its ping; raises MissingTarget with its last log lines if it exits or does not
        answer in time."""
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
        """Send SIGKILL and wait until it is dead: its connections break, and nothing listens any
        more."""
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
        """Kill and remove it; does nothing if it is gone already."""
        self._engine.remove(self.container_name)
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
            theirs = architecture(self._image)
            ours = self._engine.architecture
            known = (
                f" ({theirs})" if theirs != ours else ""
            )  # some images do not say, or say something wrong
            return (
                f"{self._image_name} is for another architecture{known} than this engine's "
                f"({ours}): exec format "
                f"error; use an image built for {ours}, or install an emulator "
                "(qemu-user-static with binfmt-support)"
            )
        if "port is already allocated" in output or "address already in use" in output:
            return (
                f"port {self._options.port} of {_HOST} is already in use, so the container "
                "cannot listen there; unset "
                f"{PREFIX}PORT to use any free port"
            )
        return None

    def _dead(self) -> str:
        state = self._container.attrs["State"]
        lines = self._last_lines()
        if problem := self._known_problem("\n".join(lines)):
            return problem
        if state.get("OOMKilled") or state.get("ExitCode") == _SIGKILLED:
            # The engine hears of the memory limit and of the exit from two sources, in either
            # order.
            if state.get("OOMKilled"):
                surely = "killed"
            else:
                surely = f"killed (exit code {_SIGKILLED}), most likely"
            why = f"{surely} at its memory limit of {size(self._options.memory)}"
            hint = f"raise it with {PREFIX}MEMORY"
        else:
            why = f"exit code {state.get('ExitCode')}"
            hint = f"try it alone with: docker run --rm -e HOST=0.0.0.0 {self._image_name}"
        if state.get("Error"):
            why += f", {' '.join(str(state['Error']).split())}"
        return (
            f"the container of {self._image_name} exited before it answered: {why}; "
            f"{hint}{_quoted(lines)}"
        )

    def _silent(self) -> str:
        hint = (
            f"is it a Sandbox Fusion server listening on port {PORT}? {PREFIX}READY "
            "gives it more seconds"
        )
        if Path("/.dockerenv").exists():
            hint += (
                "; this command itself runs in a container, from which the engine's "
                "loopback cannot be reached"
            )
        return (
            f"the container of {self._image_name} runs, but did not answer /v1/ping within "
            f"{self._options.ready:g} s"
            f"; {hint}{_quoted(self._last_lines())}"
        )

    def _last_lines(self) -> list[str]:
        with self._engine.reporting_errors(f"the log of {self.container_name} cannot be read"):
            text = self._container.logs(tail=LOG_LINES).decode("utf-8", "replace")
        lines = (
            "".join(letter if letter.isprintable() else " " for letter in line)
            for line in text.splitlines()
        )
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


def remove_leftovers(engine: ContainerEngine, say: Callable[[str], None]) -> list[str]:
    """Remove every labelled container whose owner is gone, report it, and return their names.

    Containers without the label, of a living run, or of one that is not visible from here are left
    alone.
    """
    from docker.errors import APIError

    here = Owner.here()
    removed: list[str] = []
    with engine.reporting_errors("the containers cannot be listed"):
        found: list[dict[str, Any]] = engine.client.api.containers(
            all=True, filters={"label": LABEL}
        )
    for container in found:
        name = container["Names"][0].lstrip("/") if container.get("Names") else container["Id"][:12]
        owner = Owner.read((container.get("Labels") or {}).get(LABEL, ""))
        if owner is not None:
            alive = owner.is_alive(here, running=container.get("State") == "running")
        else:
            alive = None
        if alive is None:
            if owner:
                who = f"process {owner.pid} of {owner.host.partition(' ')[0]}"
            else:
                who = "an unknown process"
            say(
                f"left alone: container {name}, started by {who}, which is not visible from here; "
                f"remove it with docker rm -f {name}"
            )
        if alive is not False or owner is None:
            continue
        try:
            if engine.remove(container["Id"]):
                removed.append(name)
                say(f"removed container {name}, left by process {owner.pid}, which is gone")
        except APIError as error:
            say(
                f"could not remove container {name}, left by process {owner.pid}: "
                f"{error_text(error)}"
            )
    return removed


_ENDING = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))


class Terminated(KeyboardInterrupt):
    """Raised in the main thread when the process is asked to end; handled wherever Ctrl-C is."""


@contextmanager
def signals_as_interrupts() -> Iterator[None]:
    """Inside, SIGTERM and SIGHUP act like Ctrl-C, unless the program has a handler of its own for
    them."""
    if threading.current_thread() is not threading.main_thread():
        yield  # Python lets only the main thread install handlers
        return
    taken = [number for number in _ENDING if signal.getsignal(number) is signal.SIG_DFL]
    for number in taken:
        signal.signal(number, _interrupt)
    try:
        yield
    finally:
        for number in taken:
            if signal.getsignal(number) is _interrupt:
                signal.signal(number, signal.SIG_DFL)


def _interrupt(number: int, frame: FrameType | None) -> None:
    on_ctrl_c = signal.getsignal(signal.SIGINT)
    if callable(on_ctrl_c) and on_ctrl_c is not signal.default_int_handler:
        # asyncio.run cancels its main task on Ctrl-C. An exception raised here instead could end a
        # child task, whose traceback asyncio prints when the task is collected.
        on_ctrl_c(signal.SIGINT, frame)
    else:
        raise Terminated(signal.Signals(number).name)


@contextmanager
def started_containers(
    targets: Sequence[DockerTarget], say: Callable[[str], None]
) -> Iterator[list[Container]]:
    """Start a container for each target and wait until all answer; they are removed however the run
    ends."""
    options = DockerOptions.from_environ(os.environ)
    with ExitStack() as stack:
        engine = stack.enter_context(connected())
        stack.enter_context(signals_as_interrupts())
        remove_leftovers(engine, say)
        images = {target.image: engine.image(target.image, say) for target in targets}
        containers = [
            Container(
                engine=engine,
                image=images[target.image],
                image_name=target.image,
                options=options,
                number=number,
            )
            for number, target in enumerate(targets, start=1)
        ]
        for container in containers:
            stack.callback(_remove, container, say)
            container.start()
            say(
                f"{container.name}: container {container.container_name} started (at most "
                f"{size(options.memory)}, "
                f"{min(options.cpus, engine.cpus):g} CPUs, {options.pids} processes)"
            )
        for container in containers:
            container.wait()
            say(f"{container.name}: ready at {container.url}")
        yield containers


def _remove(container: Container, say: Callable[[str], None]) -> None:
    """Remove one; report a failure instead of raising it, so that the others are removed too."""
    from docker.errors import DockerException

    try:
        container.remove()
    except (DockerException, OSError) as error:
        name = container.container_name
        say(
            f"container {name} could not be removed: {error_text(error)}; remove it with "
            f"docker rm -f {name}"
        )
