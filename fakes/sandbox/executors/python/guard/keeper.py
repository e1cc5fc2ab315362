"""Runs one command, and leaves nothing behind.

It makes the place for the command ahead of time, starts it there and waits for its end. The keeper
is outside the namespaces, so that a program cannot even name it. The first process inside adopts
orphans, and the kernel kills everything in the namespace with it. Without namespaces it adopts
them too (Linux), and the keeper kills all its descendants.
"""

from __future__ import annotations

import fcntl
import json
import os
import resource
import select
import signal
import socket
import struct
import sys
import time
from contextlib import suppress
from dataclasses import replace
from typing import NoReturn

from . import kernel, privileges, seccomp
from .cgroups import ControlGroups
from .kernel import SHARED_MEMORY
from .processes import descendants, has_ended, numbers, tasks_of_user
from .spec import Abilities, CommandReport, CommandSpec, GuardOptions

DESCRIPTORS = 5
"""Those that come with a command.

Standard input, output and error of the program, perhaps a file for results, and the socket that
reports its end.
"""
SPARE = 64
"""A descriptor above all those of the program (chosen)."""
LONGEST_WAIT = 1e6
"""Seconds in one wait: poll() takes milliseconds in 31 bits."""
FEW = 4
"""Leftover processes that are waited for; more of them do not end by themselves (chosen)."""
GRACE = 0.02
"""Seconds for a few processes to end by themselves after the program (chosen)."""
GRACE_LOOKS = 5
"""Checks in that time."""
_LOOK = 0.001
"""Seconds between two looks whether killed processes are gone (chosen)."""
_MOST_KILLABLE = "1000"
"""The highest ``oom_score_adj``: out of memory, the kernel kills programs before the server."""
_SIZE = struct.Struct("!I")
_NUMBER = struct.Struct("!i")


def send_command(receiver: socket.socket, payload: bytes, descriptors: list[int]) -> None:
    socket.send_fds(receiver, [_SIZE.pack(len(payload))], descriptors)
    receiver.sendall(payload)


def receive_command(sender: socket.socket) -> tuple[bytes, list[int]]:
    """Return the next command and its descriptors; raises EOFError if there will be none."""
    header, descriptors, _, _ = socket.recv_fds(sender, _SIZE.size, DESCRIPTORS)
    if not header:
        raise EOFError
    (size,) = _SIZE.unpack(header)
    payload = b""
    while len(payload) < size:
        chunk = sender.recv(size - len(payload))
        if not chunk:
            raise EOFError
        payload += chunk
    for descriptor in descriptors:
        os.set_inheritable(descriptor, False)
    return payload, descriptors


class Keeper:
    """The place for one command, with the first process in it, which waits for the command."""

    def __init__(
        self, options: GuardOptions, able: Abilities, groups: ControlGroups | None
    ) -> None:
        self._options = options
        self._able = able
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.setsid()
        self._group = groups.open() if groups is not None else None
        self._trouble, complaint = os.pipe()
        self._ended, tell = os.pipe()
        self._door, inside = socket.socketpair()
        self._program = 0
        if able.namespaces:
            kernel.enter_namespaces()
        elif kernel.LINUX:
            kernel.prctl(kernel.PR_SET_CHILD_SUBREAPER, 1)
        self._first = os.fork()
        if self._first == 0:
            with self._door:
                self._be_first(inside, complaint, tell)
        os.close(complaint)
        os.close(tell)
        inside.close()

    def run(self, payload: bytes, descriptors: list[int]) -> CommandReport:
        """Run a command and return how it ended, once no process of it is left.

        `end` must follow.
        """
        *standard, control = descriptors
        spec = CommandSpec(**json.loads(payload))
        started = time.monotonic()
        nothing_left = False
        try:
            with suppress(BrokenPipeError):
                # If the first process could not start, it has written why.
                send_command(self._door, payload, standard)
            for descriptor in standard:
                os.close(descriptor)
            with os.fdopen(self._trouble, "rb") as reader:  # ends when the program has started
                message = reader.read().decode("utf-8", "replace")
            if message:
                report = CommandReport("error", message=message)
            else:
                self._program = self._read_number() or 0
                report = self._wait(control, spec.timeout)
            is_over = report.event == "exited" and not report.leftovers
            nothing_left = self._able.namespaces and is_over
            # The program may have run before it was watched, which does not count towards its time
            # limit.
            seconds = time.monotonic() - started
            bound = self._group.broken_bound() if self._group is not None else ""
            return replace(report, seconds=seconds, bound=bound)
        finally:
            if not nothing_left:  # else the report need not wait for it
                self.end()
            if spec.user is not None and not self._able.namespaces:
                privileges.remove_leftovers(spec.user)

    def _wait(self, control: int, timeout: float) -> CommandReport:
        """Wait for the end of the program, of its time, or of the server's interest."""
        end = time.monotonic() + timeout
        poller = select.poll()
        for descriptor in (control, self._ended):
            poller.register(descriptor, select.POLLIN)
        while True:
            left = end - time.monotonic()
            ready = dict(poller.poll(max(min(left, LONGEST_WAIT), 0) * 1000))
            if self._ended in ready:
                code = self._read_number()
                if code is None:
                    code = -signal.SIGKILL
                return CommandReport("exited", code=code, leftovers=self._leftovers())
            if ready:
                return CommandReport("stopped")
            if left <= 0:
                return CommandReport("timeout")

    def _read_number(self) -> int | None:
        data = os.read(self._ended, _NUMBER.size)
        return int(_NUMBER.unpack(data)[0]) if data else None

    def _leftovers(self) -> int:
        """Count leftover processes; those that are about to end get a moment to do so."""
        for _ in range(GRACE_LOOKS):
            left = sum(not has_ended(pid) for pid in self._pids())
            if not left or left > FEW:
                break
            time.sleep(GRACE / GRACE_LOOKS)
        return left

    def _pids(self) -> list[int]:
        """List the processes in the place, but for the first."""
        if not self._able.namespaces:
            return descendants(self._first)
        # In a namespace, whose /proc is mounted here too, the first process is number 1.
        return [pid for pid in numbers("/proc") if pid > 1]

    def end(self) -> None:
        """Kill everything in the place, and remove its control group."""
        if self._first <= 1:  # it has been done
            return
        _kill(self._first)
        if self._able.namespaces:
            os.waitpid(self._first, 0)
        else:
            self._end_descendants()
        self._first = 0
        if self._group is not None:
            self._group.close()

    def _end_descendants(self) -> None:
        """Kill all processes beneath this one, which adopts them, until none is left."""
        with suppress(ChildProcessError):
            while True:
                if self._program > 1:
                    _kill(-self._program)
                # Stop them first, so that they start nothing new while the others are being killed.
                # Elsewhere this one does not adopt them: what it has stopped could get out of
                # reach.
                if kernel.LINUX:
                    for number in (signal.SIGSTOP, signal.SIGKILL):
                        for pid in descendants(os.getpid()):
                            _kill(pid, number)
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
                time.sleep(_LOOK)

    def _be_first(self, door: socket.socket, complaint: int, tell: int) -> NoReturn:
        """Be the first process.

        Start the program, adopt orphans, send the exit code, and wait to be killed.
        """
        try:
            room = self._isolate()
            program, parent = self._fork_program(complaint)
            payload, standard = receive_command(door)
            spec = CommandSpec(**json.loads(payload))
            if room is not None:
                kernel.mount_directories(room, spec.mounts, self._options.needed)
            send_command(parent, payload, standard)
            if spec.user is not None and spec.user_kind == "root-of-own":
                privileges.map_user(parent, program, spec.user)

            os.write(tell, _NUMBER.pack(program))
            os.closerange(0, tell)
            os.closerange(tell + 1, SPARE)
            while True:
                pid, status = os.wait()
                if pid == program:
                    os.write(tell, _NUMBER.pack(os.waitstatus_to_exitcode(status)))
        except ChildProcessError:
            while True:
                signal.pause()
        except BaseException as exc:
            with suppress(OSError):
                os.write(complaint, str(exc).encode("utf-8", "replace") or b"?")
        os._exit(1)

    def _isolate(self) -> int | None:
        """Confine the first process to its place.

        Return a descriptor of the room, which is there only with namespaces.
        """
        options = self._options
        if kernel.LINUX:
            kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
        if self._group is not None:
            self._group.join()
        if self._able.namespaces:
            room = os.open(options.room, os.O_PATH | os.O_CLOEXEC)
            shared_memory = options.bounds.shared_memory
            kernel.isolate_namespace(
                room, shared_memory, options.hidden, options.needed, options.known
            )
            return room
        if kernel.LINUX:
            kernel.prctl(kernel.PR_SET_CHILD_SUBREAPER, 1)
        return None

    def _fork_program(self, complaint: int) -> tuple[int, socket.socket]:
        """Return the process that becomes the program, and the socket for its command."""
        ours, theirs = socket.socketpair()
        if kernel.LINUX:
            # Programs of the same user cannot inspect these processes.
            kernel.prctl(kernel.PR_SET_DUMPABLE, 0)
        program = os.fork()
        if program == 0:
            ours.close()
            self._be_program(theirs, complaint)
        theirs.close()
        return program, ours

    def _be_program(self, parent: socket.socket, complaint: int) -> NoReturn:
        """Replace this process by the program; never returns."""
        try:
            complaint = _duplicate(complaint)
            parent = socket.socket(fileno=_duplicate(parent.fileno()))
            os.setsid()
            _reset_signals()
            if kernel.LINUX:
                _offer_to_oom_killer()
                kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)

            payload, standard = receive_command(parent)
            spec = CommandSpec(**json.loads(payload))
            # Move the descriptors away from those of the program first, so that none is
            # overwritten.
            moved = [_duplicate(descriptor) for descriptor in standard]
            for target, descriptor in enumerate(moved):
                os.dup2(descriptor, target)
            os.chdir(spec.cwd)
            if kernel.LINUX:
                kernel.prctl(kernel.PR_SET_DUMPABLE, 1)
                self._confine(spec, parent)
            self._limit(spec)
            if self._able.seccomp:
                seccomp.install(namespaces=self._able.namespaces, same_user=spec.user is None)

            if spec.program:
                with suppress(OSError):  # bash has words for it
                    env = {"PWD": spec.cwd, **spec.env, "_": spec.program}
                    os.execve(spec.program, spec.command.split(" "), env)
            os.execve("/bin/bash", ["/bin/bash", "-c", spec.command], spec.env)
        except BaseException as exc:
            with suppress(BaseException):
                os.write(complaint, str(exc).encode("utf-8", "replace") or b"?")
        os._exit(127)

    def _confine(self, spec: CommandSpec, parent: socket.socket) -> None:
        if self._able.landlock:
            # Programs need shared memory; terminals only if they are the program's own.
            writable = list(spec.writable)
            if os.path.isdir(SHARED_MEMORY):
                writable.append(SHARED_MEMORY)
            if self._able.namespaces and os.path.isdir(kernel.TERMINALS):
                writable.append(kernel.TERMINALS)
            kernel.allow_writes_only_beneath(writable)
        if spec.user is not None and spec.user_kind == "root-of-own":
            privileges.become_root_of_own(parent)
        elif spec.user is not None:
            privileges.become(spec.user, reads=spec.user_kind == "own-reading")
        else:
            privileges.drop_capabilities()

    def _limit(self, spec: CommandSpec) -> None:
        """Set the limits of the process: those of the guard, then that of the request."""
        bounds = self._options.bounds
        _lower(resource.RLIMIT_CORE, 0)
        _lower(resource.RLIMIT_FSIZE, bounds.file_size)
        if kernel.LINUX and not self._able.control_groups:
            tasks = bounds.tasks
            counted_alone = self._able.namespaces or spec.user is not None
            if not counted_alone:
                # The kernel counts them with the other processes of the server's user.
                tasks += tasks_of_user(os.getuid())
            _lower(resource.RLIMIT_NPROC, tasks)
            _lower(resource.RLIMIT_DATA, bounds.memory)
        if spec.memory_limit > 0:
            try:
                _limit_memory(spec.memory_limit)
            except (OSError, OverflowError, ValueError, MemoryError) as exc:
                # The words of the real server.
                raise OSError("Exception occurred in preexec_fn.") from exc


def _reset_signals() -> None:
    """Reset signals that this process ignores, also because of a shell's `nohup` or `&`."""
    for number in signal.valid_signals():
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)


def _offer_to_oom_killer() -> None:
    """Let the kernel kill this process first when memory runs out."""
    with suppress(OSError), open("/proc/self/oom_score_adj", "w", encoding="utf-8") as file:
        file.write(_MOST_KILLABLE)


def _limit_memory(limit: int) -> None:
    """Set the limits that the real server sets for the memory of a request."""
    kinds = [resource.RLIMIT_AS, resource.RLIMIT_DATA]
    if sys.platform != "darwin":
        kinds.append(resource.RLIMIT_STACK)
    for kind in kinds:
        _, hard = resource.getrlimit(kind)
        # The guard's own bound on data may be lower than what the request asks for.
        is_lower = hard != resource.RLIM_INFINITY and hard <= limit
        if kind == resource.RLIMIT_DATA and is_lower:
            continue
        resource.setrlimit(kind, (limit, hard))


def _duplicate(fd: int) -> int:
    return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, SPARE)


def _lower(which: int, value: int) -> None:
    _, hard = resource.getrlimit(which)
    if hard != resource.RLIM_INFINITY:
        value = min(value, hard)
    resource.setrlimit(which, (value, value))


def _kill(pid: int, number: int = signal.SIGKILL) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)
