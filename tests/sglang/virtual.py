"""An event loop whose time jumps to the next timer, so that a test of long waits takes none."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class VirtualLoop(asyncio.SelectorEventLoop):
    """Nothing sleeps: waiting moves the clock."""

    def __init__(self) -> None:
        super().__init__()
        self._now = 0.0
        select = self._selector.select  # type: ignore[attr-defined] # the loop's own, of every CPython

        def jump(timeout: float | None = None) -> Any:
            if timeout is not None and timeout > 0:
                self._now += timeout
            return select(0)

        self._selector.select = jump  # type: ignore[attr-defined] # likewise

    def time(self) -> float:
        """Virtual seconds."""
        return self._now


def run_virtually(work: Coroutine[Any, Any, T]) -> T:
    """Run something on virtual time."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(work)
