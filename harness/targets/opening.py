"""Opens targets: addresses are looked at, containers are started, and what was started is gone afterwards."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import cycle, islice

from sfusion.harness.errors import BadTarget, MissingTarget
from sfusion.harness.targets.sandbox import RealSandbox, UrlSandbox
from sfusion.harness.targets.target import DockerTarget, Target, UrlTarget

ANSWERS_WITHIN = 5.0
"""Seconds that an address has for its first answer."""


def silent(_: str) -> None:
    """Say nothing."""


@contextmanager
def open_targets(
    targets: Sequence[Target],
    *,
    at_least: int = 1,
    say: Callable[[str], None] = silent,
    check: bool = True,
) -> Iterator[list[RealSandbox]]:
    """Sandboxes for these targets, at least so many; the targets take turns when more are wanted than were given.

    An address is used as often as it is its turn; each turn of a docker target is a container of its own. With
    ``check`` an address where nothing answers is refused; without, it is handed out unseen.
    """
    if not targets:
        raise BadTarget("no sandbox was named")
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
                raise BadTarget("fake is no real sandbox; give an address, docker, or docker:IMAGE")
        yield sandboxes


def _must_answer(sandbox: UrlSandbox) -> None:
    if why := sandbox.why_unreachable(ANSWERS_WITHIN):
        raise MissingTarget(f"nothing answers at {sandbox.name}: {why}; start the sandbox, or correct the address")


def _start(targets: Sequence[DockerTarget], say: Callable[[str], None], opened: ExitStack) -> list[RealSandbox]:
    if not targets:
        return []
    from sfusion.harness.targets.starting import started_containers

    return [*opened.enter_context(started_containers(targets, say))]
