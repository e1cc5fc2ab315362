"""A target that plays whole episodes: a function of one ``task``, asynchronous or not, or a class
that holds a sandbox."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ...errors import BadOption
from ..client import EPISODE, Returned, Settings, Shape, TrialAsk
from ..scenarios.episodes import FACES

_NAMES = ("task", "episode")
"""What the only required parameter is called."""
_METHODS = ("create", "exec", "delete")
"""The methods of a class that holds a sandbox."""
_IN_WALL = "an SDK may wait in threads, or in code that no virtual clock reaches"


def is_episode(target: Any) -> bool:
    """Is this a function whose only required parameter is called ``task``?"""
    if isinstance(target, type) or not callable(target):
        return False
    required = _required(target)
    return len(required) == 1 and required[0] in _NAMES


def is_sandbox_class(target: type) -> bool:
    """Is this a class with the methods create, exec and delete?"""
    return all(callable(getattr(target, method, None)) for method in _METHODS)


def _required(target: Any) -> list[str]:
    """Return the names of the parameters that must be given by position."""
    try:
        parameters = inspect.signature(target).parameters.values()
    except (TypeError, ValueError):
        return []
    return [
        parameter.name
        for parameter in parameters
        if parameter.default is parameter.empty and _is_named(parameter)
    ]


def _is_named(parameter: inspect.Parameter) -> bool:
    return parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)


def episode_shape(name: str, target: Callable[[Any], Any]) -> Shape:
    """Return the shape of a function that plays episodes."""
    return _shape(name, target, "a function that plays episodes", defined=target)


def sandbox_class_shape(name: str, target: type) -> Shape:
    """Return the shape of a class that holds a sandbox; an episode is played with each object."""
    if _required(target):
        raise BadOption(
            f"{name} needs {', '.join(_required(target))} to be made; give a function of one "
            "`task` that makes it"
        )
    has_async = is_async(getattr(target, "exec", None))
    play = _async_episode(target) if has_async else _sync_episode(target)
    return _shape(name, play, "a class that holds a sandbox", defined=target)


def _shape(name: str, target: Callable[[Any], Any], what: str, *, defined: Any) -> Shape:
    how = "asynchronous" if is_async(target) else "synchronous, called in threads"
    return Shape(
        name,
        f"{what}, {how}",
        lambda: EpisodeClient(target, source=name if ":" in name else ""),
        frozenset({EPISODE}),
        wall=_IN_WALL,
        sim_if_asked=is_async(target),
        face=_named_face(defined),
    )


def _named_face(target: Any) -> str:
    """Return the only service that the file of a target names, else the only one whose SDK is
    imported; empty if that is not clear."""
    named = [face for face in FACES if re.search(rf"(?i)(?<![a-z]){face}", _text_around(target))]
    if len(named) != 1:
        named = [face for face in named or FACES if face in sys.modules]
    return named[0] if len(named) == 1 else ""


def _text_around(target: Any) -> str:
    """Return the text of the file of a target; empty if it has none."""
    is_definition = inspect.isroutine(target) or inspect.isclass(target)
    try:
        file = inspect.getsourcefile(target if is_definition else type(target))
        return Path(file or "").read_text(encoding="utf-8", errors="replace")
    except (OSError, TypeError):
        return ""


def is_async(target: Any) -> bool:
    called = getattr(target, "__call__", None)  # noqa: B004 # an object may have an async method
    return inspect.iscoroutinefunction(target) or inspect.iscoroutinefunction(called)


# -- an episode with an object of a class --


def _async_episode(target: type) -> Callable[[Any], Any]:
    async def play(task: Any) -> dict[str, Any]:
        holder = target()
        handle = await _awaited(holder.create(*_labels(holder, task)))
        answers = []
        try:
            for step in task.steps:
                if step.kind == "exec":
                    given = *_with_handle(holder.exec, handle), step.command
                    said = await _awaited(holder.exec(*given))
                    answers.append(text_of(said))
        finally:
            await _awaited(holder.delete(*_with_handle(holder.delete, handle, 1)))
        return {"score": 1.0, "outcome": "ok", "answers": answers}

    return play


def _sync_episode(target: type) -> Callable[[Any], Any]:
    def play(task: Any) -> dict[str, Any]:
        holder = target()
        handle = holder.create(*_labels(holder, task))
        answers = []
        try:
            for step in task.steps:
                if step.kind == "exec":
                    said = holder.exec(*_with_handle(holder.exec, handle), step.command)
                    answers.append(text_of(said))
        finally:
            holder.delete(*_with_handle(holder.delete, handle, 1))
        return {"score": 1.0, "outcome": "ok", "answers": answers}

    return play


async def _awaited(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value


def _labels(holder: Any, task: Any) -> tuple[Any, ...]:
    """Return the labels if ``create`` has a parameter for them."""
    parameters = list(inspect.signature(holder.create).parameters.values())
    return (task.labels,) if any(map(_is_named, parameters)) else ()


def _with_handle(method: Any, handle: Any, needed: int = 2) -> tuple[Any, ...]:
    """Return what ``create`` returned if a method wants it before its other parameters."""
    return (handle,) if len(_required(method)) >= needed else ()


def text_of(said: Any) -> str:
    """Return what a command printed: a text, or the field, key or element of a result that has
    it."""
    if isinstance(said, tuple):  # exit code, stdout, stderr
        return next((str(part) for part in said if isinstance(part, str)), "")
    for name in ("stdout", "result", "output"):
        found = said.get(name) if isinstance(said, dict) else getattr(said, name, None)
        if isinstance(found, str):
            return found
    return "" if said is None else str(said)


class EpisodeClient:
    """Holds the function; it makes no single calls."""

    takes = frozenset({EPISODE})

    def __init__(self, target: Callable[[Any], Any], *, source: str = "") -> None:
        self.target = target
        self.source = source
        """How another process imports it: ``module:name`` or ``file.py:name``; perhaps empty."""

    async def begin(self, settings: Settings) -> None:
        """Nothing to set: the variables of the SDK are set for the run."""

    async def call(self, ask: TrialAsk) -> Returned:
        raise BadOption("a function of one `task` plays episodes; it makes no single calls")

    async def end(self) -> None:
        """Nothing to close."""

    def inside(self) -> Any:
        return None
