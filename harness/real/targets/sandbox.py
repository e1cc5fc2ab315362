"""A real sandbox to send calls to: an address or a container."""

from __future__ import annotations

from typing import Protocol

from sfusion.harness.errors import BadTarget
from sfusion.harness.real.targets.ping import why_unreachable
from sfusion.harness.real.targets.target import UrlTarget


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
