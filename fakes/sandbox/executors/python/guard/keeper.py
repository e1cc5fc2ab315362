"""Runs one command: makes the place for it ahead of time, starts it there, waits for its end,
leaves nothing behind.

The keeper is outside the namespaces, so that a program cannot even name it. The first process
inside adopts orphans, and the kernel kills everything in the namespace with it. Without namespaces
it adopts them too (Linux), and the keeper kills all its descendants.
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
"""Standard input, output and error of the program, perhaps a file for results, and the socket
that reports its end."""
SPARE = 64
"""Above the descriptors of the program."""
LONGEST_WAIT = 1e6
GRACE = 0.02
GRACE_LOOKS = 5
FEW = 4
"""Seconds, and checks in that time, for a few processes to end by themselves after the program."""
_SIZE = struct.Struct("!I")
_NUMBER = struct.Struct("!i")


def send_command(receiver: socket.socket, payload: bytes, descriptors: list[int]) -> None:
    socket.send_fds(receiver, [_SIZE.pack(len(payload))], descriptors)
    receiver.sendall(payload)


def receive_command(sender: socket.socket) -> tuple[bytes, list[int]]:
    """Return the next command and its descriptors; raises EOFError if there will be none."""
    header, descriptors, _, _ = socket.recv_fds(sender, _SIZE.size, DESCRIPTORS)
    payload = b""
    while header and len(payload) < _SIZE.unpack(header)[0]:
        chunk = sender.recv(_SIZE.unpack(header)[0] - len(payload))
        if not chunk:
            raise EOFError
        payload += chunk
    if not header:
        raise EOFError
    for descriptor in descriptors:
        os.set_inheritable(descriptor, False)
    return payload, descriptors


class Keeper:
    """The place for one command, with the first process in it, which waits for the command."""

    def __init__(
        self, options: GuardOptions, able: Abilities, groups: ControlGroups | None
    ) -> None:
        self._options, self._able = options, able
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
        for one in (complaint, tell):
            os.close(one)
        inside.close()

    def run(self, payload: bytes, descriptors: list[int]) -> CommandReport:
        """Run a command and return how it ended, once no process of it is left; `end` must
        follow."""
        *standard, control = descriptors
        spec = CommandSpec(**json.loads(payload))
        started = time.monotonic()
        nothing_left = False
        try:
            with suppress(
                BrokenPipeError
            ):  # the first process could not start, and has written why
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
            nothing_left = (
                self._able.namespaces and report.event == "exited" and not report.leftovers
            )
            # The program may have run before it was watched, which does not count towards its time
            # limit.
            return replace(
                report,
                seconds=time.monotonic() - started,
                bound=self._group.broken_bound() if self._group is not None else "",
            )
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
                return CommandReport(
                    "exited", 0, -signal.SIGKILL if code is None else code, self._leftovers()
                )
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
            # In a namespace, whose /proc is mounted here too, the first process is number 1.
            pids = (
                [pid for pid in numbers("/proc") if pid > 1]
                if self._able.namespaces
                else descendants(self._first)
            )
            left = sum(not has_ended(pid) for pid in pids)
            if not left or left > FEW:
                break
            time.sleep(GRACE / GRACE_LOOKS)
        return left

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
                for number in (signal.SIGSTOP, signal.SIGKILL) if kernel.LINUX else ():
                    for pid in descendants(os.getpid()):
                        _kill(pid, number)
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
                time.sleep(0.001)

    def _be_first(self, door: socket.socket, complaint: int, tell: int) -> NoReturn:
        """Be the first process: start the program, adopt orphans, send the exit code, and wait
        to be killed."""
        options = self._options
        try:
            if kernel.LINUX:
                kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
            if self._group is not None:
                self._group.join()
            if self._able.namespaces:
                room = os.open(options.room, os.O_PATH | os.O_CLOEXEC)
                kernel.isolate_namespace(
                    room, options.bounds.shared_memory, options.hidden, options.needed
                )
            elif kernel.LINUX:
                kernel.prctl(kernel.PR_SET_CHILD_SUBREAPER, 1)
            program, parent = self._fork_program(complaint)
            payload, standard = receive_command(door)
            spec = CommandSpec(**json.loads(payload))
            if self._able.namespaces:
                kernel.mount_directories(room, spec.mounts, options.needed)
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

    def _fork_program(self, complaint: int) -> tuple[int, socket.socket]:
        """Return the process that becomes the program, once it receives the command on this
        socket."""
        ours, theirs = socket.socketpair()
        if kernel.LINUX:
            kernel.prctl(
                kernel.PR_SET_DUMPABLE, 0
            )  # programs of the same user cannot inspect these processes
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
            # Reset signals that this process ignores, also because of a shell's `nohup` or `&`.
            for number in signal.valid_signals():
                if signal.getsignal(number) is signal.SIG_IGN:
                    signal.signal(number, signal.SIG_DFL)
            if kernel.LINUX:
                with (
                    suppress(OSError),
                    open("/proc/self/oom_score_adj", "w", encoding="utf-8") as file,
                ):
                    file.write("1000")
                kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
            payload, standard = receive_command(parent)
            spec = CommandSpec(**json.loads(payload))
            # Move the descriptors away from those of the program first, so that none is
            # overwritten.
            for target, fd in enumerate([_duplicate(fd) for fd in standard]):
                os.dup2(fd, target)
            os.chdir(spec.cwd)
            if kernel.LINUX:
                kernel.prctl(kernel.PR_SET_DUMPABLE, 1)
                self._confine(spec, parent)
            self._limit(spec)
            if self._able.seccomp:
                seccomp.install(namespaces=self._able.namespaces, same_user=spec.user is None)
            if spec.program:
                with suppress(OSError):  # bash has words for it
                    given = {"PWD": spec.cwd, **spec.env, "_": spec.program}
                    os.execve(spec.program, spec.command.split(" "), given)
            os.execve("/bin/bash", ["/bin/bash", "-c", spec.command], spec.env)
        except BaseException as exc:
            with suppress(BaseException):
                os.write(complaint, str(exc).encode("utf-8", "replace") or b"?")
        os._exit(127)

    def _confine(self, spec: CommandSpec, parent: socket.socket) -> None:
        if self._able.landlock:
            # Programs need shared memory; terminals only if they are the program's own.
            usual = [SHARED_MEMORY, *([kernel.TERMINALS] if self._able.namespaces else [])]
            kernel.allow_writes_only_beneath([*spec.writable, *filter(os.path.isdir, usual)])
        if spec.user is not None and spec.user_kind == "root-of-own":
            privileges.become_root_of_own(parent)
        elif spec.user is not None:
            privileges.become(spec.user, reads=spec.user_kind == "own-reading")
        else:
            privileges.drop_capabilities()

    def _limit(self, spec: CommandSpec) -> None:
        bounds = self._options.bounds
        _lower(resource.RLIMIT_CORE, 0)
        _lower(resource.RLIMIT_FSIZE, bounds.file_size)
        if kernel.LINUX and not self._able.control_groups:
            # Counted for its own user or user namespace, else with the other processes of the
            # server's user.
            counted_alone = self._able.namespaces or spec.user is not None
            _lower(
                resource.RLIMIT_NPROC,
                bounds.tasks + (0 if counted_alone else tasks_of_user(os.getuid())),
            )
            _lower(resource.RLIMIT_DATA, bounds.memory)
        if spec.memory_limit > 0:
            try:
                for which in (resource.RLIMIT_AS, resource.RLIMIT_DATA, resource.RLIMIT_STACK):
                    if which == resource.RLIMIT_STACK and sys.platform == "darwin":
                        continue
                    hard = resource.getrlimit(which)[1]
                    if (
                        which != resource.RLIMIT_DATA
                        or hard == resource.RLIM_INFINITY
                        or spec.memory_limit < hard
                    ):
                        resource.setrlimit(which, (spec.memory_limit, hard))
            except (OSError, OverflowError, ValueError, MemoryError) as exc:
                raise OSError("Exception occurred in preexec_fn.") from exc


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
