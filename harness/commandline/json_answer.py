"""The option ``--json`` of the commands that answer a question."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any

import typer

JsonFile = Annotated[
    Path | None,
    typer.Option("--json", help="Write the answer as JSON to this file; - is stdout.", metavar="FILE"),
]


def is_stdout(file: Path | None) -> bool:
    """Does the JSON take stdout, so that nothing else may be printed there?"""
    return file is not None and str(file) == "-"


def write_json(file: Path, document: dict[str, Any]) -> None:
    """Write a document; raises CannotWrite."""
    import json

    write_answer(file, json.dumps(document, indent=2) + "\n")


def write_answer(file: Path, text: str) -> None:
    """Write what is JSON already; raises CannotWrite."""
    from sfusion.harness.atomic_files import write_file

    if is_stdout(file):
        typer.echo(text, nl=False)
    else:
        write_file(file, text)


def problem_as_dict(problem: str) -> dict[str, Any]:
    """Take ``FILE:LINE: TEXT`` apart; a problem of a whole file has no line."""
    found = re.fullmatch(r"(.+?):(?:(\d+):)? (.*)", problem, re.DOTALL)
    if found is None:
        return {"file": None, "line": None, "text": problem}
    return {"file": found[1], "line": int(found[2]) if found[2] else None, "text": found[3]}
