"""E2B's wire, as far as an episode needs it: JSON for sandboxes, frames of Connect for commands."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any

import aiohttp

from .wire import RequestLost, SandboxLost, Wire, read_json

_LIFE = 600
"""Seconds after which a sandbox ends whose client was killed; chosen."""
_ENVD = "49983"
"""The port of what runs commands inside of a sandbox."""
_CONNECT = "application/connect+json"
_HEAD = 5
"""Bytes before the JSON of a frame: its flags and its length."""
_END = 2
"""The flag of the last frame."""


class E2BWire(Wire):
    """The API, and envd in each sandbox."""

    def headers(self) -> dict[str, str]:
        return {"X-API-Key": self.task.environment.get("E2B_API_KEY", "")}

    async def create(self) -> str:
        asked = {"templateID": "base", "timeout": _LIFE, "metadata": self.task.labels}
        # However often it is sent, one sandbox has this key.
        headers = {"Idempotency-Key": self.task.id}
        url = f"{self.task.url}/v2/sandboxes"
        return _id_of(await self.control("POST", url, json=asked, headers=headers))

    async def find(self) -> str | None:
        for sandbox in await self.control("GET", f"{self.task.url}/v2/sandboxes"):
            if sandbox.get("metadata") == self.task.labels:
                return _id_of(sandbox)
        return None

    async def until_ready(self, sandbox: str) -> None:
        """Return at once: a create is answered when its sandbox runs."""

    async def execute(self, sandbox: str, command: str) -> str:
        process = {"cmd": "/bin/bash", "args": ["-l", "-c", command]}
        asked = json.dumps({"process": process, "stdin": False}).encode()
        body = await self.inside(
            "POST",
            f"{self.task.url}/process.Process/Start",
            data=bytes([0]) + len(asked).to_bytes(4, "big") + asked,
            headers={**_inside(sandbox), "Content-Type": _CONNECT},
        )
        return _printed(body)

    async def write(self, sandbox: str, path: str, content: str) -> None:
        form = aiohttp.FormData()
        form.add_field("file", content.encode(), filename=path)
        url = f"{self.task.url}/files"
        await self.inside("POST", url, params={"path": path}, data=form, headers=_inside(sandbox))

    async def read(self, sandbox: str, path: str) -> str:
        url = f"{self.task.url}/files"
        body = await self.inside("GET", url, params={"path": path}, headers=_inside(sandbox))
        return body.decode("utf-8", "replace")

    async def delete(self, sandbox: str) -> None:
        await self.gone("DELETE", f"{self.task.url}/sandboxes/{sandbox}")


def _inside(sandbox: str) -> dict[str, str]:
    """Return the headers that name a sandbox."""
    return {"E2b-Sandbox-Id": sandbox, "E2b-Sandbox-Port": _ENVD}


def _id_of(sandbox: Any) -> str:
    try:
        return str(sandbox["sandboxID"])
    except (KeyError, TypeError):
        raise RequestLost("the answer names no sandbox") from None


def _printed(body: bytes) -> str:
    """Return what a command printed; raise SandboxLost for a stream without its end."""
    printed = ""
    has_ended = False
    for flags, content in _frames(body):
        if flags == _END and has_ended:
            return printed
        event = content.get("event") or {}
        data = event.get("data") or {}
        printed += base64.b64decode(data.get("stdout", "")).decode("utf-8", "replace")
        has_ended = has_ended or "end" in event
    raise SandboxLost("the stream of a command ended too early")


def _frames(body: bytes) -> Iterator[tuple[int, dict[str, Any]]]:
    while len(body) >= _HEAD:
        size = int.from_bytes(body[1:_HEAD], "big")
        frame = body[_HEAD : _HEAD + size]
        if len(frame) < size:
            return
        try:
            yield body[0], read_json(frame)
        except RequestLost as error:
            raise SandboxLost(str(error)) from error
        body = body[_HEAD + size :]
