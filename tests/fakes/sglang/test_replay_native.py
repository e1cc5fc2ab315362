"""sglang's own routes answer as recorded from the real handlers."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.cases import every
from tests.fakes.sglang.replay import Record, ask, native_server, normalised, records


async def replay_native(record: Record) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the answer of the fake, and the recorded one."""
    rid = "my-rid" if record["id"] == "generate/rid" else "0" * 32
    server = native_server(record)
    async with server:
        server.app.handlers.starting = record["id"] == "health/starting"
        server.app.handlers.exiting = record["id"] == "health/exiting"
        busy: asyncio.Task[Any] | None = None
        if record["id"] in ("flush/busy", "flush/timeout"):
            busy = asyncio.create_task(server.engine.async_generate("busy"))
            await asyncio.sleep(0)
            assert server.engine.snapshot().running
        path = record["path"].replace("timeout=1", "timeout=0.01")
        response = await ask(server.url, record, path, record["method"])
        if busy is not None:
            server.engine.abort_request(abort_all=True)
            await busy
    return normalised(response, rid), normalised(record, rid)


@every(records("method"), lambda record: record["id"])
async def test_native_routes_answer_as_recorded(record: Record) -> None:
    got, want = await replay_native(record)
    assert got == want
