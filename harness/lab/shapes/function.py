"""Functions and methods as clients: synchronous ones run in threads, the address comes as they
take it."""

from __future__ import annotations

import asyncio
import copy
import inspect
import os
import re
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any

from sfusion_tools.errors import near

from ...errors import BadOption
from ..client import Returned, Settings, TrialAsk
from ..facts.sent import WIRE_DEFAULTS
from ..pauses import seconds_paused
from .parameters import (
    ROUTE,
    SOFT,
    WIRE,
    Parameters,
    call_values,
    is_unencoded,
    misnamed,
    request_takes,
    seen_in,
    settings_values,
    takes_several,
)
from .results import raised, returned_from

PLACEHOLDER = "http://sandbox.invalid:8080"
"""Stands for the address while a module is imported that reads it from the environment."""
_HOST = re.compile(r"^[a-z]+://[^/]+")
_METHODS = ("run", "run_code", "execute", "__call__")
_CONFIGURED = ("headers", "rate_limit", "deadline", "compile_timeout", "memory")


class Surroundings:
    """Environment variables and module attributes that hold the address.

    Several clients may use them at a time. A variable is only taken away after the last of them:
    reading all of the environment fails in the thread of a client if one disappears meanwhile.
    """

    def __init__(
        self,
        variables: tuple[str, ...],
        module: ModuleType | None,
        attributes: tuple[str, ...] = (),
    ) -> None:
        self._variables = variables
        self._module = module
        values = vars(module) if module else {}
        self._templates = {name: value for name, value in values.items() if _holds_place(value)}
        for name in attributes:
            value = getattr(module, name, None)
            if not isinstance(value, str):
                strings = [key for key, other in vars(module).items() if isinstance(other, str)]
                known = [key for key in strings if key[0] != "_"]
                raise BadOption(
                    f"--attribute {name}: {module} has no string {name!r}; {near(name, known)}"
                )
            self._templates[name] = _HOST.sub(PLACEHOLDER, value) or PLACEHOLDER
        self._before: dict[str, str | None] = {}
        self._users: set[object] = set()

    def set(self, address: str, user: object = None) -> None:
        self._users.add(user)
        self._before = self._before or {name: os.environ.get(name) for name in self._variables}
        os.environ.update(dict.fromkeys(self._variables, address))
        for name, template in self._templates.items():
            setattr(self._module, name, template.replace(PLACEHOLDER, address))

    def restore(self, user: object = None) -> None:
        self._users.discard(user)
        if self._users:
            return
        for name, value in self._before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        self._before = {}


def _holds_place(value: Any) -> bool:
    return isinstance(value, str) and PLACEHOLDER in value


def _is_method(target: Any, name: str) -> bool:
    """Calling a class makes an object, so only a `__call__` of its own is a method."""
    bases = (target if isinstance(target, type) else type(target)).__mro__
    own = name != "__call__" or any(name in vars(base) for base in bases)
    return own and callable(getattr(target, name, None))


class FunctionClient:
    """A function, a method of an object, or a class of which each scene gets an object."""

    learned = ("route", "takes", "other_form")
    other_form = False
    """It takes files as bytes, not in base64; tests as an object, not as JSON, or the other way
    round."""

    def __init__(self, target: Any, where: str, surroundings: Surroundings) -> None:
        self._class = target if isinstance(target, type) else None
        self._surroundings = surroundings
        name = next((method for method in _METHODS if _is_method(target, method)), "")
        if not name and not inspect.isroutine(target):
            raise BadOption(
                f"{where}: cannot be called; give a function, or one of "
                f"{', '.join(_METHODS)} as a method"
            )
        if self._class is not None:
            self._made_with = Parameters.of(target, f"{where}()")
            self.function: Callable[..., Any] = getattr(target, name)
            self.parameters = Parameters.of(self.function, f"{where}.{name}")
            self._method = name
        else:
            self._made_with = Parameters({})
            self.function = target if inspect.isroutine(target) else getattr(target, name)
            self.parameters = Parameters.of(self.function, where)
            self._method = ""
        self.is_async = inspect.iscoroutinefunction(inspect.unwrap(self.function))
        roles = {**self._made_with.roles, **self.parameters.roles}
        self.is_reward = "tests" in roles
        self.own_address = "url" in roles
        self.route = ROUTE if _wants_route(roles.get("url")) else ""
        self.takes = self._takes(roles)
        self._settings: Settings
        self._object: Any = None
        self._lent: list[tuple[Any, Any]] = []
        """What the object was made with, as it was and as it is."""

    def _takes(self, roles: Mapping[str, inspect.Parameter]) -> frozenset[str]:
        takes = {role for role in (*WIRE, *_CONFIGURED) if role in roles} | {"concurrent"}
        takes |= {"urls"} if takes_several(roles.get("url")) else set()
        if "request" in roles:
            takes |= request_takes(roles["request"])
        if "timeout" in takes:
            takes.add("default_timeout")
            if "timeout" not in self.parameters.roles and "request" not in roles:
                takes.discard("timeout")
        if self.is_reward:
            return frozenset(takes - {"stdin", "files"} | {"tests", "reward", "raises"})
        return frozenset(
            takes | {"code", "text", "raises"} | ({"cancel"} if self.is_async else set())
        )

    def learn(self, sent: Mapping[str, Any], asked: Mapping[str, Any], returned: Returned) -> None:
        """Take back what a first call did not show: meanings that soft names may have, fields
        that did not come."""
        roles = {**self._made_with.roles, **self.parameters.roles}
        of_wire = {role: parameter for role, parameter in roles.items() if role in WIRE}
        soft = {role for role, parameter in of_wire.items() if parameter.name.lower() in SOFT}
        unseen = {role for role in soft - seen_in(sent, asked) if not misnamed(sent, asked, role)}
        if "timeout" in unseen:
            unseen.add("default_timeout")
            if sent.get("run_timeout", WIRE_DEFAULTS["run_timeout"]) >= asked["run_timeout"]:
                self.takes |= {"timeout_unsent"}
        if self.other_form and is_unencoded(sent, asked):
            unseen.discard("files")  # given as bytes, so it was the client's to encode them
        self.takes -= unseen
        if returned.reward is not None:
            self.takes |= {"reward"}

    async def begin(self, settings: Settings) -> None:
        self._settings = settings
        self._surroundings.set(settings.urls[0] + self.route, self)
        if self._class is not None:
            args, kwargs = self._made_with.bind(
                settings_values(settings, self._made_with, self.route)
            )
            self._lent = _modifiable(args, kwargs)
            try:
                self._object = self._class(*args, **kwargs)
            except Exception as error:
                given = ", ".join(
                    [*map(repr, args), *(f"{name}={value!r}" for name, value in kwargs.items())]
                )
                problem = (
                    f"{self._class.__qualname__}({given}) raised {type(error).__name__}: {error}"
                )
                raise BadOption(
                    f"{problem}. Judge a function of yours that makes it with what it needs"
                ) from error
            if hasattr(self._object, "__aenter__"):
                self._object = await self._object.__aenter__()

    async def call(self, ask: TrialAsk) -> Returned:
        function = self.function if self._class is None else getattr(self._object, self._method)
        args, kwargs = self._arguments(ask)
        lent = [*self._lent, *_modifiable(args, kwargs)]
        pauses = _Pauses()
        try:
            returned = returned_from(await self._called(lambda: function(*args, **kwargs), pauses))
        except Exception as error:
            returned = raised(error)
        returned = replace(returned, paused=pauses.seen)
        for before, after in lent:
            if before != after:
                return replace(returned, altered=f"{before!r:.200} became {after!r:.200}")
        return returned

    def _arguments(self, ask: TrialAsk) -> tuple[list[Any], dict[str, Any]]:
        """Return the positional and the keyword arguments of a call."""
        values = call_values(
            ask,
            self._settings,
            self.parameters,
            self.route,
            self._made_with,
            other_form=self.other_form,
        )
        return self.parameters.bind(values)

    async def _called(self, work: Callable[[], Any], pauses: _Pauses | None = None) -> Any:
        """Return what a function returns: a synchronous one is called in a thread."""
        result = work() if self.is_async else await _in_thread(work, pauses or _Pauses())
        return await result if inspect.isawaitable(result) else result

    async def end(self) -> None:
        self._surroundings.restore(self)
        used = self._object
        self._object = None
        if hasattr(used, "__aexit__"):
            await used.__aexit__(None, None, None)
            return
        names = [name for name in ("aclose", "close") if hasattr(used, name)]
        close = getattr(used, names[0]) if names else None
        if close is not None:
            with suppress(TypeError):
                result = close()
                if inspect.isawaitable(result):
                    await result

    def inside(self) -> Any:
        return None


def _modifiable(args: list[Any], kwargs: dict[str, Any]) -> list[tuple[Any, Any]]:
    """Return the arguments that can be changed, each with a copy before it."""
    given = (*args, *kwargs.values())
    return [(copy.deepcopy(value), value) for value in given if isinstance(value, dict | list)]


@dataclass
class _Pauses:
    """Whether a thread ever paused."""

    seen: bool | None = None

    def note(self) -> None:
        seconds = seconds_paused()
        self.seen = None if seconds is None else seconds > 0.0


async def _in_thread(work: Callable[[], Any], pauses: _Pauses) -> Any:
    """Call a function in a thread that nobody waits for at the end: it may be stuck for good."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[Any] = loop.create_future()

    def deliver(result: Any, error: Exception | None) -> None:
        if not answer.done():
            answer.set_exception(error) if error is not None else answer.set_result(result)

    def call() -> None:
        result = None
        failed = None
        try:
            result = work()
        except Exception as error:
            failed = error
        pauses.note()
        with suppress(RuntimeError):  # the scene is over, and its loop closed
            loop.call_soon_threadsafe(deliver, result, failed)

    threading.Thread(target=call, name="client", daemon=True).start()
    return await answer


def _wants_route(one: inspect.Parameter | None) -> bool:
    """Say whether an address probably includes the route; the first call shows whether that is
    so."""
    if one is None:
        return False
    default = one.default if isinstance(one.default, str) else ""
    return (
        default.rstrip("/").endswith(ROUTE) or one.name.lower().strip("_") == "sandbox_fusion_url"
    )
