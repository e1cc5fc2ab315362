"""``sfusion serve mcp``: run code for any agent that speaks MCP, with the limiter, retries and
guard of the tool.

The programs run in the sandbox at URL; without URL, in a fake one, which runs Python code with
--executor python. Faults are injected between this server and the sandbox. It listens on this
machine only, or uses stdin and stdout.

Example: sfusion serve mcp http://127.0.0.1:8080 --port 8765
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument

from sfusion_tools.errors import import_extra
from sfusion_tools.mcp_server import code_server
from sfusion_tools.sandbox.tool import SandboxFusionTool
from sfusion_tools.tool_registry import make_tool, read_entries

from ....fakes.faults import load_rules
from ....fakes.proxy import FaultProxy
from ....fakes.sandbox import FakeSandbox
from ...commandline.declaring import command, option
from ...commandline.exits import say
from ...commandline.options import Faults, Seed
from ...errors import BadOption
from ..server_options import Port
from ..whole_requests import WholeRequests

_LOOPBACK = "127.0.0.1"
MOST_SESSIONS = 10_000
"""Sessions that are open at a time, 39 KB each (chosen: the library's default)."""
IDLE_SECONDS = 1800
"""How long a session is kept without a request (chosen: the library's default)."""


@dataclass(frozen=True, kw_only=True)
class McpOptions:
    """The options of the command."""

    url: Annotated[
        str | None, Argument(metavar="[URL]", help="The sandbox, with or without /run_code.")
    ] = None
    tools: Annotated[
        Path | None, option("Tool config whose SandboxFusionTool is served; URL takes precedence.")
    ] = None
    port: Port = 8765
    stdio: Annotated[bool, option("Talk over stdin and stdout in place of HTTP.")] = False
    executor: Annotated[
        str,
        option("Executor of the fake sandbox: python really runs code.", "python|scripted|none"),
    ] = "none"
    faults: Faults = None
    seed: Seed = 0


@command
def serve_mcp(options: McpOptions) -> None:
    import_extra("mcp", extra="mcp", needed_by="sfusion serve mcp")
    asyncio.run(_serve(options))


async def _serve(options: McpOptions) -> None:
    config, schema = _tool_config(options)
    async with _sandbox(options, config.get("sandbox_fusion_url")) as (url, about):
        tool = make_tool("--tools", {**schema, "config": {**config, "sandbox_fusion_url": url}})
        if not isinstance(tool, SandboxFusionTool):
            raise BadOption(f"--tools: {schema['class_name']} is not a SandboxFusionTool")
        server = code_server(tool)
        if options.stdio:
            from mcp.server.stdio import stdio_server

            typer.echo(f"MCP server on stdin and stdout, tool {tool.name}, {about}", err=True)
            async with stdio_server() as streams:
                await server.run(*streams, server.create_initialization_options())
            return
        await _serve_http(server, options.port, f"tool {tool.name}, {about}")


async def _serve_http(server: Any, port: int, about: str) -> None:
    import uvicorn

    listening = socket.socket()
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((_LOOPBACK, port))
    except OSError as error:
        raise BadOption(
            f"port {port} cannot be used: {error.strerror}; --port 0 picks a free one"
        ) from error
    listening.listen()  # whoever reads the address may connect at once
    sessions = server.streamable_http_app(
        host=_LOOPBACK, session_idle_timeout=IDLE_SECONDS, max_sessions=MOST_SESSIONS
    )
    app = WholeRequests(sessions, say)
    typer.echo(f"MCP server on http://{_LOOPBACK}:{listening.getsockname()[1]}/mcp")
    typer.echo(about)

    class Server(uvicorn.Server):
        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            app.refuse()  # what has not arrived by now need not be waited for
            await super().shutdown(sockets)

    config = uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=5)
    logging.getLogger("uvicorn.error").addFilter(_CountedWarnings(app.count))
    asyncio.get_running_loop().set_exception_handler(_FullServer())
    await Server(config).serve(sockets=[listening])
    typer.echo("stopped")


class _CountedWarnings(logging.Filter):
    """Counts what clients make the HTTP server warn about, such as a request that is none."""

    def __init__(self, count: Callable[[str], None]) -> None:
        super().__init__()
        self._count = count

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno != logging.WARNING:
            return True
        self._count(f"caused the warning {record.getMessage()!r}")
        return False


class _FullServer:
    """Says once that no more connections can be accepted.

    asyncio tries again each second, and would print a traceback for every connection that might
    wait, which is two thousand.
    """

    _said = False

    def __call__(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if not isinstance(error, OSError) or error.errno not in (errno.EMFILE, errno.ENFILE):
            loop.default_exception_handler(context)
        elif not self._said:
            self._said = True
            # Not ``say``, which opens files of its own to import what it needs.
            typer.echo(
                f"new connections have to wait: {error.strerror}; a higher limit on open files "
                "(ulimit -n) admits more",
                err=True,
            )


def _tool_config(options: McpOptions) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the config of the tool and the rest of its entry."""
    entries: list[dict[str, Any]] = [
        {"class_name": "sfusion_tools.sandbox_fusion_tools.SandboxFusionTool"}
    ]
    if options.tools is not None:
        entries = [
            entry
            for entry in read_entries(options.tools)
            if "SandboxFusionTool" in entry["class_name"]
        ]
        if not entries:
            raise BadOption(f"--tools {options.tools} has no SandboxFusionTool")
    config = dict(entries[0].get("config") or {})
    if options.url is not None:
        config["sandbox_fusion_url"] = options.url
    return config, {key: value for key, value in entries[0].items() if key != "config"}


@asynccontextmanager
async def _sandbox(
    options: McpOptions, url: str | list[str] | None
) -> AsyncIterator[tuple[Any, str]]:
    """Yield where programs go, and how to say it."""
    rules = load_rules(options.faults) if options.faults is not None else []
    if url is None:
        async with FakeSandbox(executor=options.executor, faults=rules, seed=options.seed) as fake:
            yield fake.url, f"fake sandbox, executor {options.executor}, {len(rules)} fault rules"
    elif rules:
        if not isinstance(url, str):
            raise BadOption("--faults needs one sandbox, and the tool config names several")
        async with FaultProxy(url, faults=rules, seed=options.seed) as proxy:
            yield proxy.url, f"sandbox {proxy.upstream}, {len(rules)} fault rules"
    else:
        yield url, "no faults"
