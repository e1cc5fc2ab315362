"""``sfusion serve sandbox``: serve a fake Sandbox Fusion that can fail on demand.

It answers /run_code, /run_jupyter and /v1/ping. By default it runs no code.

Example: sfusion serve sandbox --executor python --faults flaky.yaml
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer

from sfusion_tools.errors import YamlError
from sfusion_tools.marked_yaml import read_marked

from ....fakes.sandbox import FakeSandbox, RecordedExecutor
from ....fakes.sandbox.executors.python import PythonExecutor
from ....fakes.sandbox.executors.python.notebook import WITHOUT_KERNEL
from ...commandline.declaring import command, option
from ...errors import BadOption, NotContained
from ..server_options import LoadedOptions, refuse_readable, serve_until_interrupted


@dataclass(frozen=True, kw_only=True)
class SandboxOptions(LoadedOptions):
    """The options of the command."""

    executor: Annotated[
        str,
        option(
            "What answers: python (really runs code), scripted (runs nothing, programs "
            "succeed), recorded "
            "(a cassette), none (runs nothing, a program without a script fails).",
            "python|scripted|recorded|none",
        ),
    ] = "none"
    profile: Annotated[
        str,
        option("Which real server to imitate; 2025-06 is the published image.", "2026-07|2025-06"),
    ] = "2026-07"
    scripts: Annotated[
        Path | None,
        option("YAML list of scripts for the executors none and scripted: pattern, prints, ..."),
    ] = None
    require: Annotated[
        str | None,
        option(
            "Refuse to start with --executor python unless this level holds.",
            "contained|accident-proof",
        ),
    ] = None
    network: Annotated[
        bool,
        option(
            "Programs may use the network, and so call this server; the level is "
            "accident-proof then."
        ),
    ] = False
    cassette: Annotated[Path | None, option("Recorded answers for the recorded executor.")] = None


@command
def serve_sandbox(options: SandboxOptions) -> None:
    with options.keywords() as keywords:
        sandbox = FakeSandbox(
            executor=_executor(options),
            profile=options.profile,  # type: ignore[arg-type] # checked by FakeSandbox, with an error for the user
            scripts=_scripts(options.scripts),
            cassette=options.cassette,
            **keywords,
        )

        async def print_banner() -> None:
            await _refuse_lower(sandbox, options.require)
            await refuse_readable(sandbox.executor, options.token_file)
            await _print_banner(sandbox, options.fault_count(keywords))

        asyncio.run(serve_until_interrupted(sandbox, keywords["token"], print_banner))


def _executor(options: SandboxOptions) -> str | PythonExecutor:
    if options.require not in (None, "contained", "accident-proof"):
        raise BadOption(f"--require {options.require}: expected contained or accident-proof")
    if options.executor == "python":
        return PythonExecutor(profile=options.profile, network=options.network)  # type: ignore[arg-type] # as below
    if options.require or options.network:
        raise BadOption(
            "--require and --network are about programs that run: they need --executor python"
        )
    return options.executor


async def _refuse_lower(sandbox: FakeSandbox, required: str | None) -> None:
    if required == "contained" and isinstance(sandbox.executor, PythonExecutor):
        confinement = await sandbox.executor.confinement()
        if confinement.level != required:
            raise NotContained(f"--require contained: this is\n{confinement.describe()}")


def _scripts(path: Path | None) -> list[Any]:
    if path is None:
        return []
    try:
        data = read_marked(path).data
    except YamlError as error:
        raise BadOption(f"--scripts {error}") from None
    if not isinstance(data, list):
        raise BadOption(
            f"--scripts {path}: expected a list of scripts, such as - {{pattern: import "
            f"numpy, exit: 1}}"
        )
    return data


async def _print_banner(sandbox: FakeSandbox, faults: str) -> None:
    runs = "REALLY RUNS the code it is sent" if sandbox.executor.runs_code else "runs no code"
    if sandbox.executor_name == "none":
        runs += "; --executor python does"
    typer.echo(f"fake Sandbox Fusion on {sandbox.url}")
    typer.echo(
        f"profile {sandbox.profile}, executor {sandbox.executor_name} ({runs}), model "
        f"{sandbox.model.kind}, "
        f"{faults}, seed {sandbox.server.plan.seed}"
    )
    if isinstance(sandbox.executor, RecordedExecutor):
        typer.echo(f"cassette: {sandbox.executor.cassette.describe()}")
    if isinstance(sandbox.executor, PythonExecutor):
        typer.echo((await sandbox.executor.confinement()).describe())
    if sandbox.executor_name == "python" and not (
        find_spec("ipykernel") and find_spec("jupyter_client")
    ):
        typer.echo(WITHOUT_KERNEL)
