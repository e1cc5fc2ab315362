"""``sfusion serve sandbox``: the fake Sandbox Fusion as a server for any client."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sfusion.harness.errors import BadOption
from sfusion.harness.serving._serving import (
    AllowHost,
    AllowOrigin,
    EventLogFile,
    RequireToken,
    TokenFile,
    TypedToken,
    admin_line,
    check_event_log,
    fault_count,
    log_to_stderr,
    open_journal,
    read_yaml,
    serve_until_interrupted,
)
from sfusion.harness.serving._token import read_token, refuse_readable

if TYPE_CHECKING:
    from sfusion.fakes.sandbox import FakeSandbox


def serve_sandbox(
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on; 0 picks a free one.")] = 8080,
    executor: Annotated[
        str,
        typer.Option(
            help="What answers: python (really runs code), scripted (runs nothing, programs succeed), recorded (a "
            "cassette), none (runs nothing, a program without a script fails)."
        ),
    ] = "none",
    profile: Annotated[
        str, typer.Option(help="Which real server to imitate: 2026-07, or 2025-06 (the published image).")
    ] = "2026-07",
    faults: Annotated[Path | None, typer.Option(help="YAML file of fault rules.")] = None,
    model: Annotated[
        str | None, typer.Option(help="Behaviour under load, as YAML: unbounded, '{quota: 8}', '{queue: 32}'.")
    ] = None,
    scripts: Annotated[
        Path | None, typer.Option(help="YAML list of scripts for the executors none and scripted: pattern, prints, ...")
    ] = None,
    cassette: Annotated[Path | None, typer.Option(help="Recorded answers for the recorded executor.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of every random decision.")] = 0,
    token_file: TokenFile = None,
    token: TypedToken = None,
    require_token: RequireToken = False,
    allow_remote: Annotated[
        bool, typer.Option(help="Let a fake that runs code listen where other machines can reach it (needs a token).")
    ] = False,
    allow_host: AllowHost = None,
    allow_origin: AllowOrigin = None,
    access_log: Annotated[bool, typer.Option(help="Write a line per request to stderr.")] = False,
    journal: Annotated[Path | None, typer.Option(help="Append events to this file, one JSON line each.")] = None,
    event_log: EventLogFile = None,
) -> None:
    """Serve a fake Sandbox Fusion: /run_code, /run_jupyter, /v1/ping, and failures on demand."""
    import asyncio
    from contextlib import ExitStack

    from sfusion.fakes.faults import load_rules
    from sfusion.fakes.sandbox import FakeSandbox

    given = read_token(token, token_file, required=require_token)
    with ExitStack() as stack:
        rules = load_rules(faults) if faults is not None else []
        sandbox = FakeSandbox(
            executor=executor,
            profile=profile,  # type: ignore[arg-type] # checked by FakeSandbox, with an error for the user
            faults=rules,
            model=read_yaml(model, "--model"),
            seed=seed,
            host=host,
            port=port,
            scripts=_scripts(scripts),
            cassette=cassette,
            token=given,
            require_token=require_token,
            allow_remote=allow_remote,
            allow_hosts=allow_host or (),
            allow_origins=allow_origin or (),
            journal=open_journal(stack, journal),
            access_log=log_to_stderr(access_log),
            event_log=check_event_log(event_log),
        )

        async def start() -> None:
            await refuse_readable(sandbox, token_file)
            await _print_banner(sandbox, fault_count(rules, faults), given)

        asyncio.run(serve_until_interrupted(sandbox, start))


def _scripts(path: Path | None) -> list[Any]:
    from sfusion_tools.errors import YamlError
    from sfusion_tools.marked_yaml import read_marked

    if path is None:
        return []
    try:
        data = read_marked(path).data
    except YamlError as error:
        raise BadOption(f"--scripts {error}") from None
    if not isinstance(data, list):
        raise BadOption(f"--scripts {path}: expected a list of scripts, such as - {{pattern: import numpy, exit: 1}}")
    return data


async def _print_banner(sandbox: FakeSandbox, faults: str, token: str | None = None) -> None:
    from sfusion.fakes.sandbox import RecordedExecutor
    from sfusion.fakes.sandbox.executors.python import PythonExecutor

    runs = "REALLY RUNS the code it is sent" if sandbox.executor.runs_code else "runs no code"
    if sandbox.executor_name == "none":
        runs += "; --executor python does"
    typer.echo(f"fake Sandbox Fusion on {sandbox.url}")
    typer.echo(
        f"profile {sandbox.profile}, executor {sandbox.executor_name} ({runs}), model {sandbox.model.kind}, "
        f"{faults}, seed {sandbox.server.plan.seed}"
    )
    if isinstance(sandbox.executor, RecordedExecutor):
        typer.echo(f"cassette: {sandbox.executor.cassette.describe()}")
    if isinstance(sandbox.executor, PythonExecutor):
        typer.echo((await sandbox.executor.confinement()).describe())
    if sandbox.executor_name == "python" and not (find_spec("ipykernel") and find_spec("jupyter_client")):
        from sfusion.fakes.sandbox.executors.python.notebook import WITHOUT_KERNEL

        typer.echo(WITHOUT_KERNEL)
    typer.echo(admin_line(sandbox, token))
