"""Start the containers of a run, and remove them however it ends, with those that earlier runs left."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from types import FrameType
from typing import Any

from sfusion.harness.real.targets.container import Container
from sfusion.harness.real.targets.docker_engine import ContainerEngine, connected, error_text
from sfusion.harness.real.targets.options import DockerOptions, size
from sfusion.harness.real.targets.owner import LABEL, Owner
from sfusion.harness.real.targets.target import DockerTarget


def remove_leftovers(engine: ContainerEngine, say: Callable[[str], None]) -> list[str]:
    """Remove every labelled container whose owner is gone, report it, and return their names.

    Containers without the label, of a living run, or of one that is not visible from here are left alone.
    """
    from docker.errors import APIError

    here = Owner.here()
    removed: list[str] = []
    with engine.reporting_errors("the containers cannot be listed"):
        found: list[dict[str, Any]] = engine.client.api.containers(all=True, filters={"label": LABEL})
    for one in found:
        name = one["Names"][0].lstrip("/") if one.get("Names") else one["Id"][:12]
        owner = Owner.read((one.get("Labels") or {}).get(LABEL, ""))
        alive = owner.is_alive(here, running=one.get("State") == "running") if owner is not None else None
        if alive is None:
            who = f"process {owner.pid} of {owner.host.partition(' ')[0]}" if owner else "an unknown process"
            say(
                f"left alone: container {name}, started by {who}, which is not visible from here; "
                f"remove it with docker rm -f {name}"
            )
        if alive is not False or owner is None:
            continue
        try:
            engine.client.api.remove_container(one["Id"], force=True, v=True)
        except APIError as error:
            if error.status_code not in (404, 409):  # another run is removing it
                say(f"could not remove container {name}, left by process {owner.pid}: {error_text(error)}")
            continue
        removed.append(name)
        say(f"removed container {name}, left by process {owner.pid}, which is gone")
    return removed


_ENDING = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))


class Terminated(KeyboardInterrupt):
    """Raised in the main thread when the process is asked to end; handled wherever Ctrl-C is."""


@contextmanager
def signals_as_interrupts() -> Iterator[None]:
    """Inside, SIGTERM and SIGHUP act like Ctrl-C, unless the program has a handler of its own for them."""
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
        # asyncio.run cancels its main task on Ctrl-C. An exception raised here instead could end a child task, whose
        # traceback asyncio prints when the task is collected.
        on_ctrl_c(signal.SIGINT, frame)
    else:
        raise Terminated(signal.Signals(number).name)


@contextmanager
def started_containers(
    targets: Sequence[DockerTarget], say: Callable[[str], None], options: DockerOptions | None = None
) -> Iterator[list[Container]]:
    """Start a container for each target and wait until all answer; they are removed however the run ends."""
    options = options or DockerOptions.from_environ(os.environ)
    with ExitStack() as stack:
        engine = stack.enter_context(connected())
        stack.enter_context(signals_as_interrupts())
        remove_leftovers(engine, say)
        images = {target.image: engine.image(target.image, say) for target in targets}
        containers = [
            Container(engine, images[target.image], target.image, options, number)
            for number, target in enumerate(targets, start=1)
        ]
        for container in containers:
            stack.callback(_remove, container, say)
            container.start()
            say(
                f"{container.name}: container {container.container_name} started (at most {size(options.memory)}, "
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
        say(f"container {name} could not be removed: {error_text(error)}; remove it with docker rm -f {name}")
