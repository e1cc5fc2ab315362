"""Whatever is sent, the fake answers with a kind of answer that the real server gives."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from sfusion.fakes.sandbox import FakeSandbox
from tests.fakes.wire.raw import PATIENCE, PING

KINDS = {
    200: (b'{"status":', b'"pong"', b"<!doctype html>", b"[]", b'{"openapi":'),
    307: (b"",),
    400: (b'{"detail":"', b"Invalid HTTP request received."),
    403: (),  # a request for a web socket
    404: (b'{"detail":"Not Found"}',),
    405: (b'{"detail":"Method Not Allowed"}',),
    422: (b'{"detail":[{"type":"',),
    500: (b'{"detail":"', b'{"detail":'),
}


@pytest.fixture(scope="module")
def sandbox() -> Iterator[FakeSandbox]:
    with FakeSandbox() as fake:
        yield fake


def test_openapi_document_holds_for_every_route(sandbox: FakeSandbox) -> None:
    import schemathesis  # here, because it takes a second

    described = schemathesis.openapi.from_url(f"{sandbox.url}/openapi.json")
    operations = [found.ok() for found in described.get_all_operations()]
    assert {operation.path for operation in operations} >= {
        "/run_code",
        "/run_jupyter",
        "/v1/ping",
        "/submit",
    }
    for operation in operations:
        _holds(operation)


def _holds(operation: Any) -> None:
    from schemathesis.checks import not_a_server_error
    from schemathesis.specs.openapi.checks import (
        content_type_conformance,
        response_schema_conformance,
        status_code_conformance,
    )

    @settings(max_examples=12, suppress_health_check=list(HealthCheck))
    @given(operation.as_strategy())
    def check(case: Any) -> None:
        answer = case.call()
        # What UTF-8 or JSON cannot hold makes the real server fail, as described; nothing else may.
        if not _has_surrogate(case.body if isinstance(case.body, dict) else {}):
            case.validate_response(answer, checks=[not_a_server_error])
        case.validate_response(
            answer,
            checks=[status_code_conformance, content_type_conformance, response_schema_conformance],
        )

    check()


def _has_surrogate(value: Any) -> bool:
    return re.search(r"\\ud[89a-f]|NaN|Infinity", json.dumps(value), re.IGNORECASE) is not None


async def _exchange(port: int, data: bytes) -> bytes:
    """Send bytes, read the answer, then close our side and read the rest."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    got = b""
    try:
        writer.write(data)
        # Incomplete requests get no answer; the short timeout only saves time.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.05):
                got = await reader.read(65536)
        writer.write_eof()
        async with asyncio.timeout(PATIENCE):
            while more := await reader.read(65536):
                got += more
    except (ConnectionResetError, OSError):
        pass  # the server closed without reading all of it
    finally:
        writer.close()
    return got


def _check_kind(got: bytes) -> None:
    """Check that everything received is a sequence of answers of known kinds."""
    while got:
        head, _, rest = got.partition(b"\r\n\r\n")
        if head == b"HTTP/1.1 100 Continue":
            got = rest
            continue
        lines = head.split(b"\r\n")
        status = int(lines[0].split(b" ")[1])
        assert lines[1].startswith(b"date: ")
        assert lines[2] == b"server: uvicorn"
        assert all(name == name.lower() for name in (line.split(b":")[0] for line in lines[1:]))
        assert status in KINDS, got
        length = int(re.search(rb"content-length: (\d+)", head).group(1))  # type: ignore[union-attr] # asserted
        body, got = rest[:length], rest[length:]
        assert not body or body.startswith(KINDS[status]), body
        assert b"aiohttp" not in head + body


tokens = st.sampled_from(
    [
        b"GET",
        b"POST",
        b"HEAD",
        b"PUT",
        b"DELETE",
        b"OPTIONS",
        b"TRACE",
        b"FOO",
        b"",
        b"\x16\x03",
        b"get",
        b"CONNECT",
    ]
)
targets = st.sampled_from(
    [
        b"/run_code",
        b"/run_jupyter",
        b"/v1/ping",
        b"/",
        b"/run_code/",
        b"//",
        b"*",
        b"",
        b"/%ff",
        b"/\xff",
        b"http://h/",
        b"/submit",
        b"/list_datasets",
        b"/openapi.json",
        b"/run_code?x=%zz",
        b"/docs",
        b"x",
        b"/\x00",
        b"/a b",
    ]
)
headers = st.lists(
    st.sampled_from(
        [
            b"Host: localhost",
            b"host: [::1]:80",
            b"Content-Type: application/json",
            b"Content-Type: text/plain",
            b"Content-Length: 5",
            b"Content-Length: -1",
            b"Content-Length: x",
            b"Transfer-Encoding: chunked",
            b"Transfer-Encoding: gzip",
            b"Expect: 100-continue",
            b"Connection: close",
            b"Connection: upgrade",
            b"Upgrade: websocket",
            b"bad header",
            b"Content-Encoding: gzip",
            b"X: " + b"a" * 9000,
            b": x",
            b"\xff: \xff",
            b"X:\x00",
            b"Content-Encoding: br",
        ]
    ),
    max_size=5,
)
bodies = st.sampled_from(
    [
        b"",
        b"{}",
        b"null",
        b"hello",
        b"5\r\nhello\r\n0\r\n\r\n",
        b"zz\r\n",
        b'{"code":"x","language":"python"}',
        b"\xff\xfe",
    ]
)


@settings(max_examples=25, suppress_health_check=list(HealthCheck))
@given(
    tokens,
    targets,
    st.sampled_from([b"HTTP/1.1", b"HTTP/1.0", b"HTTP/2", b""]),
    headers,
    bodies,
    st.booleans(),
)
@example(
    b"GET", b"/run_code", b"HTTP/1.1", [b"Connection: upgrade", b"Upgrade: websocket"], b"", False
)
def test_http_of_any_shape_gets_an_answer_of_a_known_kind(
    sandbox: FakeSandbox,
    method: bytes,
    target: bytes,
    version: bytes,
    lines: list[bytes],
    body: bytes,
    again: bool,
) -> None:
    data = b"\r\n".join([b" ".join([method, target, version]), *lines, b"", body])
    _check_kind(asyncio.run(_exchange(sandbox.port, data + (PING if again else b""))))


@settings(max_examples=25, suppress_health_check=list(HealthCheck))
@given(st.binary(max_size=200))
def test_arbitrary_bytes_get_an_answer_of_a_known_kind(sandbox: FakeSandbox, data: bytes) -> None:
    _check_kind(asyncio.run(_exchange(sandbox.port, data)))
