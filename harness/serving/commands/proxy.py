"""``sfusion proxy``: inject faults in front of a real sandbox, or of any HTTP server.

Clients talk to the proxy instead of URL. Everything passes unchanged, except where a rule applies.
A file of rules has lines such as `- {every: 5, what: {status: 503}}` or `- {phase: after, what:
reset}`.

Phases: `before` forwarding (the server never sees the request), `during` the server's work, `after`
its answer has arrived but before it is passed on, and inside the `body` of that answer.

When it ends, it says what the traffic shows about the client, whatever its language: whether it
tries again, how long it waits, what it sends twice.

PUT /__sfusion/faults changes the rules while it runs. `sfusion explain kinds` describes every kind
of fault.

Example: sfusion proxy http://127.0.0.1:8080 --port 9090 --faults flaky.yaml
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Annotated

import typer
from typer import Argument

from ....fakes.proxy import FaultProxy
from ....fakes.wire.events import EventSink, ServerEvent
from ...commandline.declaring import command, option
from ...commandline.options import VISIBLE, Headers, hidden_value, read_headers
from ...core.traffic import Traffic
from ...errors import BadOption
from ..server_options import LoadedOptions, serve_until_interrupted


@dataclass(frozen=True, kw_only=True)
class ProxyOptions(LoadedOptions):
    """The options of the command."""

    url: Annotated[
        str,
        Argument(
            metavar="URL",
            help=(
                "The server to forward to, with or without /run_code. With a password: "
                "'@FILE' or '$VARIABLE'."
            ),
        ),
    ]
    header: Headers = None
    judge: Annotated[
        bool, option("Exit with 1 if the verdict over the traffic, printed at the end, is broken.")
    ] = False
    use_proxy_env: Annotated[bool, option("Obey HTTP_PROXY and similar variables.")] = False


@command
def proxy(options: ProxyOptions) -> int:
    traffic = Traffic()
    with options.keywords() as keywords:
        keywords["journal"] = _both(traffic.note, keywords["journal"])
        headers = read_headers(options.header)
        served = FaultProxy(
            _upstream(options.url), headers=headers, trust_env=options.use_proxy_env, **keywords
        )

        async def print_banner() -> None:
            typer.echo(f"fault proxy on {served.url} for {served.upstream}")
            typer.echo(
                f"model {served.model.kind}, {options.fault_count(keywords)}, seed "
                f"{served.server.plan.seed}"
            )
            problem = await served.ping_upstream()
            if problem:
                typer.echo(f"the upstream does not answer yet: {problem}")

        asyncio.run(serve_until_interrupted(served, keywords["token"], print_banner))
    if not traffic.requests:
        return 0
    typer.echo(traffic.text())
    is_broken = any(verdict.state == "broken" for verdict in traffic.verdicts())
    return 1 if is_broken and options.judge else 0


def _both(first: EventSink, second: EventSink | None) -> EventSink:
    """Return a sink that passes events on to one or two."""
    if second is None:
        return first

    def pass_on(event: ServerEvent) -> None:
        first(event)
        second(event)

    return pass_on


def _upstream(url: str) -> str:
    if url[:1] not in ("@", "$") and "@" in url.partition("://")[2].partition("/")[0]:
        raise BadOption(
            f"URL: {VISIBLE}; put a URL with a password into a file or a variable: '@FILE' "
            "or '$VARIABLE'"
        )
    return hidden_value(url, "URL")
