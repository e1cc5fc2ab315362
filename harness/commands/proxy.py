"""``sfusion proxy``: the fakes' faults in front of a real sandbox."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sfusion.harness.commands._serving import live, log_to_stderr, open_journal, read_yaml
from sfusion.harness.errors import BadOption

if TYPE_CHECKING:
    from sfusion.fakes.proxy import FaultProxy


def proxy(
    url: Annotated[str, typer.Argument(metavar="URL", help="The server behind; with or without /run_code.")],
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on; 0 takes any that is free.")] = 8080,
    faults: Annotated[Path | None, typer.Option(help="YAML file of fault rules.")] = None,
    model: Annotated[
        str | None, typer.Option(help="Let in only so many, as YAML: unbounded, '{quota: 8}', '{queue: 32}'.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of everything that looks like chance.")] = 0,
    token: Annotated[
        str | None, typer.Option(envvar="SFUSION_TOKEN", help="Token for admin requests, and for all when remote.")
    ] = None,
    allow_remote: Annotated[
        bool, typer.Option(help="Listen where other machines reach it (needs --token): the sandbox runs their code.")
    ] = False,
    header: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME:VALUE", help="Header to send on with every request; can be repeated."),
    ] = None,
    use_proxy_env: Annotated[bool, typer.Option(help="Reach URL through HTTP_PROXY and its kin, if set.")] = False,
    access_log: Annotated[bool, typer.Option(help="Write a line per request to stderr.")] = False,
    journal: Annotated[Path | None, typer.Option(help="Append what happens to this file, a JSON line each.")] = None,
) -> None:
    """Put the fakes' faults in front of a real sandbox, or of any HTTP server.

    Clients talk to the proxy in place of URL. All is passed on as it is, except where a rule strikes:

        sfusion proxy http://127.0.0.1:8080 --port 9090 --faults flaky.yaml

    flaky.yaml holds rules such as `- {every: 5, what: {status: 503}}` or `- {phase: after, what: reset}`.

    Phases: `before` strikes instead of forwarding, `during` while the server works, `after` when its
    answer is here and not passed on, `body` inside that answer.

    Rules can be changed while it runs: PUT /__sfusion/faults. `sfusion explain` tells all kinds of faults.
    """
    import asyncio
    from contextlib import ExitStack

    from sfusion.fakes.faults import FaultError, load_rules
    from sfusion.fakes.proxy import FaultProxy
    from sfusion.fakes.sandbox import SandboxSetupError
    from sfusion.fakes.wire import WireError

    with ExitStack() as stack:
        try:
            rules = load_rules(faults) if faults is not None else []
            served = FaultProxy(
                url,
                faults=rules,
                model=read_yaml(model, "--model"),
                seed=seed,
                host=host,
                port=port,
                token=token,
                allow_remote=allow_remote,
                journal=open_journal(stack, journal),
                access_log=log_to_stderr(access_log),
                headers=read_headers(header or []),
                trust_env=use_proxy_env,
            )
            told = f"{len(rules)} fault rule(s) of {faults}" if faults else "no faults"
            asyncio.run(live(served, lambda: _introduce(served, told)))
        except (BadOption, FaultError, SandboxSetupError, WireError) as error:
            typer.echo(f"sfusion proxy: {error}", err=True)
            raise typer.Exit(2) from error


def read_headers(given: list[str]) -> dict[str, str]:
    """Headers as the command line has them; mistakes are told without the value, which may be a secret."""
    headers: dict[str, str] = {}
    for one in given:
        name, colon, value = one.partition(":")
        name, value = name.strip(), value.strip()
        if not colon or not name.isascii() or not name.replace("-", "").replace("_", "").isalnum():
            # What was given may be the secret itself, so it is not shown.
            raise BadOption("--header is NAME:VALUE, such as 'X-Api-Key: abc'; found one without a name and a colon")
        if not value.isprintable():
            raise BadOption(f"--header {name}: its value holds characters that no header can have")
        headers[name] = value
    return headers


async def _introduce(served: FaultProxy, faults: str) -> None:
    """Say where it is, what it will do, and whether anybody is behind it."""
    typer.echo(f"fault proxy on {served.url} for {served.upstream}")
    typer.echo(f"model {served.model.kind}, {faults}, seed {served.server.plan.seed}")
    typer.echo(f"admin: {served.url}/__sfusion/state (faults, ledger, reset)")
    if served.token is not None:
        typer.echo(f"token: {served.token}")
    problem = await served.ask_upstream()
    if problem:
        typer.echo(f"nobody is behind it yet: {problem}")
