"""A target that plays whole episodes: a function of one ``task``, asynchronous or not."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from ...errors import BadOption
from ..client import EPISODE, Returned, Settings, Shape, TrialAsk

_NAMES = ("task", "episode")
"""How the one parameter of such a function is called."""
_IN_WALL = "an SDK may wait in threads, or in code that no virtual clock reaches"


def is_episode(target: Any) -> bool:
    """Is this a function whose only required parameter is called ``task``?"""
    if isinstance(target, type) or not callable(target):
        return False
    try:
        parameters = list(inspect.signature(target).parameters.values())
    except (TypeError, ValueError):
        return False
    required = [one.name for one in parameters if one.default is one.empty and _is_named(one)]
    return len(required) == 1 and required[0] in _NAMES


def _is_named(parameter: inspect.Parameter) -> bool:
    return parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)


def episode_shape(name: str, target: Callable[[Any], Any]) -> Shape:
    """Return the shape of a function that plays episodes."""
    how = "asynchronous" if is_async(target) else "synchronous, called in threads"
    takes = frozenset({EPISODE})
    return Shape(
        name,
        f"a function that plays episodes, {how}",
        lambda: EpisodeClient(target),
        takes,
        wall=_IN_WALL,
    )


def is_async(target: Any) -> bool:
    called = getattr(target, "__call__", None)  # noqa: B004 # an object may have an async method
    return inspect.iscoroutinefunction(target) or inspect.iscoroutinefunction(called)


class EpisodeClient:
    """Holds the function; it makes no single calls."""

    takes = frozenset({EPISODE})

    def __init__(self, target: Callable[[Any], Any]) -> None:
        self.target = target

    async def begin(self, settings: Settings) -> None:
        """Nothing to set: the variables of the SDK are set for the run."""

    async def call(self, ask: TrialAsk) -> Returned:
        raise BadOption("a function of one `task` plays episodes; it makes no single calls")

    async def end(self) -> None:
        """Nothing to close."""

    def inside(self) -> Any:
        return None
