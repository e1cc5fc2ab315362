"""The answer of a command as JSON: the file of ``--json``, or stdout."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any, TextIO

import typer


def is_stdout(file: Path | None) -> bool:
    """Does the JSON take stdout, so that nothing else may be printed there?"""
    return file is not None and str(file) == "-"


def text_stream(json_file: Path | None) -> TextIO:
    """Return where everything but the JSON is printed."""
    return sys.stderr if is_stdout(json_file) else sys.stdout


def write_json(file: Path | None, document: dict[str, Any]) -> None:
    """Write a document, if a file is wanted; raises CannotWrite."""
    import json

    write_answer(file, json.dumps(document, indent=2) + "\n")


def write_answer(file: Path | None, text: str) -> None:
    """Write what is JSON already, if a file is wanted; raises CannotWrite."""
    from ..atomic_files import write_file

    if is_stdout(file):
        typer.echo(text, nl=False)
    elif file is not None:
        write_file(file, text)


def problem_as_dict(problem: str) -> dict[str, Any]:
    """Take ``FILE:LINE: TEXT`` apart; a problem of a whole file has no line."""
    found = re.fullmatch(r"(.+?):(?:(\d+):)? (.*)", problem, re.DOTALL)
    if found is None:
        return {"file": None, "line": None, "text": problem}
    return {"file": found[1], "line": int(found[2]) if found[2] else None, "text": found[3]}
