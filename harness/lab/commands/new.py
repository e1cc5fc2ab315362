"""``sfusion new``: a commented scenario to start from."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def new(
    name: Annotated[str, typer.Argument(help="Name of the scenario, and of its file without .yaml.")],
    to: Annotated[Path, typer.Option(help="Folder of the file; it is created if needed.", metavar="DIR")] = Path(),
) -> None:
    """Write a commented scenario to start from: DIR/NAME.yaml. It explains every key, and all its promises hold.

    Exit code 2 if the name cannot be used or the file exists already; nothing is ever overwritten.
    """
    import shlex

    from sfusion.harness.errors import BadOption, CannotWrite

    file = to / f"{name}.yaml"
    text = starter(name, shlex.quote(str(file)))
    if not _is_name(name, text):
        raise BadOption(f"{name!r} is not a name: use lowercase letters, digits, '-', '.' and '_', as in 'slow-start'")
    try:
        to.mkdir(parents=True, exist_ok=True)
        with file.open("x", encoding="utf-8", newline="\n") as opened:
            opened.write(text)
    except FileExistsError:
        raise BadOption(f"{file} exists already; choose another name, or --to another folder") from None
    except OSError as error:
        raise CannotWrite(f"{file} cannot be written: {error.strerror or error}") from error
    typer.echo(f"{file}\nrun it with: sfusion run {shlex.quote(str(file))} --out runs")


def starter(name: str, file: str) -> str:
    """Return a commented scenario to start from; ``file`` is how its commands name it."""
    text = Path(__file__).with_name("new.yaml").read_text(encoding="utf-8")
    return text.replace("my-scenario.yaml", file).replace("my-scenario", name)


def _is_name(name: str, text: str) -> bool:
    """Does the file, once written, have this name? ``1.5`` and ``null`` are not texts in YAML."""
    from sfusion.harness.lab.scenarios import ScenarioError, parse_scenarios

    try:
        return [one.scenario for one in parse_scenarios(text)] == [name]
    except ScenarioError:
        return False
