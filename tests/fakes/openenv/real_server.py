"""OpenEnv's real server, around an environment that does what the hints in its actions say.

``python -m tests.fakes.openenv.real_server`` records what it answers into golden.json.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import Any

import aiohttp

GOLDEN = Path(__file__).parent / "golden.json"
CAPACITY = 2

_STEP = {"code": 'x # sfusion:call=c1 prints="hello"'}
_FAILS = {"code": 'x # sfusion:call=c2 errors="bad" exit=3'}
CONVERSATIONS: dict[str, list[Any]] = {
    "an episode": [
        {"type": "reset", "data": {"episode_id": "e1", "seed": 3}},
        {"type": "step", "data": _STEP},
        {"type": "step", "data": _FAILS},
        {"type": "state"},
        {"type": "reset", "data": {"episode_id": "e2"}},
        {"type": "state"},
        {"type": "close"},
    ],
    "a step without a reset": [{"type": "step", "data": _STEP}, {"type": "state"}],
    "what is no message": [
        "{",
        {"type": "nothing"},
        {},
        {"type": "step", "data": {}},
        {"type": "step", "data": {"code": 3}},
        {"type": "step", "data": {"code": "x", "more": 1}},
        {"type": "state"},
    ],
    "an environment that raises": [
        {"type": "reset"},
        {"type": "step", "data": {"code": "raise"}},
        {"type": "step", "data": _STEP},
    ],
}
PAGES = ["/health", "/metadata", "/schema", "/state", "/nothing"]


async def converse(url: str, messages: list[Any]) -> list[Any]:
    """Send messages over one socket; return what is received, at the end with the close code."""
    received: list[Any] = []
    async with aiohttp.ClientSession() as session, session.ws_connect(f"{url}/ws") as socket:
        for message in messages:
            await socket.send_str(message if isinstance(message, str) else json.dumps(message))
            answer = await socket.receive(timeout=30)
            if answer.type is not aiohttp.WSMsgType.TEXT:
                received.append({"closed": socket.close_code})
                break
            received.append(_plain(json.loads(answer.data)))
    return received


def _plain(answer: Any) -> Any:
    """An answer without what depends on pydantic's version."""
    for problem in answer.get("data", {}).get("errors", []):
        problem.pop("url", None)
    return answer


async def at_capacity(url: str) -> list[Any]:
    """What a client receives that connects while the server is full."""
    reset = json.dumps({"type": "reset"})
    async with aiohttp.ClientSession() as session, AsyncExitStack() as open_sockets:
        for _ in range(CAPACITY):
            socket = await open_sockets.enter_async_context(session.ws_connect(f"{url}/ws"))
            await socket.send_str(reset)
            await socket.receive(timeout=30)
        socket = await open_sockets.enter_async_context(session.ws_connect(f"{url}/ws"))
        await socket.send_str(reset)
        answer = await socket.receive(timeout=30)
        closed = await socket.receive(timeout=30)
        return [json.loads(answer.data), {"closed": closed.data}]


async def pages(url: str) -> dict[str, Any]:
    """The status and the content of each page."""
    found = {}
    async with aiohttp.ClientSession() as session:
        for path in PAGES:
            async with session.get(url + path) as response:
                found[path] = [response.status, await response.json()]
    return found


async def record(url: str) -> dict[str, Any]:
    """Everything that the server is asked."""
    spoken = {name: await converse(url, sent) for name, sent in CONVERSATIONS.items()}
    return {"conversations": spoken, "pages": await pages(url), "full": await at_capacity(url)}


@contextmanager
def real_server() -> Iterator[str]:
    """Run the real server in a thread."""
    import uvicorn

    config = uvicorn.Config(_app(), host="127.0.0.1", port=0, log_level="warning")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.05)
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join(timeout=30)


def _app() -> Any:
    from openenv.core.env_server.http_server import create_fastapi_app
    from openenv.core.env_server.interfaces import Environment
    from openenv.core.env_server.types import Action, EnvironmentMetadata, Observation, State

    from sfusion.fakes.sandbox.program import hinted

    class CodeAction(Action):
        """Code for the environment to run."""

        code: str
        """What to run"""

    class CodeObservation(Observation):
        """What the code printed."""

        stdout: str = ""
        stderr: str = ""
        exit_code: int = 0

    class CodeEnvironment(Environment[CodeAction, CodeObservation, State]):
        SUPPORTS_CONCURRENT_SESSIONS = True

        def __init__(self) -> None:
            super().__init__()
            self._state = State()

        def reset(
            self, seed: int | None = None, episode_id: str | None = None, **more: Any
        ) -> CodeObservation:
            self._state = State(episode_id=episode_id)
            return CodeObservation()

        def step(
            self, action: CodeAction, timeout_s: float | None = None, **more: Any
        ) -> CodeObservation:
            if action.code == "raise":
                raise ValueError("the environment is broken")
            program = hinted(action.code)
            self._state.step_count += 1
            return CodeObservation(
                reward=1.0 if program.exit == 0 else 0.0,
                stdout=program.printed,
                stderr=program.errors,
                exit_code=program.exit,
            )

        @property
        def state(self) -> State:
            return self._state

        def get_metadata(self) -> EnvironmentMetadata:
            return EnvironmentMetadata(
                name="CodeEnvironment", description="Runs code, faked by sfusion", version="1.0.0"
            )

    return create_fastapi_app(
        CodeEnvironment, CodeAction, CodeObservation, max_concurrent_envs=CAPACITY
    )


if __name__ == "__main__":
    with real_server() as recorded_at:
        answers = asyncio.run(record(recorded_at))
    GOLDEN.write_text(json.dumps(answers, indent=1) + "\n")
