"""Error exits of the commands."""

from __future__ import annotations

from typing import NoReturn

import typer


def fail(text: str, code: int = 2) -> NoReturn:
    """Print a message to stderr and exit."""
    typer.echo(text, err=True)
    raise typer.Exit(code)
