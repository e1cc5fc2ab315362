"""The tables of docs/scenarios.md, made from the models; a test compares them with the file."""

from __future__ import annotations

from pydantic import BaseModel

from sfusion.harness.promises import PROMISES
from sfusion.harness.scenarios.explaining import PARTS, default_text, described
from sfusion.harness.scenarios.model import CancelPart, ClusterPart, LinkPart, LoadPart, SandboxPart, Scenario


def field_table(cls: type[BaseModel]) -> str:
    """One row for each key of a part."""
    said = described(cls)
    rows = [
        f"| `{name}` | {_cell((field.description or said.get(name, '')) + default_text(field))} |"
        for name, field in cls.model_fields.items()
        if name != "cell"
    ]
    return "\n".join(["| key | meaning |", "|---|---|", *rows])


def promise_table() -> str:
    """One row for each promise."""
    rows = []
    for name, cls in PROMISES.items():
        given = ", ".join(f"`{key}`{default_text(field)}" for key, field in cls.model_fields.items())
        rows.append(f"| `{name}` | {_cell(' '.join((cls.__doc__ or '').split()))} | {_cell(given)} |")
    return "\n".join(["| promise | what must hold | parameters |", "|---|---|---|", *rows])


def tables() -> dict[str, str]:
    """Every table by the heading of its section."""
    parts: dict[str, type[BaseModel]] = {
        "The file": Scenario,
        "cluster": ClusterPart,
        "cluster.link": LinkPart,
        "sandbox": SandboxPart,
        "load": LoadPart,
        "load.program": PARTS["program"],
        "load.cancel": CancelPart,
        "rollouts": PARTS["rollouts"],
        "rollouts.turns": PARTS["turns"],
        "rollouts.limits": PARTS["limits"],
        "events": PARTS["events"],
    }
    return {name: field_table(cls) for name, cls in parts.items()} | {"promises": promise_table()}


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
