"""A permit, and what gives permits."""

from __future__ import annotations

from typing import Any, Generic, Protocol, Self, TypeVar

L = TypeVar("L")


class Permit(Generic[L]):
    """The right to have one attempt in flight, from entering this context manager to leaving it."""

    __slots__ = (
        "__weakref__",
        "_limiter",
        "_out",
        "_succeeded",
        "_throttled",
        "_timeout",
        "id",
        "waited",
    )

    def __init__(self, limiter: L, timeout: float | None) -> None:
        self._limiter = limiter
        self._timeout = timeout
        self._out = False
        self._succeeded = False
        self._throttled = False
        self.id = ""
        self.waited = 0.0
        """Seconds spent in the queue, also if no permit was granted."""

    async def __aenter__(self) -> Self:
        raise NotImplementedError

    async def __aexit__(self, *_: object) -> None:
        raise NotImplementedError

    def report(self, *, succeeded: bool = False, throttled: bool = False) -> None:
        """Say how the attempt ended; an adaptive limit follows it."""
        self._succeeded = succeeded
        self._throttled = throttled


class PermitSource(Protocol):
    """Gives permits to the callers of one event loop."""

    def permit(self, timeout: float | None = None) -> Permit[Any]:
        """Return a permit to enter; entering raises PermitTimeout after ``timeout`` seconds."""

    @property
    def held(self) -> int:
        """The number of permits that callers of this loop hold."""

    @property
    def waiting(self) -> int:
        """The number of callers of this loop that wait for a permit."""

    async def aclose(self) -> None:
        """End: waiting callers get LimiterClosed, permits return."""
