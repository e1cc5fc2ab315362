"""An event loop whose clock is virtual: it jumps to the next timer when nothing is ready and
nothing real is pending.

What runs on it is a function of its inputs: timers fire in order, tasks and futures hash by their
number instead of their address (so that sets of them have the same order in every process), and
connections within the loop are made in memory. Real work stops the clock: while the loop awaits a
thread (``run_in_executor``, ``asyncio.to_thread``, ``asyncio.wrap_future``), a subprocess or a real
socket, it waits in real time, and virtual time stands still. What the loop cannot know about is a
thread that reports with ``call_soon_threadsafe`` alone.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import selectors
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from contextvars import Context
from functools import partial
from typing import Any, TypeVar

from sfusion_tools._loops import resolve

from ...errors import NoProgress, NothingLeft
from .memory_network import MemoryNetwork, MemoryServer
from .replacing import SharedContext, replaced
from .schedules import ArrivalHandle, ScheduledQueue

T = TypeVar("T")

_FRUITLESS = 500_000
"""Iterations without any passing of time after which the loop counts as busy for ever."""
_TICK = 200
"""Iterations after which the clock advances by its resolution, as any real clock would. Timers may
fire early by a rounding error; several tasks that each wait until then, and find that it is too
early, would keep the loop busy."""


class _Clock(selectors.DefaultSelector):
    """The loop's selector, which advances virtual time instead of waiting for I/O."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.resolution = 1e-9
        """Which timers fire together must not depend on the clock resolution of the platform."""
        self.awaited_outside = 0
        """How many threads and processes the loop waits for."""
        self._fruitless = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Called by the loop when nothing is ready to run."""
        # The loop's own pipe to itself does not count.
        real = self.awaited_outside > 0 or len(self.get_map()) > 1
        if timeout is not None and timeout <= 0:
            self._fruitless += 1
            if self._fruitless % _TICK == 0:
                self.now += self.resolution
            if self._fruitless > _FRUITLESS:
                self._fruitless = 0  # tasks that are cancelled now must be able to finish
                raise NoProgress(
                    f"at {self.now:.6f} s something runs again and again without letting time pass"
                )
            return super().select(0) if real else []
        self._fruitless = 0
        if real:
            # Wait for real work; the clock stands still meanwhile.
            return super().select(None)
        if timeout is None:
            raise NothingLeft(f"at {self.now:.6f} s nothing is left that could ever happen")
        self.now += timeout
        return []


class _NumberedFuture(asyncio.Future[Any]):
    """A future that hashes by number: sets of them have the same order in every process."""

    def __init__(self, *, loop: VirtualTimeLoop) -> None:
        super().__init__(loop=loop)
        self._number = next(loop.numbers)

    def __hash__(self) -> int:
        return self._number


class _NumberedTask(asyncio.Task[Any]):
    """A task that hashes by number."""

    def __init__(
        self, work: Coroutine[Any, Any, Any], *, loop: VirtualTimeLoop, **options: Any
    ) -> None:
        self._number = next(loop.numbers)
        super().__init__(work, loop=loop, **options)

    def __hash__(self) -> int:
        return self._number


def _begin_in_turn(
    loop: Any, work: Any, *, eager_start: bool | None = None, **options: Any
) -> _NumberedTask:
    """Make a task that begins when its turn comes; from Python 3.12 on, callers may ask for an
    eager start."""
    task = _NumberedTask(work, loop=loop, **options)
    if loop.on_task is not None:
        loop.on_task(task)
    return task


_Task = asyncio.Task
"""The real class, also while ``asyncio.Task`` is its stand-in."""


class _TaskOfAnyLoop(type):
    """Makes every task an instance of the stand-in below, so that checks of libraries go on
    working."""

    def __instancecheck__(cls, instance: Any) -> bool:
        if cls is _TaskInTurn:
            return isinstance(instance, _Task)
        return super().__instancecheck__(instance)


class _TaskInTurn(_Task[Any], metaclass=_TaskOfAnyLoop):
    """Stands in for ``asyncio.Task``, which aiohttp calls from Python 3.12 on to start tasks
    eagerly."""

    def __new__(cls, work: Any, *, loop: Any = None, **options: Any) -> Any:
        if cls is not _TaskInTurn:
            return super().__new__(cls)
        if isinstance(loop, VirtualTimeLoop):
            return _begin_in_turn(loop, work, **options)
        return _Task(work, loop=loop, **options)


class _NumberedTimer(asyncio.TimerHandle):
    """A timer that is due in the order of its making among those of one time, whatever else is in
    the heap."""

    def __init__(
        self, when: float, callback: Any, args: Any, loop: VirtualTimeLoop, context: Any = None
    ) -> None:
        super().__init__(when, callback, args, loop, context)
        self._due = when, next(loop.timers)

    def __lt__(self, other: Any) -> bool:
        return self._due < other._due  # type: ignore[no-any-return]


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """An event loop in virtual time; ``network`` holds its in-memory servers."""

    def __init__(self, queue: ScheduledQueue | None = None) -> None:
        self._virtual = _Clock()
        self.numbers = itertools.count(1)
        self.timers = itertools.count(1)
        super().__init__(self._virtual)
        if queue is not None:
            self._ready = queue
        self._clock_resolution = self._virtual.resolution
        self.network = MemoryNetwork(self)
        self.on_task: Callable[[asyncio.Task[Any]], None] | None = None
        """Called with each task that is made."""
        self.set_task_factory(_begin_in_turn)
        self.slept: list[float] = []
        """Seconds of each ``time.sleep`` that held up the loop."""

    def time(self) -> float:
        """Return the virtual seconds since the loop was created."""
        return self._virtual.now

    def pass_time(self, seconds: float) -> None:
        """Move the clock on although something is running."""
        self._virtual.now += max(0.0, seconds)

    def call_at(  # type: ignore[override] # typeshed ties the arguments to the callback
        self, when: float, callback: Any, *args: Any, context: Any = None
    ) -> asyncio.TimerHandle:
        """Like asyncio's, but timers of one time are due in the order of their making."""
        heap = getattr(self, "_scheduled", None)
        if heap is None or self.is_closed():
            return super().call_at(when, callback, *args, context=context)
        timer = _NumberedTimer(when, callback, args, self, context)
        heapq.heappush(heap, timer)
        timer._scheduled = True  # type: ignore[attr-defined]
        return timer

    def call_on_arrival(
        self, callback: Callable[..., object], *args: Any, end: int, context: Context
    ) -> None:
        """Like ``call_soon``, for something that arrives at one end of a connection."""
        ready = getattr(self, "_ready", None)
        if ready is None:
            self.call_soon(callback, *args, context=context)
        else:
            ready.append(ArrivalHandle(callback, args, self, context, end=end))

    def create_future(self) -> asyncio.Future[Any]:
        return _NumberedFuture(loop=self)

    def hold_clock_until(self, done: asyncio.Future[Any]) -> None:
        """Let the clock stand still until a future is done that something outside of this loop
        resolves."""
        self._virtual.awaited_outside += 1
        done.add_done_callback(self._let_clock_go)

    def _let_clock_go(self, _: object) -> None:
        self._virtual.awaited_outside -= 1

    # typeshed's parameter kinds differ between releases
    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Callable[..., T], *args: Any
    ) -> asyncio.Future[T]:
        """Run a function in a thread; the clock stands still until it is done."""
        future: asyncio.Future[T] = super().run_in_executor(executor, func, *args)
        self.hold_clock_until(future)
        return future

    async def shutdown_default_executor(self, *options: Any) -> None:
        """Wait for the threads in real time."""
        with self._clock_held():
            await super().shutdown_default_executor(*options)

    async def subprocess_exec(self, protocol_factory: Any, *args: Any, **options: Any) -> Any:
        """Start a process; the clock stands still until it has ended."""
        return await self._start_process(super().subprocess_exec, protocol_factory, args, options)

    async def subprocess_shell(self, protocol_factory: Any, *args: Any, **options: Any) -> Any:
        """Start a command of a shell; the clock stands still until it has ended."""
        return await self._start_process(super().subprocess_shell, protocol_factory, args, options)

    async def _start_process(
        self,
        start: Callable[..., Coroutine[Any, Any, Any]],
        protocol_factory: Callable[[], asyncio.SubprocessProtocol],
        args: tuple[Any, ...],
        options: dict[str, Any],
    ) -> Any:
        ended = self.create_future()

        def make_protocol() -> asyncio.SubprocessProtocol:
            # Its pipes may be closed, or not even opened, long before the process ends, and until
            # Python 3.12 a thread waits for that.
            protocol = protocol_factory()
            process_exited = protocol.process_exited

            def exited() -> None:
                resolve(ended, None)
                process_exited()

            protocol.process_exited = exited  # type: ignore[method-assign]
            return protocol

        with self._clock_held():
            started = await start(make_protocol, *args, **options)
        self.hold_clock_until(ended)
        return started

    @contextmanager
    def _clock_held(self) -> Iterator[None]:
        self._virtual.awaited_outside += 1
        try:
            yield
        finally:
            self._virtual.awaited_outside -= 1

    async def sock_connect(self, sock: Any, address: Any) -> None:
        """Connect in memory if a server of this loop listens there, otherwise really."""
        if not self.network.dial(sock, address):
            await super().sock_connect(sock, address)

    async def create_connection(
        self, protocol_factory: Any, host: Any = None, port: Any = None, **options: Any
    ) -> Any:
        """Like asyncio's, also for in-memory connections."""
        sock = options.get("sock")
        if sock is None and self.network.knows((host, port)):
            return await self.network.connect(protocol_factory, (host, port))
        if sock is not None and (address := self.network.dialled(sock)) is not None:
            return await self.network.connect(protocol_factory, address)
        return await super().create_connection(protocol_factory, host, port, **options)

    async def create_server(self, protocol_factory: Any, *args: Any, **options: Any) -> Any:
        """Listen in memory on the address of a bound socket; without a socket, listen really."""
        sock = options.get("sock")
        if sock is None:
            return await super().create_server(protocol_factory, *args, **options)
        return self.listen_in_memory(protocol_factory, sock)

    def listen_in_memory(self, protocol_factory: Any, sock: Any) -> MemoryServer:
        """Accept in-memory connections to the address of a bound socket. The fakes look for this
        method."""
        return self.network.listen(protocol_factory, sock)


def _running_loop() -> VirtualTimeLoop | None:
    with suppress(RuntimeError):  # none is running
        loop = asyncio.get_running_loop()
        return loop if isinstance(loop, VirtualTimeLoop) else None
    return None


def _monotonic() -> float:
    """Read the clock of the running loop if it is virtual, otherwise the real one."""
    loop = _running_loop()
    return time.monotonic() if loop is None else loop.time()


def _sleep(real: Callable[[float], None], seconds: float) -> None:
    """Do inside the loop what ``time.sleep`` does in real time: time passes, and nothing else
    happens."""
    loop = _running_loop()
    if loop is None:
        real(seconds)
    else:
        loop.slept.append(seconds)
        loop.pass_time(seconds)


def _wrap_future(
    real: Callable[..., asyncio.Future[Any]],
    future: Any,
    *,
    loop: asyncio.AbstractEventLoop | None = None,
) -> asyncio.Future[Any]:
    """Wrap a future of another thread; a virtual clock stands still until it is done."""
    wrapped = real(future, loop=loop)
    own_loop = wrapped.get_loop()
    if wrapped is not future and isinstance(own_loop, VirtualTimeLoop):
        own_loop.hold_clock_until(wrapped)
    return wrapped


@contextmanager
def _virtual_time_in_libraries() -> Iterator[None]:
    """Let asyncio, aiohttp and ``time.sleep`` ask which loop is running.

    aiohttp's connection pool measures how long a connection is idle: with the real clock that would
    be a race.
    """
    from aiohttp import connector

    sleep = partial(_sleep, time.sleep)
    wrap_future = partial(_wrap_future, asyncio.wrap_future)
    with (
        replaced(time, sleep=sleep),
        replaced(asyncio, Task=_TaskInTurn, wrap_future=wrap_future),
        replaced(connector, monotonic=_monotonic),  # its import, not its interface
    ):
        yield


_in_virtual_time = SharedContext(_virtual_time_in_libraries)


def run_virtually(
    main: Coroutine[Any, Any, T],
    queue: ScheduledQueue | None = None,
    loop: type[VirtualTimeLoop] = VirtualTimeLoop,
) -> T:
    """Run a coroutine on a virtual-time loop of its own and return its result; the order is FIFO
    without ``queue``. Several threads may do this at the same time."""
    with _in_virtual_time, asyncio.Runner(loop_factory=partial(loop, queue)) as runner:
        return runner.run(main)
