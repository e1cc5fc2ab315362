"""Parsers of other people's bytes, each as a function of bytes that must not raise: for hypothesis
and for atheris.

A target returns how much it understood, which tests use to see that it does not refuse everything.
"""

from __future__ import annotations

import asyncio
import io
import json
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from sfusion.fakes.faults import FaultError, parse_rules
from sfusion.fakes.sandbox import FakeSandbox
from sfusion.harness.core.journal import Journal
from sfusion.harness.errors import HarnessError, JournalError
from sfusion.harness.lab.scenarios.reading import parse_scenarios
from sfusion.harness.lab.worlds.virtual_time import run_virtually
from sfusion_tools.errors import YamlError
from sfusion_tools.formats import Parsed, format_names, get_format
from sfusion_tools.marked_yaml import parse_marked

_TOOLS = [
    {
        "function": {
            "name": "code_interpreter",
            "parameters": {"type": "object", "properties": {"code": {}}},
        }
    }
]
_FILE = Path(tempfile.gettempdir()) / "sfusion-fuzzed-journal.ndjson"


def yaml_loader(data: bytes) -> int:
    """Any YAML, as a scenario file or tool config is read."""
    text = data.decode(errors="surrogateescape")
    try:
        marked = parse_marked(text, "fuzzed")
    except YamlError:
        return 0
    return 1 + len(marked.places)


def scenario_reader(data: bytes) -> int:
    """A scenario file: every refusal names a line."""
    try:
        cells = parse_scenarios(data.decode(errors="replace"), file="fuzzed")
    except HarnessError as error:
        where = str(error)
    else:
        return len(cells)
    assert where.startswith("fuzzed:"), where
    return 0


def fault_rules(data: bytes) -> int:
    try:
        return 1 + len(parse_rules(data.decode(errors="replace")))
    except FaultError:
        return 0


def journal_reader(data: bytes, file: Path = _FILE) -> int:
    """A journal: what was read can be written and is read again as it was."""
    file.write_bytes(data)
    try:
        journal = Journal.read(file)
    except JournalError:
        return 0
    again = io.StringIO("".join(journal.lines())).getvalue()
    file.write_text(again, encoding="utf-8")
    assert Journal.read(file).digest() == journal.digest()
    return 1 + len(journal.events)


def tool_calls(data: bytes) -> int:
    """The output of a model in every format, whole and in pieces: the first byte says where it
    is cut."""
    step, text = (data[0] % 7 + 1 if data else 1), data[1:].decode(errors="replace")
    found = 0
    for name in format_names():
        form = get_format(name)
        whole = form.parse(text, _TOOLS)
        stream = form.stream(_TOOLS)
        deltas = [
            d for at in range(0, len(text), step) for d in stream.feed(text[at : at + step])
        ] + stream.finish()
        pieces = Parsed.of(deltas)
        assert [(one.name, one.arguments) for one in pieces.calls] == [
            (one.name, one.arguments) for one in whole.calls
        ]
        json.dumps([one.arguments for one in whole.calls])
        found += len(whole.calls)
    return found


def http_requests(data: bytes) -> int:
    """Bytes on a connection to the fake sandbox: it answers or closes, and serves the next
    client."""
    return run_virtually(_requests(data))


async def _requests(data: bytes) -> int:
    async with FakeSandbox() as sandbox:
        answer = await _exchange(sandbox.port, data)
        ping = await _exchange(
            sandbox.port, b"GET /v1/ping HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        )
        assert ping.startswith(b"HTTP/1.1 200 "), ping[:80]
    assert answer == b"" or answer.startswith(b"HTTP/1.1 "), answer[:80]
    return answer.count(b"HTTP/1.1 ")


async def _exchange(port: int, data: bytes) -> bytes:
    """Send bytes and return what comes back; a server that waits for more is given up after a
    virtual minute."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    answer = b""
    with suppress(ConnectionError, TimeoutError):
        writer.write(data)
        async with asyncio.timeout(60):
            while piece := await reader.read(65536):
                answer += piece
    writer.close()
    return answer


TARGETS: dict[str, Callable[[bytes], int]] = {
    one.__name__: one
    for one in (
        yaml_loader,
        scenario_reader,
        fault_rules,
        journal_reader,
        tool_calls,
        http_requests,
    )
}
