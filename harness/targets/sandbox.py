"""A real sandbox to send calls to, whatever stands behind it."""

from __future__ import annotations

from typing import Protocol

from sfusion.harness.errors import BadTarget
from sfusion.harness.targets.ping import why_unreachable
from sfusion.harness.targets.target import UrlTarget


class RealSandbox(Protocol):
    """What a run may do with a sandbox. ``kill`` and ``revive`` block, for seconds at times."""

    @property
    def name(self) -> str:
        """What to call it in messages and reports; nothing secret."""

    @property
    def url(self) -> str:
        """Where it answers now; a revived one may have moved."""

    @property
    def killable(self) -> bool:
        """May it be killed and revived?"""

    def kill(self) -> None:
        """End it at once, as the kernel does when memory is short."""

    def revive(self) -> None:
        """Start it again, and return when it answers."""


class UrlSandbox:
    """Somebody's server: it is used, and nothing else is done to it."""

    killable = False

    def __init__(self, target: UrlTarget, number: int = 1) -> None:
        self.url = target.url
        self.name = str(target) if number == 1 else f"{target} #{number}"

    def kill(self) -> None:
        """Refused: it is not ours."""
        raise BadTarget(f"{self.name} is an address, and only a container that sfusion started can be killed")

    def revive(self) -> None:
        """Refused: it is not ours."""
        raise BadTarget(f"{self.name} is an address, and only a container that sfusion started can be started again")

    def why_unreachable(self, timeout: float) -> str | None:
        """Why nothing answers there; None when something does, whatever it says."""
        return why_unreachable(self.url, timeout)
