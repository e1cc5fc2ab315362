"""Tools with verl's interface, in its old and its new form."""

from __future__ import annotations

import asyncio
import json
import urllib.request
import zlib
from typing import Any, ClassVar

import aiohttp

from sfusion_tools.base_tool import BaseTool
from sfusion_tools.sandbox.tool import SandboxFusionTool
from sfusion_tools.schemas import ToolResponse


class NewShape:
    """A tool for today's verl, with a semaphore of its own, no retries and a truthful text."""

    def __init__(self, config: dict[str, Any], tool_schema: Any) -> None:
        self.name = "code_interpreter"
        self.tool_schema = tool_schema
        self._url = config["sandbox_fusion_url"]
        self._gate = asyncio.Semaphore(config.get("rate_limit", 4))

    async def create(
        self, instance_id: str | None = None, **kwargs: Any
    ) -> tuple[str, ToolResponse]:
        return instance_id or "x", ToolResponse()

    async def execute(
        self, instance_id: str, parameters: dict[str, Any], **kwargs: Any
    ) -> tuple[Any, float, dict[str, Any]]:
        async with self._gate, aiohttp.ClientSession() as session:
            try:
                body = {"code": parameters["code"], "language": "python"}
                async with session.post(self._url, json=body) as answer:
                    data = await answer.json()
                if data["status"] == "SandboxError":
                    return ToolResponse(text="error: the sandbox failed"), 0.0, {}
                return ToolResponse(text=data["run_result"]["stdout"]), 0.0, {}
            except Exception as error:
                return ToolResponse(text=f"error: {type(error).__name__}"), 0.0, {}

    async def calc_reward(self, instance_id: str, **kwargs: Any) -> float:
        return 0.0

    async def release(self, instance_id: str, **kwargs: Any) -> None:
        """Nothing is kept."""


class Unrewarded(NewShape):
    """Leaves its reward to the base class, as verl's loop never asks for it, and gives none for a
    step."""

    calc_reward = BaseTool.calc_reward  # type: ignore[assignment]

    async def execute(self, instance_id: str, parameters: dict[str, Any], **kwargs: Any) -> Any:
        response, _, metrics = await super().execute(instance_id, parameters)
        return response, None, metrics


class OldShape(NewShape):
    """A tool for verl up to 0.5: ids and texts are plain strings, and every failure gets the same
    text."""

    async def create(self, instance_id: str | None = None, **kwargs: Any) -> Any:
        return instance_id

    async def execute(self, instance_id: str, parameters: dict[str, Any], **kwargs: Any) -> Any:
        response, reward, metrics = await super().execute(instance_id, parameters)
        text = response.text or "error"
        return ("no stdout here" if text.startswith("error") else text), reward, metrics


class Retrying(NewShape):
    """A tool that tries again after a 503, at a time of its own, without its permit and on the same
    connection."""

    def __init__(self, config: dict[str, Any], tool_schema: Any) -> None:
        super().__init__(config, tool_schema)
        self._session: aiohttp.ClientSession | None = None

    async def execute(self, instance_id: str, parameters: dict[str, Any], **kwargs: Any) -> Any:
        for number in range(1, 4):
            async with self._gate:
                status, text = await self._send(parameters["code"])
            if status != 503:
                return ToolResponse(text=text), None, {}
            await asyncio.sleep(
                self._pause(number, zlib.crc32(parameters["code"].encode()) / 2**32)
            )
        return ToolResponse(text="error: the sandbox is busy"), None, {}

    def _pause(self, number: int, jitter: float) -> float:
        return number + jitter

    async def _send(self, code: str) -> tuple[int, str]:
        if self._session is None:
            self._session = aiohttp.ClientSession()
        async with self._session.post(
            self._url, json={"code": code, "language": "python"}
        ) as answer:
            data = await answer.json()
            return answer.status, data["run_result"]["stdout"] if answer.status == 200 else ""

    async def calc_reward(self, instance_id: str, **kwargs: Any) -> Any:
        return None

    async def aclose(self) -> None:
        if self._session is not None:
            await self._session.close()


class InStep(Retrying):
    """A tool whose calls all wait for the same time."""

    def _pause(self, number: int, jitter: float) -> float:
        return 1.0


class Clinging(Retrying):
    """A tool whose calls keep their permit while they wait."""

    async def execute(self, instance_id: str, parameters: dict[str, Any], **kwargs: Any) -> Any:
        async with self._gate:
            free = type(self)(
                {"sandbox_fusion_url": self._url, "rate_limit": 1000}, self.tool_schema
            )
            try:
                return await Retrying.execute(free, instance_id, parameters)
            finally:
                await free.aclose()


class Unlimited(NewShape):
    """A tool that ignores its rate_limit."""

    def __init__(self, config: dict[str, Any], tool_schema: Any) -> None:
        super().__init__({**config, "rate_limit": 1000}, tool_schema)


class InThreads(NewShape):
    """A tool that makes its requests in threads, which virtual time does not cover."""

    async def execute(self, instance_id: str, parameters: dict[str, Any], **kwargs: Any) -> Any:
        return await asyncio.to_thread(self._post, parameters["code"])

    def _post(self, code: str) -> Any:
        body = json.dumps({"code": code, "language": "python"}).encode()
        try:
            with urllib.request.urlopen(
                urllib.request.Request(self._url, body), timeout=5
            ) as answer:
                return json.load(answer)["run_result"]["stdout"], 0.0, {}
        except OSError as error:
            return f"error: {error}", 0.0, {}


class Raising(NewShape):
    """A tool that raises where the sandbox fails."""

    async def execute(self, instance_id: str, parameters: dict[str, Any], **kwargs: Any) -> Any:
        response, _, metrics = await super().execute(instance_id, parameters)
        if response.text == "error: the sandbox failed":
            raise RuntimeError(response.text)
        return response, None, metrics

    async def calc_reward(self, instance_id: str, **kwargs: Any) -> Any:
        return None


class Impatient(NewShape):
    """A tool that gives a program two seconds, and keeps the connection of one that it has given
    up."""

    _kept: ClassVar[set[Any]] = set()

    async def execute(self, instance_id: str, parameters: dict[str, Any], **kwargs: Any) -> Any:
        running = asyncio.ensure_future(super().execute(instance_id, parameters))
        self._kept.add(running)
        done, _ = await asyncio.wait([running], timeout=2.0)
        self._gate.release()
        return running.result() if done else (ToolResponse(text="error: timeout"), None, {})


class Right(SandboxFusionTool):
    """A right tool that the harness does not know: our own, under another name and with a limiter
    of its own."""


class Silent(Right):
    """The same, without metrics."""

    async def execute(self, instance_id: str, parameters: dict[str, Any], **kwargs: Any) -> Any:
        response, reward, _ = await super().execute(instance_id, parameters, **kwargs)
        return response, reward, None
