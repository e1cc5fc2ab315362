"""The journal of a server, beside what its clients see."""

from __future__ import annotations

import asyncio
import select
import socket
from collections.abc import Mapping
from typing import Any

import pytest

from sfusion.fakes.sandbox import FakeSandbox
from tests.fakes.wire.raw import run_code
from tests.sfusion_tools.sandbox.helpers import until


@pytest.mark.parametrize("faults", [[], [{"first": 1, "what": {"status": 429, "retry_after": 1}}]])
async def test_an_answer_is_recorded_before_its_client_can_read_it(
    faults: list[dict[str, Any]],
) -> None:
    """Or a client in another process would do what follows from an answer before the answer, by the
    journal."""
    readable: dict[str, bool] = {}

    def note(event: Mapping[str, Any]) -> None:
        readable[event["event"]] = bool(select.select([client], [], [], 0)[0])

    async with FakeSandbox(faults=faults, journal=note) as sandbox:
        loop = asyncio.get_running_loop()
        with socket.socket() as client:
            client.setblocking(False)
            await loop.sock_connect(client, ("127.0.0.1", sandbox.port))
            await loop.sock_sendall(client, run_code())
            assert await loop.sock_recv(client, 1) == b"H"
    assert readable["answered"] is False


async def test_an_answer_that_has_to_wait_for_its_client_is_recorded_when_it_is_sent() -> None:
    """The client pipelines requests and reads nothing; then the server crashes with the last answer
    unsent."""
    events: list[Mapping[str, Any]] = []
    refusal = {"what": {"status": 429, "body": "x" * 30_000}}
    async with FakeSandbox(faults=[refusal], journal=events.append) as sandbox:
        loop = asyncio.get_running_loop()
        with socket.socket() as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.setblocking(False)
            await loop.sock_connect(client, ("127.0.0.1", sandbox.port))
            sending = asyncio.ensure_future(loop.sock_sendall(client, run_code() * 500))
            await until(lambda: any(one.full for one in sandbox.server._manager.connections))  # type: ignore[union-attr]
            sandbox.crash()
            sending.cancel()
    ended = [one for one in events if one["event"] in ("answered", "unanswered")]
    assert [one["status"] for one in ended].count(0) == sandbox.ledger.statuses[0] == 1
