"""The command line ``sfusion``.

Commands are found by their files and imported only when they are used. At its edge, every exception
becomes a message and an exit code that is not 1.
"""

from __future__ import annotations

import gc
import os
import re
import signal
import sys
import traceback
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from sfusion_tools._version import __version__
from sfusion_tools.errors import SfusionError, near

from ..fakes.errors import FakeError
from .commandline.declaring import declared
from .commandline.exits import fail, say
from .errors import HarnessError, exit_code_of

INTERRUPTED = 130
"""Exit code: as a shell has it for SIGINT, 128 + 2."""
NO_READER = 141
"""Exit code: as a shell has it for SIGPIPE, 128 + 13."""


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
            raise typer.Exit(INTERRUPTED) from None
        except BrokenPipeError:  # the reader of the output is gone, such as `head`
            say("")
            raise typer.Exit(NO_READER) from None
        except Exception as error:
            if os.environ.get("SFUSION_DEBUG"):
                traceback.print_exc()
            say(_sentence(error))
            raise typer.Exit(exit_code_of(error)) from None


_ClickError: Any = next(
    ancestor for ancestor in typer.BadParameter.__mro__ if ancestor.__name__ == "ClickException"
)
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
        f"a defect of sfusion: {type(error).__name__}: {error} "
        f"({Path(place.filename).name}:{place.lineno}); "
        "please report it, with the traceback that SFUSION_DEBUG=1 shows"
    )


_HARNESS = Path(__file__).parent
_FIRST_PARAGRAPH = re.compile(r'"""``sfusion ([a-z0-9 ]+)``: (.+?)(?:"""|\n\n)', re.DOTALL)
_LONGEST_PARAGRAPH = 1000
"""Characters that are read of a module: far more than any first paragraph has."""
_PANELS = {
    "lab": "Scenarios",
    "search": "Searching for failures",
    "trial": "Judging a client",
    "studies": "Studies of runs and logs",
    "learning": "What training learns",
    "real": "A real sandbox",
    "rollouts": "Rollouts",
    "serving": "Servers for any client, and the limiter",
}
"""The floors of the harness in the order of the help."""


@dataclass(frozen=True)
class FoundCommand:
    """A command, as the first paragraph of its module describes it."""

    name: str
    """As it is typed; two words for a command of a group."""
    about: str
    module: str
    panel: str


@cache
def found_commands() -> dict[str, FoundCommand]:
    """Return every command, in the order of the help.

    Commands are the modules called ``command.py`` or in a folder ``commands`` whose first paragraph
    is ``sfusion NAME`` in double backticks, a colon and what it does. Nothing is imported to
    find them.
    """
    found = []
    for file in (*_HARNESS.rglob("command.py"), *_HARNESS.rglob("commands/*.py")):
        with file.open(encoding="utf-8") as opened:
            first = _FIRST_PARAGRAPH.match(opened.read(_LONGEST_PARAGRAPH))
        if first is None:
            continue
        place = file.relative_to(_HARNESS).with_suffix("")
        about = " ".join(first[2].split())
        about = about[0].upper() + about[1:]
        module = ".".join(("sfusion.harness", *place.parts))
        panel = _PANELS.get(place.parts[0], "Others")
        found.append(FoundCommand(name=first[1], about=about, module=module, panel=panel))
    panels = [*_PANELS.values(), "Others"]
    found.sort(key=lambda command: (panels.index(command.panel), command.name))
    return {command.name: command for command in found}


_GROUPS = {"serve": "Run a fake as a server for any client."}


class Commands(Edge):
    """The commands, of which only the one that runs is imported.

    The help lists them by the first lines of their files. In a group, such as ``serve``, there are
    those whose names begin with the group's.
    """

    def __init__(self, *, prefix: str = "", **attributes: Any) -> None:
        super().__init__(**attributes)
        self._prefix = prefix
        for found in found_commands().values():
            if not found.name.startswith(prefix):
                continue
            name, _, rest = found.name.removeprefix(prefix).partition(" ")
            if not rest:
                self.commands[name] = TyperCommand(
                    name, help=found.about, rich_help_panel=found.panel
                )
            elif name not in self.commands:
                self.commands[name] = Commands(
                    name=name,
                    prefix=f"{name} ",
                    help=_GROUPS.get(name, found.about),
                    no_args_is_help=True,
                    rich_help_panel=found.panel,
                )

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Import the command that is to run."""
        is_known = args[0] in self.commands or args[0].startswith("-")
        if not is_known and not ctx.resilient_parsing:
            typed = f"{self._prefix}{args[0]}"
            fail(f"`sfusion {typed}` is not a command; {near(args[0], self.commands)}")
        name, command, rest = super().resolve_command(ctx, args)
        if not isinstance(command, Commands):
            command = load(f"{self._prefix}{name}")
        return name, command, rest


def load(name: str) -> Any:
    """Import a command; return the object that parses its options and runs it."""
    found = found_commands()[name]
    module = import_module(found.module)
    text = joined((module.__doc__ or "").partition(": ")[2])
    text = text[0].upper() + text[1:]
    alone = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    declare = alone.command(name.split()[-1], cls=PlainCommand, help=text)
    declare(declared[found.module])
    return typer.main.get_command(alone)


app = typer.Typer(
    name="sfusion",
    cls=Commands,
    help="Test and emulate the code sandbox of a reinforcement-learning rollout.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"sfusion {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """Options of every command."""
    # It is SIG_DFL while the command is imported (sfusion/__main__.py).
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)


_GARBAGE = 20_000
"""Objects between two searches for garbage (chosen; Python's default is 700).

What a command imports and reads lives to its end; looking for garbage in it only delays the start.
"""


def main() -> None:
    """Run the command line."""
    gc.set_threshold(_GARBAGE)
    # A closed stream (`>&-`) is like /dev/null; without it, the next file that is opened would get
    # its number.
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115 # open to the end
    app()
