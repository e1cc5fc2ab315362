"""``sfusion view``: look at dumped rollouts in the terminal."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def view(
    path: Annotated[
        Path, typer.Argument(help="Directory of <step>.jsonl files, ours or verl's, or one such file.", metavar="DIR")
    ],
) -> None:
    """Look at dumped rollouts: steps, samples, search, filter, tool calls folded."""
    try:
        from sfusion.harness.viewer.app import ViewerApp
    except ModuleNotFoundError as missing:
        if (missing.name or "").partition(".")[0] != "textual":
            raise
        typer.echo("sfusion view needs textual, which is not installed: pip install 'sfusion[view]'", err=True)
        raise typer.Exit(3) from None
    from sfusion.harness.errors import HarnessError
    from sfusion.harness.viewer import open_dump

    try:
        steps = open_dump(path)
    except (HarnessError, OSError) as error:
        typer.echo(f"sfusion view: {error}", err=True)
        raise typer.Exit(2) from None
    ViewerApp(steps, path).run()
