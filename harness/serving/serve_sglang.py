"""``sfusion serve sglang``: the fake engine as a server for any client."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sfusion.harness.errors import BadOption
from sfusion.harness.serving._serving import (
    AllowHost,
    AllowOrigin,
    RequireToken,
    TokenFile,
    TypedToken,
    admin_line,
    fault_count,
    log_to_stderr,
    open_journal,
    serve_until_interrupted,
)
from sfusion.harness.serving._token import read_token

if TYPE_CHECKING:
    from sfusion.fakes.sglang import FakeSGLangServer, Policy


def serve_sglang(
    host: Annotated[str, typer.Option(help="Address to listen on; other than loopback needs --allow-remote.")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, typer.Option(help="Port to listen on; 0 for any free port.")] = 30000,
    allow_remote: Annotated[bool, typer.Option(help="Let other machines connect.")] = False,
    token_file: TokenFile = None,
    token: TypedToken = None,
    require_token: RequireToken = False,
    allow_host: AllowHost = None,
    allow_origin: AllowOrigin = None,
    format: Annotated[
        str,
        typer.Option("--format", help="Tool-call format of the model; `none` leaves calls in the text."),
    ] = "qwen25",
    policy: Annotated[
        str,
        typer.Option(help="What the model does: gsm8k, misbehaving[:RATE], say:TEXT, or script:FILE (YAML or JSON)."),
    ] = "gsm8k",
    reasoning_parser: Annotated[
        str | None, typer.Option(help="Return thinking separately: qwen3, deepseek-r1, glm45, gpt-oss, ...")
    ] = None,
    quirks: Annotated[
        str | None, typer.Option(help="`sglang`: parse calls like sglang's own parsers, including what they lose.")
    ] = None,
    faults: Annotated[Path | None, typer.Option(help="YAML file of fault rules.")] = None,
    seed: Annotated[int, typer.Option(help="Seed for everything random.")] = 0,
    step: Annotated[int, typer.Option(help="Training step; the misbehaving policy gets worse with it.")] = 0,
    model: Annotated[str, typer.Option(help="Name of the served model.")] = "fake-model",
    context_length: Annotated[int, typer.Option(min=1, help="Maximum tokens of prompt and answer together.")] = 32768,
    first_token: Annotated[float, typer.Option(min=0, help="Seconds until the first token.")] = 0.0,
    per_token: Annotated[float, typer.Option(min=0, help="Seconds for each further token.")] = 0.0,
    load: Annotated[float, typer.Option(min=0, help="Slowdown per concurrent request.")] = 0.0,
    spread: Annotated[float, typer.Option(min=0, help="Sigma of a log-normal factor on all times.")] = 0.0,
    max_running: Annotated[int | None, typer.Option(min=1, help="Maximum concurrent requests.")] = None,
    max_queued: Annotated[int | None, typer.Option(min=0, help="Maximum waiting requests; more get a 503.")] = None,
    cache_report: Annotated[bool, typer.Option(help="Report cached tokens in the usage.")] = False,
    access_log: Annotated[bool, typer.Option(help="Write a line per request to stderr.")] = False,
    journal: Annotated[Path | None, typer.Option(help="Append events to this file as JSON lines.")] = None,
) -> None:
    """Serve a fake sglang: /generate, /v1/chat/completions, /v1/completions and others, without a GPU."""
    import asyncio
    from contextlib import ExitStack

    from sfusion.fakes.sglang import FakeSGLang, FakeSGLangServer, Latency
    from sfusion.fakes.sglang.faults import load_engine_rules

    if quirks not in (None, "none", "sglang"):
        raise BadOption(f"unknown quirks {quirks!r}; the only choice is sglang")
    given = read_token(token, token_file, required=require_token)
    parser = None if format == "none" else format
    with ExitStack() as stack:
        try:
            rules = load_engine_rules(faults) if faults is not None else []
            engine = FakeSGLang(
                read_policy(policy),
                format=parser or "qwen25",
                context_length=context_length,
                latency=Latency(first_token=first_token, per_token=per_token, load=load, spread=spread),
                max_running=max_running,
                max_queued=max_queued,
                seed=seed,
                step=step,
            )
            server = FakeSGLangServer(
                engine,
                host=host,
                port=port,
                tool_call_parser=parser,
                reasoning_parser=reasoning_parser,
                quirks="sglang" if quirks == "sglang" else None,
                model=model,
                report_cache=cache_report,
                faults=rules,
                seed=seed,
                token=given,
                require_token=require_token,
                allow_remote=allow_remote,
                allow_hosts=allow_host or (),
                allow_origins=allow_origin or (),
                journal=open_journal(stack, journal),
                access_log=log_to_stderr(access_log),
            )
            about = f"model {model}, format {format}, policy {policy}, seed {seed}, "
            about += fault_count(rules, faults)
            if server.info.quirks:
                about += ", with the quirks of sglang's parsers"
            asyncio.run(serve_until_interrupted(server, lambda: _print_banner(server, about, given)))
        except ValueError as error:
            raise BadOption(str(error)) from error


def read_policy(text: str) -> Policy:
    """Return the policy for the value of ``--policy``."""
    from sfusion.fakes.sglang import Gsm8kSolver, Misbehaving, ScriptedPolicy

    kind, _, rest = text.partition(":")
    match kind:
        case "gsm8k":
            return Gsm8kSolver()
        case "misbehaving":
            try:
                return Misbehaving(rate=float(rest)) if rest else Misbehaving()
            except ValueError as error:
                raise BadOption(f"policy {text!r}: the rate must be a number between 0 and 1 ({error})") from error
        case "say":
            return ScriptedPolicy([], otherwise=rest)
        case "script":
            return ScriptedPolicy.load(Path(rest))
    raise BadOption(f"unknown policy {text!r}; use gsm8k, misbehaving[:RATE], say:TEXT or script:FILE")


def _print_banner(server: FakeSGLangServer, about: str, token: str | None) -> None:
    typer.echo(f"fake sglang on {server.url} (OpenAI clients: {server.url}/v1)")
    typer.echo(about)
    typer.echo(admin_line(server, token))
