"""Which shape a target has: found by looking at it, and by a first call to a server that accepts
everything."""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import inspect
import json
import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar, TypeVar

from sfusion_tools.errors import near
from sfusion_tools.tool_registry import read_entries

from ....fakes.call_mark import mark_for
from ....fakes.sandbox.body import render
from ....fakes.sandbox.protocol import CommandResult, RunCodeAnswer
from ....fakes.wire import Answer, Request, WireApp, WireServer
from ....fakes.wire.fake_server import FakeServer
from ...errors import BadOption
from ..client import WARM_UP, Returned, Settings, Shape, TrialAsk
from ..facts.sent import encoded_files, request_fields
from .function import PLACEHOLDER, FunctionClient, Surroundings
from .parameters import ROUTE
from .process import ProcessClient
from .tool import ToolClient, is_tool, missing_methods

T = TypeVar("T")
VARIABLES = ("SANDBOX_FUSION_URL", "SANDBOX_FUSION_ENDPOINT", "SANDBOX_URL")
"""Environment variables in which clients look for the address."""
_PATIENCE = 30.0
"""Seconds for the first call."""


def shape_of(
    target: Any,
    *,
    env: str | None = None,
    attribute: str | None = None,
    command: tuple[str, ...] = (),
) -> Shape:
    """Find the shape of a target: an object, ``module:name``, ``file.py:name``, a tool config or a
    command.

    Raises BadOption for what cannot be judged, before anything is played.
    """
    if command:
        name = " ".join(command)
        return _probed(
            name,
            lambda: ProcessClient(command, env or VARIABLES[0]),
            "a command",
            "it is another process",
        )
    variables = (env,) if env else VARIABLES
    name, module = str(target), None
    if isinstance(target, str):
        if target.endswith((".yaml", ".yml")):
            return _of_config(Path(target))
        # A module that reads its address when it is imported reads one that can be recognised
        # later.
        importing = Surroundings(variables, None)
        importing.set(PLACEHOLDER)
        try:
            module, target = _loaded(target)
        finally:
            importing.restore()
    else:
        module = sys.modules.get(getattr(target, "__module__", "") or "")
        name = getattr(target, "__qualname__", type(target).__name__)
    if isinstance(target, type) and issubclass(target, Adapter):
        if inspect.isabstract(target):
            raise BadOption(
                f"{name} is an adapter without `async def call(self, ask)`, which makes one call"
            )
        return Shape(name, "an adapter", target, target().takes)
    if isinstance(target, type) and (lacking := missing_methods(target)):
        raise BadOption(
            f"{name} looks like a tool of verl's, but has no "
            f"{', '.join(f'{one}()' for one in lacking)}"
        )
    if isinstance(target, type) and is_tool(target):
        entry = {"class_name": f"{target.__module__}.{target.__qualname__}", "config": {}}
        return _probed(name, lambda: ToolClient(entry), "a tool class with verl's interface")
    surroundings = Surroundings(variables, module, (attribute,) if attribute else ())
    first = FunctionClient(target, name, surroundings)
    kind = (
        "a reward function"
        if first.is_reward
        else "a class"
        if isinstance(target, type)
        else "a function"
    )
    how = "asynchronous" if first.is_async else "synchronous, called in threads"
    why = "" if first.is_async else "it is synchronous"
    return _probed(name, lambda: FunctionClient(target, name, surroundings), f"{kind}, {how}", why)


class Adapter(ABC):
    """Base of adapters that users write: ``call`` is all that is needed."""

    can_take: ClassVar[Collection[str]] = ("code", "text")
    """Keys of ``client.TAKES``."""
    settings: Settings

    def __init__(self) -> None:
        self.takes = frozenset(self.can_take)

    async def begin(self, settings: Settings) -> None:
        self.settings = settings

    @abstractmethod
    async def call(self, ask: TrialAsk) -> Returned:
        """Make one call and return what came back."""

    async def end(self) -> None:  # noqa: B027 # many have nothing to close
        """Close what ``begin`` opened."""

    def inside(self) -> Any:
        return None


def _of_config(path: Path) -> Shape:
    entries = read_entries(path)
    if not entries:
        raise BadOption(f"{path}: `tools` is empty; a trial judges its first tool")
    sys.path += [str(path.resolve().parent), os.getcwd()]
    about = f"the tool {entries[0]['class_name']} of a tool config"
    return _probed(str(path), lambda: ToolClient(entries[0]), about)


def tool_shape(name: str, entry: Mapping[str, Any]) -> Shape:
    """Return the shape of a tool of a tool config."""
    return _probed(name, lambda: ToolClient(entry), f"the tool {entry.get('class_name')}")


# -- loading --


def _loaded(text: str) -> tuple[ModuleType, Any]:
    """Import ``module:name`` or ``path/file.py:name``."""
    place, colon, name = text.rpartition(":")
    if not colon or not place or not name:
        raise BadOption(
            f"{text}: give a function or class as module:name or file.py:name, a tool "
            "config (.yaml), or a command "
            "after --"
        )
    try:
        module = _from_file(Path(place)) if place.endswith(".py") else _by_name(place)
    except BadOption:
        raise
    except (Exception, SystemExit) as error:
        raise BadOption(
            f"{text}: importing {place} failed with {type(error).__name__}: {error}"
        ) from error
    found: Any = module
    for part in name.split("."):
        names = [one for one in dir(found) if not one.startswith("_")]
        if not hasattr(found, part):
            raise BadOption(f"{text}: {place} has no {part!r}; {near(part, names)}")
        found = getattr(found, part)
    if not callable(found) and not any(
        callable(getattr(found, one, None)) for one in ("run", "run_code", "execute")
    ):
        raise BadOption(
            f"{text}: is a {type(found).__name__}, which cannot be called; give a "
            "function or a class"
        )
    return module, found


def _by_name(name: str) -> ModuleType:
    here = os.getcwd()
    if here not in sys.path:
        sys.path.insert(0, here)
    return importlib.import_module(name)


def _from_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise BadOption(f"{path}: there is no such file")
    if str(path.resolve().parent) not in sys.path:
        sys.path.insert(0, str(path.resolve().parent))
    name = path.stem if path.stem not in sys.modules else f"judged_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


# -- the first call --

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
        return render(
            RunCodeAnswer("Success", "", None, CommandResult("Finished", 0.1, 0, "first\n", ""))
        )


def _probed(name: str, make: Callable[[], Any], about: str, wall: str = "") -> Shape:
    """Make a first call, and learn from it how the client wants its address and what it carries and
    returns."""
    client = make()
    asked, returned, requests = _tried(client)
    if isinstance(client, FunctionClient) and not _understood(client, requests):
        other = make()
        other.other_form = True
        found = _tried(other)
        if _understood(other, found[2]):
            client, (asked, returned, requests) = other, found
    if not requests:
        said = (
            f" It raised {returned.raised}"
            if returned.raised
            else f" It returned {returned.text!r:.200}"
            if returned.text
            else ""
        )
        if printed := getattr(client, "printed", "").strip():
            said += f", and printed\n{printed[-1000:]}\n"
        ways = (
            "as a parameter `url`, in the environment (SANDBOX_FUSION_URL, or --env "
            "NAME) or in a module's attribute"
        )
        raise BadOption(
            f"{name}: a first call sent nothing to the address that it was given.{said}\n"
            f"Take the address {ways} (--attribute NAME)"
        )
    client.route = _route(client.route, requests[0].path)
    # The last one: of a command's second call only the language is another.
    client.learn(_json(requests[-1].body), request_fields(asked, _SETTINGS), returned)
    known = {key: getattr(client, key) for key in client.learned}

    def made() -> Any:
        one = make()
        vars(one).update(known)
        return one

    return Shape(
        name, about, made, client.takes, wall, isinstance(client, ProcessClient), client.own_address
    )


def _tried(client: Any) -> tuple[TrialAsk, Returned, list[Request]]:
    """Return the last of the first calls, what came back, and the requests."""
    with _AnyServer() as server:
        asked, returned = _apart(_first_calls(client, server.url))
        return (
            asked,
            returned,
            [one for one in server.requests if WARM_UP.encode() not in one.body] or server.requests,
        )


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
    asks = (
        [_FIRST, replace(_FIRST, call="second", language="cpp")]
        if isinstance(client, ProcessClient)
        else [_FIRST]
    )
    try:
        async with asyncio.timeout(_PATIENCE):
            await client.begin(replace(_SETTINGS, urls=(url,)))
            for ask in asks:
                if (returned := await client.call(ask)).raised is not None:
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
