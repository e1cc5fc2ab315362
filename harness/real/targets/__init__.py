"""Real sandboxes: an address, or containers that are started for a run and removed afterwards."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import cycle, islice

from ...errors import BadTarget, MissingTarget, TargetError
from .target import (
    DEFAULT_IMAGE,
    DockerTarget,
    FakeTarget,
    RealSandbox,
    Target,
    UrlTarget,
    read_target,
    why_unreachable,
)

__all__ = [
    "DEFAULT_IMAGE",
    "BadTarget",
    "DockerTarget",
    "FakeTarget",
    "MissingTarget",
    "RealSandbox",
    "Target",
    "TargetError",
    "UrlTarget",
    "open_targets",
    "read_target",
    "silent",
]

ANSWERS_WITHIN = 5.0
"""Seconds to wait for the first answer of an address (chosen)."""


def silent(_: str) -> None:
    """Discard progress messages."""


@contextmanager
def open_targets(
    targets: Sequence[Target],
    *,
    at_least: int = 1,
    say: Callable[[str], None] = silent,
    check: bool = True,
) -> Iterator[list[RealSandbox]]:
    """Open ``at_least`` sandboxes; the targets take turns if there are fewer of them.

    Each turn of a docker target is a new container; each turn of an address is the same address
    again. With ``check`` an address where nothing answers raises MissingTarget.
    """
    if not targets:
        raise BadTarget("no sandbox given")
    wanted = list(islice(cycle(targets), max(at_least, len(targets))))
    with ExitStack() as opened:
        containers: Iterator[RealSandbox] = iter(())
        if docker := [target for target in wanted if isinstance(target, DockerTarget)]:
            from .container import started_containers

            containers = iter(opened.enter_context(started_containers(docker, say)))
        seen: Counter[str] = Counter()
        sandboxes: list[RealSandbox] = []
        for target in wanted:
            if isinstance(target, UrlTarget):
                seen[target.url] += 1
                number = seen[target.url]
                sandbox = RealSandbox(
                    str(target) if number == 1 else f"{target} #{number}", target.url
                )
                if (
                    check
                    and seen[target.url] == 1
                    and (why := why_unreachable(target.url, ANSWERS_WITHIN))
                ):
                    raise MissingTarget(
                        f"nothing answers at {sandbox.name}: {why}; start the sandbox, or "
                        "correct the address"
                    )
                sandboxes.append(sandbox)
            elif isinstance(target, DockerTarget):
                sandboxes.append(next(containers))
            else:
                raise BadTarget(
                    "fake is not a real sandbox; give an address, docker, or docker:IMAGE"
                )
        yield sandboxes
