"""``sfusion view``: browse dumped rollouts in the terminal.

Steps, samples, search, filters and folded tool calls.

Example: sfusion view dumps/
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from sfusion_tools.errors import MissingExtra

from ...commandline.declaring import command, option
from ...core.dumps.sample import open_dump
from ...errors import BadOption


@command
def view(
    path: Annotated[
        Path,
        typer.Argument(
            help="Directory of <step>.jsonl files, from verl or sfusion rollout; or one file.",
            metavar="DIR",
        ),
    ],
    sample: Annotated[
        int | None, option("Start at this sample of the first step, its line in the file.", min=1)
    ] = None,
) -> None:
    try:
        from .app import ViewerApp
    except ModuleNotFoundError as missing:
        if (missing.name or "").partition(".")[0] != "textual":
            raise
        raise MissingExtra("sfusion view", "view", missing) from missing
    dump = open_dump(path)
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise BadOption(
            "sfusion view needs a terminal; `sfusion look` summarises a dump without one"
        )
    ViewerApp(dump, path, sample).run()
