"""What a world provides to play a scenario: a cluster with its workers, limiter and sandboxes, all
as seen from outside."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from sfusion_tools.limiter import Snapshot

from ...errors import WorldError
from .recorder import Recorder
from .sandboxes import FakeSandboxes

if TYPE_CHECKING:
    from .worker_rollouts import Model


class WorkerHandle(Protocol):
    """A worker as seen from outside."""

    @property
    def name(self) -> str: ...

    @property
    def alive(self) -> bool: ...

    async def call(self, number: int) -> None:
        """Make a call; return when it has ended or the worker has died."""

    async def roll(self, name: str) -> str | None:
        """Run a trajectory and return its final state; None if it was cancelled or the worker
        died."""

    async def pause(self) -> None: ...

    async def resume(self) -> None: ...

    async def cut_off(self, off: bool) -> None:
        """Cut the connection to the limiter, or restore it."""


class LimiterHandle(Protocol):
    """The limiter of a run as seen from outside."""

    @property
    def lease(self) -> float | None:
        """How long a permit lives without renewal; None if it is dead and stays dead."""

    async def kill(self, seconds: float | None) -> None:
        """Kill it; restart it after ``seconds``, unless the world restarts it on its own."""

    async def restart(self) -> None: ...

    async def pause(self) -> None: ...

    async def resume(self) -> None: ...

    async def resize(self, rate_limit: int) -> None: ...

    async def snapshot(self) -> Snapshot | None: ...


class Backend(ABC):
    """A cluster with its limiter and sandboxes: what a world provides."""

    poll_seconds: ClassVar[float | None] = None
    """How often the wind-up looks at the limiter; None for a tenth of a lease."""
    horizon: float
    """Seconds after which the run is broken off."""
    time_scale: float
    """Factor for the durations of load and events."""
    recorder: Recorder
    workers: Sequence[WorkerHandle]
    sandboxes: FakeSandboxes
    limiter: LimiterHandle | None = None
    """None if there is no limiter to observe."""

    async def first_request(self) -> None:  # noqa: B027 # some need not wait
        """Return when the load has reached a sandbox, or a call has ended without that; events
        count from here."""

    @abstractmethod
    async def kill(self, target: str, names: list[str]) -> None:
        """Kill the workers of these names, with their node or driver if that is the target."""

    async def broadcast(self, method: str, *args: Any) -> None:
        """Call a method of every worker's inside (see ``worker.py``)."""
        for worker in self.workers:
            await getattr(worker, method)(*args)

    async def make_single_calls(self) -> None:
        """Make the calls of ``load.each`` with a client."""
        raise WorldError("single calls need world sim or wall")

    def jump(self, seconds: float) -> None:
        """Let the wall clock of the client jump."""
        raise WorldError("a clock can jump only for single calls")

    async def leave(self) -> None:  # noqa: B027 # only a client is looked at
        """Note what a client leaves behind, and end it."""

    def use_model(self, model: Model) -> None:
        """Let this play the model of rollouts, instead of the script of the scenario."""
        raise WorldError("a training needs a simulated cluster")

    async def flush(self) -> None:  # noqa: B027 # some have nothing to do
        """Deliver what the workers still have to send to the limiter, unless they do so by
        themselves."""

    def on_broken_off(self) -> None:  # noqa: B027 # some have nothing to do
        """Called when the horizon is reached."""

    def closing_facts(self) -> dict[str, Any]:
        """Return further keys of the event ``ended``."""
        return {}
