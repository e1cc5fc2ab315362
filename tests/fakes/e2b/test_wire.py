"""The fake E2B without the vendor's SDK."""

from __future__ import annotations

import json
from typing import Any

import aiohttp

from sfusion.fakes.e2b import FakeE2B
from tests.fakes.lifecycle.watching import Event, executed


def enveloped(command: str) -> bytes:
    data = json.dumps({"process": {"cmd": "/bin/bash", "args": ["-l", "-c", command]}}).encode()
    return b"\0" + len(data).to_bytes(4, "big") + data


def frames(body: bytes) -> list[tuple[int, Any]]:
    found = []
    while body:
        size = int.from_bytes(body[1:5], "big")
        found.append((body[0], json.loads(body[5 : 5 + size])))
        body = body[5 + size :]
    return found


async def start(session: aiohttp.ClientSession, url: str, name: str, command: str) -> Any:
    headers = {"Content-Type": "application/connect+json", "E2b-Sandbox-Id": name}
    path = f"{url}/process.Process/Start"
    async with session.post(path, data=enveloped(command), headers=headers) as response:
        return response.status, await response.read()


async def test_a_command_is_a_stream_of_frames() -> None:
    events: list[Event] = []
    async with (
        FakeE2B(executor="scripted", journal=events.append) as fake,
        aiohttp.ClientSession() as session,
    ):
        async with session.post(f"{fake.url}/sandboxes", json={"timeout": 60}) as response:
            assert response.status == 201
            name = (await response.json())["sandboxID"]
        command = 'true # sfusion:call=c1 prints="hello"'
        _, body = await start(session, fake.url, name, command)
        assert [flags for flags, _ in frames(body)] == [0, 0, 0, 2]
        assert frames(body)[1][1] == {"event": {"data": {"stdout": "aGVsbG8="}}}
        ended = {"exitCode": 0, "exited": True, "status": "exit status 0"}
        assert frames(body)[2][1] == {"event": {"end": ended}}
        fake.kill(name)
        assert (await start(session, fake.url, name, command))[0] == 502
    assert executed(events, "c1") == 1


async def test_an_early_end_is_between_two_frames_and_clean() -> None:
    early = {"on": "exec", "what": "early_end"}
    async with (
        FakeE2B(executor="scripted", faults=[early]) as fake,
        aiohttp.ClientSession() as session,
    ):
        async with session.post(f"{fake.url}/v2/sandboxes", json={}) as response:
            name = (await response.json())["sandboxID"]
        command = 'true # sfusion:call=c1 prints="hello"'
        status, body = await start(session, fake.url, name, command)
    assert status == 200
    assert [list(content["event"]) for _, content in frames(body)] == [["start"], ["data"]]


async def test_what_is_no_command_is_refused() -> None:
    async with FakeE2B() as fake, aiohttp.ClientSession() as session:
        path = f"{fake.url}/process.Process/Start"
        for body in (b"", b"\0\0\0\0\2{}", b"\0\0\0\0\1[", b'\0\0\0\0\1{"process": 3}'):
            async with session.post(path, data=body) as response:
                assert response.status == 400


async def test_an_early_end_of_code_is_between_its_lines() -> None:
    early = {"on": "exec", "what": "early_end"}
    async with (
        FakeE2B(executor="scripted", faults=[early]) as fake,
        aiohttp.ClientSession() as session,
    ):
        async with session.post(f"{fake.url}/sandboxes", json={"timeout": 60}) as response:
            name = (await response.json())["sandboxID"]
        code = {"code": 'print("hello")  # sfusion:call=c1 prints="hello"'}
        headers = {"E2b-Sandbox-Id": name}
        async with session.post(f"{fake.url}/execute", json=code, headers=headers) as response:
            lines = (await response.text()).splitlines()
    assert [json.loads(line) for line in lines] == [{"type": "stdout", "text": "hello"}]
