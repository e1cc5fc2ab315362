"""The worker processes of world ray, as Ray actors, and a driver process of their own that can be
killed.

Ray ends whatever a driver created when the driver dies. A scenario that kills its driver lets such
a process create the workers, while the run itself survives and sees what becomes of their permits.
"""

from __future__ import annotations

import asyncio
import logging
import os
import pickle
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from sfusion_tools.errors import LimiterUnreachable
from sfusion_tools.limiter import LimiterSettings
from sfusion_tools.limiter.messages import Batch, LimiterReply, Poll
from sfusion_tools.limiter.ray_limiter import RayTransport
from sfusion_tools.rollout import RolloutLimits

from ..scenarios.model import Scenario
from ..scenarios.program import ProgramPart
from .calling import call_tool
from .ray_cluster import inherited_path
from .recorder import JournalAddress, LogHandler, RemoteRecorder
from .worker import Worker

WARM_UP = ProgramPart(prints="ready\n", real=True).prepare("warm-up", seed=0)
"""A call that is not part of the load."""


@dataclass(frozen=True, slots=True)
class WorkerSetup:
    """What a worker process needs to know about the run."""

    scenario: Scenario
    urls: list[str]
    journal: JournalAddress
    limiter: tuple[str, LimiterSettings] | None
    """The name of its actor and the settings it was created with."""
    bounds: RolloutLimits
    path: tuple[str, ...] = field(default_factory=lambda: tuple(sys.path))
    """Where the driver finds modules, such as that of the tool class."""


class _CuttableTransport(RayTransport):
    """The connection to the limiter; while it is cut, messages are dropped in this process."""

    is_cut = False

    async def exchange(self, batch: Batch) -> LimiterReply:
        self._check()
        return await super().exchange(batch)

    async def wait(self, poll: Poll) -> LimiterReply:
        self._check()
        reply = await super().wait(poll)
        self._check()
        return reply

    def _check(self) -> None:
        if self.is_cut:
            raise LimiterUnreachable("the connection to the limiter is cut")


class WorkerProcess(Worker):
    """One worker process; the driver tells it which calls and rollouts to make."""

    _recorder: RemoteRecorder
    _transport: _CuttableTransport | None

    def __init__(self, name: str, setup: WorkerSetup) -> None:
        sys.path += [folder for folder in setup.path if folder not in sys.path]
        recorder = RemoteRecorder(setup.journal, name)
        if setup.limiter is not None:
            transport = _CuttableTransport(setup.limiter[1], setup.limiter[0])
        else:
            transport = None
        super().__init__(
            name,
            setup.scenario,
            recorder,
            transport,
            setup.bounds,
            time_scale=setup.scenario.time_scale,
        )
        self._urls = setup.urls
        logging.getLogger("sfusion_tools").addHandler(LogHandler(recorder))

    async def start(self) -> int:
        """Make the tools and return the process id."""
        self.make_tools(self._urls)
        return os.getpid()

    async def warm_up(self) -> None:
        """Make a call before the load begins: another class may start processes of its own when it
        is first used."""
        try:
            raised = (await call_tool(self._tools[0], WARM_UP)).get("raised")
        except Exception as error:  # of ``release``
            raised = type(error).__name__
        if raised is not None:
            text = f"the warm-up call of {self.name} raised {raised}"
            self._recorder.note("world", "log", level="warning", text=text)

    async def cut_off(self, off: bool) -> None:
        """Cut the connection to the limiter, or restore it."""
        if self._transport is not None:
            self._transport.is_cut = off

    async def close(self) -> None:
        """Close the tools, detach from the limiter and close the journal."""
        await super().close()
        self._recorder.close()


# Without restarts: a killed worker stays dead, as in every world.
_actor_class: Any = ray.remote(num_cpus=0, max_concurrency=100_000)(WorkerProcess)


def create_worker(name: str, node: str, setup: WorkerSetup, *, named: bool = False) -> Any:
    """Start a worker on a node and return its actor; with ``named``, others can look it up by its
    name."""
    options = {"name": name} if named else {}
    return _actor_class.options(scheduling_strategy=on_node(node), **options).remote(name, setup)


def on_node(node: str) -> Any:
    """Return the scheduling strategy that allows this node only."""
    return NodeAffinitySchedulingStrategy(node, soft=False)


@ray.remote(num_cpus=0)  # type: ignore[untyped-decorator] # Ray has no types
def signal_process(pid: int, signal: int) -> None:
    """Send a signal to a process on the machine where this task runs, unless it is gone."""
    with suppress(ProcessLookupError):
        os.kill(pid, signal)


_READY = b"ready\n"


@dataclass
class SecondDriver:
    """The driver process, as seen by the run."""

    address: str
    namespace: str
    _process: subprocess.Popen[bytes] | None = None

    async def create(self, places: dict[str, str], setup: WorkerSetup) -> dict[str, Any]:
        """Let the process create workers (name -> node) and return their actors."""
        if await asyncio.to_thread(self._start, pickle.dumps((places, setup))) != _READY:
            raise ray.exceptions.RayError("the driver process of the workers did not start")
        return {name: ray.get_actor(name, namespace=self.namespace) for name in places}

    def _start(self, orders: bytes) -> bytes:
        command = [
            sys.executable,
            "-c",
            f"from {__name__} import drive; drive()",
            self.address,
            self.namespace,
        ]
        with inherited_path():
            self._process = process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE
            )
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(orders)
        process.stdin.flush()
        return process.stdout.readline()

    def kill(self) -> None:
        """Kill the process, if it runs."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None


def drive() -> None:
    """Create the workers that the run asks for, then live until the run is gone."""
    address, namespace = sys.argv[1:]
    places, setup = pickle.load(
        sys.stdin.buffer
    )  # from our parent process, over a pipe nobody else can write to
    ray.init(address=address, namespace=namespace, log_to_driver=False, logging_level=logging.ERROR)
    workers = [create_worker(name, node, setup, named=True) for name, node in places.items()]
    sys.stdout.buffer.write(_READY)
    sys.stdout.flush()
    sys.stdin.buffer.read()
    del workers  # kept until now: Ray ends an actor when its last handle goes
