"""The command line ``sfusion``: it only puts the commands together."""

from __future__ import annotations

from typing import Annotated

import typer

from harness.commands.check import check
from harness.commands.doctor import doctor
from harness.commands.drift import drift
from harness.commands.explain import explain
from harness.commands.limiter import app as limiter
from harness.commands.list import list_scenarios
from harness.commands.parse import parse
from harness.commands.proxy import proxy
from harness.commands.record import record
from harness.commands.replay import replay
from harness.commands.rollout import rollout
from harness.commands.run import run
from harness.commands.serve_sandbox import serve_sandbox
from harness.commands.serve_sglang import serve_sglang
from harness.commands.view import view
from sfusion_tools._version import __version__

app = typer.Typer(
    name="sfusion",
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


app.command()(run)
app.command("list")(list_scenarios)
app.command()(check)
app.command()(doctor)
app.command()(explain)
app.command()(replay)
app.command()(record)
app.command()(drift)
app.add_typer(limiter, name="limiter")
app.command("parse")(parse)

serve = typer.Typer(help="Run a fake as a server for any client.", no_args_is_help=True)
serve.command("sandbox")(serve_sandbox)
serve.command("sglang")(serve_sglang)
app.add_typer(serve, name="serve")
app.command()(proxy)
app.command()(rollout)
app.command()(view)


def main() -> None:
    """Run the command line."""
    app()
