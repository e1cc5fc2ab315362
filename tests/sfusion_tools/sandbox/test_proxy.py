"""Proxy variables are used and logged, but never for loopback."""

from __future__ import annotations

import base64
import logging

import pytest

from sfusion_tools.outcome import Outcome
from sfusion_tools.sandbox import Program, RetryPolicy
from sfusion_tools.sandbox.endpoints import Address, is_usable, proxy_for
from sfusion_tools.sandbox.public_transport import route
from tests.ports import closed_port
from tests.sfusion_tools.sandbox.helpers import answering, client, http, in_virtual_time, run_answer

NOWHERE = "http://192.0.2.1:8080"
"""An address reserved for documentation: nothing answers there, and it needs no name lookup."""
PROXY = "http://proxy:3128"
VARIABLES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")


@pytest.fixture
def environment(monkeypatch):
    """Only the proxy variables that the test sets."""
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    return monkeypatch


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "127.9.9.9",
        "localhost",
        "localhost.",
        "box.localhost",
        "[::1]",
        "0.0.0.0",
        "[::ffff:127.0.0.1]",
    ],
)
def test_loopback_never_goes_through_a_proxy(host):
    assert (
        proxy_for(f"http://{host}:8080", dict.fromkeys(("HTTP_PROXY", "ALL_PROXY"), PROXY)) is None
    )


@pytest.mark.parametrize(
    ("url", "environ", "proxy"),
    [
        ("http://h", {}, None),
        ("http://h", {"http_proxy": PROXY}, PROXY),
        ("http://h", {"HTTP_PROXY": PROXY}, PROXY),
        ("http://h", {"HTTP_PROXY": "proxy:3128"}, PROXY),
        ("http://h", {"HTTPS_PROXY": PROXY}, None),
        ("https://h", {"HTTPS_PROXY": PROXY}, PROXY),
        ("https://h", {"ALL_PROXY": PROXY}, PROXY),
        ("http://h", {"HTTP_PROXY": " "}, None),
        ("http://10.1.2.3", {"HTTP_PROXY": PROXY}, PROXY),
    ],
)
def test_proxy_variable_matches_the_url_scheme(url, environ, proxy):
    assert proxy_for(url, environ) == proxy


@pytest.mark.parametrize(
    ("url", "no_proxy", "exempt"),
    [
        ("http://h.corp:8080", "h.corp", True),
        ("http://h.corp:8080", ".corp", True),
        ("http://h.corp:8080", "*.corp", True),
        ("http://h.corp:8080", "a, corp", True),
        ("http://h.corp:8080", "a corp", True),
        ("http://H.CORP:8080", "h.corp", True),
        ("http://h.corp:8080", "*", True),
        ("http://h.corp:8080", "h.corp:8080", True),
        ("http://h.corp:8080", "h.corp:9090", False),
        ("http://h.corp", "h.corp:80", True),
        ("https://h.corp", "h.corp:443", True),
        ("http://h.corp:8080", "orp", False),
        ("http://h.corp:8080", "", False),
        ("http://10.1.2.3:8080", "10.0.0.0/8", True),
        ("http://11.1.2.3:8080", "10.0.0.0/8", False),
    ],
)
def test_no_proxy_matches_hosts_suffixes_and_networks(url, no_proxy, exempt):
    """Networks count too: ignoring them sent calls through a proxy (THUDM/slime#1714)."""
    environ = {"HTTP_PROXY": PROXY, "HTTPS_PROXY": PROXY, "NO_PROXY": no_proxy}
    assert proxy_for(url, environ) == (None if exempt else PROXY)


@pytest.mark.parametrize("proxy", ["socks5://p:1080", "http://", "http://[::1", "http://p:99999"])
def test_unusable_proxies_are_recognised(proxy):
    assert not is_usable(proxy)
    assert is_usable(PROXY)


async def test_a_proxy_is_used_and_logged(environment, caplog):
    async with answering(http(run_answer("through\n"))) as (proxy, server):
        secret = proxy.replace("//", "//user:hunter2@")
        environment.setenv("http_proxy", secret)
        with caplog.at_level(logging.WARNING):
            sandbox = client("http://sandbox.internal:8080/run_code")
        result = await sandbox.run(Program("print(1)"))
    assert (result.outcome, result.stdout, result.proxy) == (Outcome.OK, "through\n", proxy)
    assert server.requests[0][0] == "POST http://sandbox.internal:8080/run_code HTTP/1.1"
    assert (
        f"requests to http://sandbox.internal:8080 go through the proxy {proxy} of the environment"
        in caplog.text
    )
    assert "hunter2" not in caplog.text


async def test_the_message_names_the_proxy_when_it_fails(environment):
    """THUDM/slime#1714: a 503 of the proxy looked like one of the sandbox."""
    async with answering(
        http("<html>no route</html>", "403 Forbidden", "content-type: text/html")
    ) as (proxy, _):
        environment.setenv("http_proxy", proxy)
        result = await client("http://sandbox.internal").run(Program("print(1)"))
    assert result.outcome is Outcome.BAD_RESPONSE
    assert f"(through the proxy {proxy})" in result.message


async def test_a_proxy_that_refuses_to_connect_means_that_nothing_ran(environment):
    async with answering(b"HTTP/1.1 503 Busy\r\ncontent-length: 0\r\n\r\n") as (proxy, server):
        environment.setenv("https_proxy", proxy)
        result = await client("https://sandbox.internal").run(Program("print(1)"))
    assert (result.outcome, result.possible_executions) == (Outcome.UNREACHABLE, 0)
    assert "the proxy answered 503" in result.message
    assert len(server.requests) == 6
    assert all(first.startswith("CONNECT sandbox.internal:443") for first, _, _ in server.requests)


async def test_a_tunnel_is_asked_for_by_us_and_the_login_of_the_proxy_stays_there(environment):
    """Inside of the tunnel, the sandbox would read it."""
    async with answering(b"HTTP/1.1 403 No\r\ncontent-length: 0\r\n\r\n") as (proxy, server):
        environment.setenv("https_proxy", proxy.replace("//", "//%C3%BCser:hunter2@"))
        await client("https://sandbox.internal/x", retry=RetryPolicy(max_attempts=1)).run(
            Program("print(1)")
        )
    (first, headers, _) = server.requests[0]
    assert first == "CONNECT sandbox.internal:443 HTTP/1.1"
    assert headers["user-agent"].startswith("sfusion/")
    login = "Basic " + base64.b64encode("üser:hunter2".encode()).decode()
    assert (headers["proxy-authorization"], headers["host"]) == (login, "sandbox.internal")
    _, inside, *_ = route(
        Address("https://sandbox.internal/x/run_code", "", "http://me:hunter2@proxy:3128")
    )
    assert "Proxy-Authorization" not in inside


async def test_connections_through_a_proxy_are_reused(environment):
    async with answering(http(run_answer())) as (proxy, server):
        environment.setenv("http_proxy", proxy.replace("//", "//me:hunter2@"))
        sandbox = client("http://sandbox.internal", headers={"Host": "other"})
        for _ in range(3):
            assert (await sandbox.run(Program("print(1)"))).outcome is Outcome.OK
    assert server.connections == 1


async def test_a_dead_proxy_is_unreachable(environment):
    environment.setenv("http_proxy", f"http://127.0.0.1:{closed_port()}")
    result = await client("http://sandbox.internal").run(Program("print(1)"))
    assert (result.outcome, result.possible_executions) == (Outcome.UNREACHABLE, 0)
    assert "through the proxy" in result.message


async def test_loopback_bypasses_the_proxy(environment, caplog):
    async with answering(http(run_answer("direct\n"))) as (url, _):
        environment.setenv("http_proxy", f"http://127.0.0.1:{closed_port()}")
        result = await client(url).run(Program("print(1)"))
    assert (result.stdout, result.proxy) == ("direct\n", None)
    assert not caplog.records


def test_an_unusable_proxy_is_logged_and_bypassed(environment, caplog):
    environment.setenv("all_proxy", "socks5://user:hunter2@127.0.0.1:1080")
    sandbox = client(NOWHERE, retry=RetryPolicy(max_attempts=1))
    assert "the proxy socks5://127.0.0.1:1080" in caplog.text
    assert "only HTTP proxies can be used" in caplog.text
    assert "hunter2" not in caplog.text
    result = in_virtual_time(lambda: sandbox.run(Program("print(1)")))
    assert (result.outcome, result.proxy, result.possible_executions) == (
        Outcome.UNREACHABLE,
        None,
        0,
    )


def test_trust_proxy_env_false_ignores_the_environment(environment):
    async def go() -> None:
        async with answering(http(run_answer())) as (proxy, server):
            environment.setenv("http_proxy", proxy)
            once = RetryPolicy(max_attempts=1)
            past = await client(NOWHERE, trust_proxy_env=False, retry=once).run(Program("print(1)"))
            assert (past.outcome, server.requests) == (Outcome.UNREACHABLE, [])
            through = await client(NOWHERE, retry=once).run(Program("print(1)"))
            assert (through.outcome, len(server.requests)) == (Outcome.OK, 1)

    in_virtual_time(go)
