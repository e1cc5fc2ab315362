"""``sfusion new``: write a commented scenario to start from.

DIR/NAME.yaml explains every key, and all its promises hold. Nothing is ever overwritten.

Exit code 2 if the name cannot be used or the file exists already.

Example: sfusion new slow-start --to scenarios
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from ...commandline.declaring import command, option
from ...errors import BadOption, CannotWrite
from ..scenarios import ScenarioError, parse_scenarios


@command
def new(
    name: Annotated[
        str,
        typer.Argument(metavar="NAME", help="Name of the scenario, and of its file without .yaml."),
    ],
    to: Annotated[Path, option("Folder of the file; it is created if needed.", "DIR")] = Path(),
) -> None:
    file = to / f"{name}.yaml"
    text = starter(name, shlex.quote(str(file)))
    if not _is_name(name, text):
        raise BadOption(
            f"{name!r} is not a name: use lowercase letters, digits, '-', '.' and '_', "
            "as in 'slow-start'"
        )

    try:
        to.mkdir(parents=True, exist_ok=True)
        with file.open("x", encoding="utf-8", newline="\n") as opened:
            opened.write(text)
    except FileExistsError:
        raise BadOption(
            f"{file} exists already; choose another name, or --to another folder"
        ) from None
    except OSError as error:
        raise CannotWrite(f"{file} cannot be written: {error.strerror or error}") from error
    typer.echo(f"{file}\nrun it with: sfusion run {shlex.quote(str(file))} --out runs")


def starter(name: str, file: str) -> str:
    """Return a commented scenario to start from; ``file`` is how its commands name it."""
    text = Path(__file__).with_name("new.yaml").read_text(encoding="utf-8")
    return text.replace("my-scenario.yaml", file).replace("my-scenario", name)


def _is_name(name: str, text: str) -> bool:
    """Does the file, once written, have this name? ``1.5`` and ``null`` are not texts in YAML."""
    try:
        return [cell.scenario for cell in parse_scenarios(text)] == [name]
    except ScenarioError:
        return False
