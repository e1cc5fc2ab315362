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


@pytest.mark.parametrize("faults", [[], [{"first": 1, "what": {"status": 429, "retry_after": 1}}]])
async def test_an_answer_is_recorded_before_its_client_can_read_it(faults: list[dict[str, Any]]) -> None:
    """Or a client in another process would do what follows from an answer before the answer, by the journal."""
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
