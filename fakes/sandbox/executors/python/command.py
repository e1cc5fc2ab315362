"""Runs one command line and reports how it ended, like the real server."""

from __future__ import annotations

import asyncio
import json
import logging
import math
import os
import re
import shutil
import socket
import struct
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from sfusion.fakes.sandbox.protocol import CommandResult

from .files import WorkDirectory
from .guard.spec import Abilities, CommandReport, CommandSpec, ResourceBounds, UserKind
from .output import Capture, capture, decoded
from .packets import stream_pair

# The guard is imported from its own folder as a top-level package: as part of this one it would load the whole
# server.
_BOOT = "import sys; sys.path.insert(0, sys.argv[1]); from guard.zygote import main; main()"
_FOLDER = Path(__file__).parent


class Spawner:
    """A guard process and the socket for its commands; started with the first command."""

    def __init__(self, room: str, lock: int, *, bubblewrap: bool = False) -> None:
        """Start nothing yet.

        `room` is the directory to remove if the server is killed; `lock` marks it as in use. With `bubblewrap`, the
        guard uses that program where it is installed and the guard may make no namespaces itself.
        """
        self._room = room
        self._lock = lock
        self._bubblewrap = bubblewrap and sys.platform == "linux"
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None
        self._starting = asyncio.Lock()
        self._abilities: Abilities | None = None

    async def abilities(self) -> Abilities:
        """Return what this machine lets the guard do; starts the guard if it is not running."""
        async with self._starting:
            if self._process is not None and self._process.poll() is None and self._abilities is not None:
                return self._abilities
            self._reset()
            ours = self._launch()
            hello = await asyncio.get_running_loop().sock_recv(ours, 4096)
            if not hello:
                self._reset()
                raise RuntimeError("the guard process that should run the programs ended at once")
            self._abilities = Abilities(**json.loads(hello))
            return self._abilities

    def _launch(self) -> socket.socket:
        ours, theirs = socket.socketpair()
        wrapper = (shutil.which("bwrap", path=os.defpath) or "") if self._bubblewrap else ""
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _BOOT, str(_FOLDER), self._room, str(self._lock), wrapper],
            stdin=theirs.fileno(),
            pass_fds=[self._lock],
            stdout=subprocess.DEVNULL,
            env={"PATH": os.defpath, "LANG": "C.UTF-8"},
            cwd="/",
            start_new_session=True,
        )
        theirs.close()
        ours.setblocking(False)
        self._socket = ours
        return ours

    def start(self, spec: CommandSpec, standard: Sequence[int]) -> socket.socket:
        """Start a command on these descriptors; return the socket that reports its end.

        Closing the writing side of that socket ends the command and all its processes; the guard closes the other end
        when none is left.
        """
        if self._socket is None:
            raise RuntimeError("the guard process is not running")
        ours, theirs = socket.socketpair()
        try:
            payload = json.dumps(spec.to_json()).encode()
            # Blocking, but the guard does nothing else between two commands.
            self._socket.setblocking(True)
            socket.send_fds(self._socket, [struct.pack("!I", len(payload))], [*standard, theirs.fileno()])
            self._socket.sendall(payload)
        except OSError:
            ours.close()
            raise
        finally:
            self._socket.setblocking(False)
            theirs.close()
        ours.setblocking(False)
        return ours

    async def aclose(self) -> None:
        """End the guard. Its commands have ended when their sockets are closed."""
        async with self._starting:
            process = self._process
            self._reset(reap=False)
            if process is not None:
                await asyncio.get_running_loop().run_in_executor(None, process.wait)

    def _reset(self, *, reap: bool = True) -> None:
        if self._socket is not None:
            self._socket.close()
        if reap and self._process is not None:
            self._process.wait()
        self._socket = self._process = self._abilities = None


logger = logging.getLogger("sfusion.fakes.sandbox.executors.python")

SPAWN_STALL = 0.02
"""Seconds for which one spawn blocks the event loop of the real server, as measured."""
_DENIED = re.compile(r"(?:\[Errno \d+\] |\b)(?:Permission denied|Read-only file system)(?:: '(?P<path>[^']*)')?")


@dataclass(frozen=True, slots=True)
class Confinement:
    """How programs are confined, given the machine and the options."""

    namespaces: bool
    """Each command has its own process ids: nothing survives, and other processes are invisible. Each request has its
    own /tmp and home, and everything else is mounted read-only."""
    landlock: bool
    """The kernel refuses writes outside the work directory."""
    signals: bool
    """Programs cannot signal other processes."""
    bounds: ResourceBounds = field(default_factory=ResourceBounds)
    user_kind: UserKind = ""
    seccomp: bool = False
    """System calls are filtered that change files or processes in ways that Landlock does not know. Not needed with
    namespaces."""
    control_group: bool = False
    """The kernel bounds memory, its own included, and processes, in addition to the supervisor."""
    bubblewrap: bool = False
    """All programs are in one set of namespaces that bubblewrap made, because the guard may make none."""
    root: bool = False
    """The server is root."""

    @property
    def own_user(self) -> bool:
        """Programs do not run as the server's user, but each request as one of its own."""
        return bool(self.user_kind)

    def describe(self) -> str:
        """Return one line that says which layers are in force, and what is not confined for lack of one."""
        layers = {
            "own user": self.own_user,
            "namespaces": self.namespaces,
            "read-only mounts": self.namespaces or self.bubblewrap,
            "bubblewrap": self.bubblewrap,
            "Landlock": self.landlock,
            "seccomp": self.seccomp,
            "cgroup": self.control_group,
        }
        alone = self.namespaces or self.own_user
        gaps = {
            "writing to files elsewhere": self.namespaces or self.landlock,
            "permissions, times and attributes of files elsewhere": self.namespaces or self.seccomp,
            "limits and priorities of the server": alone or self.seccomp,
            "signals to other processes": self.signals,
            "making files that run as root": self.own_user or not self.root,
            # Only Landlock forbids mounts in a further user namespace, which this root may not make.
            "memory in file systems that programs mount": self.landlock or self.user_kind == "root-of-own",
            "files in /dev/shm": alone,
            "command lines of other processes": self.namespaces or self.bubblewrap,
            "reading what the server can read": self.user_kind in ("root-of-own", "own"),
        }
        text = f"confinement: {', '.join(name for name, there in layers.items() if there) or 'none'}"
        missing = [name for name, closed in gaps.items() if not closed]
        return f"{text}; NOT confined: {', '.join(missing)}" if missing else text


class CommandRunner:
    def __init__(self, spawner: Spawner, confinement: Confinement, *, stdin_race: bool) -> None:
        """Run through `spawner`; `stdin_race` is the failure of the published image if a program ends too early."""
        self._spawner = spawner
        self.confinement = confinement
        self._stdin_race = stdin_race
        self._running: dict[socket.socket, asyncio.Future[tuple[CommandReport, str, str]]] = {}

    async def run(
        self,
        command: str,
        work: WorkDirectory,
        timeout: float,
        *,
        stdin: str | None = None,
        memory_limit_mb: int = -1,
        results: int | None = None,
    ) -> CommandResult:
        """Run a command; a failure to start it is also a result. Its descriptor 3 is `results`, if given."""
        if math.isnan(timeout):
            return CommandResult.failed(command, "cannot convert float NaN to integer")
        try:
            given = stdin.encode() if stdin is not None else b""
        except UnicodeEncodeError as exc:
            if self._stdin_race:
                return CommandResult.failed(command, exc)
            given = b""  # the later server runs the program without standard input
        if timeout <= 0:
            # The real server starts the program and kills it at once.
            return CommandResult("TimeLimitExceeded", 0.0, None, "", "")
        spec = CommandSpec(
            command,
            work.cwd,
            work.env,
            timeout,
            work.writable,
            max(memory_limit_mb, 0) * 2**20,
            self.confinement.namespaces,
            self.confinement.landlock,
            self.confinement.bounds,
            work.mounts,
            work.needed,
            work.user,
            self.confinement.user_kind,
            self.confinement.seccomp,
            self.confinement.control_group,
        )
        more = [] if results is None else [results]
        return await self._run(spec, given, more, race=self._stdin_race and stdin is not None)

    async def stop(self) -> None:
        """End every running command, and wait until all their processes are gone."""
        running = dict(self._running)
        for control in running:
            _end_command(control)
        if running:
            await asyncio.wait(running.values())

    async def _run(self, spec: CommandSpec, stdin: bytes, more: list[int], *, race: bool) -> CommandResult:
        loop = asyncio.get_running_loop()
        made: list[socket.socket | Capture] = []
        try:
            feed, stdin_end = stream_pair()
            made += [feed, stdin_end]
            made.append(out := capture(loop))
            made.append(err := capture(loop))
            control = self._spawner.start(spec, (stdin_end.fileno(), out.fileno(), err.fileno(), *more))
        except (OSError, RuntimeError) as exc:  # for example, no descriptors left
            _close(*made)
            return CommandResult.failed(spec.command, exc)
        stdin_end.close()
        captures = out, err
        ending = self._running[control] = asyncio.ensure_future(_wait_for_end(control, captures))
        feeding: asyncio.Future[None] | None = None
        try:
            if race and await self._ended_before_stdin(ending):
                return CommandResult.without_stdin(spec.command, id(feed))
            feeding = asyncio.ensure_future(_feed(feed, stdin))
            return self._result(spec, *await asyncio.shield(ending))
        except asyncio.CancelledError:
            # Return only when no process of this command is left.
            _end_command(control)
            await ending
            raise
        finally:
            del self._running[control]
            for task in (feeding, ending):
                if task is not None:
                    task.cancel()
            _close(feed, control, *captures)

    async def _ended_before_stdin(self, ending: asyncio.Future[tuple[CommandReport, str, str]]) -> bool:
        """Delay standard input for as long as spawning the other programs would block the real server's loop."""
        await asyncio.sleep(0)
        others = len(self._running) - 1
        if others == 0:
            return False
        await asyncio.wait([ending], timeout=SPAWN_STALL * others)
        return ending.done() and ending.result()[0].event == "exited"

    def _result(self, spec: CommandSpec, report: CommandReport, stdout: str, stderr: str) -> CommandResult:
        if report.leftovers:
            noun = "process" if report.leftovers == 1 else "processes"
            logger.warning("killed %d %s that a program left behind: %s", report.leftovers, noun, spec.command)
        if report.bound:
            logger.warning("killed a program with %s: %s", report.bound, spec.command)
        denied = _DENIED.search(stderr) if spec.landlock or spec.namespaces else None
        if denied:
            what = denied["path"] or "see its standard error"
            logger.warning("refused a program to write outside its work directory (%s): %s", what, spec.command)
        if report.event == "exited":
            return CommandResult("Finished", report.seconds, report.code, stdout, stderr)
        if report.event == "timeout":
            return CommandResult("TimeLimitExceeded", report.seconds, None, stdout, stderr)
        return CommandResult.failed(spec.command, report.message or "the executor was closed while the program ran")


def _close(*things: socket.socket | Capture) -> None:
    for thing in things:
        thing.close()


async def _wait_for_end(control: socket.socket, captures: tuple[Capture, Capture]) -> tuple[CommandReport, str, str]:
    """Wait for the report, take the output at that moment, then wait until no process is left."""
    loop = asyncio.get_running_loop()
    data = await loop.sock_recv(control, 65536)
    report = CommandReport(**json.loads(data)) if data else CommandReport("stopped")
    stdout, stderr = (decoded(stream.take()) for stream in captures)
    while data:
        data = await loop.sock_recv(control, 65536)
    return report, stdout, stderr


async def _feed(stream: socket.socket, data: bytes) -> None:
    """Write standard input as far as the program reads it, then close it."""
    with suppress(OSError):
        if data:
            await asyncio.get_running_loop().sock_sendall(stream, data)
        stream.shutdown(socket.SHUT_WR)


def _end_command(control: socket.socket) -> None:
    with suppress(OSError):  # it has already ended
        control.shutdown(socket.SHUT_WR)
