"""The tables of docs/scenarios.md, judge.md and incidents.md, made from the models and from the bundled scenarios.

``python -m tests.docs.tables docs/scenarios.md`` updates a page; a test compares them with it.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from pydantic import BaseModel

from sfusion.harness.lab.promises import PROMISES
from sfusion.harness.lab.scenarios.base import ScenarioPart
from sfusion.harness.lab.scenarios.explaining import PATHS, default_text
from sfusion.harness.lab.scenarios.library import bundled_folder, in_folder
from sfusion.harness.lab.scenarios.reading import read_scenarios
from sfusion.harness.trial.trial import CHECKS


def tables() -> dict[str, str]:
    """Return every table by the heading of its section."""
    parts = {path or "The file": _fields(cls) for path, cls in PATHS.items() if issubclass(cls, ScenarioPart)}
    return parts | {"Promises": _promises()}


def updated(page: str) -> str:
    """Return the page with the first table of each of these sections replaced."""
    for heading, table in (tables() | {"Reports that are played": _incidents(), "What is judged": _checks()}).items():
        # The heading, lines up to the first table, and that table.
        found = re.search(rf"^#+ {re.escape(heading)}\n(?:(?!#|\|).*\n)*((?:\|.*\n)*)", page, re.MULTILINE)
        if found is not None:
            page = f"{page[: found.start(1)]}{table}\n{page[found.end(1) :]}"
    return page


def _checks() -> str:
    rows = [f"| `{name}` | {_cell(check.about)} |" for name, check in CHECKS.items()]
    return "\n".join(["| check | what must hold |", "|---|---|", *rows])


def _fields(cls: type[BaseModel]) -> str:
    rows = [
        f"| `{name}` | {_cell((field.description or '') + default_text(field))} |"
        for name, field in cls.model_fields.items()
        if name != "cell"
    ]
    return "\n".join(["| key | meaning |", "|---|---|", *rows])


def _promises() -> str:
    rows = []
    for name, cls in PROMISES.items():
        given = ", ".join(f"`{key}`{default_text(field)}" for key, field in cls.model_fields.items())
        rows.append(f"| `{name}` | {_cell(' '.join((cls.__doc__ or '').split()))} | {_cell(given)} |")
    return "\n".join(["| promise | what must hold | parameters |", "|---|---|---|", *rows])


def _incidents() -> str:
    """Return one row for each bundled incident."""
    scenarios = [read_scenarios(path)[0] for path in in_folder(bundled_folder())]
    rows = []
    for one in scenarios:
        reports = ", ".join(f"[{report}]({_url(report)})" for report in one.incident)
        promises = ", ".join(f"`{promise.name}`" for promise in one.promises)
        cells = [f"`{one.scenario}`", reports, *(_cell(" ".join(text.split())) for text in (one.about, one.expected))]
        rows += [f"| {' | '.join([*cells, promises])} |"] if one.incident else []
    head = "| scenario | reports | what happened | what a good stack does | promises |"
    return "\n".join([head, "|---|---|---|---|---|", *rows])


def _url(report: str) -> str:
    """Return the address of an issue; GitHub forwards it if the number is a pull request."""
    repository, _, number = report.partition("#")
    return f"https://github.com/{repository}/issues/{number}"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    file = Path(sys.argv[1])
    file.write_text(updated(file.read_text(encoding="utf-8")), encoding="utf-8")
