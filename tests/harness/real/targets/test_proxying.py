"""The fault proxy in front of a sandbox uses HTTP proxies as the tool does."""

from __future__ import annotations

import urllib.request

import pytest

from sfusion.fakes.wire import Answer, FakeServer, Request, WireApp, WireServer
from sfusion.fakes.wire.access import Access
from sfusion.harness.real.targets.proxying import proxy_in_front_of


class Forward(FakeServer):
    """An HTTP proxy that answers for every server itself, and records the requests."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        super().__init__(WireServer(WireApp(self._answer), access=Access(allow_hosts=["*"])))

    async def _answer(self, request: Request) -> Answer:
        self.asked.append(request.target)
        return Answer.json("pong")


def ping(url: str) -> bytes:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(f"{url}/v1/ping") as answer:
        content: bytes = answer.read()
    return content


def only_proxy(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    """Set the environment's proxy, whatever the environment of the tests says."""
    for name in ("http_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    monkeypatch.setenv("HTTP_PROXY", url)


def test_the_environments_proxy_is_used_for_a_remote_sandbox(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with Forward() as forward:
        only_proxy(monkeypatch, forward.url)
        with proxy_in_front_of("http://sandbox.test:8080") as proxy:
            assert ping(proxy.url) == b'"pong"'
        assert forward.asked == ["http://sandbox.test:8080/v1/ping"]


def test_loopback_is_reached_without_a_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    with Forward() as forward, Forward() as sandbox:
        only_proxy(monkeypatch, forward.url)
        with proxy_in_front_of(sandbox.url) as proxy:
            assert ping(proxy.url) == b'"pong"'
        assert (forward.asked, sandbox.asked) == ([], ["/v1/ping"])
