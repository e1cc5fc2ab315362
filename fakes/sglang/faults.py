"""Faults of an engine: the rules that both fakes share, and the abort of a generation.

An engine object has no socket, so a fault that would break a connection raises an error.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any

from pydantic import Field

from ..errors import EngineDown, EngineRefused, FaultError
from ..faults import KINDS, Action, Arrival, Fate, FaultPlan, Rule, Status, load_rules, read_rules
from ..faults.action import part
from ..recent_counts import RecentCounts
from .generation import Generation, GenerationRequest
from .keyed_digest import hex_id
from .protocol import Finish
from .state import State


class Abort(Action):
    """End a generation early, gracefully or with an error ``status``.

    The engine ends with a status what it cannot finish.
    """

    kind = "abort"
    phases = ("during",)
    scalar = "at"
    built_in = False

    at: float = Field(default=0.5, ge=0)
    """After this share of the tokens (below 1), or after this many tokens."""
    message: str = "Aborted"
    """The message of the finish reason."""
    status: int | None = Field(default=None, ge=400, le=599)
    """The error status to end with; without one, the generation ends gracefully."""

    def shorten(self, generation: Generation) -> Generation:
        """What is left of a generation."""
        finish = Finish(
            "abort",
            message=self.message,
            status_code=self.status,
            err_type=self._error_type(),
        )
        return generation.until(part(self.at, generation.tokens), finish)

    def _error_type(self) -> str | None:
        """Return the name that sglang gives to errors of this status."""
        if self.status is None:
            return None
        return "InternalServerError" if self.status >= 500 else "BadRequestError"


ENGINE_KINDS: dict[str, type[Action]] = {**KINDS, Abort.kind: Abort}
"""The kinds of fault in a rule for an engine.

Kinds that only a sandbox has are read too, to be refused with a clear error.
"""


def engine_rules(source: object, *, where: str = "faults") -> list[Rule]:
    """Read rules from data as :func:`sfusion.fakes.faults.read_rules` does, ``abort`` included."""
    return checked(read_rules(source, where=where, kinds=ENGINE_KINDS), where=where)


def load_engine_rules(path: Path) -> list[Rule]:
    """Read the rules of a YAML file."""
    return checked(load_rules(path, kinds=ENGINE_KINDS), where=str(path))


def checked(rules: Iterable[Rule], *, where: str = "faults") -> list[Rule]:
    """Refuse the kinds that only a sandbox can have."""
    kept = list(rules)
    for rule in kept:
        for action in rule.what:
            if action.sandbox_only:
                raise FaultError(f"{where}: {action.kind} applies only to sandboxes")
    return kept


def split(rules: Iterable[Rule]) -> tuple[list[Rule], list[Rule]]:
    """The rules that strike at the socket, and those that strike in the engine."""
    wire: list[Rule] = []
    engine: list[Rule] = []
    for rule in rules:
        aborts = any(isinstance(action, Abort) for action in rule.what)
        if aborts:
            engine.append(rule)
        else:
            wire.append(rule)
    return wire, engine


Wait = Callable[[float], Awaitable[float]]
"""Lets working time pass, unless the request is ended meanwhile."""


class EngineSite:
    """A request to an engine without a socket, as the site of a fault."""

    def __init__(self, engine: State, wait: Wait, started: float) -> None:
        self._engine = engine
        self._wait = wait
        self._started = started

    async def sleep(self, seconds: float) -> None:
        await self._wait(seconds)

    def active_for(self) -> float:
        return asyncio.get_running_loop().time() - self._started

    def respond(self, status: Status) -> None:
        message = f"The engine refused the request with status {status.status}."
        raise EngineRefused(message, status.status)

    async def hang(self, seconds: float | None) -> None:
        await self._wait(math.inf if seconds is None else seconds)
        raise EngineDown("The engine did not answer.")

    def reset(self) -> None:
        raise EngineDown("The connection to the engine was lost.")

    close = reset

    def spoil(self, action: Any) -> None:
        self.reset()

    def wedge(self, ping: Any, seconds: float | None) -> None:
        self.reset()

    def die(self, how: Any) -> None:
        self.reset()

    def crash(self, restart_after: float | None) -> None:
        self._engine.crash()
        if restart_after is not None:
            asyncio.get_running_loop().call_later(restart_after, self._engine.restart)
        raise EngineDown("The engine died.")


MOST_QUESTIONS = 20_000
"""Questions whose attempts are counted (chosen: as many as a ledger remembers calls)."""


class EngineFaults:
    """The rules of one engine, and how often each question was asked."""

    def __init__(self, rules: Iterable[Rule], seed: int) -> None:
        self.plan = FaultPlan(possible(rules), seed=seed)
        self._asked = RecentCounts(MOST_QUESTIONS)
        self._started: float | None = None

    def fate(self, request: GenerationRequest, running: int) -> Fate | None:
        """Decide what happens to a request; a question is the same call whenever it is asked."""
        if not self.plan.rules:
            return None
        if self._started is None:
            self._started = asyncio.get_running_loop().time()
            self.plan.started = self._started
        call = hex_id(16, *request.keys)
        arrival = Arrival(
            call=call,
            attempt=self._asked.add(call),
            code=request.prompt,
            in_flight=max(1, running),
        )
        return self.plan.fate(arrival)

    async def before(self, fate: Fate | None, wait: Wait, engine: State) -> None:
        """Strike before anything is generated."""
        if fate is None:
            return
        site = EngineSite(engine, wait, self.plan.started)
        for strike in fate.at("before", asyncio.get_running_loop().time()):
            waiting = strike.action.strike(site, strike.draw)
            if waiting is not None:
                await waiting

    def during(self, fate: Fate | None, generation: Generation) -> Generation:
        """Strike what is generated, and return what is left of it."""
        if fate is None:
            return generation
        for strike in fate.at("during", asyncio.get_running_loop().time()):
            if isinstance(strike.action, Abort):
                generation = strike.action.shorten(generation)
        return generation


def possible(rules: Iterable[Rule]) -> list[Rule]:
    """Refuse rules that need a sandbox or a socket: they would never strike."""
    kept = checked(rules)
    for rule in kept:
        for phase, actions in rule.actions_by_phase.items():
            for action in actions:
                possible_phase = "during" if isinstance(action, Abort) else "before"
                if phase != possible_phase:
                    raise FaultError(
                        f"{rule.name or action.kind}: {action.kind} in phase {phase!r} strikes at "
                        "a socket, and an engine object has none; give the rule to "
                        "FakeSGLangServer"
                    )
    return kept
