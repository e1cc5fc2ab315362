"""Faults of an engine: the rules that both fakes share, and one more kind, the abort of a generation."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pydantic import Field

from sfusion.fakes.errors import FaultError
from sfusion.fakes.faults import KINDS, Action, Rule, load_rules, read_rules
from sfusion.fakes.faults.action import part
from sfusion.fakes.sglang.generation import Generation
from sfusion.fakes.sglang.protocol import Finish


class Abort(Action):
    """End a generation early: gracefully, or with ``status`` as the engine ends what it cannot finish."""

    kind = "abort"
    phases = ("during",)
    built_in = False

    at: float = Field(default=0.5, ge=0)
    """After this share of the tokens (below 1), or after this many tokens."""
    message: str = "Aborted"
    """The message of the finish reason."""
    status: int | None = Field(default=None, ge=400, le=599)
    """The error status to end with; without one, the generation ends gracefully."""

    @classmethod
    def from_scalar(cls, value: Any) -> Any:
        """``abort: 0.5`` or ``abort: 10``."""
        return {"at": value}

    def shorten(self, generation: Generation) -> Generation:
        """What is left of a generation."""
        kind = None if self.status is None else "InternalServerError" if self.status >= 500 else "BadRequestError"
        finish = Finish("abort", message=self.message, status_code=self.status, err_type=kind)
        return generation.until(part(self.at, generation.tokens), finish)


ENGINE_KINDS: dict[str, type[Action]] = {**KINDS, Abort.kind: Abort}
"""What a rule for an engine may say; kinds that only a sandbox has are read too, to be refused with a clear error."""


def engine_rules(source: object, *, where: str = "faults") -> list[Rule]:
    """Read rules from data as :func:`sfusion.fakes.faults.read_rules` does, ``abort`` included."""
    return checked(read_rules(source, where=where, kinds=ENGINE_KINDS), where=where)


def load_engine_rules(path: Path) -> list[Rule]:
    """Read the rules of a YAML file."""
    return checked(load_rules(path, kinds=ENGINE_KINDS), where=str(path))


def checked(rules: Iterable[Rule], *, where: str = "faults") -> list[Rule]:
    """Refuse the kinds that only a sandbox can have."""
    kept = list(rules)
    for rule in kept:
        for action in rule.what:
            if action.sandbox_only:
                raise FaultError(f"{where}: {action.kind} applies only to sandboxes")
    return kept


def split(rules: Iterable[Rule]) -> tuple[list[Rule], list[Rule]]:
    """The rules that strike at the socket, and those that strike in the engine."""
    wire: list[Rule] = []
    engine: list[Rule] = []
    for rule in rules:
        (engine if any(isinstance(action, Abort) for action in rule.what) else wire).append(rule)
    return wire, engine
