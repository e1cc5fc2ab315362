"""``sfusion proxy``: the fault rules of the fakes in front of a real sandbox."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sfusion.harness.serving._headers import read_headers
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
from sfusion.harness.serving._token import read_token

if TYPE_CHECKING:
    from sfusion.fakes.proxy import FaultProxy


def proxy(
    url: Annotated[str, typer.Argument(metavar="URL", help="The server to forward to, with or without /run_code.")],
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on; 0 picks a free one.")] = 8080,
    faults: Annotated[Path | None, typer.Option(help="YAML file of fault rules.")] = None,
    model: Annotated[
        str | None,
        typer.Option(help="Limit on requests, as YAML: unbounded, '{kind: quota, in_flight: 8}', '{kind: queue}'."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of every random decision.")] = 0,
    token_file: TokenFile = None,
    token: TypedToken = None,
    require_token: RequireToken = False,
    allow_remote: Annotated[
        bool,
        typer.Option(help="Let other machines connect (needs a token): the sandbox will run their code."),
    ] = False,
    header: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME:VALUE", help="Header to add to every forwarded request; can be repeated."),
    ] = None,
    use_proxy_env: Annotated[bool, typer.Option(help="Obey HTTP_PROXY and similar variables.")] = False,
    allow_host: AllowHost = None,
    allow_origin: AllowOrigin = None,
    access_log: Annotated[bool, typer.Option(help="Write a line per request to stderr.")] = False,
    journal: Annotated[Path | None, typer.Option(help="Append events to this file, one JSON line each.")] = None,
    event_log: EventLogFile = None,
) -> None:
    """Inject faults in front of a real sandbox, or of any HTTP server.

    Clients talk to the proxy instead of URL. Everything passes unchanged,
    except where a rule strikes:

        sfusion proxy http://127.0.0.1:8080 --port 9090 --faults flaky.yaml

    flaky.yaml holds rules such as `- {every: 5, what: {status: 503}}`
    or `- {phase: after, what: reset}`.

    Phases: `before` strikes instead of forwarding, `during` while the server
    works, `after` once its answer has arrived but before it is passed on,
    `body` inside that answer.

    PUT /__sfusion/faults changes the rules while it runs.
    `sfusion explain kinds` describes every kind of fault.
    """
    import asyncio
    from contextlib import ExitStack

    from sfusion.fakes.faults import load_rules
    from sfusion.fakes.proxy import FaultProxy

    given = read_token(token, token_file, required=require_token)
    with ExitStack() as stack:
        rules = load_rules(faults) if faults is not None else []
        served = FaultProxy(
            url,
            faults=rules,
            model=read_yaml(model, "--model"),
            seed=seed,
            host=host,
            port=port,
            token=given,
            require_token=require_token,
            allow_remote=allow_remote,
            allow_hosts=allow_host or (),
            allow_origins=allow_origin or (),
            journal=open_journal(stack, journal),
            access_log=log_to_stderr(access_log),
            event_log=check_event_log(event_log),
            headers=read_headers(header or []),
            trust_env=use_proxy_env,
        )
        asyncio.run(serve_until_interrupted(served, lambda: _print_banner(served, fault_count(rules, faults), given)))


async def _print_banner(served: FaultProxy, faults: str, token: str | None) -> None:
    """Print where it listens and what it does, and warn when the upstream does not answer."""
    typer.echo(f"fault proxy on {served.url} for {served.upstream}")
    typer.echo(f"model {served.model.kind}, {faults}, seed {served.server.plan.seed}")
    typer.echo(admin_line(served, token))
    problem = await served.ping_upstream()
    if problem:
        typer.echo(f"the upstream does not answer yet: {problem}")
