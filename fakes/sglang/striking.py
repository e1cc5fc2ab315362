"""Faults that strike in the engine itself, for callers of the object as well as of the server."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Protocol

from sfusion.fakes.errors import EngineDown, EngineRefused
from sfusion.fakes.faults import Attempt, Crash, Degrade, Delay, Fate, FaultError, FaultPlan, Hang, Rule, Status
from sfusion.fakes.sglang.chance import hex_id
from sfusion.fakes.sglang.faults import Abort, checked
from sfusion.fakes.sglang.generation import Generation, GenerationRequest

Wait = Callable[[float], Awaitable[float]]
"""Lets working time pass, unless the request is ended meanwhile."""


class Mortal(Protocol):
    """What can be brought down."""

    def crash(self) -> None:
        """Die."""
        ...

    def restart(self) -> None:
        """Come back."""
        ...


class EngineFaults:
    """The rules of one engine, and how often each question was asked."""

    def __init__(self, rules: Iterable[Rule], seed: int) -> None:
        self._plan = FaultPlan(_possible(checked(rules)), seed=seed)
        self._asked: dict[str, int] = {}
        self._started: float | None = None

    def fate(self, request: GenerationRequest, running: int) -> Fate | None:
        """What will happen to a request; a question is the same call whenever it is asked."""
        if not self._plan.rules:
            return None
        if self._started is None:
            self._started = self._plan.started = asyncio.get_running_loop().time()
        call = hex_id(16, *request.keys)
        self._asked[call] = self._asked.get(call, 0) + 1
        attempt = Attempt(call=call, attempt=self._asked[call], code=request.prompt, in_flight=max(1, running))
        return self._plan.fate(attempt)

    async def before(self, fate: Fate | None, wait: Wait, engine: Mortal) -> None:
        """What goes wrong before anything is said."""
        loop = asyncio.get_running_loop()
        for strike in fate.at("before", loop.time()) if fate is not None else ():
            match strike.action:
                case Delay(delay=delay):
                    await wait(delay.sample(strike.draw))
                case Degrade() as slower:
                    await wait(slower.at(loop.time() - self._plan.started))
                case Hang(seconds=seconds):
                    await wait(float("inf") if seconds is None else seconds)
                    raise EngineDown("The engine did not answer.")
                case Status(status=status):
                    raise EngineRefused(f"The engine refused the request with status {status}.", status)
                case Crash(restart_after=restart_after):
                    engine.crash()
                    if restart_after is not None:
                        loop.call_later(restart_after, engine.restart)
                    raise EngineDown("The engine died.")
                case _:
                    raise EngineDown("The connection to the engine was lost.")

    def during(self, fate: Fate | None, generation: Generation) -> Generation:
        """What is left of a generation."""
        now = asyncio.get_running_loop().time()
        for strike in fate.at("during", now) if fate is not None else ():
            if isinstance(strike.action, Abort):
                tokens = strike.action.tokens(generation.tokens)
                generation = generation.until(tokens, strike.action.finish())
        return generation


def _possible(rules: Iterable[Rule]) -> list[Rule]:
    """Refuse what only a socket can suffer, instead of never striking."""
    kept = list(rules)
    for rule in kept:
        for phase, actions in rule.actions_by_phase.items():
            for action in actions:
                if phase != ("during" if isinstance(action, Abort) else "before"):
                    raise FaultError(
                        f"{rule.name or action.kind}: {action.kind} in phase {phase!r} strikes at a socket, and an "
                        "engine object has none; give the rule to FakeSGLangServer"
                    )
    return kept
