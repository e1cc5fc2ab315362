"""``sfusion serve mcp``, spoken to by the client of the official SDK, with faults before the
sandbox."""

from __future__ import annotations

import asyncio
import re
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from sfusion.fakes.sandbox import FakeSandbox
from sfusion.harness.serving.whole_requests import LEFT, MOST_WAITING, SLOW
from sfusion_tools.errors import ConfigError
from sfusion_tools.mcp_server import code_server
from sfusion_tools.mcp_tool import McpTool
from sfusion_tools.sandbox_fusion_tools import SandboxFusionTool
from sfusion_tools.tool_registry import initialize_tools_from_config
from tests.fakes.wire.raw import PATIENCE, one, run_code
from tests.lazy import Lazy
from tests.warm import warm

mcp: Any = Lazy("mcp")
pytestmark = pytest.mark.xdist_group("mcp")

NAME = "code_interpreter"
FAILURES: dict[str, tuple[Any, str]] = {
    "429": ({"status": 429}, "throttled"),
    "500": ({"status": 500}, "sandbox_error"),
    "503": ({"status": 503}, "sandbox_error"),
    "504": ({"status": 504}, "sandbox_error"),
    "reset": ("reset", "unreachable"),
    "truncated": ({"truncate": 0.5}, "bad_response"),
    "malformed": ({"malformed": "json"}, "bad_response"),
    "SandboxError": ({"sandbox_error": "no memory"}, "sandbox_error"),
    "null": ({"output": "null"}, "bad_response"),
}


def entry(**config: Any) -> dict[str, Any]:
    quick = {
        "limiter": "local",
        "backoff_base": 0.001,
        "backoff_cap": 0.002,
        "max_attempts": 2,
        "memory_limit_mb": -1,
    }
    return {
        "class_name": "sfusion_tools.sandbox_fusion_tools.SandboxFusionTool",
        "config": {**quick, **config},
    }


def files(folder: Path, faults: list[Any], **config: Any) -> list[str]:
    (folder / "tools.yaml").write_text(yaml.safe_dump({"tools": [entry(**config)]}))
    (folder / "faults.yaml").write_text(yaml.safe_dump(faults))
    return ["--tools", str(folder / "tools.yaml"), "--faults", str(folder / "faults.yaml")]


class Said:
    """What a server said on stderr."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.something = asyncio.Event()

    async def listen(self, stream: asyncio.StreamReader) -> None:
        async for line in stream:
            self.lines.append(line.decode().rstrip("\n"))
            self.something.set()


@asynccontextmanager
async def serving(
    *arguments: str, said: Said | None = None, open_files: int | None = None
) -> AsyncIterator[str]:
    """Run the command on a free port; yield the address."""
    said = said or Said()
    command = [str(warm("sfusion"))]
    if open_files is not None:
        limited = f'ulimit -n {open_files}; exec "$@"'
        command = ["sh", "-c", limited, "sh", sys.executable, "-m", "sfusion"]
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *command, "serve", "mcp", "--port", "0", *arguments, stdout=pipe, stderr=pipe
    )
    assert process.stdout is not None
    assert process.stderr is not None
    listening = asyncio.ensure_future(said.listen(process.stderr))
    try:
        async with asyncio.timeout(PATIENCE):
            line = (await process.stdout.readline()).decode()
        found = re.search(r"http://\S+/mcp", line)
        assert found, [line, *said.lines]
        yield found[0]
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(PATIENCE):
            await process.stdout.read()
            await listening
            await process.wait()


async def call(client: Any, code: str) -> tuple[str, Any, bool]:
    result = await client.call_tool(NAME, {"code": code})
    return result.content[0].text, result.structured_content, result.is_error


async def test_programs_run_and_every_failure_is_a_typed_truthful_answer(tmp_path: Path) -> None:
    rules = [{"call": name, "what": what} for name, (what, _) in FAILURES.items()]
    rules.append({"call": "once", "first_attempts": 1, "what": {"status": 503}})
    async with serving(*files(tmp_path, rules), "--executor", "python") as address:
        async with mcp.Client(address) as client:
            assert [tool.name for tool in (await client.list_tools()).tools] == [NAME]
            assert await call(client, "print(6 * 7)  # sfusion:call=fine") == (
                "42\n",
                _ok(attempts=1),
                False,
            )
            assert await call(client, "print(1)  # sfusion:call=once") == (
                "1\n",
                _ok(attempts=2),
                False,
            )
            text, facts, is_error = await call(client, "1 / 0  # sfusion:call=wrong")
            assert ("ZeroDivisionError" in text, facts["outcome"], is_error) == (
                True,
                "program_error",
                False,
            )
            for name, (_, outcome) in FAILURES.items():
                text, facts, is_error = await call(client, f"print(1)  # sfusion:call={name}")
                assert (facts["outcome"], facts["infrastructure"], is_error) == (
                    outcome,
                    True,
                    True,
                ), name
                assert (
                    f"This is not output of a program: the sandbox failed, not your code ({outcome}"
                    in text
                )
            refused = await client.call_tool(NAME, {"cod": "1"})
            assert (refused.is_error, refused.structured_content["outcome"]) == (
                True,
                "bad_arguments",
            )
            assert "There is no such tool" in (await client.call_tool("search", {})).content[0].text
        await _through_the_registry(tmp_path, address)


RESETS = 200
HALF = (
    b"POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    b"content-length: 100\r\n\r\n{"
)


def half_sent(address: str, sent: bytes = HALF) -> socket.socket:
    """Return a connection on which half of a request was sent."""
    connection = socket.create_connection(("127.0.0.1", urlsplit(address).port or 0), PATIENCE)
    connection.sendall(sent)
    return connection


async def list_tools(address: str) -> list[str]:
    async with mcp.Client(address) as client:
        return [tool.name for tool in (await client.list_tools()).tools]


async def test_clients_that_reset_their_connections_are_counted_without_a_traceback() -> None:
    said = Said()
    async with serving("--executor", "scripted", said=said) as address:
        for _ in range(RESETS):
            connection = await asyncio.to_thread(half_sent, address)
            # Closing sends a reset then, and no end.
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            connection.close()
        assert await list_tools(address) == [NAME]
    first, total = said.lines
    assert first.startswith(f"clients {LEFT}; they are counted")
    assert total == f"{RESETS} clients {LEFT}"


async def test_of_many_requests_that_never_end_the_oldest_is_refused() -> None:
    said = Said()
    with ExitStack() as stack:
        async with serving("--executor", "scripted", said=said) as address:
            oldest, *_ = [
                stack.enter_context(await asyncio.to_thread(half_sent, address))
                for _ in range(MOST_WAITING + 1)
            ]
            answer = await asyncio.to_thread(oldest.recv, 100)
            assert answer.startswith(b"HTTP/1.1 408 ")
            assert await list_tools(address) == [NAME]
    assert said.lines[0].startswith(f"clients {SLOW}; they are counted")
    assert not [line for line in said.lines if "Traceback" in line]


async def test_a_server_out_of_files_says_so_once_and_answers_when_there_are_some_again() -> None:
    said = Said()
    with ExitStack() as stack:
        async with serving("--executor", "scripted", said=said, open_files=64) as address:
            for _ in range(64):
                stack.enter_context(await asyncio.to_thread(half_sent, address, HALF[:20]))
            async with asyncio.timeout(PATIENCE):
                await said.something.wait()
            stack.close()
            assert await list_tools(address) == [NAME]
    # On a busy machine, what the clients who gave up caused is told before the end.
    assert not any("Traceback" in line for line in said.lines)
    assert len(said.lines) < 5
    (line,) = (line for line in said.lines if line.startswith("new connections"))
    assert re.match(r"new connections have to wait: Too many open files; .*\(ulimit -n\)", line)


async def test_what_is_not_http_is_counted() -> None:
    said = Said()
    async with serving("--executor", "scripted", said=said) as address:
        for _ in range(3):
            with await asyncio.to_thread(half_sent, address, b"hello\r\n\r\n") as connection:
                assert (await asyncio.to_thread(connection.recv, 100)).startswith(b"HTTP/1.1 400")
    warning = "clients caused the warning 'Invalid HTTP request received.'"
    assert said.lines == [
        f"{warning}; they are counted, and the number is shown at the end",
        f"3 {warning}",
    ]


class _ok:
    """Equals the facts of a call that went well."""

    def __init__(self, attempts: int) -> None:
        self.attempts = attempts

    def __eq__(self, other: object) -> bool:
        return isinstance(other, dict) and (other["outcome"], other["attempts"]) == (
            "ok",
            self.attempts,
        )

    __hash__ = None  # type: ignore[assignment]


async def _through_the_registry(folder: Path, address: str) -> None:
    """The tools of the server in a tool config, for our own rollouts."""
    file = folder / "mcp.yaml"
    one = {
        "class_name": "sfusion_tools.mcp_tool.McpTool",
        "config": {"type": "mcp", "server": address},
    }
    file.write_text(yaml.safe_dump({"tools": [one]}))
    (tool,) = await asyncio.to_thread(initialize_tools_from_config, file)
    assert (tool.name, list(tool.tool_schema.function.parameters.properties)) == (NAME, ["code"])
    answers = [
        await tool.execute("i", {"code": f"print(3)  # sfusion:call={name}"})
        for name in ("fine", "503", "reset")
    ]
    assert [metrics["outcome"] for _, _, metrics in answers] == [
        "ok",
        "sandbox_error",
        "unreachable",
    ]
    assert (answers[0][0].text, await tool.calc_reward("i")) == ("3\n", None)
    bad, _, metrics = await tool.execute("i", [1])
    assert ("must be a JSON object" in bad.text, metrics["outcome"]) == (True, "bad_arguments")
    one["config"]["tools"] = ["code_interpretr"]
    file.write_text(yaml.safe_dump({"tools": [one]}))
    with pytest.raises(ConfigError, match="did you mean 'code_interpreter'"):
        await asyncio.to_thread(initialize_tools_from_config, file)


async def test_it_also_talks_over_stdin_and_stdout(tmp_path: Path) -> None:
    command = ["serve", "mcp", "--stdio", *files(tmp_path, []), "--executor", "scripted"]
    async with mcp.Client(
        mcp.StdioServerParameters(command=str(warm("sfusion")), args=command)
    ) as client:
        assert await call(client, '1  # sfusion:call=a prints="3"') == ("3", _ok(attempts=1), False)


async def test_a_url_takes_precedence_over_that_of_the_tool_config(tmp_path: Path) -> None:
    file = tmp_path / "tools.yaml"
    file.write_text(yaml.safe_dump({"tools": [entry(sandbox_fusion_url="http://127.0.0.1:1")]}))
    async with (
        FakeSandbox(executor="scripted") as sandbox,
        serving(sandbox.url, "--tools", str(file)) as address,
        mcp.Client(address) as client,
    ):
        assert await call(client, '1  # sfusion:call=a prints="3"') == ("3", _ok(attempts=1), False)


async def test_faults_strike_the_same_calls_with_the_same_seed_before_any_sandbox(
    tmp_path: Path,
) -> None:
    rules = [{"probability": 0.5, "what": {"status": 503}}]
    codes = [f"# sfusion:call=c{number}" for number in range(16)]
    options = [*files(tmp_path, rules, max_attempts=1), "--seed", "7", "--executor", "scripted"]
    async with FakeSandbox(executor="scripted", faults=rules, seed=7) as fake:
        struck = [(await one(fake.server.port, run_code(code))).status == 503 for code in codes]
    assert 0 < sum(struck) < len(codes)
    async with FakeSandbox(executor="scripted") as sandbox:
        for where in ([], [sandbox.url]):
            async with serving(*where, *options) as address, mcp.Client(address) as client:
                assert [(await call(client, code))[2] for code in codes] == struck


def test_faults_before_several_sandboxes_are_refused(tmp_path: Path) -> None:
    """They would strike only one of them."""
    urls = ["http://127.0.0.1:1", "http://127.0.0.1:2"]
    options = files(tmp_path, [{"what": {"status": 503}}], sandbox_fusion_url=urls)
    done = subprocess.run(
        [str(warm("sfusion")), "serve", "mcp", "--stdio", *options],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode == 2
    assert "--faults needs one sandbox, and the tool config names several" in done.stderr


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_a_guard_answers_and_does_not_end_the_server(mode: Any) -> None:
    async with FakeSandbox(faults=[{"what": {"status": 503}}]) as sandbox:
        guard = {"window": 1, "min_calls": 1, "then": "fail"}
        config = entry(sandbox_fusion_url=sandbox.url, guard=guard, max_attempts=1)["config"]
        async with mcp.Client(code_server(SandboxFusionTool(config)), mode=mode) as client:
            for _ in range(2):
                text, facts, is_error = await call(client, "1")
                assert (facts["infrastructure"], is_error) == (True, True)
                assert "To find out why, run: sfusion doctor" in text


async def test_a_server_that_is_gone_is_an_infrastructure_failure(tmp_path: Path) -> None:
    async with serving(*files(tmp_path, []), "--executor", "scripted") as address:
        schema = SandboxFusionTool({"sandbox_fusion_url": "http://127.0.0.1:1"}).tool_schema
        tool = McpTool(
            {"type": "mcp", "server": address, "timeout": 20, "rate_limit": 1, "limiter": "local"},
            schema,
        )
        code = {"code": '1  # sfusion:call=a prints="3"'}
        assert (await tool.execute("i", code))[0].text == "3"
    for _ in range(2):
        response, reward, metrics = await tool.execute("i", code)
        assert metrics["outcome"] in ("unreachable", "sandbox_error")
        assert (metrics["infrastructure"], reward) == (True, None)
        assert response.text.startswith(f"[{NAME}] This is not output of a program")


def test_a_server_that_cannot_be_asked_is_an_error_of_the_config(tmp_path: Path) -> None:
    file = tmp_path / "mcp.yaml"
    one = {
        "class_name": "sfusion_tools.mcp_tool.McpTool",
        "config": {"type": "mcp", "server": "http://127.0.0.1:1/mcp"},
    }
    file.write_text(yaml.safe_dump({"tools": [one]}))
    with pytest.raises(
        ConfigError, match=r"mcp\.yaml:2.*the MCP server http://127.0.0.1:1/mcp cannot be asked"
    ):
        initialize_tools_from_config(file)
