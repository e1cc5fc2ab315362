"""Both transports send and read what a session of aiohttp does, and no answer reaches a request
that it is not for."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import socket
import ssl
import sys
from contextlib import suppress
from functools import partialmethod
from typing import Any

import aiohttp
import pytest
import trustme
from aiohttp.client_proto import ResponseHandler

from sfusion_tools.errors import ConfigError
from sfusion_tools.outcome import Outcome
from sfusion_tools.runtime import runtime
from sfusion_tools.sandbox import Program, RetryPolicy, fast_transport
from sfusion_tools.sandbox.answer import TransportError
from sfusion_tools.sandbox.endpoints import Address
from sfusion_tools.sandbox.fast_transport import FastTransport
from sfusion_tools.sandbox.public_transport import PublicTransport, _Sockets, our_error
from sfusion_tools.sandbox.transport_choice import SWITCH, _fast_transport, chosen_transport
from tests.cases import every
from tests.sfusion_tools.sandbox.helpers import (
    RawServer,
    answering,
    client,
    http,
    in_virtual_time,
    run_answer,
    until,
)
from tests.sfusion_tools.sandbox.test_client_outcomes import BROKEN

ONCE = RetryPolicy(max_attempts=1)
PROGRAM, LARGE = Program("print(3)"), Program("#" * 2**25)
TIMEOUT = aiohttp.ClientTimeout(total=None, sock_connect=5)
MOST = 2**24


@pytest.fixture(autouse=True, params=["public", "fast"])
def transport(request, monkeypatch):
    """Every test of this module runs on both."""
    monkeypatch.setenv(SWITCH, request.param)
    return chosen_transport()


def address(
    url: str, proxy: str | None = None, headers: tuple[tuple[str, str], ...] = ()
) -> Address:
    return Address(url, "the sandbox", proxy, headers)


def _facts(error: TransportError) -> Any:
    return str(error), error.outcome, error.may_have_run, error.transient


async def ours(where: Address, body: bytes = b"{}") -> Any:
    """Return status, headers and body of an answer, or the error instead of it."""
    transport = chosen_transport()(runtime.scope().loop)
    try:
        received = await transport.send(where, body, 30.0, MOST)
        return received.status, received.headers, received.body
    except TransportError as error:
        return _facts(error)
    finally:
        await transport.aclose()


async def aiohttps(where: Address, body: bytes = b"{}") -> Any:
    """The same by aiohttp's session."""
    session = aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar())
    try:
        headers = {"Content-Type": "application/json", **dict(where.headers)}
        async with session.post(
            where.url,
            data=body,
            headers=headers,
            proxy=where.proxy,
            allow_redirects=False,
            timeout=TIMEOUT,
        ) as answer:
            return answer.status, answer.headers, await answer.read()
    except (aiohttp.ClientError, OSError, ValueError) as error:
        return _facts(our_error(error, where, 30.0, 10.0))
    finally:
        await session.close()


INTERIM = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n"
CHUNKED = b"transfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\nx: y\r\n\r\n"
ANSWERS = {
    **{name: answer for name, (answer, _, _) in BROKEN.items()},
    "interim answers": INTERIM + http("{}"),
    "nothing but interim answers": INTERIM,
    "chunks": b"HTTP/1.1 200 OK\r\n" + CHUNKED,
    "HTTP/1.0": b"HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\n{}",
    "no content": b"HTTP/1.1 204 No Content\r\n\r\n",
    "two lengths": b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\n{}",
    "length and chunks": b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n" + CHUNKED,
    "longer than it says": http("{} and more", length=2),
    "a header twice": http("{}", "200 OK", "x: 1", "X: 2"),
    "a folded header": http("{}", "200 OK", "x: 1\r\n 2"),
    "no reason": b"HTTP/1.1 200\r\ncontent-length: 2\r\n\r\n{}",
}


@every(ANSWERS, str)
async def test_an_answer_is_read_as_by_a_session_of_aiohttp(name):
    async def serve(writer: asyncio.StreamWriter, number: int) -> None:
        answer = ANSWERS[name]
        if isinstance(answer, bytes):
            writer.write(answer)
            await writer.drain()
        raise EOFError

    async with RawServer(serve).running() as url:
        where = address(f"{url}/run_code")
        assert await ours(where) == await aiohttps(where)


@pytest.mark.parametrize("proxied", [False, True])
@pytest.mark.parametrize("login", ["", "us%20er:p%40ss@", "user@"])
async def test_a_request_is_the_one_of_a_session_of_aiohttp(login, proxied):
    headers = (
        ("User-Agent", "x"),
        ("accept-encoding", "identity"),
        ("X-Team", "ü"),
        ("Host", "other"),
    )
    async with answering(http("{}")) as (url, server):
        target = url.replace("//", f"//{login}") + "/a%20b/run_code?t=%2F&t=ü#part"
        proxy = None
        if proxied:
            target, proxy = (
                f"http://{login}sandbox.internal:81/run_code?t=1#part",
                url.replace("//", "//me:secret@"),
            )
        where = address(target, proxy, headers)
        await ours(where, b"body")
        await aiohttps(where, b"body")
    assert server.requests[0] == server.requests[1]


@pytest.mark.parametrize("text", ["a\r\nX-Other: b", "\0", "\x1b[31m", "\x7f"])
async def test_a_request_with_a_control_character_in_a_header_is_not_sent(text):
    async with answering(http(run_answer())) as (url, server):
        result = await client(url, headers={"X-Team": text}, retry=ONCE).run(PROGRAM)
    assert (result.outcome, server.requests) == (Outcome.BAD_RESPONSE, [])
    assert "a header contains a control character" in result.message


async def test_a_request_has_one_login():
    async with answering(http(run_answer())) as (url, server):
        both = client(
            url.replace("//", "//me:secret@"), headers={"authorization": "Bearer x"}, retry=ONCE
        )
        result = await both.run(PROGRAM)
    assert (result.outcome, server.requests) == (Outcome.BAD_RESPONSE, [])
    assert "the address contains a login and the headers an Authorization" in result.message


async def test_of_two_spellings_of_a_header_the_last_counts():
    received: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        received.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(http(run_answer()))
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        await client(url, headers={"X-Team": "1", "x-team": "2"}).run(PROGRAM)
    assert [line for line in received[0].split(b"\r\n") if b"eam" in line] in (
        [b"X-Team: 2"],
        [b"x-team: 2"],
    )


async def test_how_long_a_body_is_no_configured_header_says():
    async with answering(http(run_answer())) as (url, server):
        headers = {"Content-Length": "1", "Transfer-Encoding": "chunked"}
        result = await client(url, headers=headers).run(PROGRAM)
    assert result.outcome is Outcome.OK
    assert server.requests[0][1]["content-length"] == str(len(PROGRAM.body()))
    assert "transfer-encoding" not in server.requests[0][1]


async def test_clients_share_connections_and_each_sends_its_own_headers():
    """More clients than a transport remembers heads of requests."""
    async with answering(http(run_answer())) as (url, server):
        clients = [client(url, headers={"X-Team": str(number)}) for number in range(100)]
        for one in clients * 2:
            await one.run(PROGRAM)
    assert [headers["x-team"] for _, headers, _ in server.requests] == [*map(str, range(100))] * 2
    assert server.connections == 1


@pytest.mark.parametrize("seen", [True, False], ids=["read by the loop", "still in the kernel"])
async def test_an_answer_that_nobody_waits_for_is_not_taken_for_that_to_the_next_request(
    seen, monkeypatch
):
    """A server or a gateway that answers twice would shift all answers of a connection by one."""
    received: list[bytes] = []
    real = ResponseHandler.data_received

    def receive(self: ResponseHandler, data: bytes) -> None:
        real(self, data)
        if data:
            received.append(data)

    monkeypatch.setattr(ResponseHandler, "data_received", receive)
    open_ends: list[asyncio.StreamWriter] = []

    async def serve(writer: asyncio.StreamWriter, number: int) -> None:
        writer.write(http(run_answer(f"{number}\n")))
        open_ends.append(writer)

    async with RawServer(serve).running() as url:
        sandbox = client(url)
        first = await sandbox.run(PROGRAM)
        open_ends[0].write(http(run_answer("not yours\n")))
        if seen:
            await until(lambda: len(received) == 2)
        second = await sandbox.run(PROGRAM)
    assert (first.stdout, second.stdout) == ("1\n", "2\n")
    assert len(received) == (3 if seen else 2)


async def test_a_server_that_speaks_first_is_no_sandbox():
    """What it says is read as its answer, and nobody connects again and again."""
    connections = 0

    async def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        writer.write(b"220 mail.example.org ESMTP\r\n")
        writer.close()

    async with await asyncio.start_server(greet, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        result = await client(url, retry=ONCE).run(PROGRAM)
    assert not result.outcome.is_from_program
    assert connections == 1


@pytest.fixture
def tls_everywhere(monkeypatch):
    """A server's context; clients trust its authority."""
    authority = trustme.CA()
    of_server, of_client = (
        ssl.create_default_context(ssl.Purpose.CLIENT_AUTH),
        ssl.create_default_context(),
    )
    authority.issue_cert("127.0.0.1").configure_cert(of_server)
    authority.configure_trust(of_client)
    real = aiohttp.TCPConnector.__init__
    monkeypatch.setattr(aiohttp.TCPConnector, "__init__", partialmethod(real, ssl=of_client))
    return of_server


@pytest.mark.parametrize("sandbox_is", ["silent", "sending no more", "under TLS"])
def test_what_was_not_sent_when_time_was_up_is_never_sent(sandbox_is, tls_everywhere):
    """A connection that is closed stays open until all is sent; a sandbox that hangs would collect
    them."""

    async def go() -> tuple[Outcome, int]:
        received = asyncio.get_running_loop().create_future()

        async def read_late(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            if sandbox_is == "sending no more":
                writer.write_eof()
            await over.wait()
            count = 0
            with suppress(ConnectionResetError):
                while data := await reader.read(2**20):
                    count += len(data)
            writer.close()
            received.set_result(count)

        over, tls = asyncio.Event(), sandbox_is == "under TLS"
        async with await asyncio.start_server(
            read_late, "127.0.0.1", 0, limit=2**10, ssl=tls_everywhere if tls else None
        ) as server:
            sandbox = client(
                f"http{'s' * tls}://127.0.0.1:{server.sockets[0].getsockname()[1]}", retry=ONCE
            )
            result = await sandbox.run(LARGE)
            over.set()
            return result.outcome, await received

    outcome, received = in_virtual_time(go)
    assert outcome in (Outcome.TRANSPORT_TIMEOUT, Outcome.UNREACHABLE)
    assert 0 < received < len(LARGE.code)


def test_a_loop_may_be_closed_in_the_middle_of_an_upload(transport, monkeypatch):
    raised: list[type[BaseException]] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda found: raised.append(found.exc_type))

    async def upload_begun() -> socket.socket:
        accepted, _ = await asyncio.get_running_loop().sock_accept(listener)
        await asyncio.get_running_loop().sock_recv(accepted, 1)
        return accepted

    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        sandbox = client(f"http://127.0.0.1:{listener.getsockname()[1]}", retry=ONCE)
        loop = asyncio.new_event_loop()
        loop.create_task(sandbox.run(LARGE))  # noqa: RUF006 # nobody ends it
        with loop.run_until_complete(upload_begun()):
            loop.close()
            del loop
            gc.collect()
    not_ours: set[type[BaseException]] = {ResourceWarning}  # asyncio's
    if transport is PublicTransport:
        not_ours.add(
            RuntimeError
        )  # aiohttp's task that sends the body closes its connection in a closed loop
    assert set(raised) <= not_ours


@pytest.mark.parametrize("tls", [False, True])
def test_a_connection_on_which_part_of_a_request_is_still_to_be_sent_is_not_used_again(
    tls, tls_everywhere
):
    async def go() -> list[Outcome]:
        async def answer_early(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            # It reads no more than the head, and the kernel has no room for the rest.
            await reader.readuntil(b"\r\n\r\n")
            open_ends.append(writer)
            refused = (
                tls and len(open_ends) == 1
            )  # under TLS nobody knows what is unsent; a refusal is suspicious
            writer.write(http("", "413 Too Large") if refused else http(run_answer()))

        open_ends: list[asyncio.StreamWriter] = []
        async with await asyncio.start_server(
            answer_early, "127.0.0.1", 0, ssl=tls_everywhere if tls else None
        ) as server:
            sandbox = client(
                f"http{'s' * tls}://127.0.0.1:{server.sockets[0].getsockname()[1]}", retry=ONCE
            )
            results = [await sandbox.run(LARGE), await sandbox.run(PROGRAM)]
            for writer in open_ends:
                writer.close()
        return [result.outcome for result in results]

    assert in_virtual_time(go) == [Outcome.BAD_RESPONSE if tls else Outcome.OK, Outcome.OK]


@pytest.mark.parametrize("tls", [False, True])
async def test_a_connection_on_which_a_large_request_was_sent_is_used_again(tls, tls_everywhere):
    answer = (
        http(run_answer()) if tls else http("", "413 Too Large")
    )  # refused or not, where it is known to be sent
    connections = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        with suppress(asyncio.IncompleteReadError):
            while head := await reader.readuntil(b"\r\n\r\n"):
                await reader.readexactly(int(head.rpartition(b"Content-Length: ")[2]))
                writer.write(answer)
        writer.close()

    async with await asyncio.start_server(
        serve, "127.0.0.1", 0, ssl=tls_everywhere if tls else None
    ) as server:
        sandbox = client(
            f"http{'s' * tls}://127.0.0.1:{server.sockets[0].getsockname()[1]}", retry=ONCE
        )
        for _ in range(3):
            result = await sandbox.run(Program("#" * 200_000))
            assert result.outcome is (Outcome.OK if tls else Outcome.BAD_RESPONSE)
        await sandbox.aclose()
    assert connections == 1


def test_a_descriptor_that_became_another_file_is_not_closed(tmp_path):
    """uvloop closes the descriptor of a socket that it was given."""
    sockets = _Sockets()
    taken, ours = (
        sockets((socket.AF_INET, socket.SOCK_STREAM, 0)),
        sockets((socket.AF_INET, socket.SOCK_STREAM, 0)),
    )
    number = taken.fileno()
    with (tmp_path / "file").open("wb") as file:
        os.dup2(file.fileno(), number)
        sockets.close()
        os.write(number, b"still open")
        os.close(number)
    assert (taken.fileno(), ours.fileno()) == (-1, -1)


def test_the_fast_transport_is_the_default_where_it_was_tested(monkeypatch):
    monkeypatch.delenv(SWITCH)
    if untested := fast_transport.untested():
        pytest.skip(untested)
    assert fast_transport.missing() == ""
    assert chosen_transport() is FastTransport


@pytest.fixture
def undecided(monkeypatch):
    """Nothing is forced, and nothing was found out yet."""
    monkeypatch.delenv(SWITCH)
    _fast_transport.cache_clear()
    yield
    _fast_transport.cache_clear()


@pytest.mark.parametrize("version", ["3.14.0", "3.14.99", "3.15.0", "4.0.0a1", "3.14.2rc1"])
def test_with_another_version_of_aiohttp_the_fast_transport_steps_aside_unless_it_is_forced(
    version, undecided, monkeypatch, caplog
):
    monkeypatch.setattr(aiohttp, "__version__", version)
    with caplog.at_level(logging.INFO):
        assert chosen_transport() is chosen_transport() is PublicTransport
    assert caplog.text.count(f"tested with aiohttp 3.14.1 to 3.14.5, and this is {version}") == 1
    monkeypatch.setenv(SWITCH, "fast")
    assert chosen_transport() is FastTransport


def _renamed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(ResponseHandler, "set_response_params")


def _other_parameters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ResponseHandler, "set_response_params", lambda self, *, until_eof: None)


def _module_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sfusion_tools.sandbox.fast_transport", None)


@pytest.mark.parametrize("hide", [_renamed, _other_parameters, _module_gone])
def test_without_the_names_it_needs_the_fast_transport_steps_aside(hide, undecided, monkeypatch):
    hide(monkeypatch)
    assert chosen_transport() is PublicTransport
    monkeypatch.setenv(SWITCH, "fast")
    with pytest.raises(ConfigError, match=r"SFUSION_TRANSPORT is fast, but .+"):
        chosen_transport()


def test_a_transport_that_does_not_exist_is_refused(monkeypatch):
    monkeypatch.setenv(SWITCH, "quick")
    with pytest.raises(ConfigError, match="must be public, fast or not set; found 'quick'"):
        client("http://127.0.0.1")
