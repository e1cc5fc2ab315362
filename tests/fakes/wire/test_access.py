"""Who may use a server: no web page, no name that leads here by DNS, and where it is needed only
with the token."""

from __future__ import annotations

import base64
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from sfusion.fakes.errors import UnsafeBindError
from sfusion.fakes.proxy import FaultProxy
from sfusion.fakes.sandbox import FakeSandbox
from sfusion.fakes.sglang import FakeSGLangServer
from sfusion.fakes.wire import FakeServer
from tests.fakes.proxy.scripted_upstream import OK, always, scripted_upstream
from tests.fakes.sandbox.runner import Runner
from tests.fakes.wire.raw import Raw, RawAnswer, one, run_code

Opened = Callable[..., Any]


@asynccontextmanager
async def proxied(**options: Any) -> AsyncIterator[FaultProxy]:
    async with (
        scripted_upstream(always(OK, [])) as server,
        FaultProxy(server.url, **options) as proxy,
    ):
        yield proxy


SERVERS: dict[str, tuple[Opened, str]] = {
    "sandbox": (FakeSandbox, "/run_code"),
    "sglang": (FakeSGLangServer, "/generate"),
    "proxy": (proxied, "/run_code"),
}


async def ask(
    served: FakeServer, method: str, path: str, *lines: str, body: bytes = b""
) -> RawAnswer:
    """Send a request with exactly these header lines and a length."""
    head = [f"{method} {path} HTTP/1.1", *lines, f"content-length: {len(body)}", "", ""]
    return await one(served.port, "\r\n".join(head).encode() + body)


@pytest.mark.parametrize("name", SERVERS)
async def test_web_pages_of_other_origins_are_refused_on_every_path(name: str) -> None:
    opened, work = SERVERS[name]
    async with opened() as served:
        here = f"host: 127.0.0.1:{served.port}"
        for origin in (
            "https://evil.example",
            "null",
            f"http://evil.example:{served.port}",
            "http://127.0.0.1:1",
            "",
        ):
            for method, path in (
                ("POST", work),
                ("POST", "/__sfusion/reset"),
                ("OPTIONS", work),
                ("GET", "/nowhere"),
            ):
                answer = await ask(
                    served, method, path, here, f"origin: {origin}", "content-type: text/plain"
                )
                assert (answer.status, "--allow-origin" in answer.json["detail"]) == (403, True), (
                    origin,
                    path,
                )
        image = await ask(served, "GET", "/flush_cache", here, "sec-fetch-site: cross-site")
        assert image.status == 403, (
            "browsers name no Origin for an image, but they say that it is foreign"
        )
        assert served.ledger.arrived == 0
        for name in ("127.0.0.1", "localhost"):
            answer = await ask(
                served, "GET", "/v1/ping", here, f"origin: http://{name}:{served.port}"
            )
            assert answer.status != 403, "its own pages, by any of its names"


@pytest.mark.parametrize("name", SERVERS)
async def test_names_that_are_not_this_machines_are_refused_on_every_path(name: str) -> None:
    """DNS rebinding: the page's own name leads to 127.0.0.1, so the browser takes the answers for
    the page's."""
    opened, work = SERVERS[name]
    async with opened() as served:
        for host in (
            "evil.example",
            f"evil.example:{served.port}",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "sandbox",
        ):
            for method, path in (
                ("POST", work),
                ("PUT", "/__sfusion/faults"),
                ("GET", "/__sfusion/state"),
                ("GET", "/v1/ping"),
            ):
                answer = await ask(served, method, path, f"host: {host}", f"origin: http://{host}")
                assert (answer.status, "--allow-host" in answer.json["detail"]) == (403, True), (
                    host,
                    path,
                )
        assert served.ledger.arrived == 0


@pytest.mark.parametrize(
    "host",
    [
        "",
        "127.0.0.1",
        "localhost",
        "LocalHost.",
        "a.localhost",
        "127.8.9.10",
        "[::1]",
        "0.0.0.0",
        socket.gethostname(),
    ],
)
async def test_names_of_this_machine_are_accepted_with_any_port(host: str) -> None:
    async with FakeSandbox(executor="scripted") as sandbox, Raw(sandbox.port) as raw:
        for port in ("", f":{sandbox.port}", ":9000") if host else ("",):
            request = run_code().replace(b"host: localhost", f"host: {host}{port}".encode())
            assert (await raw.ask(request)).status == 200, "a port may be forwarded to another one"


async def test_a_server_for_other_machines_is_reached_by_addresses_and_local_names() -> None:
    async with FakeSandbox(host="0.0.0.0") as sandbox:
        for host in (
            "192.0.2.7:8080",
            "[2001:db8::1]:80",
            "sandbox:8080",
            "box.default.svc.cluster.local",
            "a.internal",
        ):
            assert (await ask(sandbox, "GET", "/v1/ping", f"host: {host}")).status == 200, host
        for host in ("sandbox.example", "evil.local.example", "evil.example:80:80"):
            assert (await ask(sandbox, "GET", "/v1/ping", f"host: {host}")).status == 403, host
        token = f"x-sfusion-token: {sandbox.token}"
        answer = await ask(sandbox, "GET", "/v1/ping", "host: sandbox.example", token)
        assert answer.status == 200, "a page that leads here by DNS does not know the token"


async def test_hosts_and_origins_can_be_allowed() -> None:
    options = {
        "allow_hosts": ["box.example", "*.corp.example"],
        "allow_origins": ["https://app.example"],
    }
    async with FakeSandbox(**options) as sandbox:
        here = f"host: 127.0.0.1:{sandbox.port}"
        for lines in (
            ["host: Box.example:80"],
            ["host: a.corp.example"],
            ["host: box.example:80", "origin: http://box.example:80"],
            [here, "origin: https://app.example"],
        ):
            assert (await ask(sandbox, "GET", "/v1/ping", *lines)).status == 200, lines
        for lines in (
            ["host: corp.example"],
            ["host: box.example", "origin: http://a.corp.example"],
            [here, "origin: https://app.example:444"],
        ):
            assert (await ask(sandbox, "GET", "/v1/ping", *lines)).status == 403, lines
    async with FakeSandbox(allow_hosts=["*"], allow_origins=["*"]) as sandbox:
        assert (await ask(sandbox, "GET", "/v1/ping", "host: x y", "origin: null")).status == 200


@pytest.mark.parametrize("version", [b"", b" HTTP/1.0", b" HTTP/1.1"])
async def test_admin_routes_need_a_host_or_the_token(version: bytes) -> None:
    async with FakeSandbox() as sandbox:
        answer = await one(sandbox.port, b"GET /__sfusion/state" + version + b"\r\n\r\n")
        assert answer.status in (400, 403)
        assert b"running" not in answer.body
    async with FakeSandbox(token="t") as sandbox:
        assert (
            await one(sandbox.port, b"GET /__sfusion/state HTTP/1.0\r\nx-sfusion-token: t\r\n\r\n")
        ).status == 200


async def test_a_refused_request_leaves_the_connection_usable() -> None:
    async with FakeSandbox(executor="scripted") as sandbox, Raw(sandbox.port) as raw:
        refused = await raw.ask(run_code().replace(b"host: localhost", b"host: evil.example"))
        assert (refused.status, (await raw.ask(run_code())).status) == (403, 200)
        assert sandbox.ledger.answers == {
            ("POST", "/run_code", 403): 1,
            ("POST", "/run_code", 200): 1,
        }


@pytest.mark.parametrize(
    "opened", [lambda: FakeSandbox(executor=Runner()), proxied], ids=["sandbox", "proxy"]
)
async def test_admin_routes_need_a_token_where_code_can_run(opened: Opened) -> None:
    """The programs can reach the server that runs them."""
    async with opened() as served:
        assert served.token
        for method, route in (
            ("GET", "state"),
            ("PUT", "faults"),
            ("POST", "reset"),
            ("GET", "metrics"),
        ):
            answer = await ask(served, method, f"/__sfusion/{route}")
            assert answer.status == 401
            assert served.token not in (answer.head + answer.body).decode()
            answer = await ask(
                served,
                method,
                f"/__sfusion/{route}",
                f"x-sfusion-token: {served.token}",
                body=b"[]",
            )
            assert answer.status == 200
        assert (await one(served.port, run_code())).status == 200, "work needs no token on loopback"


@pytest.mark.parametrize("name", SERVERS)
async def test_a_token_can_guard_everything_but_the_ping(name: str) -> None:
    opened, work = SERVERS[name]
    async with opened(token="t0k", require_token=True) as served:
        basic = base64.b64encode(b"x:t0k").decode()
        for lines in (
            (),
            ("authorization: Bearer wrong",),
            ("authorization: Basic ???",),
            ("x-sfusion-token: t0",),
        ):
            assert (await ask(served, "POST", work, *lines)).status == 401
            assert (await ask(served, "GET", "/__sfusion/state", *lines)).status == 401
        for line in (
            "authorization: Bearer t0k",
            "Authorization: bearer  t0k ",
            f"authorization: Basic {basic}",
            "x-sfusion-token: t0k",
        ):
            assert (await ask(served, "POST", work, line, body=b"{}")).status != 401
            assert (await ask(served, "GET", "/__sfusion/state", line)).status == 200
        both = await ask(
            served,
            "GET",
            "/__sfusion/state",
            "authorization: Bearer theirs",
            "x-sfusion-token: t0k",
        )
        assert both.status == 200, "the Authorization may be meant for the server behind a proxy"
        assert (
            await ask(served, "GET", "/health" if name == "sglang" else "/v1/ping")
        ).status == 200


async def test_the_token_in_an_authorization_is_not_forwarded_but_others_are() -> None:
    seen: list[tuple[bytes, bytes]] = []
    async with (
        scripted_upstream(always(OK, seen)) as server,
        FaultProxy(server.url, token="t0k", require_token=True) as proxy,
    ):
        await ask(proxy, "POST", "/run_code", "authorization: Bearer t0k")
        await ask(
            proxy, "POST", "/run_code", "authorization: Bearer theirs", "x-sfusion-token: t0k"
        )
    assert [b"authorization" in head.lower() for head, _ in seen] == [False, True]
    assert b"t0k" not in seen[0][0] + seen[1][0]


def test_an_engine_for_other_machines_needs_to_be_asked_for() -> None:
    with pytest.raises(UnsafeBindError, match="--allow-remote"):
        FakeSGLangServer(host="0.0.0.0")
    assert FakeSGLangServer(host="0.0.0.0", allow_remote=True).token, "its admin routes need one"
