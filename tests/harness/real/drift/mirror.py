"""A server that replays recorded answers byte for byte, with changes planted in some of them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

from sfusion.harness.real.probes.model import Probe
from sfusion.harness.real.probes.raw_http import ProbeAnswer, Server, request_bytes
from tests.patience import PATIENCE

Plant = Callable[[ProbeAnswer], ProbeAnswer]


@dataclass
class Mirror:
    """Recognises requests by their bytes, so that no HTTP library interferes."""

    url: str
    answers: dict[bytes, bytes]

    @classmethod
    @asynccontextmanager
    async def serving(
        cls,
        probes: Sequence[Probe],
        answers: Mapping[str, ProbeAnswer],
        plants: Mapping[str, Plant],
    ) -> AsyncIterator[Mirror]:
        """Serve these answers; a plant may also remove one."""
        mirror = cls("", {})
        server = await asyncio.start_server(mirror._serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        mirror.url = f"http://127.0.0.1:{port}"
        for probe in probes:
            answer = answers[probe.id]
            if probe.id in plants:
                answer = plants[probe.id](answer)
            mirror.answers[request_bytes(probe, Server.at(mirror.url))] = _bytes(
                answer, probe.method == "HEAD"
            )
        ping = b"GET /v1/ping HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n\r\n" % port
        mirror.answers.setdefault(ping, _bytes(ProbeAnswer(200, (), b'"pong"'), False))
        async with server:
            yield mirror

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked = b""
        async with asyncio.timeout(PATIENCE):
            while asked not in self.answers and (more := await reader.read(2**20)):
                asked += more
        writer.write(self.answers.get(asked, b""))
        writer.close()


def _bytes(answer: ProbeAnswer, head_only: bool) -> bytes:
    if answer.failure:
        return b""
    named = {name.lower() for name, _ in answer.headers}
    headers = list(answer.headers)
    if not {"content-length", "transfer-encoding"} & named:
        headers.append(("content-length", str(len(answer.body))))
    if not head_only:
        headers = [
            (name, str(len(answer.body)) if name.lower() == "content-length" else value)
            for name, value in headers
        ]
    lines = [
        f"HTTP/1.1 {answer.status} Some reason",
        *(f"{name}: {value}" for name, value in headers),
    ]
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + (b"" if head_only else answer.body)


def body(change: Callable[[Any], Any]) -> Plant:
    """Change the JSON of an answer, keeping the server's formatting."""

    def plant(answer: ProbeAnswer) -> ProbeAnswer:
        value = change(json.loads(answer.body))
        return replace(
            answer, body=json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
        )

    return plant


def put(*path: str | int, value: Any) -> Plant:
    """Set one value inside an answer."""

    def change(content: Any) -> Any:
        inside = content
        for step in path[:-1]:
            inside = inside[step]
        inside[path[-1]] = value
        return content

    return body(change)


def renamed(*path: str | int, to: str) -> Plant:
    """Rename one key, keeping its position."""

    def change(content: Any) -> Any:
        inside = content
        for step in path[:-1]:
            inside = inside[step]
        pairs = [(to if name == path[-1] else name, value) for name, value in inside.items()]
        inside.clear()
        inside.update(pairs)
        return content

    return body(change)


def text(old: str, new: str) -> Plant:

    def plant(answer: ProbeAnswer) -> ProbeAnswer:
        assert old.encode() in answer.body, answer.body
        return replace(answer, body=answer.body.replace(old.encode(), new.encode()))

    return plant


def headers(change: Callable[[list[tuple[str, str]]], list[tuple[str, str]]]) -> Plant:
    return lambda answer: replace(answer, headers=tuple(change(list(answer.headers))))


def header(name: str, value: str) -> Plant:
    """Set one header, keeping its position."""
    return headers(lambda all_: [(key, value if key == name else was) for key, was in all_])
