"""Findings about proxy variables: which clients they affect, and what follows."""

from __future__ import annotations

import os

import pytest
import requests.utils
from hypothesis import given, settings
from hypothesis import strategies as st

from sfusion.fakes.wire import Answer
from sfusion.harness.real.doctor.context import proxy_of_requests
from tests.harness.real.doctor.servers import (
    QUICK,
    SFUSION,
    VERL,
    always,
    answering,
    breaking,
    examined,
    forwarding,
    ids,
    scripted,
    seen,
    severity,
    until,
)

HELLO = until("run_code")
ELSEWHERE = "http://sandbox.invalid:8080/run_code"
"""A name that only a proxy could resolve."""


async def test_a_proxy_that_answers_instead_of_the_sandbox_breaks_training() -> None:
    page = Answer.text("<html>ERR_DNS_FAIL</html>", 503, "text/html")

    async def refuse(request: object) -> Answer:
        return page

    async with answering(refuse) as proxy:
        result = await examined(ELSEWHERE, environ={"http_proxy": proxy})
        assert ids(result) == {"proxy-catches"}
        assert breaking(result) == ["proxy-catches"]
        assert f"go through the proxy {proxy} of the environment: the ping returns 503" in seen(
            result, "proxy-catches"
        )
        assert "NO_PROXY" in result.findings[0].change


async def test_a_dead_proxy_breaks_training() -> None:
    result = await examined(ELSEWHERE, environ={"ALL_PROXY": "http://user:s3cr3t@127.0.0.1:1"})
    assert breaking(result) == ["proxy-catches"]
    assert "s3cr3t" not in str(result.findings)


async def test_a_required_proxy_is_only_a_note() -> None:
    async with scripted() as sandbox, forwarding(sandbox.url) as proxy:
        result = await examined(ELSEWHERE, environ={"HTTP_PROXY": proxy}, checks=HELLO)
        assert ids(result) == {"proxy-catches"}
        assert severity(result, "proxy-catches") == "note"
        assert sandbox.ledger.snapshot()["arrived"] >= 1, "the program went through the proxy"


async def test_no_proxy_exempts_a_sandbox() -> None:
    environ = {"HTTP_PROXY": "http://127.0.0.1:1", "NO_PROXY": "sandbox.invalid"}
    result = await examined(ELSEWHERE, environ=environ)
    assert ids(result) == {"unreachable"}


async def test_requests_library_proxies_loopback_but_our_client_does_not() -> None:
    environ = {"HTTP_PROXY": "http://127.0.0.1:1"}
    async with scripted() as sandbox:
        unknown = await examined(sandbox.url, environ=environ, checks=HELLO)
        assert ids(unknown) == {"proxy-catches"}
        assert severity(unknown, "proxy-catches") == "hurts"
        ours = await examined(sandbox.url, environ=environ, checks=HELLO, client=SFUSION)
        assert severity(ours, "proxy-catches") == "note"
        verl = await examined(sandbox.url, environ=environ, checks=HELLO, client=VERL)
        assert breaking(verl) == ["proxy-catches"]
        assert "without it: the sandbox answers" in seen(verl, "proxy-catches")
        exempt = await examined(
            sandbox.url, environ=environ | {"no_proxy": "127.0.0.1"}, checks=HELLO, client=VERL
        )
        assert ids(exempt) == set()


async def test_no_finding_without_proxy_variables() -> None:
    async with scripted() as sandbox:
        assert (
            ids(await examined(sandbox.url, QUICK, environ={"PATH": "/bin"}, checks=HELLO)) == set()
        )


async def test_a_proxy_that_wants_a_password_breaks_training(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with always(Answer.json({"detail": "log in"}, 407)) as proxy:
        # The ping passes: only programs need a password.
        result = await examined(ELSEWHERE, environ={"HTTP_PROXY": proxy}, checks=HELLO)
        assert breaking(result) == ["authentication"]
        assert "a proxy wants credentials" in result.findings[-1].training


HOSTS = (
    "127.0.0.1",
    "localhost",
    "10.1.2.3",
    "box.internal",
    "a.box.internal",
    "notbox.internal",
    "internal",
)
ENTRIES = (
    "127.0.0.1",
    "localhost",
    "10.0.0.0/8",
    "box.internal",
    ".internal",
    "*",
    "box.internal:8080",
    "10.1.2.3",
    "",
)


@settings(max_examples=25)
@given(
    host=st.sampled_from(HOSTS),
    entries=st.lists(st.sampled_from(ENTRIES), max_size=3),
    names=st.sets(st.sampled_from(["http_proxy", "HTTP_PROXY", "ALL_PROXY", "https_proxy"])),
)
def test_proxy_of_requests_matches_the_requests_library(
    host: str, entries: list[str], names: set[str]
) -> None:
    environ = {name: f"http://{name.lower().partition('_')[0]}.proxy:3128" for name in names}
    if entries:
        environ["NO_PROXY"] = ", ".join(entries)
    url = f"http://{host}:8080/run_code"
    kept = dict(os.environ)
    try:
        os.environ.clear()
        os.environ.update(environ)
        theirs = requests.utils.select_proxy(url, requests.utils.get_environ_proxies(url))
    finally:
        os.environ.clear()
        os.environ.update(kept)
    assert proxy_of_requests(url, environ) == theirs
