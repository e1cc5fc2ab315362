"""The plan of a trial as data: scenes of calls, programs and faults, in the order in which a stage
plays them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from ..lab.facts.truth import ProgramTruth
from .client import TrialAsk

TEST = ".test-"
"""Between the mark of a reward function's call and the number of its test."""


@dataclass(frozen=True)
class TrialCall:
    """A call of a scene, when it is made, and how it must end."""

    ask: TrialAsk
    end: str
    """How the call must end, by what programs and faults do; of ``any`` only the requests are
    judged."""
    at: float = 0.0
    """Seconds after the beginning of the scene."""
    in_turn: bool = False
    """Made as soon as the call before it in the scene has ended (and not before ``at``)."""
    needs: frozenset[str] = frozenset()
    """What a client must take for this call to be made."""
    cancel_after: float | None = None
    """Cancelled that many seconds after it was made."""
    cancel_steps: int = 0
    """Cancelled that many iterations of the event loop later."""


@dataclass(frozen=True)
class SandboxEvent:
    """Something that happens to a sandbox: ``crash``, ``restart``, ``wedge``, ``unwedge``; or a
    ``clock_jump``."""

    at: float
    kind: str
    sandbox: int = 0
    seconds: float = 0.0
    """By how much the wall clock jumps."""


@dataclass(frozen=True)
class Scene:
    """One client between its ``begin`` and ``end``, with sandboxes of its own."""

    name: str
    calls: tuple[TrialCall, ...]
    programs: Mapping[str, Sequence[ProgramTruth]] = field(default_factory=dict)
    """What the program with each mark does: on its first execution, its second, and so on; the last
    one stays."""
    faults: tuple[Mapping[str, Any], ...] = ()
    """Rules of every sandbox; those with the key ``sandbox`` are of that one alone."""
    events: tuple[SandboxEvent, ...] = ()
    sandboxes: int = 1
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Keys of ``Settings`` that differ from the plan's."""
    needs: frozenset[str] = frozenset()
    """What a client must take for this scene to be played."""
    horizon: float = 600.0
    """Seconds after which calls that have not ended are broken off."""
    shuffled: bool = False
    """What is ready at the same moment happens in an order drawn from the seed, where a stage can
    do that."""

    def fitting(self, takes: frozenset[str]) -> Scene:
        """Return the scene with the calls that a client can make."""
        return replace(self, calls=tuple(one for one in self.calls if one.needs <= takes))

    def test_of(self, call: str, stdin: Any) -> str | None:
        """Return the mark of the test that a request of a call with this standard input is for, if
        it has such."""
        return self._tests.get((call, stdin)) if isinstance(stdin, str) else None

    @cached_property
    def _tests(self) -> dict[tuple[str, str], str]:
        return {
            (one.ask.call, given): mark
            for one in self.calls
            for number, (given, _) in enumerate(one.ask.tests)
            if (mark := f"{one.ask.call}{TEST}{number}") in self.programs
        }


@dataclass(frozen=True)
class TrialPlan:
    """The scenes in order; a function makes one from the record so far (None: there is nothing to
    play)."""

    seed: int
    scenes: tuple[Scene | Callable[[Any], Scene | None], ...]
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Keys of ``Settings`` for every scene."""
    scale: float = 1.0
    """By how much every duration of the plan is shortened already."""
