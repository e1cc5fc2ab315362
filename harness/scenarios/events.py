"""Events: what is done to the cluster and the sandbox at given times."""

from __future__ import annotations

import re
from collections.abc import Collection
from itertools import chain
from typing import Any, Literal

from pydantic import Field, model_validator

from sfusion.fakes.faults import Seconds
from sfusion.harness.scenarios.base import ScenarioPart
from sfusion_tools.errors import near

KINDS = ("kill", "pause", "cut_off", "restart", "crash", "wedge", "resize", "cancel")
_WORKER = re.compile(r"worker-([1-9][0-9]*)|n([1-9][0-9]*)-w([1-9][0-9]*)")


class EventPart(ScenarioPart):
    """One event: `at` and exactly one of kill, pause, cut_off, restart, crash, wedge, resize, cancel."""

    at: Seconds = Field(description="when it happens, after the start of the load")
    kill: str | None = Field(
        None, description="kill without warning: worker-2 or n1-w2, node-1, limiter, or (ray only) driver"
    )
    pause: str | None = Field(None, description="stop a worker for `seconds`, then let it continue")
    cut_off: str | None = Field(None, description="cut a worker off from the limiter for `seconds`; it keeps working")
    restart: Literal["limiter", "sandbox"] | None = Field(
        None, description="restart after a kill or crash: limiter or sandbox"
    )
    crash: str | None = Field(None, description="crash the sandbox: sandbox (all of them) or sandbox-2")
    wedge: str | None = Field(
        None, description="the sandbox accepts requests but never answers, for `seconds` or for good"
    )
    resize: int | None = Field(None, ge=1, description="change the limiter's rate_limit")
    cancel: float | None = Field(None, gt=0, le=1, description="cancel this share of the calls under way")
    seconds: Seconds | None = Field(None, description="how long it lasts; after a kill or crash: when to restart")
    may_not_strike: bool = Field(
        False, description="accept a run in which it never happens or finds no target, which is unknown otherwise"
    )
    ping: Literal["alive", "dead"] = Field("alive", description="whether a wedged sandbox still answers pings")

    @model_validator(mode="after")
    def _one(self) -> EventPart:
        given = self.kinds
        if len(given) != 1:
            found = ", ".join(given) or "none"
            raise ValueError(f"an event has `at` and exactly one of {', '.join(KINDS)}; found {found}")
        if given[0] in ("pause", "cut_off") and self.seconds is None:
            raise ValueError(f"{given[0]} needs `seconds`, its duration")
        return self

    @property
    def kinds(self) -> list[str]:
        """Return the kinds that are given; a valid event has one."""
        return [kind for kind in KINDS if getattr(self, kind) is not None]

    @property
    def kind(self) -> str:
        return self.kinds[0]

    @property
    def target(self) -> Any:
        return getattr(self, self.kind)

    def wrong_target(self, workers: Collection[str], nodes: Collection[str], sandboxes: Collection[str]) -> str | None:
        """Return what is wrong with the target; None if the scenario has it."""
        match self.kind:
            case "kill":
                allowed = [workers, nodes, ("limiter", "driver")]
            case "pause" | "cut_off":
                allowed = [workers]
            case "crash" | "wedge":
                allowed = [("sandbox",), sandboxes]
            case _:
                return None
        if any(self.target in names for names in allowed):
            return None
        return f"{self.kind}: this scenario has no {self.target!r}; {near(str(self.target), chain(*allowed))}"

    def workers(self, names: list[str]) -> list[str]:
        """Return the workers that the target means."""
        target = str(self.target)
        found = _WORKER.fullmatch(target)
        if found and found[1]:
            return [names[int(found[1]) - 1]]
        if target.startswith("node-"):
            return [name for name in names if name.startswith(f"n{target.removeprefix('node-')}-")]
        return [target] if target in names else []
