"""``sfusion explain``: say what a scenario, promise, fault, field or outcome means.

The text comes from the code that implements it. Without a name, everything that can be explained is
listed.

Example: sfusion explain no_permit_leaked
"""

from __future__ import annotations

import inspect
import itertools
import textwrap
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

import typer
from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from sfusion_tools.errors import near
from sfusion_tools.outcome import Outcome
from sfusion_tools.sandbox.config import SandboxToolConfig

from ....fakes.described import described_fields
from ....fakes.faults import KINDS, Rule
from ....fakes.sandbox.models import Queue, Quota, Unbounded
from ...commandline.declaring import command
from ...commandline.json_answer import is_stdout, write_json
from ...commandline.options import Json, bundled_names
from ...core.verdict import EVERYTHING_TOOK_EFFECT
from ...errors import BadOption, ScenarioError
from ..promises import PROMISES
from ..promises.registry import OF_SINGLE_CALLS
from ..scenarios.base import ScenarioPart, parts_below
from ..scenarios.model import Scenario
from ..scenarios.reading import read_scenarios, scenario_files


def _names_that_begin(incomplete: str) -> list[str]:
    """Return what can be explained and begins so, for a shell that completes it."""
    found = {*names(), *bundled_names(incomplete)}
    return sorted(name for name in found if name.startswith(incomplete))


@command
def explain(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME",
            help=(
                "A scenario, promise, fault, field or outcome; "
                "or promises, kinds, models, outcomes."
            ),
            autocompletion=_names_that_begin,
        ),
    ] = None,
    json_file: Json = None,
) -> None:
    answer: dict[str, Any]
    if name is None:
        text = topics()
        answer = {"names": groups()}
    else:
        found = explanations(name)
        if not found:
            raise BadOption(f"nothing is called {name!r}; {near(name, names())}")
        between = "\n" if name == "outcomes" else "\n\n"
        text = between.join(explanation.text for explanation in found)
        answer = {
            "name": name,
            "explanations": [explanation.as_dict() for explanation in found],
        }

    if not is_stdout(json_file):
        typer.echo(text)
    write_json(json_file, answer)


PATHS: dict[str, type[BaseModel]] = {"": Scenario, "tools": SandboxToolConfig}
"""The parts of a scenario file by the dotted key under which they first occur."""
for _path, _, _cls in parts_below(Scenario):
    if issubclass(_cls, ScenarioPart | Rule) and _cls not in PATHS.values():
        PATHS[_path] = _cls
PARTS = {path.rpartition(".")[2] or "scenario": part for path, part in PATHS.items()}
"""The same by the last word of that key."""
MODELS: dict[str, type[BaseModel]] = {"unbounded": Unbounded, "queue": Queue, "quota": Quota}
_GROUPS: dict[str, tuple[str, Mapping[str, type[BaseModel]]]] = {
    "parts": ("part", PARTS),
    "promises": ("promise", PROMISES),
    "kinds": ("fault", KINDS),
    "models": ("model", MODELS),
}
_WIDTH = 110
"""Columns of a text. Chosen: as wide as is still read easily."""
_DEEPEST_INDENT = 24
"""Chosen: a text below a long name keeps most of its width."""
_EFFECT = (
    "not a promise to write, but reported as unknown where a run does not show what its "
    "scenario declares: a fault rule that never struck, an event that never happened, a cell of "
    "the matrix that is the same as another. Where that is intended, give the rule or the event "
    "`may_not_strike: true`."
)


@dataclass(frozen=True)
class Explanation:
    """What one name means: a promise, fault, model, part, field, outcome or scenario."""

    kind: str
    name: str
    about: str
    text: str
    """All of it, for a terminal."""
    fields: dict[str, str] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """Return it for JSON, without the text for a terminal."""
        return {
            "kind": self.kind,
            "name": self.name,
            "about": self.about,
            "fields": self.fields,
        }


def groups() -> dict[str, list[str]]:
    """Return every name that can be explained by group, except scenarios and fields."""
    found = {group: list(table) for group, (_, table) in _GROUPS.items()}
    found["outcomes"] = [outcome.value for outcome in Outcome]
    return found


def topics() -> str:
    """Return what can be explained."""
    lines = ["sfusion explain NAME, where NAME is", "  a scenario    see sfusion list"]
    kinds = [f"a {kind}" for kind, _ in _GROUPS.values()] + ["an outcome"]
    for kind, members in zip(kinds, groups().values(), strict=True):
        lines.append(_wrapped(f"  {kind:<13} ", ", ".join(members)))
    lines.append("  a field       PART.FIELD, as in load.concurrency")
    lines.append("  a group       promises, kinds, models, outcomes: all of that group")
    return "\n".join(lines)


def names() -> list[str]:
    """Return every name that can be explained, except scenarios and fields."""
    found = groups()
    return [
        *itertools.chain(*found.values()),
        *(group for group in found if group != "parts"),
        EVERYTHING_TOOK_EFFECT,
    ]


def explanations(name: str) -> list[Explanation]:
    """Return what a name, or each name of a group, means; nothing if it is unknown."""
    if name in _GROUPS and name != "parts":
        kind, table = _GROUPS[name]
        return [_part(kind, key, cls) for key, cls in table.items()]
    if name == EVERYTHING_TOOK_EFFECT:
        return [Explanation("promise", name, _EFFECT, _wrapped(f"{name}: ", _EFFECT))]
    if name == "outcomes":
        return [_outcome(outcome) for outcome in Outcome]
    return _named(name) or _field(name) or _scenario(name)


def _named(name: str) -> list[Explanation]:
    """Explain every part, promise, fault, model and outcome of this name."""
    found = [_part(kind, name, table[name]) for kind, table in _GROUPS.values() if name in table]
    found += [_outcome(outcome) for outcome in Outcome if name == outcome.value]
    return found


def _part(kind: str, name: str, cls: type[BaseModel]) -> Explanation:
    """Explain a class by its docstring and its fields."""
    about = _doc(cls)
    lines = [f"{name}: {about}"]
    phases = getattr(cls, "phases", None)
    if phases:
        lines.append(
            f"  strikes in phase {phases[0]} by default; possible phases: {', '.join(phases)}"
        )

    fields: dict[str, str] = {}
    for key, info in described_fields(cls).items():
        if key in ("cell", "kind"):
            continue
        lines.append(_field_line(key, info))
        fields[info.alias or key] = _field_about(info)
    return Explanation(kind=kind, name=name, about=about, text="\n".join(lines), fields=fields)


def _field_about(info: Any) -> str:
    text = info.description or "see docs/fake-sandbox.md"
    return " ".join(text.replace("``", "`").split()) + default_text(info)


def _field_line(name: str, info: Any) -> str:
    return _wrapped(f"  {info.alias or name:<16} ", _field_about(info))


def _field(dotted: str) -> list[Explanation]:
    """Explain a field by its dotted name, of which the last two words count."""
    path, _, name = dotted.rpartition(".")
    owner = path.rpartition(".")[2]
    cls = PARTS.get(owner) or PROMISES.get(owner) or KINDS.get(owner)
    if cls is None or name not in cls.model_fields:
        return []
    info = described_fields(cls)[name]
    text = _field_line(name, info).strip()
    return [Explanation("field", f"{owner}.{name}", _field_about(info), text)]


def default_text(field: Any) -> str:
    """Return `(default: ...)`, or nothing for empty defaults."""
    if field.is_required():
        return " (required)"
    value = field.default
    if value is PydanticUndefined or value is None or value in ([], {}, ()):
        return ""
    if isinstance(value, BaseModel):
        return ""
    if isinstance(value, list):
        if any(isinstance(item, BaseModel) for item in value):
            return ""
        return f" (default: {', '.join(map(str, value))})"
    if isinstance(value, str):
        return f" (default: {value!r})"
    return f" (default: {value})"


def _outcome(outcome: Outcome) -> Explanation:
    whose = "caused by the program" if outcome.is_from_program else "not caused by the program"
    about = f"{_docstring_below(outcome)} ({whose})"
    return Explanation("outcome", outcome.value, about, f"{outcome.value}: {about}")


def _docstring_below(outcome: Outcome) -> str:
    """Return the string below a member of the enum, which Python itself does not keep."""
    import ast

    tree = ast.parse(textwrap.dedent(inspect.getsource(Outcome)))
    body = typing.cast(Any, tree.body[0]).body
    for statement, following in itertools.pairwise(body):
        if not isinstance(statement, ast.Assign):
            continue
        if typing.cast(Any, statement.targets[0]).id == outcome.name:
            return str(typing.cast(Any, following).value.value).replace("``", "`")
    return ""


def _scenario(name: str) -> list[Explanation]:
    """Explain a scenario, by its name or its file."""
    try:
        cells = read_scenarios(scenario_files([name])[0])
    except ScenarioError:
        return []

    first = cells[0]
    about = " ".join(first.about.split())
    lines = [f"{first.scenario}: {about}"]
    if first.incident:
        lines.append(_wrapped("  reported in ", ", ".join(first.incident)))
        lines.append(_wrapped("  expected: ", " ".join(first.expected.split())))
    lines.append(f"  worlds: {', '.join(first.worlds)}; seed {first.seed}")
    if len(cells) > 1:
        lines.append(_wrapped("  cells: ", ", ".join(cell.cell for cell in cells)))
    if first.has_single_calls and not first.promises:
        names = ", ".join(promise.name for promise in OF_SINGLE_CALLS)
        lines.append(_wrapped("  promises: all that single calls show: ", names))
        return [Explanation("scenario", first.scenario, about, "\n".join(lines))]
    lines.append("  promises:")
    lines += [_wrapped(f"    {promise.name}: ", _doc(type(promise))) for promise in first.promises]
    return [Explanation("scenario", first.scenario, about, "\n".join(lines))]


def _doc(cls: type) -> str:
    return " ".join((cls.__doc__ or "").replace("``", "`").split())


def _wrapped(head: str, text: str) -> str:
    indent = " " * min(len(head), _DEEPEST_INDENT)
    return textwrap.fill(text, _WIDTH, initial_indent=head, subsequent_indent=indent)
