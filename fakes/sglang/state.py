"""The state of the engine, and how long its work takes.

The state holds the requests that run and wait, the counters, and the prefix cache.
"""

from __future__ import annotations

import asyncio
import math
from array import array
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from .protocol import Finish

_BLOCK = 16
"""How many tokens the prefix cache knows or does not know together.

Chosen: short prompts have several blocks, long ones need little memory.
"""

MOST_BLOCKS = 50_000
"""Blocks in the prefix cache (chosen: 800,000 tokens, as of one large GPU, and some 5 MB)."""

Known = tuple[int, int]
"""How many leading tokens of a prompt are in the prefix cache, and the digest of their blocks."""


class PrefixCache:
    """Remembers the prefixes that were served.

    It keeps digests of blocks, so that only new text takes memory. Beyond ``MOST_BLOCKS`` it
    forgets those that were not used for longest, and of one text the last first.
    """

    def __init__(self) -> None:
        self._seen: OrderedDict[int, None] = OrderedDict()
        """The one that is forgotten next first."""
        self.forgotten = 0
        """How many blocks were forgotten."""

    def match(self, ids: Sequence[int]) -> Known:
        """Return how much of a sequence is known."""
        known = []
        for block in _blocks(ids, 0):
            if block not in self._seen:
                break
            known.append(block)
        self._use(known)
        return len(known) * _BLOCK, known[-1] if known else 0

    def add(self, ids: Sequence[int], tokens: int, digest: int) -> None:
        """Remember a sequence and all its prefixes; its first ``tokens`` are known already."""
        self._use(list(_blocks(ids[tokens:], digest)))
        while len(self._seen) > MOST_BLOCKS:
            self._seen.popitem(last=False)
            self.forgotten += 1

    def _use(self, blocks: list[int]) -> None:
        for block in reversed(blocks):
            self._seen[block] = None
            self._seen.move_to_end(block)

    def clear(self) -> None:
        self._seen.clear()


def _blocks(ids: Sequence[int], before: int) -> Iterator[int]:
    """Yield the digest of each whole block and of all before it."""
    numbers = array("q", ids)
    data = numbers.tobytes()
    size = numbers.itemsize * _BLOCK
    for start in range(0, len(data) - size + 1, size):
        before = hash((before, data[start : start + size]))
        yield before


@dataclass(frozen=True, slots=True)
class EngineSnapshot:
    """The state of an engine at one moment, with its counters since the start."""

    up: bool
    paused: bool
    running: int
    waiting: int
    finished: int
    aborted: int
    refused: int
    failed: int
    prompt_tokens: int
    completion_tokens: int
    restarts: int
    forgotten_blocks: int
    """Blocks of 16 tokens that the prefix cache had no room for."""
    running_tokens: int
    """Tokens of the running requests: of their prompts, and of what their streams have so far."""
    waiting_tokens: int


@dataclass(slots=True, eq=False)
class EngineRun:
    """One request between its arrival and its end.

    ``wake`` is set when another field has changed.
    """

    rid: str
    tokens: int
    """Tokens of its prompt, and of what its stream has so far."""
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    ended_by: Finish | None = None
    crashed: bool = False


@dataclass(slots=True)
class State:
    """The state and its rules; nothing here waits."""

    cache: PrefixCache = field(default_factory=PrefixCache)
    working: dict[EngineRun, None] = field(default_factory=dict)
    waiting: dict[EngineRun, None] = field(default_factory=dict)
    up: bool = True
    paused: bool = False
    arrivals: int = 0
    finished: int = 0
    aborted: int = 0
    refused: int = 0
    failed: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    restarts: int = 0

    @property
    def running(self) -> int:
        return len(self.working)

    @property
    def runs(self) -> list[EngineRun]:
        """All requests, waiting ones last."""
        return [*self.working, *self.waiting]

    @property
    def idle(self) -> bool:
        return not self.working and not self.waiting

    def first_waiting(self) -> EngineRun | None:
        """The request that runs next when a slot is free."""
        return next(iter(self.waiting), None)

    def admit(self, run: EngineRun) -> None:
        del self.waiting[run]
        self.working[run] = None

    def leave(self, run: EngineRun) -> None:
        self.waiting.pop(run, None)
        self.working.pop(run, None)

    def abort(self, rid: str, all_of_them: bool) -> int:
        """Abort the requests whose id begins with ``rid``, or all; return how many.

        An empty id matches none.
        """
        hit = [run for run in self.runs if all_of_them or (rid and run.rid.startswith(rid))]
        for run in hit:
            run.ended_by = Finish.aborted()
            run.wake.set()
        return len(hit)

    def crash(self) -> None:
        """Drop all requests and the cache."""
        self.up = False
        self.cache.clear()
        for run in self.runs:
            run.crashed = True
            run.wake.set()

    def restart(self) -> None:
        """Come back with an empty cache."""
        self.up = True
        self.paused = False
        self.restarts += 1

    def snapshot(self) -> EngineSnapshot:
        return EngineSnapshot(
            up=self.up,
            paused=self.paused,
            running=self.running,
            waiting=len(self.waiting),
            finished=self.finished,
            aborted=self.aborted,
            refused=self.refused,
            failed=self.failed,
            prompt_tokens=self.prompt_tokens,
            completion_tokens=self.completion_tokens,
            restarts=self.restarts,
            forgotten_blocks=self.cache.forgotten,
            running_tokens=sum(run.tokens for run in self.working),
            waiting_tokens=sum(run.tokens for run in self.waiting),
        )


@dataclass(frozen=True, slots=True)
class Latency:
    """A latency model; all zero by default, so that tests do not wait.

    ``first_token`` seconds, then ``per_token`` for each further token. ``load`` stretches both:
    with k requests running they take 1 + load * (k - 1) times as long.
    """

    first_token: float = 0.0
    per_token: float = 0.0
    load: float = 0.0

    def __post_init__(self) -> None:
        for name in self.__slots__:
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise ValueError(
                    f"latency: {name} must be a finite number of at least 0, found {value}"
                )

    def factor(self, running: int) -> float:
        """Return how much slower a request is than one alone."""
        return 1.0 + self.load * max(running - 1, 0)

    def for_tokens(self, count: int, factor: float) -> float:
        """Return the seconds that ``count`` further tokens take."""
        return factor * self.per_token * count
