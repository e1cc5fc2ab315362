"""Which shape a target has.

Found by looking at it, and by a first call to a server that accepts everything.
"""

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
from ...core.place import place_of
from ...errors import BadOption
from ..client import WARM_UP, Returned, Settings, Shape, TrialAsk
from ..facts.sent import encoded_files, request_fields
from .batched import BatchClient, BatchedReward, is_batched_reward
from .episode import episode_shape, is_episode, is_sandbox_class, sandbox_class_shape
from .estimator import ADAPTER, estimator_shape, is_estimator, resembles_estimator
from .function import PLACEHOLDER, FunctionClient, Surroundings
from .parameters import ROUTE
from .process import ProcessClient
from .tool import ToolClient, is_tool, missing_methods

T = TypeVar("T")
VARIABLES = ("SANDBOX_FUSION_URL", "SANDBOX_FUSION_ENDPOINT", "SANDBOX_URL")
"""Environment variables in which clients look for the address."""
_PATIENCE = 30.0
"""Seconds for the first call. Chosen: a client that imports a lot may need most of them."""


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
        return _of_command(command, env or VARIABLES[0])
    variables = (env,) if env else VARIABLES
    module: ModuleType | None
    if isinstance(target, str):
        if target.endswith((".yaml", ".yml")):
            return _of_config(Path(target))
        name = target
        module, target = _imported(target, variables)
    else:
        name = getattr(target, "__qualname__", type(target).__name__)
        module = sys.modules.get(getattr(target, "__module__", "") or "")
    surroundings = Surroundings(variables, module, (attribute,) if attribute else ())
    return replace(_of_object(name, target, surroundings), place=place_of(target))


def _of_object(name: str, target: Any, surroundings: Surroundings) -> Shape:
    """Return the shape of a function, a class or an object."""
    if isinstance(target, type):
        shape = _of_class(name, target)
        if shape is not None:
            return shape
    elif is_estimator(target):
        return estimator_shape(name, target)
    elif is_episode(target):
        return episode_shape(name, target)
    if is_batched_reward(target):
        return _of_batched_reward(name, target, surroundings)
    try:
        return _of_function(name, target, surroundings)
    except BadOption as error:
        if not resembles_estimator(target):
            raise
        raise BadOption(f"{error}\nIf it makes advantages of rewards: {ADAPTER}") from error


def _of_batched_reward(name: str, target: Any, surroundings: Surroundings) -> Shape:
    """Return the shape of a reward function of a batch: completions are texts, or messages."""
    try:
        shape = _of_batch(name, BatchedReward(target, as_messages=False), surroundings)
        how = "texts"
    except BadOption as as_texts:
        try:
            shape = _of_batch(name, BatchedReward(target, as_messages=True), surroundings)
            how = "messages"
        except BadOption:
            raise as_texts from None
    return replace(shape, about=f"{shape.about}, of a batch of {how}")


def _of_command(command: tuple[str, ...], variable: str) -> Shape:
    name = " ".join(command)
    why = "it is another process"
    return _probed(name, lambda: ProcessClient(command, variable), "a command", why)


def _imported(target: str, variables: tuple[str, ...]) -> tuple[ModuleType, Any]:
    """Import a target while the environment has an address that can be recognised later.

    A module may read its address when it is imported.
    """
    importing = Surroundings(variables, None)
    importing.set(PLACEHOLDER)
    try:
        return _loaded(target)
    finally:
        importing.restore()


def _of_class(name: str, target: type) -> Shape | None:
    """Return the shape of an adapter or a tool; None for another class."""
    if issubclass(target, Adapter):
        if inspect.isabstract(target):
            raise BadOption(
                f"{name} is an adapter without `async def call(self, ask)`, which makes one call"
            )
        return Shape(name, "an adapter", target, target().takes)
    if is_sandbox_class(target):
        return sandbox_class_shape(name, target)
    lacking = missing_methods(target)
    if lacking:
        methods = ", ".join(f"{method}()" for method in lacking)
        raise BadOption(f"{name} looks like a tool of verl's, but has no {methods}")
    if is_tool(target):
        entry = {"class_name": f"{target.__module__}.{target.__qualname__}", "config": {}}
        return _probed(name, lambda: ToolClient(entry), "a tool class with verl's interface")
    return None


def _of_function(name: str, target: Any, surroundings: Surroundings) -> Shape:
    """Return the shape of a function, or of a class or object with a method that is one."""
    kind = "a class" if isinstance(target, type) else "a function"
    return _of_client(name, lambda: FunctionClient(target, name, surroundings), kind)


def _of_batch(name: str, reward: BatchedReward, surroundings: Surroundings) -> Shape:
    return _of_client(name, lambda: BatchClient(reward, name, surroundings), "a function")


def _of_client(name: str, make: Callable[[], FunctionClient], kind: str) -> Shape:
    """Return the shape of what such a client calls, which is of a kind unless it is a reward
    function."""
    first = make()
    if first.is_reward:
        kind = "a reward function"
    how = "asynchronous" if first.is_async else "synchronous, called in threads"
    why = "" if first.is_async else "it is synchronous"
    return _probed(name, make, f"{kind}, {how}", why)


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
    shape = _probed(str(path), lambda: ToolClient(entries[0]), about)
    module, _, name = str(entries[0]["class_name"]).rpartition(".")
    return replace(shape, place=place_of(getattr(sys.modules.get(module), name, None)))


def tool_shape(name: str, entry: Mapping[str, Any]) -> Shape:
    """Return the shape of a tool of a tool config."""
    return _probed(name, lambda: ToolClient(entry), f"the tool {entry.get('class_name')}")


# -- loading --


def _missing(module: str, place: str) -> str:
    """Say what to do about a module that the import of ``place`` did not find."""
    package = module.partition(".")[0]
    if package == place.partition(".")[0]:
        return "; run this in the folder of the module, or give its file as path/file.py:name"
    return (
        f"; install the package that has it beside sfusion, such as: {sys.executable} -m pip "
        f"install {package}"
    )


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
    except ModuleNotFoundError as error:
        raise BadOption(
            f"{text}: importing {place} failed: {error}{_missing(error.name or '', place)}"
        ) from error
    except (Exception, SystemExit) as error:
        raise BadOption(
            f"{text}: importing {place} failed with {type(error).__name__}: {error}"
        ) from error
    found: Any = module
    for part in name.split("."):
        if not hasattr(found, part):
            names = [name for name in dir(found) if not name.startswith("_")]
            raise BadOption(f"{text}: {place} has no {part!r}; {near(part, names)}")
        found = getattr(found, part)
    methods = [getattr(found, method, None) for method in ("run", "run_code", "execute")]
    if not callable(found) and not any(map(callable, methods)):
        raise BadOption(
            f"{text}: is a {type(found).__name__}, which cannot be called; give a "
            f"function or a class{_or_methods(text, found)}, or a function of yours that calls it"
        )
    return module, found


def _or_methods(text: str, found: Any) -> str:
    """Return the methods of an object that may be meant, as the end of a sentence."""
    public = [name for name, _ in inspect.getmembers(found, inspect.ismethod) if name[0] != "_"]
    return f", or a method: {', '.join(f'{text}.{name}' for name in public)}" if public else ""


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
        ran = CommandResult("Finished", 0.1, 0, "first\n", "")
        return render(RunCodeAnswer("Success", "", None, ran))


def _probed(name: str, make: Callable[[], Any], about: str, wall: str = "") -> Shape:
    """Make a first call, and learn from it how the client wants its address and what it carries and
    returns."""
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
