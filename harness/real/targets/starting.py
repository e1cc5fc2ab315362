"""Start the containers of a run."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

from sfusion.harness.real.targets.container import Container
from sfusion.harness.real.targets.docker_engine import connected, error_text
from sfusion.harness.real.targets.leftovers import remove_leftovers
from sfusion.harness.real.targets.options import DockerOptions, size
from sfusion.harness.real.targets.signals import signals_as_interrupts
from sfusion.harness.real.targets.target import DockerTarget


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
