"""How the scenario commands speak."""

from __future__ import annotations

from typing import NoReturn

import typer


def fail(text: str, code: int = 2) -> NoReturn:
    """Say on stderr what is wrong, and end."""
    typer.echo(text, err=True)
    raise typer.Exit(code)
