"""The kinds of faults that only sandboxes with a life cycle have."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

from pydantic import Field

from ..errors import FaultError
from ..fields import Drawn
from .action import KINDS, Action, BodyDamage, Death, FaultSite, Wait
from .chance import Draw
from .rule import Rule, read_rules


class SandboxDeath(Action):
    """Let the sandbox die that the request is about; its client sees a ``reset``, that it is
    ``gone``, an answer that is ``cut``, or nothing (``silent``)."""

    kind = "death"
    phases = ("during", "before", "after")
    scalar = "how"
    built_in = False

    how: Death = "reset"
    """What the client of the request sees."""

    def strike(self, site: FaultSite, draw: Draw) -> Wait:
        return site.die(self.how)


class EarlyEnd(Action):
    """End a stream cleanly after a part of it, so that it looks complete: a share below 1, or a
    number of bytes from 1 on."""

    kind = "early_end"
    phases = ("body",)
    scalar = "at"
    built_in = False

    at: Annotated[float, Drawn(0.0, 0.3, 0.5, 0.9)] = Field(default=0.5, ge=0)
    """How much of the body to send."""

    def damage_body(self, damage: BodyDamage, draw: Draw) -> None:
        damage.cut = self.at
        damage.ending = "end"


LIFECYCLE_KINDS: dict[str, type[Action]] = {
    **KINDS,
    SandboxDeath.kind: SandboxDeath,
    EarlyEnd.kind: EarlyEnd,
}
"""The kinds of fault in a rule for sandboxes with a life cycle."""


def lifecycle_rules(source: object, *, where: str = "faults") -> list[Rule]:
    """Read rules as :func:`read_rules` does, with these kinds; refuse Sandbox Fusion's."""
    rules = read_rules(source, where=where, kinds=LIFECYCLE_KINDS)
    for rule in rules:
        for action in rule.what:
            if action.sandbox_only:
                raise FaultError(
                    f"{where}: {action.kind} applies only to Sandbox Fusion, not to sandboxes with "
                    "a life cycle"
                )
    return rules


def without_operations(rules: Iterable[Rule], *, where: str = "faults") -> list[Rule]:
    """Refuse rules that are bound to an operation of sandboxes with a life cycle."""
    kept = list(rules)
    for rule in kept:
        if rule.on is not None:
            raise FaultError(
                f"{where}: `on` names what a request does to a sandbox with a life cycle (daytona, "
                "openenv, e2b); here use `path` or `call`"
            )
    return kept
