"""Spreads work over this process, several processes or a Ray cluster; the results are the same.

Work is a function and picklable items. A process or node that dies loses only what it was running:
those items are handed out again, and each has one result.
"""

from __future__ import annotations

import gc
import os
import pickle
import signal
import sys
import threading
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from multiprocessing import get_context, parent_process
from multiprocessing.connection import Connection, wait
from multiprocessing.resource_tracker import ensure_running
from queue import SimpleQueue
from typing import Any, Protocol, Self, TypeVar

from sfusion_tools._version import __version__

from ..errors import BadOption, MissingWorld, WorkerLost

Item = TypeVar("Item")
Result = TypeVar("Result")

RETRIES = 3
"""How often an item is handed out again after the death of what ran it."""
_AHEAD = 16
"""Items handed out per worker before the first result is taken. Chosen: with fewer, one slow item
leaves the other workers idle; with more, a process that dies loses more work."""
_OBJECTS_BETWEEN_COLLECTIONS = 20_000
"""The threshold of the garbage collector; chosen: it no longer shows in the time of a run."""


class Workers(Protocol):
    """Where work runs."""

    def map(
        self,
        work: Callable[[Item], Result],
        items: Iterable[Item],
        *,
        effort: Callable[[Item], float] | None = None,
    ) -> Iterator[Result]:
        """Yield the result of each item, in the order of the items; the first error of ``work`` is
        raised.

        Items are taken from the iterable a little ahead of the results; how far depends on the
        number of workers. With ``effort`` all are taken at once, and those with the most begin
        first.
        """


@contextmanager
def open_workers(jobs: int = 1, on: str = "here", address: str | None = None) -> Iterator[Workers]:
    """Open ``jobs`` processes (0: one per CPU, 1: this process) or a Ray cluster: the running
    one, or an address."""
    if on not in ("here", "ray"):
        raise BadOption(f"--on {on}: no such place; use here or ray")
    if on == "here" and address is not None:
        raise BadOption("--ray-address names a Ray cluster; add --on ray")
    jobs = jobs or os.cpu_count() or 1
    if on == "ray":
        from .worlds.ray_cluster import open_cluster

        with closing(open_cluster(address or "auto")):
            yield RayTasks()
    elif jobs == 1:
        yield _ThisProcess()
    else:
        with _Processes(jobs) as workers:
            yield workers


class _ThisProcess:
    def map(
        self,
        work: Callable[[Item], Result],
        items: Iterable[Item],
        *,
        effort: Callable[[Item], float] | None = None,
    ) -> Iterator[Result]:
        yield from map(work, items)


def _handed_out(
    items: Iterable[Any],
    submit: Callable[[Any], Any],
    take: Callable[[Any], Result],
    *,
    ahead: int,
    effort: Callable[[Any], float] | None,
) -> Iterator[Result]:
    """Submit items, and take each result in its turn.

    With ``effort`` all are submitted at once, else up to ``ahead`` of the results.
    """
    if effort is not None:
        yield from _longest_first(items, submit, take, effort)
        return
    pending: deque[Any] = deque()
    for item in items:
        pending.append(submit(item))
        if len(pending) >= ahead:
            yield take(pending.popleft())
    while pending:
        yield take(pending.popleft())


def _longest_first(
    items: Iterable[Any],
    submit: Callable[[Any], Any],
    take: Callable[[Any], Result],
    effort: Callable[[Any], float],
) -> Iterator[Result]:
    """Submit all items, those with the most effort first, and take each result in its turn."""
    numbered = list(enumerate(items))
    by_effort = sorted(numbered, key=lambda pair: effort(pair[1]), reverse=True)
    submitted = {number: submit(item) for number, item in by_effort}
    for number in range(len(numbered)):
        yield take(submitted.pop(number))


# -- processes of this machine --


class _Processes:
    """Processes with a thread and a pipe for each: one that is killed in the middle of a result
    disturbs no other."""

    def __init__(self, jobs: int) -> None:
        self._jobs = jobs
        self._lock = threading.Lock()
        self._ended = False
        self._every: set[_Process] = set()
        self._idle: SimpleQueue[_Process] = SimpleQueue()
        self._threads = ThreadPoolExecutor(jobs)

    def __enter__(self) -> Self:
        """Start all processes now: once this process has threads, it cannot fork."""
        try:
            for _ in range(self._jobs):
                self._idle.put(self._start())
        except BaseException as error:
            self.__exit__(error)
            raise
        return self

    def map(
        self,
        work: Callable[[Item], Result],
        items: Iterable[Item],
        *,
        effort: Callable[[Item], float] | None = None,
    ) -> Iterator[Result]:
        def submit(item: Item) -> Future[Result]:
            return self._threads.submit(self._run, work, item)

        ahead = _AHEAD * self._jobs
        yield from _handed_out(items, submit, Future.result, ahead=ahead, effort=effort)

    def _run(self, work: Callable[[Item], Result], item: Item) -> Any:
        orders = pickle.dumps((work, item))
        for _ in range(RETRIES + 1):
            process = self._idle.get()
            try:
                answer = process.ask(orders)
            except (EOFError, OSError):  # it died, perhaps in the middle of its answer
                process = self._start(instead_of=process)
                continue
            finally:
                self._idle.put(process)
            return _result(answer)
        raise WorkerLost(f"the process that ran it died {RETRIES + 1} times: {item!r:.300}")

    def _start(self, instead_of: _Process | None = None) -> _Process:
        # Also for the process: it may get no Ctrl-C before it ignores it.
        with self._lock, _without_interrupts():
            if self._ended:
                raise WorkerLost("the command ends")
            process = _Process()
            self._every = {process, *self._every} - {instead_of}
            return process

    def __exit__(self, error: object, *_: object) -> None:
        if error is not None:  # nobody waits for what is still running
            with self._lock:
                self._ended = True
                for process in self._every:
                    process.process.terminate()
        self._threads.shutdown(cancel_futures=True)
        for process in self._every:
            process.close()


class _Process:
    """A process that runs what it is sent, one item after the other."""

    def __init__(self) -> None:
        context: Any = get_context("fork" if _can_fork() else "spawn")
        self._pipe, theirs = context.Pipe()
        self.process = context.Process(target=_run_what_comes, args=(theirs,))
        self.process.start()
        theirs.close()  # the end of the process is the end of the pipe

    def ask(self, orders: bytes) -> bytes:
        """Return the answer; raise EOFError or OSError if the process died."""
        self._pipe.send_bytes(orders)
        answer: bytes = self._pipe.recv_bytes()
        return answer

    def close(self) -> None:
        with suppress(OSError):
            self._pipe.send_bytes(b"")
        self.process.join()
        self._pipe.close()


def _run_what_comes(pipe: Connection) -> None:
    _start_process()
    with suppress(EOFError, OSError):  # the parent is gone
        while orders := pipe.recv_bytes():
            pipe.send_bytes(_answer(orders))


def _answer(orders: bytes) -> bytes:
    try:
        work, item = pickle.loads(orders)  # from our parent
        return pickle.dumps((True, work(item)))
    except BaseException as error:
        error.add_note(traceback.format_exc())
        try:
            return pickle.dumps((False, error))
        except Exception:
            return pickle.dumps((False, RuntimeError(f"{type(error).__name__}: {error}")))


def _result(answer: bytes) -> Any:
    """Return the result of an item, or raise its error."""
    done, found = pickle.loads(answer)  # made by a process or a task of our own
    if not done:
        raise found
    return found


@contextmanager
def _without_interrupts() -> Iterator[None]:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    try:
        if not _can_fork():
            # multiprocessing would start this later, and then unblock what we have blocked
            ensure_running()
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _can_fork() -> bool:
    """Is it safe to fork this process? A fork has everything imported, but not the threads that
    may hold a lock."""
    try:
        return sys.platform == "linux" and len(os.listdir("/proc/self/task")) == 1
    except OSError:
        return False


def _start_process() -> None:
    """Leave Ctrl-C, which reaches every process, to the parent, and end with it, however it
    ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # a fork has the parent's handler
    threading.Thread(target=_end_with_parent, daemon=True).start()
    # A journal is many small objects that all live to the end of its run; looking through them
    # takes a tenth of it.
    gc.freeze()
    gc.set_threshold(_OBJECTS_BETWEEN_COLLECTIONS)


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)


# -- a Ray cluster --


class RayTasks:
    """One task per item; Ray itself keeps track of which node runs what, and starts lost tasks
    again."""

    def __init__(self) -> None:
        import ray

        self._ray = ray
        options = {"num_cpus": 1, "max_retries": RETRIES, "scheduling_strategy": "SPREAD"}
        self._task = ray.remote(**options)(_task())

    def map(
        self,
        work: Callable[[Item], Result],
        items: Iterable[Item],
        *,
        effort: Callable[[Item], float] | None = None,
    ) -> Iterator[Result]:
        from ray.exceptions import RayError

        def submit(item: Item) -> Any:
            return self._task.remote(sys.path, __version__, pickle.dumps((work, item))), item

        def take(submitted: Any) -> Any:
            ref, item = submitted
            try:
                missing, answer = self._ray.get(ref)
            except RayError as error:
                why = str(error).strip().partition("\n")[0]
                raise WorkerLost(f"{why} (tried {RETRIES + 1} times): {item!r:.300}") from error
            if missing:
                raise MissingWorld(missing)
            return _result(answer)

        cpus = int(self._ray.cluster_resources().get("CPU", 1))
        ahead = _AHEAD * max(1, cpus)
        yield from _handed_out(items, submit, take, ahead=ahead, effort=effort)


def _task() -> Callable[[list[str], str, bytes], tuple[str, bytes]]:
    """Return the function of a task, which says what a node lacks, or answers.

    Ray sends a local function as code, so a node needs no module to receive it.
    """

    def run(path: list[str], version: str, orders: bytes) -> tuple[str, bytes]:
        import os
        import pickle
        import sys

        # On the driver's machine, this process imports exactly what the driver imports.
        mine = [folder or os.getcwd() for folder in path]
        sys.path[:] = [
            *filter(os.path.exists, mine),
            *(folder for folder in sys.path if folder not in mine),
        ]
        where = f"node {os.uname().nodename} of the Ray cluster"
        try:
            from sfusion_tools._version import __version__ as found
        except ImportError as error:
            return f"{where} cannot import sfusion ({error}); install sfusion {version} there", b""
        if found != version:
            return (
                f"{where} has sfusion {found}, the driver {version}; install the same version",
                b"",
            )
        work, item = pickle.loads(orders)  # from the driver, over Ray
        try:
            return "", pickle.dumps((True, work(item)))
        except Exception as error:
            return "", pickle.dumps((False, error))

    return run
