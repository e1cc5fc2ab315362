"""Addresses as sandboxes: checked, shared, and never killed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sfusion.fakes.sandbox import FakeSandbox
from sfusion.harness.real.targets import (
    BadTarget,
    FakeTarget,
    MissingTarget,
    UrlTarget,
    open_targets,
)
from tests.ports import closed_port


@pytest.fixture(scope="module")
def running() -> Iterator[FakeSandbox]:
    with FakeSandbox() as sandbox:
        yield sandbox


def test_an_address_that_answers_is_opened(running: FakeSandbox) -> None:
    with open_targets([UrlTarget(running.url)]) as (sandbox,):
        assert (sandbox.url, sandbox.name, sandbox.killable) == (running.url, running.url, False)


def test_any_http_answer_counts_as_one(running: FakeSandbox) -> None:
    with open_targets([UrlTarget(f"{running.url}/behind/a/prefix")]) as (sandbox,):
        assert sandbox.url.endswith("/prefix")


def test_addresses_take_turns(running: FakeSandbox) -> None:
    with (
        FakeSandbox() as other,
        open_targets([UrlTarget(running.url), UrlTarget(other.url)], at_least=3) as three,
    ):
        assert [one.url for one in three] == [running.url, other.url, running.url]
        assert [one.name for one in three] == [running.url, other.url, f"{running.url} #2"]


def test_an_unreachable_address_is_an_error_without_the_password() -> None:
    port = closed_port()
    target = UrlTarget(f"http://me:hunter2@127.0.0.1:{port}")
    with pytest.raises(MissingTarget) as missing, open_targets([target]):
        pass
    assert f"nothing answers at http://127.0.0.1:{port}: connection refused" in str(missing.value)
    assert "hunter2" not in str(missing.value)


def test_without_check_an_address_is_not_contacted() -> None:
    port = closed_port()
    with open_targets([UrlTarget(f"http://127.0.0.1:{port}")], check=False) as (sandbox,):
        assert sandbox.url == f"http://127.0.0.1:{port}"


def test_an_address_can_be_neither_killed_nor_revived(running: FakeSandbox) -> None:
    with open_targets([UrlTarget(running.url)]) as (sandbox,):
        for act in (sandbox.kill, sandbox.revive):
            with pytest.raises(BadTarget, match="only a container that sfusion started"):
                act()


def test_a_login_in_the_address_is_sent_as_basic_auth() -> None:
    import base64
    from http.server import BaseHTTPRequestHandler, HTTPServer
    from threading import Thread

    seen: list[str | None] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append(self.headers["Authorization"])
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.handle_request)
        thread.start()
        with open_targets([UrlTarget(f"http://me:p%40ss@127.0.0.1:{server.server_port}")]):
            thread.join()
    assert seen == ["Basic " + base64.b64encode(b"me:p@ss").decode()]


def test_the_fake_is_not_a_real_sandbox() -> None:
    with pytest.raises(BadTarget, match="fake is not a real sandbox"), open_targets([FakeTarget()]):
        pass
    with pytest.raises(BadTarget, match="no sandbox given"), open_targets([]):
        pass
