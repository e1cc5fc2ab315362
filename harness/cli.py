"""The command line ``sfusion``: it only puts the commands together."""

from __future__ import annotations

import gc
import os
import signal
import sys
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from sfusion.harness.commandline.declaring import declared
from sfusion.harness.commandline.discovery import found_commands
from sfusion.harness.commandline.edge import Edge, PlainCommand, joined
from sfusion.harness.commandline.exits import fail
from sfusion_tools._version import __version__
from sfusion_tools.errors import near

_GROUPS = {"serve": "Run a fake as a server for any client."}
_CHECKOUT = "is not part of the package any more: in a checkout of the repository, run"
_FORMER = {
    "bench": f"`sfusion bench` {_CHECKOUT} `python -m benchmarks`",
    "prove": f"`sfusion prove` {_CHECKOUT} `python -m tests.proof`",
    "keep": "`sfusion keep` is an option now: `sfusion shrink RUN --keep DIR`",
    "record": "`sfusion record` is an option now: `sfusion drift URL --record FILE`",
}


class Commands(Edge):
    """The commands, of which only the one that runs is imported; the help lists them by the first lines of their files.

    In a group, such as ``serve``, those whose names begin with the group's.
    """

    def __init__(self, *, prefix: str = "", **attributes: Any) -> None:
        super().__init__(**attributes)
        self._prefix = prefix
        for found in found_commands().values():
            name, _, rest = found.name.removeprefix(prefix).partition(" ")
            if not found.name.startswith(prefix):
                continue
            if rest:
                about = {
                    "help": _GROUPS.get(name, found.about),
                    "no_args_is_help": True,
                    "rich_help_panel": found.panel,
                }
                self.commands.setdefault(name, Commands(name=name, prefix=f"{name} ", **about))
            else:
                self.commands[name] = TyperCommand(name, help=found.about, rich_help_panel=found.panel)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Import the command that is to run."""
        if args[0] not in self.commands and not args[0].startswith("-") and not ctx.resilient_parsing:
            known = f"`sfusion {self._prefix}{args[0]}` is not a command; {near(args[0], self.commands)}"
            fail(known if self._prefix else _FORMER.get(args[0], known))
        name, command, rest = super().resolve_command(ctx, args)
        return name, command if isinstance(command, Commands) else load(f"{self._prefix}{name}"), rest


def load(name: str) -> Any:
    """Import a command; return the object that parses its options and runs it."""
    found = found_commands()[name]
    module = import_module(found.module)
    text = joined((module.__doc__ or "").partition(": ")[2])
    alone = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    alone.command(name.split()[-1], cls=PlainCommand, help=text[0].upper() + text[1:])(declared[found.module])
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
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Options of every command."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:  # while the command was imported (sfusion/__main__.py)
        signal.signal(signal.SIGINT, signal.default_int_handler)


def main() -> None:
    """Run the command line."""
    # What a command imports and reads lives to its end; looking for garbage in it only delays the start.
    gc.set_threshold(20_000)
    # A closed stream (`>&-`) is like /dev/null; without it, the next file that is opened would get its number.
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115 # open to the end
    app()
