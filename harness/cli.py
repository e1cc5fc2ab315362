"""The command line ``sfusion``: it only puts the commands together."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from sfusion.fakes.errors import FakeError
from sfusion.harness.commands.check import check
from sfusion.harness.commands.doctor import doctor
from sfusion.harness.commands.drift import drift
from sfusion.harness.commands.explain import explain
from sfusion.harness.commands.keep import keep
from sfusion.harness.commands.limiter import app as limiter
from sfusion.harness.commands.list import list_scenarios
from sfusion.harness.commands.parse import parse
from sfusion.harness.commands.prove import prove
from sfusion.harness.commands.proxy import proxy
from sfusion.harness.commands.record import record
from sfusion.harness.commands.replay import replay
from sfusion.harness.commands.rollout import rollout
from sfusion.harness.commands.run import run
from sfusion.harness.commands.serve_sandbox import serve_sandbox
from sfusion.harness.commands.serve_sglang import serve_sglang
from sfusion.harness.commands.shrink import shrink
from sfusion.harness.commands.view import view
from sfusion.harness.errors import HarnessError
from sfusion_tools._version import __version__
from sfusion_tools.errors import SfusionError


class _Commands(TyperGroup):
    """Prints the message of our own errors, or of an interruption, and exits with the matching code."""

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Join the lines of a docstring's paragraphs, which Typer would wrap one by one."""
        command = super().get_command(ctx, cmd_name)
        if command is not None and command.help:
            command.help = "\n\n".join(" ".join(part.split()) for part in command.help.split("\n\n"))
        return command

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except (SfusionError, FakeError, HarnessError) as error:
            typer.echo(str(error), err=True)
            raise typer.Exit(error.exit_code) from None
        except KeyboardInterrupt:  # also SIGTERM, while a container is open
            typer.echo("interrupted", err=True)
            raise typer.Exit(130) from None


app = typer.Typer(
    name="sfusion",
    cls=_Commands,
    help="Test and emulate the code sandbox of a reinforcement-learning rollout.",
    no_args_is_help=True,
    add_completion=False,
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


_SCENARIOS = "Scenarios"
app.command(rich_help_panel=_SCENARIOS)(run)
app.command("list", rich_help_panel=_SCENARIOS)(list_scenarios)
app.command(rich_help_panel=_SCENARIOS)(check)
app.command(rich_help_panel=_SCENARIOS)(explain)
app.command(rich_help_panel=_SCENARIOS)(replay)
app.command(rich_help_panel=_SCENARIOS)(shrink)
app.command(rich_help_panel=_SCENARIOS)(keep)
app.command(rich_help_panel=_SCENARIOS)(prove)

_FAKES = "Fakes for any client"
serve = typer.Typer(cls=_Commands, help="Run a fake as a server for any client.", no_args_is_help=True)
serve.command("sandbox")(serve_sandbox)
serve.command("sglang")(serve_sglang)
app.add_typer(serve, name="serve", rich_help_panel=_FAKES)
app.command(rich_help_panel=_FAKES)(proxy)

_REAL = "A real sandbox"
app.command(rich_help_panel=_REAL)(doctor)
app.command(rich_help_panel=_REAL)(record)
app.command(rich_help_panel=_REAL)(drift)

_TRAINING = "What training sees"
app.command(rich_help_panel=_TRAINING)(parse)
app.command(rich_help_panel=_TRAINING)(rollout)
app.command(rich_help_panel=_TRAINING)(view)
app.add_typer(limiter, name="limiter", rich_help_panel=_TRAINING)


def main() -> None:
    """Run the command line."""
    app()
