"""Faults of an engine: the rules that both fakes share, and one kind more, the abort of a generation."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import yaml
from pydantic import Field, ValidationError

from sfusion.fakes.faults import Action, FaultError, Output, Rule, SandboxError, Timeout, read_rules
from sfusion.fakes.faults.action import part
from sfusion.fakes.sglang.protocol import Finish

_OF_A_SANDBOX = (Output, SandboxError, Timeout)


class Abort(Action):
    """End a generation early: gracefully, or with ``status`` as the engine ends what it cannot finish."""

    kind = "abort"
    phases = ("during",)

    at: float = Field(default=0.5, ge=0)
    """After this share of the tokens (below 1), or after so many."""
    message: str = "Aborted"
    status: int | None = Field(default=None, ge=400, le=599)

    @classmethod
    def from_scalar(cls, value: Any) -> Any:
        """``abort: 0.5`` or ``abort: 10``."""
        return {"at": value}

    def tokens(self, total: int) -> int:
        """How many tokens are said before."""
        return part(self.at, total)

    def finish(self) -> Finish:
        """How the generation ends."""
        kind = None if self.status is None else "InternalServerError" if self.status >= 500 else "BadRequestError"
        return Finish("abort", message=self.message, status_code=self.status, err_type=kind)


def engine_rules(data: object, *, where: str = "faults", lines: Sequence[int] = ()) -> list[Rule]:
    """Read rules from data as :func:`sfusion.fakes.faults.read_rules` does, ``abort`` included."""
    if isinstance(data, dict) and set(data) == {"faults"}:
        data = data["faults"]
    if isinstance(data, list):
        places = [f"{where}:{lines[at]}" if at < len(lines) else where for at in range(len(data))]
        data = [_with_abort(item, place) for item, place in zip(data, places, strict=True)]
    return checked(read_rules(data, where=where, lines=lines), where=where)


def load_engine_rules(path: Path) -> list[Rule]:
    """Read the rules of a YAML file."""
    try:
        text = path.read_text(encoding="utf-8")
        node, data = yaml.compose(text, Loader=yaml.SafeLoader), yaml.safe_load(text)
    except OSError as error:
        raise FaultError(f"{path}: cannot be read: {error.strerror}") from error
    except (UnicodeDecodeError, yaml.YAMLError) as error:
        raise FaultError(f"{path}: not YAML: {' '.join(str(error).split())}") from error
    if isinstance(node, yaml.MappingNode):
        node = next((value for key, value in node.value if key.value == "faults"), None)
    children = node.value if isinstance(node, yaml.SequenceNode) else []
    return engine_rules(data, where=str(path), lines=[child.start_mark.line + 1 for child in children])


def checked(rules: Iterable[Rule], *, where: str = "faults") -> list[Rule]:
    """Refuse the kinds that only a sandbox can have."""
    kept = list(rules)
    for rule in kept:
        for action in rule.what:
            if isinstance(action, _OF_A_SANDBOX):
                raise FaultError(f"{where}: {action.kind} is a fault of a sandbox; an engine has none such")
    return kept


def split(rules: Iterable[Rule]) -> tuple[list[Rule], list[Rule]]:
    """The rules that strike at the socket, and those that strike in the engine."""
    wire: list[Rule] = []
    engine: list[Rule] = []
    for rule in rules:
        (engine if any(isinstance(action, Abort) for action in rule.what) else wire).append(rule)
    return wire, engine


def _with_abort(item: object, where: str) -> object:
    if not isinstance(item, dict):
        return item
    what = item.get("what")
    if what == "abort":
        what = {"abort": True}
    if not isinstance(what, dict) or "abort" not in what:
        return item
    rest = {key: value for key, value in what.items() if key != "abort"}
    try:
        abort = Abort.model_validate({"abort": what["abort"]})
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise FaultError(f"{where}: abort: {place}: {first['msg']}") from None
    return {**item, "what": [*([rest] if rest else []), abort]}
