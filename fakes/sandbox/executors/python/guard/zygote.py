"""The guard's main loop: take a command from the server, fork, confine, run, report, clean up.

Each command has one keeper process, which watches it, and, if the machine supports process namespaces, a first process
inside the namespace. When that one ends, the kernel kills everything that is left in the namespace. Without namespaces,
the keeper adopts orphans (Linux) and kills all its descendants.
"""

from __future__ import annotations

import fcntl
import json
import os
import resource
import signal
import socket
import struct
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, replace
from functools import partial
from typing import NoReturn

from . import bubblewrap, kernel, privileges, seccomp
from .attributes import Attributes
from .census import Census, DescendantCensus, NamespaceCensus
from .cgroups import ControlGroup, ControlGroups
from .memory import SHARED_MEMORY, Memory
from .spec import Abilities, CommandReport, CommandSpec, ResourceBounds
from .supervise import (
    ChildProgram,
    GuardedProgram,
    NamespaceProgram,
    Supervisor,
    end_everything,
    end_namespace,
    run_init,
)
from .trees import remove_tree, sweep

DESCRIPTORS = 5
"""Standard input, output and error of the program, perhaps a file for results, and the socket that reports its end."""
SPARE = 64
"""Above the descriptors of the program."""
_zygote = os.getpid()


def main() -> None:
    """Serve commands from standard input, a socket, until the server closes it or dies."""
    wrapper, rooms = sys.argv[4], os.path.dirname(sys.argv[2])
    if wrapper not in ("", bubblewrap.WRAPPED):
        alone = _succeeds(_try_namespaces) or _own_users() is not None
        if not alone and bubblewrap.works(wrapper, rooms):
            bubblewrap.enter(wrapper, rooms)
    groups = ControlGroups.of_this_process() if kernel.LINUX else None
    try:
        _serve(groups)
    finally:
        if os.getpid() == _zygote:
            # A server that was killed could not wait for its programs or remove their directories.
            with suppress(ChildProcessError):
                while True:
                    os.wait()
            if groups is not None:
                groups.close()
            remove_tree(sys.argv[2])


def _serve(groups: ControlGroups | None) -> None:
    os.set_inheritable(int(sys.argv[3]), False)  # the lock of the room
    server = socket.socket(fileno=os.dup(0))
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the server handles Ctrl-C
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # no need to wait for keepers
    server.sendall(json.dumps(asdict(_abilities(groups))).encode() + b"\n")
    if os.fork() == 0:
        server.close()
        with suppress(OSError):
            sweep(os.path.dirname(sys.argv[2]))
        os._exit(0)
    while True:
        header, fds, _, _ = socket.recv_fds(server, 4, DESCRIPTORS)
        if not header:
            return
        for fd in fds:
            os.set_inheritable(fd, False)
        spec = CommandSpec.from_json(json.loads(_receive(server, struct.unpack("!I", header)[0])))
        if os.fork() == 0:
            server.close()
            _run_keeper(spec, fds, groups)
        for fd in fds:
            os.close(fd)


def _receive(server: socket.socket, size: int) -> bytes:
    received = bytearray()
    while len(received) < size:
        chunk = server.recv(size - len(received))
        if not chunk:
            raise SystemExit(0)
        received += chunk
    return bytes(received)


def _abilities(groups: ControlGroups | None) -> Abilities:
    """Test it: there is no other way to find out what kernel, container and security modules allow."""
    if not kernel.LINUX:
        return Abilities(False, 0, None, False, False, False, False)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    users = _own_users()
    abilities = Abilities(
        _succeeds(_try_namespaces),
        kernel.landlock_version(),
        users,
        users is not None and _succeeds(partial(_try_root_of_own, users[0])),
        seccomp.available_here() and _succeeds(_try_seccomp),
        groups is not None and _succeeds(partial(_try_group, groups)),
        sys.argv[4] == bubblewrap.WRAPPED,
    )
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    return abilities


def _own_users() -> tuple[int, int] | None:
    return next((users for users in privileges.OWN_USERS if _succeeds(partial(_try_user, users[0]))), None)


def _succeeds(attempt: Callable[[], object]) -> bool:
    pid = os.fork()
    if pid == 0:
        try:
            attempt()
            os._exit(0)
        except BaseException:
            os._exit(1)
    return os.waitpid(pid, 0)[1] == 0


def _try_namespaces() -> None:
    kernel.enter_namespaces()
    if not _succeeds(_try_isolation):
        raise OSError("a namespace cannot be isolated")


def _try_isolation() -> None:
    room = sys.argv[2]
    kernel.isolate_namespace(4096, {room: room}, [])
    os.rmdir(_own_directory())
    if NamespaceCensus().members():
        raise OSError("other processes are visible")


def _own_directory() -> str:
    path = os.path.join(sys.argv[2], f"try-{os.getpid()}")
    os.mkdir(path, 0o700)
    return path


def _try_user(user: int) -> None:
    if os.geteuid():
        raise OSError("only root can become another user")
    path = _own_directory()
    try:
        os.chown(path, user, user)
    finally:
        os.rmdir(path)
    privileges.become(user, reads=False)


def _try_seccomp() -> None:
    kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
    seccomp.install(same_user=True)


def _try_group(groups: ControlGroups) -> None:
    group = groups.open(ResourceBounds())
    try:
        if not _succeeds(group.join):
            raise OSError("a process cannot be moved")
    finally:
        group.close()


def _try_root_of_own(user: int) -> None:
    ours, theirs = socket.socketpair()
    pid = os.fork()
    if pid == 0:
        ours.close()
        try:
            privileges.become_root_of_own(theirs)
            os._exit(0)
        except BaseException:
            os._exit(1)
    theirs.close()
    privileges.map_user(ours, pid, user)
    os._exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) & 1)


def _run_keeper(spec: CommandSpec, fds: list[int], groups: ControlGroups | None) -> NoReturn:
    """Run as the keeper of one command, start the program, watch it, report, end everything; never returns.

    The keeper is outside the namespace, so that the program cannot even name the process that watches it.
    """
    *standard, control = fds
    group: ControlGroup | None = None
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.setsid()
        with suppress(OSError):  # only root may do this, and only root's programs could starve this process
            os.nice(-5)
        if spec.control_group and groups is not None:
            group = groups.open(spec.bounds)
        start = _start_in_namespace if spec.namespaces else _start
        started = time.monotonic()
        program, end, census, message, attributes = start(spec, standard, group)
        try:
            if message:
                report = CommandReport("error", message=message)
            else:
                memory = Memory(private_shm=spec.namespaces, owner=spec.user) if census else None
                report = Supervisor(program, control, spec.bounds, census, memory, attributes).watch(spec.timeout)
                # The program may have run before it was watched, which does not count towards its time limit.
                report = replace(report, seconds=time.monotonic() - started)
                if group is not None and not report.bound and (broken := group.broken_bound()):
                    report = replace(report, bound=broken)
        finally:
            # Kill before reporting: a program must not see its output being closed. Kill also if watching failed.
            end()
            if group is not None:
                group.close()
    except BaseException as exc:
        report = CommandReport("error", message=str(exc))
    _send_report(control, report)
    os._exit(0)


_Started = tuple[GuardedProgram, Callable[[], None], Census | None, str, Attributes | None]


def _start_in_namespace(spec: CommandSpec, standard: list[int], group: ControlGroup | None) -> _Started:
    kernel.enter_namespaces()
    trouble, complaint = os.pipe()
    ended, tell = os.pipe()
    init = os.fork()
    if init == 0:
        try:
            kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
            kernel.isolate_namespace(spec.bounds.shared_memory, spec.mounts, spec.needed)
            program, _ = _fork_program(spec, standard, complaint, group)
            os.closerange(0, tell)
            os.closerange(tell + 1, SPARE)
            run_init(program, tell)
        except BaseException as exc:
            with suppress(OSError):
                os.write(complaint, str(exc).encode("utf-8", "replace") or b"?")
        os._exit(1)
    for fd in (*standard, complaint, tell):
        os.close(fd)
    message = _read_all(trouble)
    return NamespaceProgram(ended), lambda: end_namespace(init), NamespaceCensus(), message, None


def _start(spec: CommandSpec, standard: list[int], group: ControlGroup | None) -> _Started:
    if kernel.LINUX:
        kernel.prctl(kernel.PR_SET_CHILD_SUBREAPER, 1)
    trouble, complaint = os.pipe()
    program, listener = _fork_program(spec, standard, complaint, group)
    for fd in (*standard, complaint):
        os.close(fd)
    message = _read_all(trouble)
    census = DescendantCensus() if kernel.LINUX else None

    def end() -> None:
        end_everything(census, program)
        if spec.user is not None:
            privileges.remove_leftovers(spec.user)

    attributes = None
    if listener is not None:
        attributes = Attributes(listener, [*spec.writable, SHARED_MEMORY], spec.user)
    return ChildProgram(program), end, census, message, attributes


def _read_all(trouble: int) -> str:
    """Read what went wrong; ends when the program has started."""
    with os.fdopen(trouble, "rb") as reader:
        return reader.read().decode("utf-8", "replace")


def _fork_program(
    spec: CommandSpec, standard: list[int], complaint: int, group: ControlGroup | None
) -> tuple[int, int | None]:
    """Return its process id, and where the system calls that are filtered arrive."""
    ours, theirs = socket.socketpair()
    if kernel.LINUX:
        kernel.prctl(kernel.PR_SET_DUMPABLE, 0)  # programs of the same user cannot inspect this process
    program = os.fork()
    if program == 0:
        _exec_program(spec, standard, complaint, theirs, group)
    theirs.close()
    if spec.user is not None and spec.user_kind == "root-of-own":
        privileges.map_user(ours, program, spec.user)
    listeners: list[int] = []
    if spec.seccomp:
        _, listeners, _, _ = socket.recv_fds(ours, 1, 1)  # none if it could not start
    ours.close()
    return program, listeners[0] if listeners else None


def _send_report(control: int, report: CommandReport) -> None:
    with suppress(OSError):  # the server is gone
        os.write(control, json.dumps(report.to_json()).encode())


def _exec_program(
    spec: CommandSpec, standard: list[int], complaint: int, parent: socket.socket, group: ControlGroup | None
) -> NoReturn:
    """Replace this process by the program; never returns."""
    try:
        complaint = _duplicate(complaint)
        parent = socket.socket(fileno=_duplicate(parent.fileno()))
        if group is not None:
            group.join()
        if kernel.LINUX:
            kernel.prctl(kernel.PR_SET_DUMPABLE, 1)
        os.setsid()
        with suppress(OSError):
            os.nice(5 if os.getpriority(os.PRIO_PROCESS, 0) < 0 else 0)
        # Reset signals that this process ignores, also because of a shell's `nohup` or `&`.
        for number in signal.valid_signals():
            if signal.getsignal(number) is signal.SIG_IGN:
                signal.signal(number, signal.SIG_DFL)
        # Move the descriptors away from those of the program first, so that none is overwritten.
        for target, fd in enumerate([_duplicate(fd) for fd in standard]):
            os.dup2(fd, target)
        os.chdir(spec.cwd)
        arguments = ["/bin/bash", "-c", spec.command]
        if kernel.LINUX:
            with suppress(OSError), open("/proc/self/oom_score_adj", "w", encoding="utf-8") as file:
                file.write("1000")
            kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
        if spec.landlock:
            # Programs need shared memory; terminals only if they are the program's own.
            usual = [SHARED_MEMORY, *([kernel.TERMINALS] if spec.namespaces else [])]
            kernel.allow_writes_only_beneath([*spec.writable, *filter(os.path.isdir, usual)])
        if spec.user is not None and spec.user_kind == "root-of-own":
            privileges.become_root_of_own(parent)
        elif spec.user is not None:
            privileges.become(spec.user, reads=spec.user_kind == "own-reading")
        elif kernel.LINUX:
            privileges.drop_capabilities()
        _limit(spec)
        if spec.seccomp:
            listener = seccomp.install(same_user=spec.user is None)
            socket.send_fds(parent, [b"!"], [listener])
        elif seccomp.available_here():
            with suppress(OSError):  # a kernel without filters
                seccomp.refuse_secret_memory()
        os.execve(arguments[0], arguments, spec.env)
    except BaseException as exc:
        with suppress(BaseException):
            os.write(complaint, str(exc).encode("utf-8", "replace") or b"?")
    os._exit(127)


def _duplicate(fd: int) -> int:
    return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, SPARE)


def _limit(spec: CommandSpec) -> None:
    _lower(resource.RLIMIT_CORE, 0)
    _lower(resource.RLIMIT_FSIZE, spec.bounds.file_size)
    if kernel.LINUX and (spec.namespaces or spec.user is not None):
        # Counted for its own user or user namespace, in addition to the supervisor's count. Root is exempt.
        _lower(resource.RLIMIT_NPROC, 2 * spec.bounds.tasks)
    if spec.memory_limit > 0:
        try:
            for which in (resource.RLIMIT_AS, resource.RLIMIT_DATA, resource.RLIMIT_STACK):
                if which == resource.RLIMIT_STACK and sys.platform == "darwin":
                    continue
                resource.setrlimit(which, (spec.memory_limit, resource.getrlimit(which)[1]))
        except (OSError, OverflowError, ValueError, MemoryError) as exc:
            raise OSError("Exception occurred in preexec_fn.") from exc


def _lower(which: int, value: int) -> None:
    _, hard = resource.getrlimit(which)
    if hard != resource.RLIM_INFINITY:
        value = min(value, hard)
    resource.setrlimit(which, (value, value))
