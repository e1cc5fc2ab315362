"""An interpreter that has imported the product, and forks a process for every command that a
launcher sends."""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import io
import marshal
import os
import runpy
import select
import signal
import socket
import sys
import threading
from collections.abc import Callable
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import typer.main

PRODUCT = (
    "pytest",
    "rich.markdown",
    "sfusion.fakes.proxy",
    "sfusion.fakes.sandbox",
    "sfusion.fakes.sglang",
    "sfusion.harness.cli",
    "tests.proof._proving",
    "sfusion.harness.lab.worlds.sim",
    "sfusion_tools.rollout",
    "sfusion_tools.sandbox_fusion_tools",
    "sfusion_tools.tool_registry",
)
READ_AT_START = ("LANG", "LC_", "PYTHON", "SSL_", "TZ")
"""Variables that an interpreter or a library reads once, when it starts."""
READ_LATER = "PYTHONBREAKPOINT"
"""Not one of them; Ray sets it in whatever process starts it."""
RAY_WORKER = {"RAY_JOB_ID": "ffffffff", "RAY_RAYLET_PID": str(os.getpid())}
"""Read by Ray's library when it is imported: every worker is one that Ray starts before it knows
the job.

It would also end with this process. ``_mind`` ends it with its raylet.
"""


def serve(listener: socket.socket) -> Callable[[], None] | None:
    """Fork until the standard input ends; in a forked process return what it has to do."""
    signal.signal(signal.SIGCHLD, lambda *_: _reap())
    while True:
        ready, _, _ = select.select([listener, 0], [], [])
        if 0 in ready:
            return None
        asked, _ = listener.accept()
        if os.fork():
            asked.close()
            continue
        listener.close()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        return _mind(asked)


def _reap() -> None:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            continue


def _mind(asked: socket.socket) -> Callable[[], None]:
    """Fork the command and tell its launcher how it ended; one whose launcher or raylet was killed
    is killed too."""
    data, files, _, _ = socket.recv_fds(asked, 1_000_000, 3)
    request = marshal.loads(data)
    if not _can_be_warm(request):
        asked.send(marshal.dumps(0))
        os._exit(0)
    pid = os.fork()
    if not pid:
        asked.close()
        return _become(request, files)
    for file in files:
        os.close(file)
    with contextlib.suppress(
        OSError
    ):  # a launcher that was killed already, because the command was quicker than this
        asked.send(marshal.dumps(pid))
    ended = os.pidfd_open(pid)
    try:
        raylet = (
            [os.pidfd_open(int(request["environ"]["RAY_RAYLET_PID"]))]
            if "ray" in sys.modules
            else []
        )
        has_ended = ended in select.select([asked, ended, *raylet], [], [])[0]
    except ProcessLookupError:  # the raylet
        has_ended = False
    if not has_ended:
        os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ProcessLookupError):  # not yet a group of its own
            os.killpg(pid, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    with contextlib.suppress(OSError):
        asked.send(marshal.dumps(code))
    os._exit(0)


def _can_be_warm(request: dict[str, Any]) -> bool:
    """Whether a new interpreter would load the same product and the same settings."""

    def at_start(environ: Any) -> dict[str, str]:
        return {
            name: value
            for name, value in environ.items()
            if name.startswith(READ_AT_START) and name != READ_LATER
        }

    words = request["words"]
    known = words[:1] in (["-m"], ["-c"]) or (words and not words[0].startswith("-"))
    beside = Path(request["folder"], "sfusion_tools")
    same = (
        not beside.exists()
        or beside.resolve() == Path(sys.modules["sfusion_tools"].__path__[0]).resolve()
    )
    return bool(known) and same and at_start(request["environ"]) == at_start(os.environ)


def _become(request: dict[str, Any], files: list[int]) -> Callable[[], None]:
    """Take over the launcher's streams, folder, environment and signals."""
    os.setsid()
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    os.chdir(request["folder"])
    os.umask(request["umask"])
    os.environ.clear()
    os.environ.update(request["environ"])
    if "ray" in sys.modules:
        os.environ["RAY_JOB_ID"] = RAY_WORKER["RAY_JOB_ID"]
    for one in request["ignored"]:
        signal.signal(one, signal.SIG_IGN)
    through = bool(os.environ.get("PYTHONUNBUFFERED"))
    for number, name, how in ((0, "stdin", "rb"), (1, "stdout", "wb"), (2, "stderr", "wb")):
        old = getattr(sys, name)
        raw = open(number, how, closefd=False)  # noqa: SIM115 # the standard streams stay open
        lines = name == "stderr" or os.isatty(number)
        stream = io.TextIOWrapper(
            raw, old.encoding, old.errors, None, lines, through and number > 0
        )
        stream.mode = how[0]  # type: ignore[attr-defined]
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    return lambda: _run(request["words"])


def _run(words: list[str]) -> None:
    match words:
        case ["sfusion", *_]:  # what the console script does
            sys.argv = words
            sys.modules["__main__"] = type(sys)("__main__")
            sys.exit(sys.modules["sfusion.harness.cli"].main())
        case ["pytest", *_]:
            sys.argv = words
            (script,) = entry_points(group="console_scripts", name="pytest")
            sys.exit(script.load()())
        case ["-m", name, *rest]:
            sys.argv = [name, *rest]
            sys.path.insert(0, os.getcwd())
            runpy.run_module(name, run_name="__main__", alter_sys=True)
        case ["-c", code, *rest]:
            sys.argv = ["-c", *rest]
            sys.path.insert(0, "")
            main = sys.modules["__main__"] = type(sys)("__main__")
            exec(compile(code, "<string>", "exec"), main.__dict__)
        case [file, *rest]:
            sys.argv = [file, *rest]
            sys.path.insert(0, str(Path(file).resolve().parent))
            runpy.run_path(file, run_name="__main__")


def _end(todo: Callable[[], None]) -> None:
    """Do it and exit as an interpreter does, but do not take a hundred modules apart, of which each
    page is copied."""
    code: Any = 0
    try:
        todo()
    except SystemExit as error:
        code = error.code or 0
    if not isinstance(code, int):
        print(code, file=sys.stderr)
        code = 1
    threading._shutdown()  # type: ignore[attr-defined] # waits for threads
    atexit._run_exitfuncs()
    gc.collect()  # what was never closed says so
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except (OSError, ValueError):
        sys.exit(code)  # an interpreter has a message and a code of its own for that
    os._exit(code & 0xFF)


def main() -> None:
    number, *more = sys.argv[1:]
    if "ray" in more:
        os.environ |= RAY_WORKER
    checkout = str(Path(__file__).parents[2])
    sys.path.insert(0, checkout)  # it may not be installed
    for name in (*PRODUCT, *more):
        importlib.import_module(name)
    for found in sys.modules["sfusion.harness.cli"].found_commands().values():
        importlib.import_module(found.module)
    sys.path.remove(checkout)
    typer.main.get_command = cache(typer.main.get_command)  # type: ignore[assignment]
    typer.main.get_command(sys.modules["sfusion.harness.cli"].app)
    gc.collect()
    gc.freeze()
    todo = serve(socket.socket(fileno=int(number)))
    if todo is not None:
        _end(todo)


if __name__ == "__main__":
    main()
