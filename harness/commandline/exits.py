"""Error exits of the commands."""

from __future__ import annotations

import os
import sys
from typing import NoReturn

import typer


def say(text: str) -> None:
    """Print to stderr, if that still works. It may quote a stranger's file, so control characters
    are spelled out."""
    from ..terminal import printable

    try:
        if text:
            typer.echo(printable(text, keep="\n"), err=True)
        sys.stdout.flush()
    except OSError:
        # What cannot be written now cannot be written at exit either, where Python would make it
        # exit code 120.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def fail(text: str, code: int = 2) -> NoReturn:
    """Print a message to stderr and exit."""
    say(text)
    raise typer.Exit(code)
