"""Explanations, taken from the models themselves: what they say is what the code does."""

from __future__ import annotations

import inspect
import itertools
import textwrap
import typing
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from sfusion.fakes.faults import KINDS, Rule
from sfusion.fakes.sandbox.models import Queue, Quota, Unbounded
from sfusion.harness.errors import ScenarioError
from sfusion.harness.promises import PROMISES
from sfusion.harness.scenarios.events import EventPart
from sfusion.harness.scenarios.library import scenario_files
from sfusion.harness.scenarios.model import CancelPart, ClusterPart, LinkPart, LoadPart, SandboxPart, Scenario
from sfusion.harness.scenarios.program import ProgramPart
from sfusion.harness.scenarios.reading import read_scenarios
from sfusion.harness.scenarios.rollouts import LimitsPart, RolloutPart, TurnPart
from sfusion_tools.outcome import Outcome
from sfusion_tools.sandbox.config import SandboxToolConfig

PARTS: dict[str, type[BaseModel]] = {
    "scenario": Scenario,
    "cluster": ClusterPart,
    "link": LinkPart,
    "tools": SandboxToolConfig,
    "sandbox": SandboxPart,
    "load": LoadPart,
    "program": ProgramPart,
    "cancel": CancelPart,
    "rollouts": RolloutPart,
    "turns": TurnPart,
    "limits": LimitsPart,
    "events": EventPart,
    "faults": Rule,
}
"""The parts of a scenario file by the key they stand under."""
MODELS: dict[str, type[BaseModel]] = {"unbounded": Unbounded, "queue": Queue, "quota": Quota}
_WIDTH = 110


def topics() -> str:
    """What can be asked."""
    return "\n".join(
        [
            "sfusion explain NAME, where NAME is",
            "  a scenario    sfusion list names them",
            _wrapped("  a part        ", ", ".join(PARTS)),
            _wrapped("  a promise     ", ", ".join(PROMISES)),
            _wrapped("  a fault       ", ", ".join(KINDS)),
            _wrapped("  a model       ", ", ".join(MODELS)),
            _wrapped("  an outcome    ", ", ".join(outcome.value for outcome in Outcome)),
            "  promises, kinds, models, outcomes: all of them; PART.FIELD: one field, as load.concurrency",
        ]
    )


def names() -> list[str]:
    """Everything that has an explanation, apart from scenarios and fields."""
    groups = ["promises", "kinds", "models", "outcomes"]
    return [*PARTS, *PROMISES, *KINDS, *MODELS, *(outcome.value for outcome in Outcome), *groups]


def explained(name: str) -> str | None:
    """The explanation of a name; None when nothing is called so."""
    groups: dict[str, Mapping[str, type[BaseModel]]] = {"promises": PROMISES, "kinds": KINDS, "models": MODELS}
    if name in groups:
        return "\n\n".join(_part(key, cls) for key, cls in groups[name].items())
    if name == "outcomes":
        return "\n".join(_outcome(outcome) for outcome in Outcome)
    texts = [_part(name, table[name]) for table in (PROMISES, KINDS, MODELS, PARTS) if name in table]
    texts += [_outcome(outcome) for outcome in Outcome if outcome.value == name]
    if not texts and "." in name:
        owner, _, field = name.rpartition(".")
        texts += _field_text(owner.rpartition(".")[2], field)
    if not texts:
        texts += _scenario(name)
    return "\n\n".join(texts) if texts else None


def _part(name: str, cls: type[BaseModel]) -> str:
    lines = [f"{name}: {_doc(cls)}"]
    phases = getattr(cls, "phases", None)
    if phases:
        lines.append(f"  strikes in phase {phases[0]} unless the rule says: {', '.join(phases)}")
    lines += [
        line
        for key, field in cls.model_fields.items()
        if key not in ("cell", "kind")
        for line in _field_lines(cls, key, field)
    ]
    return "\n".join(lines)


def _field_lines(cls: type[BaseModel], name: str, field: Any) -> list[str]:
    said = field.description or described(cls).get(name, "see docs/fake-sandbox.md")
    return [_wrapped(f"  {field.alias or name:<16} ", said + default_text(field))]


def _field_text(owner: str, name: str) -> list[str]:
    cls = PARTS.get(owner) or PROMISES.get(owner) or KINDS.get(owner)
    if cls is None or name not in cls.model_fields:
        return []
    return ["\n".join(_field_lines(cls, name, cls.model_fields[name])).strip()]


def default_text(field: Any) -> str:
    """`(default: ...)`, for defaults that say something."""
    if field.is_required():
        return " (required)"
    value = field.default
    if value is PydanticUndefined or value is None or isinstance(value, BaseModel) or value in ([], {}, ()):
        return ""
    if isinstance(value, list):
        return "" if any(isinstance(one, BaseModel) for one in value) else f" (default: {', '.join(map(str, value))})"
    return f" (default: {value!r})" if isinstance(value, str) else f" (default: {value})"


def described(cls: type[BaseModel]) -> dict[str, str]:
    """Descriptions that stand as strings below the fields, as in the fakes' models."""
    found: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        if base in (BaseModel, object) or not issubclass(base, BaseModel):
            continue
        found |= _strings_below(base)
    return found


def _strings_below(cls: type) -> dict[str, str]:
    import ast

    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(cls)))
    except (OSError, TypeError, SyntaxError):
        return {}
    body = typing.cast(Any, tree.body[0]).body
    found: dict[str, str] = {}
    for one, following in itertools.pairwise(body):
        if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name) and isinstance(following, ast.Expr):
            value = following.value
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                found[one.target.id] = " ".join(value.value.split())
    return found


def _outcome(outcome: Outcome) -> str:
    import ast

    tree = ast.parse(textwrap.dedent(inspect.getsource(Outcome)))
    body = typing.cast(Any, tree.body[0]).body
    said = ""
    for one, following in itertools.pairwise(body):
        if isinstance(one, ast.Assign) and typing.cast(Any, one.targets[0]).id == outcome.name:
            said = str(typing.cast(Any, following).value.value)
    whose = "the program's doing" if outcome.is_from_program else "not the program's doing"
    return f"{outcome.value}: {said} ({whose})"


def _scenario(name: str) -> list[str]:
    try:
        cells = read_scenarios(scenario_files([name])[0])
    except ScenarioError:
        return []
    first = cells[0]
    lines = [f"{first.scenario}: {' '.join(first.about.split())}"]
    if first.incident:
        lines.append(f"  seen: {first.incident}")
    lines.append(f"  worlds: {', '.join(first.worlds)}; seed {first.seed}")
    if len(cells) > 1:
        lines.append(_wrapped("  cells: ", ", ".join(cell.cell for cell in cells)))
    lines.append("  promises:")
    lines += [_wrapped(f"    {promise.name}: ", _doc(type(promise))) for promise in first.promises]
    return ["\n".join(lines)]


def _doc(cls: type) -> str:
    return " ".join((cls.__doc__ or "").split())


def _wrapped(head: str, text: str) -> str:
    return textwrap.fill(text, _WIDTH, initial_indent=head, subsequent_indent=" " * min(len(head), 24))
