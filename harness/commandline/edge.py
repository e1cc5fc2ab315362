"""The edge of a command line: every exception becomes a message and an exit code that is not 1."""

from __future__ import annotations

import os
import traceback
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from sfusion.fakes.errors import FakeError
from sfusion.harness.commandline.exits import say
from sfusion.harness.errors import HarnessError, exit_code_of
from sfusion_tools.errors import SfusionError


class _PlainHelp:
    """Help without the names of Python types."""

    def get_params(self, ctx: Any) -> list[Any]:
        params: list[Any] = super().get_params(ctx)  # type: ignore[misc] # of the command that this is mixed into
        for param in params:
            if param.param_type_name == "argument":
                param.display_type_rich = lambda ctx: ""
            elif param.is_flag:
                param.metavar = ""
        return params


class PlainCommand(_PlainHelp, TyperCommand):
    """A command."""


class Edge(_PlainHelp, TyperGroup):
    """A command line."""

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        command = super().get_command(ctx, cmd_name)
        if command is not None and command.help:
            command.help = joined(command.help)
        return command

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except (typer.Exit, typer.Abort, _ClickError):
            raise
        except KeyboardInterrupt as error:  # also SIGTERM, while a container is open
            say(f"interrupted: {error}" if str(error) else "interrupted")
            raise typer.Exit(130) from None
        except BrokenPipeError:  # whoever read the output is gone, such as `head`: what the shell calls SIGPIPE
            say("")
            raise typer.Exit(141) from None
        except Exception as error:
            if os.environ.get("SFUSION_DEBUG"):
                traceback.print_exc()
            say(_sentence(error))
            raise typer.Exit(exit_code_of(error)) from None


_ClickError: Any = next(one for one in typer.BadParameter.__mro__ if one.__name__ == "ClickException")
"""Of the click that this version of Typer uses, which may be its own copy."""


def joined(text: str) -> str:
    """Join the lines of each paragraph, which Typer would wrap one by one."""
    return "\n\n".join(" ".join(part.split()) for part in text.split("\n\n"))


def _sentence(error: Exception) -> str:
    """Return what the user reads about an error."""
    if isinstance(error, SfusionError | FakeError | HarnessError):
        return str(error)
    if isinstance(error, OSError):
        return f"{error.filename}: {error.strerror}" if error.filename else str(error)
    place = traceback.extract_tb(error.__traceback__)[-1]
    return (
        f"a defect of sfusion: {type(error).__name__}: {error} ({Path(place.filename).name}:{place.lineno}); "
        "please report it, with the traceback that SFUSION_DEBUG=1 shows"
    )
