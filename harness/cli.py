"""The command line ``sfusion``: it only puts the commands together."""

from __future__ import annotations

import gc
import os
import traceback
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from sfusion.fakes.errors import FakeError
from sfusion.harness.commandline.exits import say
from sfusion.harness.errors import HarnessError, exit_code_of
from sfusion.harness.lab.commands.check import check
from sfusion.harness.lab.commands.explain import explain
from sfusion.harness.lab.commands.list import list_scenarios
from sfusion.harness.lab.commands.new import new
from sfusion.harness.lab.commands.replay import replay
from sfusion.harness.lab.commands.run import run
from sfusion.harness.real.doctor.command import doctor
from sfusion.harness.real.drift.command import drift
from sfusion.harness.real.drift.record_command import record
from sfusion.harness.rollouts.command import rollout
from sfusion.harness.rollouts.parse import parse
from sfusion.harness.rollouts.viewer.command import view
from sfusion.harness.search.chaos.command import chaos
from sfusion.harness.search.hunt.command import hunt
from sfusion.harness.search.shrink.command import shrink
from sfusion.harness.search.shrink.keep_command import keep
from sfusion.harness.serving.limiter import app as limiter
from sfusion.harness.serving.proxy import proxy
from sfusion.harness.serving.serve_sandbox import serve_sandbox
from sfusion.harness.serving.serve_sglang import serve_sglang
from sfusion.harness.studies.compare.command import compare
from sfusion.harness.studies.history.command import history
from sfusion.harness.studies.learn.command import learn
from sfusion.harness.studies.look.command import look
from sfusion.harness.studies.sweep.command import sweep
from sfusion_tools._version import __version__
from sfusion_tools.errors import SfusionError


class Commands(TyperGroup):
    """The edge of the command line: every exception becomes a message and an exit code that is not 1."""

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Join the lines of a docstring's paragraphs, which Typer would wrap one by one."""
        command = super().get_command(ctx, cmd_name)
        if command is not None and command.help:
            command.help = "\n\n".join(" ".join(part.split()) for part in command.help.split("\n\n"))
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


_SCENARIOS = "Scenarios"
app.command(rich_help_panel=_SCENARIOS)(run)
app.command("list", rich_help_panel=_SCENARIOS)(list_scenarios)
app.command(rich_help_panel=_SCENARIOS)(new)
app.command(rich_help_panel=_SCENARIOS)(check)
app.command(rich_help_panel=_SCENARIOS)(explain)
app.command(rich_help_panel=_SCENARIOS)(replay)
app.command(rich_help_panel=_SCENARIOS)(chaos)
app.command(rich_help_panel=_SCENARIOS)(hunt)
app.command(rich_help_panel=_SCENARIOS)(shrink)
app.command(rich_help_panel=_SCENARIOS)(keep)
app.command(rich_help_panel=_SCENARIOS)(sweep)
app.command(rich_help_panel=_SCENARIOS)(compare)
app.command(rich_help_panel=_SCENARIOS)(history)

_FAKES = "Fakes for any client"
serve = typer.Typer(cls=Commands, help="Run a fake as a server for any client.", no_args_is_help=True)
serve.command("sandbox")(serve_sandbox)
serve.command("sglang")(serve_sglang)
app.add_typer(serve, name="serve", rich_help_panel=_FAKES)
app.command(rich_help_panel=_FAKES)(proxy)

_REAL = "A real sandbox"
app.command(rich_help_panel=_REAL)(doctor)
app.command(rich_help_panel=_REAL)(record)
app.command(rich_help_panel=_REAL)(drift)

_TRAINING = "What training sees"
app.command(rich_help_panel=_TRAINING)(look)
app.command(rich_help_panel=_TRAINING)(learn)
app.command(rich_help_panel=_TRAINING)(parse)
app.command(rich_help_panel=_TRAINING)(rollout)
app.command(rich_help_panel=_TRAINING)(view)
app.add_typer(limiter, name="limiter", rich_help_panel=_TRAINING)


def main() -> None:
    """Run the command line."""
    # What a command imports and reads lives to its end; looking for garbage in it only delays the start.
    gc.set_threshold(20_000)
    app()
