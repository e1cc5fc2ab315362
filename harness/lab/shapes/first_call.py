"""What a first call shows, to a server that accepts everything: how a client wants its address, and
what it carries and returns."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, TypeVar

from ....fakes.call_mark import mark_for
from ....fakes.sandbox.body import render
from ....fakes.sandbox.protocol import CommandResult, RunCodeAnswer
from ....fakes.wire import Answer, Request, WireApp, WireServer
from ....fakes.wire.fake_server import FakeServer
from ...errors import BadOption
from ..client import WARM_UP, Returned, Settings, Shape, TrialAsk
from ..facts.sent import encoded_files, request_fields
from .function import FunctionClient
from .parameters import ROUTE
from .process import ProcessClient

T = TypeVar("T")
_PATIENCE = 30.0
"""Seconds for the first call. Chosen: a client that imports a lot may need most of them."""
_MARK = mark_for("first")
_SETTINGS = Settings(("",), default_timeout=7.0, compile_timeout=9.0, memory_limit_mb=333)
_FIRST = TrialAsk(
    "first",
    f"# {_MARK}\nprint('first')\n",
    "python",
    stdin="first\n",
    files={"first.txt": b"first"},
    timeout=7.0,
    tests=(("first\n", "first"),),
    truth="first",
)


class _AnyServer(FakeServer):
    """Accepts every POST, whatever its path, and keeps it."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        super().__init__(WireServer(WireApp(self._answer)))

    async def _answer(self, request: Request) -> Answer:
        if request.method != "POST":
            return Answer(body=b'"pong"')
        self.requests.append(request)
        ran = CommandResult("Finished", 0.1, 0, "first\n", "")
        return render(RunCodeAnswer("Success", "", None, ran))


def probed(name: str, make: Callable[[], Any], about: str, wall: str = "") -> Shape:
    """Return the shape of what makes clients, as a first call shows it."""
    client = make()
    asked, returned, requests = _tried(client)
    if isinstance(client, FunctionClient) and not _understood(client, requests):
        other = make()
        other.other_form = True
        found = _tried(other)
        if _understood(other, found[2]) or (found[2] and not requests):
            client = other
            asked, returned, requests = found
    if not requests:
        raise BadOption(
            f"{name}: a first call sent nothing to the address that it was given."
            f"{_said(client, returned)}\n"
            "Take the address as a parameter `url`, in the environment (SANDBOX_FUSION_URL, or "
            "--env NAME) or in a module's attribute (--attribute NAME)"
        )
    client.route = _route(client.route, requests[0].path)
    # The last one: of a command's second call only the language is another.
    client.learn(_json(requests[-1].body), request_fields(asked, _SETTINGS), returned)
    known = {key: getattr(client, key) for key in client.learned}

    def made() -> Any:
        again = make()
        vars(again).update(known)
        return again

    return Shape(
        name,
        about,
        made,
        client.takes,
        wall=wall,
        child=isinstance(client, ProcessClient),
        divide=client.own_address,
    )


def _said(client: Any, returned: Returned) -> str:
    """Say what a first call did in place of sending a request."""
    said = ""
    if returned.raised:
        said = f" It raised {returned.raised}"
    elif returned.text:
        said = f" It returned {returned.text!r:.200}"
    printed = getattr(client, "printed", "").strip()
    if printed:
        said += f", and printed\n{printed[-1000:]}\n"
    return said


def _tried(client: Any) -> tuple[TrialAsk, Returned, list[Request]]:
    """Return the last of the first calls, what came back, and the requests."""
    with _AnyServer() as server:
        asked, returned = _apart(_first_calls(client, server.url))
        asked_for = [each for each in server.requests if WARM_UP.encode() not in each.body]
        return asked, returned, asked_for or server.requests


def _understood(client: FunctionClient, requests: list[Request]) -> bool:
    """Is the form of files and tests, if it takes such, the one that it expects?"""
    roles = client.parameters.roles
    if "files" in roles:
        return bool(requests) and _json(requests[-1].body).get("files") == encoded_files(_FIRST)
    return bool(requests) or "tests" not in roles


def _apart(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on a loop of its own, also where one is running."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, work).result()


async def _first_calls(client: Any, url: str) -> tuple[TrialAsk, Returned]:
    """Make a call, and with a command one in another language; return the last one and what came
    back."""
    asks = [_FIRST]
    if isinstance(client, ProcessClient):
        asks.append(replace(_FIRST, call="second", language="cpp"))
    try:
        async with asyncio.timeout(_PATIENCE):
            await client.begin(replace(_SETTINGS, urls=(url,)))
            for ask in asks:
                returned = await client.call(ask)
                if returned.raised is not None:
                    break
        return ask, returned
    except TimeoutError:
        return asks[0], Returned(raised=f"nothing: it had not returned after {_PATIENCE:g} s")
    finally:
        await client.end()


def _route(given: str, path: str) -> str:
    """Return what must be added to addresses so that requests reach the route."""
    if not path.strip("/"):
        return ROUTE
    return "" if path.startswith(ROUTE + "/") else given


def _json(body: bytes) -> Mapping[str, Any]:
    try:
        found = json.loads(body)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
