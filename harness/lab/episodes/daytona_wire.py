"""Daytona's wire, as far as an episode needs it."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import aiohttp

from .wire import RequestLost, SandboxLost, Wire, read_json

_POLL = 0.2
"""Seconds between two looks at a sandbox that boots; chosen."""
_AUTO_STOP = 15
"""Minutes without use after which a sandbox ends whose client was killed; chosen."""
_ENDED = ("error", "build_failed", "destroyed", "destroying", "stopped")


class DaytonaWire(Wire):
    """The API, and the toolbox of each sandbox."""

    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.task.environment.get('DAYTONA_API_KEY', '')}"}

    @property
    def _api(self) -> str:
        return f"{self.task.url}/api/sandbox"

    def _toolbox(self, sandbox: str) -> str:
        return f"{self.task.url}/toolbox/{sandbox}"

    async def create(self) -> str:
        asked = {"labels": self.task.labels, "autoStopInterval": _AUTO_STOP}
        made = await self.control("POST", self._api, json=asked)
        return _id_of(made)

    async def find(self) -> str | None:
        query = {"labels": json.dumps(self.task.labels)}
        page = await self.control("GET", self._api, params=query)
        for sandbox in page.get("items", []):
            if sandbox.get("state") not in _ENDED:
                return _id_of(sandbox)
        return None

    async def until_ready(self, sandbox: str) -> None:
        while True:
            try:
                shown = await self.control("GET", f"{self._api}/{sandbox}")
            except RequestLost:
                await asyncio.sleep(_POLL)  # a lost poll says nothing about the sandbox
                continue
            if shown.get("state") == "started":
                return
            if shown.get("state") in _ENDED:
                raise SandboxLost(f"the sandbox is {shown.get('state')} before it was used")
            await asyncio.sleep(_POLL)

    async def execute(self, sandbox: str, command: str) -> str:
        url = f"{self._toolbox(sandbox)}/process/execute"
        body = await self.inside("POST", url, json={"command": command})
        try:
            return str(read_json(body).get("result"))
        except RequestLost as error:
            raise SandboxLost(str(error)) from error

    async def write(self, sandbox: str, path: str, content: str) -> None:
        form = aiohttp.FormData()
        form.add_field("file", content.encode(), filename=path)
        url = f"{self._toolbox(sandbox)}/files/upload"
        await self.inside("POST", url, params={"path": path}, data=form)

    async def read(self, sandbox: str, path: str) -> str:
        url = f"{self._toolbox(sandbox)}/files/download"
        return (await self.inside("GET", url, params={"path": path})).decode("utf-8", "replace")

    async def delete(self, sandbox: str) -> None:
        await self.gone("DELETE", f"{self._api}/{sandbox}")


def _id_of(sandbox: Any) -> str:
    try:
        return str(sandbox["id"])
    except (KeyError, TypeError):
        raise RequestLost("the answer names no sandbox") from None
