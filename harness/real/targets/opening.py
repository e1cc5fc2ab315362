"""Open real sandboxes: check addresses, start containers, and remove them afterwards."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import cycle, islice
from typing import Protocol

from sfusion.harness.errors import BadTarget, MissingTarget
from sfusion.harness.real.targets.ping import why_unreachable
from sfusion.harness.real.targets.target import DockerTarget, Target, UrlTarget


class RealSandbox(Protocol):
    """What a run can do with a sandbox. ``kill`` and ``revive`` block, sometimes for seconds."""

    @property
    def name(self) -> str:
        """Its name in messages and reports; contains no secrets."""

    @property
    def url(self) -> str:
        """Its current address; it may change when it is revived."""

    @property
    def killable(self) -> bool:
        """Can it be killed and revived?"""

    def kill(self) -> None:
        """End it with SIGKILL, like the kernel when memory runs out."""

    def revive(self) -> None:
        """Start it again, and wait until it answers."""


class UrlSandbox:
    """A server that sfusion did not start, and so never kills."""

    killable = False

    def __init__(self, target: UrlTarget, number: int = 1) -> None:
        self.url = target.url
        self.name = str(target) if number == 1 else f"{target} #{number}"

    def kill(self) -> None:
        raise BadTarget(f"{self.name} is an address; only a container that sfusion started can be killed")

    def revive(self) -> None:
        raise BadTarget(f"{self.name} is an address; only a container that sfusion started can be started again")

    def why_unreachable(self, timeout: float) -> str | None:
        return why_unreachable(self.url, timeout)


ANSWERS_WITHIN = 5.0
"""Seconds to wait for the first answer of an address."""


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

    Each turn of a docker target is a new container; each turn of an address is the same address again. With ``check``
    an address where nothing answers raises MissingTarget.
    """
    if not targets:
        raise BadTarget("no sandbox given")
    wanted = list(islice(cycle(targets), max(at_least, len(targets))))
    with ExitStack() as opened:
        containers = iter(_start([target for target in wanted if isinstance(target, DockerTarget)], say, opened))
        seen: Counter[str] = Counter()
        sandboxes: list[RealSandbox] = []
        for target in wanted:
            if isinstance(target, UrlTarget):
                seen[target.url] += 1
                sandbox = UrlSandbox(target, seen[target.url])
                if check and seen[target.url] == 1:
                    _must_answer(sandbox)
                sandboxes.append(sandbox)
            elif isinstance(target, DockerTarget):
                sandboxes.append(next(containers))
            else:
                raise BadTarget("fake is not a real sandbox; give an address, docker, or docker:IMAGE")
        yield sandboxes


def _must_answer(sandbox: UrlSandbox) -> None:
    if why := sandbox.why_unreachable(ANSWERS_WITHIN):
        raise MissingTarget(f"nothing answers at {sandbox.name}: {why}; start the sandbox, or correct the address")


def _start(targets: Sequence[DockerTarget], say: Callable[[str], None], opened: ExitStack) -> list[RealSandbox]:
    if not targets:
        return []
    from sfusion.harness.real.targets.starting import started_containers

    return [*opened.enter_context(started_containers(targets, say))]
