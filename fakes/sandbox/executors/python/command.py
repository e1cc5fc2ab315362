"""Runs one command line and reports how it ended, like the real server."""

from __future__ import annotations

import asyncio
import json
import logging
import math
import os
import re
import socket
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from ...protocol import CommandResult
from .files import WorkDirectory
from .guard.keeper import send_command
from .guard.spec import Abilities, CommandReport, CommandSpec, GuardOptions, UserKind
from .output import Capture, capture, decoded
from .packets import stream_pair

# The guard is imported from its own folder as a top-level package: as part of this one it would
# load the whole server.
_BOOT = "import sys; sys.path.insert(0, sys.argv[1]); from guard.zygote import main; main()"
_FOLDER = Path(__file__).parent


_LONGEST_HELLO = 4096
"""Bytes of the abilities that a guard sends when it starts (chosen: they take some 200)."""
_LONGEST_REPORT = 65_536
"""Bytes of a report of a command's end (chosen: its message is that of an exception)."""


class Spawner:
    """A guard process and the socket for its commands; started with the first command."""

    def __init__(self, options: GuardOptions) -> None:
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None
        self._starting = asyncio.Lock()
        self._abilities: Abilities | None = None

    async def abilities(self) -> Abilities:
        """Return what this machine lets the guard do; starts the guard if it is not running."""
        async with self._starting:
            is_running = self._process is not None and self._process.poll() is None
            if is_running and self._abilities is not None:
                return self._abilities
            self._reset()
            ours = self._launch()
            hello = await asyncio.get_running_loop().sock_recv(ours, _LONGEST_HELLO)
            if not hello:
                self._reset()
                raise RuntimeError("the guard process that should run the programs ended at once")
            self._abilities = Abilities(**json.loads(hello))
            return self._abilities

    def _launch(self) -> socket.socket:
        ours, theirs = socket.socketpair()
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _BOOT, str(_FOLDER), self._options.to_json()],
            stdin=theirs.fileno(),
            pass_fds=[self._options.lock],
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

        Closing the writing side of that socket ends the command and all its processes.
        """
        if self._socket is None:
            raise RuntimeError("the guard process is not running")
        ours, theirs = socket.socketpair()
        try:
            payload = json.dumps(asdict(spec)).encode()
            # Blocking, but a keeper waits for it.
            self._socket.setblocking(True)
            send_command(self._socket, payload, [*standard, theirs.fileno()])
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
        self._socket = None
        self._process = None
        self._abilities = None


logger = logging.getLogger("sfusion.fakes.sandbox.executors.python")

SPAWN_STALL = 0.02
"""Seconds for which one spawn blocks the event loop of the real server, as measured."""
_DENIED = re.compile(
    r"(?:\[Errno \d+\] |\b)(?:Permission denied|Read-only file system)(?:: '(?P<path>[^']*)')?"
)

SIGNAL_SCOPE_VERSION = 6
"""The first version of Landlock that can block signals."""
Level = Literal["contained", "accident-proof"]


@dataclass(frozen=True, slots=True)
class Confinement:
    """How programs are confined, given the machine and the options."""

    able: Abilities
    user_kind: UserKind = ""
    root: bool = False
    """The server is root."""

    @property
    def namespaces(self) -> bool:
        """Each command has its own process ids, each request its own /tmp and home.

        All else is read-only.
        """
        return self.able.namespaces

    @property
    def own_user(self) -> bool:
        """Programs do not run as the server's user, but each request as one of its own."""
        return bool(self.user_kind)

    @property
    def signals(self) -> bool:
        """Programs cannot signal other processes."""
        return self.own_user or self.namespaces or self.able.landlock >= SIGNAL_SCOPE_VERSION

    @property
    def level(self) -> Level:
        """`contained` or `accident-proof`.

        The first is promised against an attacker, the second against programs as models write them.
        """
        return "accident-proof" if self.missing else "contained"

    @property
    def missing(self) -> dict[str, str]:
        """The layers that `contained` lacks, and what would add each."""
        able = self.able
        missing: dict[str, str] = {}
        if not able.namespaces:
            missing["namespaces"] = "in a container, allow it CAP_SYS_ADMIN or user namespaces"
        if not able.landlock:
            missing["Landlock"] = "Linux 5.13 with Landlock enabled"
        if not able.seccomp:
            missing["seccomp"] = "x86-64 or ARM64 and a kernel with filters"
        if not able.control_groups:
            missing["cgroup"] = f"start it with `{_IN_A_GROUP}`, or as root"
        if self.user_kind == "own-reading":
            missing["a Python that others may read"] = "install it where every user may go"
        if not able.own_network:
            missing["own network"] = (
                "leave out --network" if able.namespaces else "comes with namespaces"
            )
        return missing

    @property
    def _layers(self) -> list[str]:
        """The layers in force."""
        able = self.able
        layers = {
            "own user": self.own_user,
            "namespaces": able.namespaces,
            "bubblewrap": able.bubblewrap,
            "own network": able.own_network,
            "Landlock": able.landlock > 0,
            "seccomp": able.seccomp,
            "cgroup": able.control_groups,
        }
        return [name for name, in_force in layers.items() if in_force]

    @property
    def _gaps(self) -> list[str]:
        """What is not confined."""
        able = self.able
        alone = able.namespaces or self.own_user
        inside = able.namespaces or able.bubblewrap
        closed = {
            "memory and processes of a hostile program": able.control_groups,
            "this server, which programs can call": able.own_network,
            "writing to files elsewhere": inside or able.landlock > 0,
            "permissions and times of files elsewhere": alone or able.bubblewrap,
            "limits and priorities of the server": alone or able.seccomp,
            "signals to other processes": self.signals,
            "making files that run as root": self.own_user or not self.root,
            "files in /dev/shm": alone,
            "command lines of other processes": inside,
            "reading what the server can read": self.user_kind in ("root-of-own", "own"),
        }
        return [name for name, is_closed in closed.items() if not is_closed]

    def describe(self) -> str:
        """Return the level, the layers, what is not confined, and what would raise the level."""
        lines = [f"{self.level}: {', '.join(self._layers) or 'no layer'}"]
        if self._gaps:
            lines.append(f"NOT confined: {', '.join(self._gaps)}")
        if self.missing:
            advice = "; ".join(f"{name} ({advice})" for name, advice in self.missing.items())
            lines.append(f"for contained: {advice}")
        return "\n".join(lines)


_IN_A_GROUP = "systemd-run --user --scope -p Delegate=yes"

_Ended = tuple[CommandReport, str, str]
"""How a command ended, with its standard output and error."""


class CommandRunner:
    """Runs commands, and knows which are running."""

    def __init__(self, spawner: Spawner, confinement: Confinement, *, stdin_race: bool) -> None:
        """Run through `spawner`.

        `stdin_race` is the failure of the published image if a program ends too early.
        """
        self._spawner = spawner
        self.confinement = confinement
        self._stdin_race = stdin_race
        self._running: dict[socket.socket, asyncio.Future[_Ended]] = {}

    async def run(
        self,
        command: str,
        work: WorkDirectory,
        timeout: float,
        *,
        stdin: str | None = None,
        memory_limit_mb: int = -1,
        results: int | None = None,
        program: str = "",
    ) -> CommandResult:
        """Run a command; a failure to start it is also a result.

        Its descriptor 3 is `results`, if given. `program` is the file that bash would run for it,
        if the command is nothing but a name and arguments.
        """
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
            return CommandResult("TimeLimitExceeded", 0.0, stdout="", stderr="")

        spec = CommandSpec(
            command=command,
            cwd=work.cwd,
            env=work.env,
            timeout=timeout,
            writable=work.writable,
            memory_limit=max(memory_limit_mb, 0) * 2**20,
            mounts=work.mounts,
            program=program,
            user=work.user,
            user_kind=self.confinement.user_kind,
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

    async def _run(
        self, spec: CommandSpec, stdin: bytes, more: list[int], *, race: bool
    ) -> CommandResult:
        loop = asyncio.get_running_loop()
        made: list[socket.socket | Capture] = []
        try:
            feed, stdin_end = stream_pair()
            made += [feed, stdin_end]
            out = capture(loop)
            made.append(out)
            err = capture(loop)
            made.append(err)
            standard = (stdin_end.fileno(), out.fileno(), err.fileno())
            control = self._spawner.start(spec, (*standard, *more))
        except (OSError, RuntimeError) as exc:  # for example, no descriptors left
            _close(*made)
            return CommandResult.failed(spec.command, exc)
        stdin_end.close()

        ending = asyncio.ensure_future(_wait_for_end(control, out, err))
        self._running[control] = ending
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
            _close(feed, control, out, err)

    async def _ended_before_stdin(self, ending: asyncio.Future[_Ended]) -> bool:
        """Delay standard input; return whether the program has ended by then.

        Spawning the other programs would block the real server's loop for as long.
        """
        await asyncio.sleep(0)
        others = len(self._running) - 1
        if others == 0:
            return False
        await asyncio.wait([ending], timeout=SPAWN_STALL * others)
        return ending.done() and ending.result()[0].event == "exited"

    def _result(
        self, spec: CommandSpec, report: CommandReport, stdout: str, stderr: str
    ) -> CommandResult:
        self._warn(spec.command, report, stderr)
        if report.event == "exited":
            return CommandResult("Finished", report.seconds, report.code, stdout, stderr)
        if report.event == "timeout":
            return CommandResult("TimeLimitExceeded", report.seconds, None, stdout, stderr)
        why = report.message or "the executor was closed while the program ran"
        return CommandResult.failed(spec.command, why)

    def _warn(self, command: str, report: CommandReport, stderr: str) -> None:
        """Log what a program did that it should not do."""
        if report.leftovers:
            noun = "process" if report.leftovers == 1 else "processes"
            logger.warning(
                "killed %d %s that a program left behind: %s", report.leftovers, noun, command
            )
        if report.bound:
            logger.warning("the kernel stopped a program from using %s: %s", report.bound, command)
        if not self.confinement.namespaces and not self.confinement.able.landlock:
            return
        denied = _DENIED.search(stderr)
        if denied:
            what = denied["path"] or "see its standard error"
            logger.warning(
                "refused a program to write outside its work directory (%s): %s", what, command
            )


def _close(*things: socket.socket | Capture) -> None:
    for thing in things:
        thing.close()


async def _wait_for_end(control: socket.socket, out: Capture, err: Capture) -> _Ended:
    """Wait for the report, and take the output at that moment.

    The report comes when no process is left.
    """
    data = await asyncio.get_running_loop().sock_recv(control, _LONGEST_REPORT)
    report = CommandReport(**json.loads(data)) if data else CommandReport("stopped")
    return report, decoded(out.take()), decoded(err.take())


async def _feed(stream: socket.socket, data: bytes) -> None:
    """Write standard input as far as the program reads it, then close it."""
    with suppress(OSError):
        if data:
            await asyncio.get_running_loop().sock_sendall(stream, data)
        stream.shutdown(socket.SHUT_WR)


def _end_command(control: socket.socket) -> None:
    with suppress(OSError):  # it has already ended
        control.shutdown(socket.SHUT_WR)
