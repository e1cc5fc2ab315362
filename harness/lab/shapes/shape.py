"""Which shape a target has.

Found by looking at it, and by a first call to a server that accepts everything.
"""

from __future__ import annotations

import inspect
import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

from sfusion_tools.tool_registry import read_entries

from ...core.place import place_of
from ...errors import BadOption
from ..client import Returned, Settings, Shape, TrialAsk
from .batched import BatchClient, BatchedReward, is_batched_reward
from .episode import episode_shape, is_episode, is_sandbox_class, sandbox_class_shape
from .estimator import ADAPTER, estimator_shape, is_estimator, resembles_estimator
from .first_call import probed
from .function import PLACEHOLDER, FunctionClient, Surroundings
from .importing import loaded
from .process import ProcessClient
from .tool import ToolClient, is_tool, missing_methods

VARIABLES = ("SANDBOX_FUSION_URL", "SANDBOX_FUSION_ENDPOINT", "SANDBOX_URL")
"""Environment variables in which clients look for the address."""


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
    return probed(name, lambda: ProcessClient(command, variable), "a command", why)


def _imported(target: str, variables: tuple[str, ...]) -> tuple[ModuleType, Any]:
    """Import a target while the environment has an address that can be recognised later.

    A module may read its address when it is imported.
    """
    importing = Surroundings(variables, None)
    importing.set(PLACEHOLDER)
    try:
        return loaded(target)
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
        return probed(name, lambda: ToolClient(entry), "a tool class with verl's interface")
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
    return probed(name, make, f"{kind}, {how}", why)


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
    shape = probed(str(path), lambda: ToolClient(entries[0]), about)
    module, _, name = str(entries[0]["class_name"]).rpartition(".")
    return replace(shape, place=place_of(getattr(sys.modules.get(module), name, None)))


def tool_shape(name: str, entry: Mapping[str, Any]) -> Shape:
    """Return the shape of a tool of a tool config."""
    return probed(name, lambda: ToolClient(entry), f"the tool {entry.get('class_name')}")
