"""The options of commands that take a broken run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

BrokenRun = Annotated[
    Path, typer.Argument(metavar="RUN", help="Folder of a run as written by --out, or a scenario file.")
]
OtherTools = Annotated[
    Path | None, typer.Option(help="Tool config (verl's YAML) to use instead of the scenario's tools.")
]
Trust = Annotated[bool, typer.Option("--trust", help="Let the run run what its file names: code and tool classes.")]
