"""Who may use the proxy, which upstreams it refuses, and which secrets it never shows."""

from __future__ import annotations

import base64
import json
import logging
from typing import Any

import pytest

from sfusion.fakes.proxy import BadUpstream, FaultProxy
from sfusion.fakes.sandbox import FakeSandbox, SandboxSetupError, UnsafeBindError
from tests.fakes.proxy.scripted_upstream import OK, always, scripted_upstream
from tests.fakes.wire.raw import PING, RawAnswer, Watch, get, one, post, run_code


async def ask(
    proxy: FaultProxy, method: str, route: str, body: str = "", **headers: str
) -> RawAnswer:
    assert proxy.token is not None
    headers = headers or {"x_sfusion_token": proxy.token}
    lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    return await one(
        proxy.port,
        post(f"/__sfusion/{route}", body.encode(), lines).replace(b"POST", method.encode(), 1),
    )


async def test_admin_routes_work_as_in_the_fake_and_are_never_forwarded() -> None:
    async with (
        FakeSandbox() as sandbox,
        FaultProxy(sandbox.url, model={"kind": "quota", "in_flight": 3}, seed=5) as proxy,
    ):
        state = (await ask(proxy, "GET", "state")).json
        assert state == {
            "url": proxy.url,
            "upstream": sandbox.url,
            "model": {"kind": "quota", "in_flight": 3},
            "seed": 5,
            "faults": [],
            "running": True,
            "wedged": False,
            "in_flight": 0,
            "executing": None,
        }
        rules = [{"name": "flaky", "first": 1, "what": {"status": 503}}]
        assert (await ask(proxy, "PUT", "faults", json.dumps(rules))).json["faults"][0][
            "name"
        ] == "flaky"
        assert [(await one(proxy.port, run_code())).status for _ in range(2)] == [503, 200]
        assert (await ask(proxy, "GET", "faults")).json["strikes"] == {"flaky": 1}
        assert (await ask(proxy, "PUT", "faults", "- {what: {stauts: 1}}")).status == 422
        assert (await ask(proxy, "POST", "reset")).status == 200
        assert (await one(proxy.port, run_code())).status == 503
        assert (await ask(proxy, "DELETE", "faults")).json["faults"] == []
        assert (await ask(proxy, "GET", "nowhere")).status == 404
        assert (await one(proxy.port, get("/__sfusion", proxy.token))).status == 404
        assert (await one(proxy.port, get("/%5f_sfusion/state", proxy.token))).json[
            "upstream"
        ] == sandbox.url
        assert sandbox.ledger.requests == 1, "only the one request that was not struck"


@pytest.mark.parametrize(
    "path", ["/../../admin", "/a/%2e%2E/../admin", "/..%2fadmin", "/%252e%252e/admin", "/..\\admin"]
)
async def test_no_path_leaves_the_prefix_of_the_upstream(path: str) -> None:
    seen: list[tuple[bytes, bytes]] = []
    async with (
        scripted_upstream(always(OK, seen)) as server,
        FaultProxy(f"http://u:p@127.0.0.1:{server.port}/sandbox/") as proxy,
    ):
        assert (await one(proxy.port, get(path))).status == 400
        assert not seen
        assert (await one(proxy.port, get("/a..b/..."))).status == 200


def test_forwarding_code_for_other_machines_needs_a_flag_and_a_token() -> None:
    for options in ({}, {"allow_remote": True}, {"token": "t"}):
        with pytest.raises(UnsafeBindError, match="would run code for anyone"):
            FaultProxy("http://127.0.0.1:8080", host="0.0.0.0", **options)


async def test_other_machines_need_the_token_and_it_is_not_forwarded() -> None:
    seen: list[tuple[bytes, bytes]] = []
    remote: dict[str, Any] = {"host": "0.0.0.0", "allow_remote": True, "token": "t0k-secret"}
    async with (
        scripted_upstream(always(OK, seen)) as server,
        FaultProxy(server.url, **remote) as proxy,
    ):
        assert (await one(proxy.port, run_code())).status == 401
        assert (await one(proxy.port, get("/v1/models"))).status == 401
        assert (await one(proxy.port, get("/__sfusion/state"))).status == 401
        assert seen == []
        assert (await one(proxy.port, PING)).status == 200
        basic = base64.b64encode(b"x:t0k-secret").decode()
        for header in (
            "x-sfusion-token: t0k-secret",
            "authorization: Bearer t0k-secret",
            f"authorization: Basic {basic}",
        ):
            assert (await one(proxy.port, post("/run_code", b"{}", header + "\r\n"))).status == 200
    sent = b"".join(head for head, _ in seen)
    assert b"authorization" not in sent.lower()
    assert b"t0k-secret" not in sent
    assert basic.encode() not in sent


async def test_authorization_header_of_the_client_is_forwarded_on_loopback() -> None:
    seen: list[tuple[bytes, bytes]] = []
    async with scripted_upstream(always(OK, seen)) as server, FaultProxy(server.url) as proxy:
        await one(proxy.port, post("/run_code", b"{}", "Authorization: Bearer mine\r\n"))
    assert b"Authorization: Bearer mine\r\n" in seen[0][0]


async def test_a_given_authorization_goes_before_the_user_of_the_url() -> None:
    seen: list[tuple[bytes, bytes]] = []
    given = {"Authorization": "Bearer given"}
    async with scripted_upstream(always(OK, seen)) as server:
        url = f"http://me:pass@127.0.0.1:{server.port}"
        async with FaultProxy(url, headers=given) as proxy:
            await one(proxy.port, post("/run_code", b"{}"))
    assert seen[0][0].lower().count(b"authorization:") == 1
    assert b"Authorization: Bearer given\r\n" in seen[0][0]


async def test_secrets_reach_only_the_upstream(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    seen: list[tuple[bytes, bytes]] = []
    lines: list[str] = []
    events = Watch()
    answers: list[bytes] = []
    async with scripted_upstream(always(OK, seen)) as server:
        url = f"http://me:p%40ss-secret@127.0.0.1:{server.port}/base-secret?key=key-secret"
        headers = {"X-Api-Key": "api-secret"}
        async with FaultProxy(
            url, headers=headers, journal=events.note, access_log=lines.append
        ) as proxy:
            request = post(
                "/run_code?q=query-secret",
                b"{}",
                "authorization: Bearer client-secret\r\nx-api-key: other\r\n",
            )
            answers.append((await one(proxy.port, request)).body)
            await one(proxy.port, post("/path-secret/run_code", b"{}"))
            assert lines.pop().endswith('"POST /path-secret/run_code" 200'), (
                "an access log is there to show paths"
            )
            answers.append((await ask(proxy, "GET", "state")).body)
            answers.append((await ask(proxy, "GET", "ledger")).body)
            shown = (
                f"{proxy.upstream} {proxy!r} {proxy.state()} "
                f"{vars(proxy.server.app)['forwarder'].upstream!r}"
            )
            proxy.upstream = url.replace(str(server.port), "1")
            failed = await one(proxy.port, request)
            assert failed.status == 502
            answers.append(failed.body)
    head = seen[0][0].decode()
    assert head.startswith("POST /base-secret/run_code?key=key-secret&q=query-secret HTTP/1.1\r\n")
    assert f"Authorization: Basic {base64.b64encode(b'me:p@ss-secret').decode()}\r\n" in head
    assert "X-Api-Key: api-secret\r\n" in head
    assert "client-secret" not in head, (
        "the server gets the credentials of the proxy, not those of the client"
    )
    assert "other" not in head
    everything = b"".join(answers).decode() + shown + str(events) + str(lines) + caplog.text
    assert "secret" not in everything
    assert base64.b64encode(b"me:p@ss-secret").decode() not in everything


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("", "found ''"),
        (None, "found None"),
        ("127.0.0.1:8080", "found"),
        ("ftp://host", "found 'ftp://host'"),
        ("http://", "found"),
        ("http://host:port", "is not a URL"),
        ("http://host:99999", "is not a URL"),
        ("http://u:secret@[::1", "is not a URL"),
        ("file:///etc/passwd", "found"),
    ],
)
def test_invalid_upstream_is_refused_with_a_clear_error(url: Any, sentence: str) -> None:
    with pytest.raises(BadUpstream) as caught:
        FaultProxy(url)
    assert sentence in str(caught.value)
    assert str(caught.value).startswith(
        "an upstream is the address of an HTTP server, such as http://127.0.0.1:8080"
    )
    assert "secret" not in str(caught.value)
    assert isinstance(caught.value, SandboxSetupError)


async def test_proxy_in_front_of_itself_is_refused() -> None:
    async with FaultProxy("http://127.0.0.1:1") as proxy:
        port = proxy.port
        for url in (proxy.url, f"http://localhost:{port}/x"):
            with pytest.raises(BadUpstream, match="is this proxy itself"):
                proxy.upstream = url
        assert proxy.upstream == "http://127.0.0.1:1", "a refused upstream changes nothing"
        proxy.upstream = f"http://127.0.0.2:{port}"  # another address may be another server
    with pytest.raises(BadUpstream, match="is this proxy itself"):
        FaultProxy(f"http://127.0.0.1:{port}", port=port)
    with pytest.raises(BadUpstream, match="is this proxy itself"):
        FaultProxy(
            f"http://127.0.0.1:{port}", host="0.0.0.0", port=port, allow_remote=True, token="t"
        )


@pytest.mark.parametrize(
    "model", [{"cores": 4}, {"kind": "quota", "in_flight": 2, "spawn_cost": "40ms"}]
)
def test_model_with_cores_or_spawn_cost_is_refused(model: Any) -> None:
    with pytest.raises(
        SandboxSetupError, match="cores and spawn_cost describe how a server runs programs"
    ):
        FaultProxy("http://127.0.0.1:1", model={"kind": "unbounded", **model})


def test_invalid_header_is_refused_without_showing_its_value() -> None:
    for headers in ({"X-A": "secret\r\nX-B: 1"}, {"": "secret"}, {"a:b": "secret"}):
        with pytest.raises(SandboxSetupError, match="cannot be sent") as caught:
            FaultProxy("http://127.0.0.1:1", headers=headers)
        assert "secret" not in str(caught.value)
