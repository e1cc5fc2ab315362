"""The guard's main loop: take a command from the server, fork, confine, run, report, clean up.

Each command has one keeper process and, if the machine supports process namespaces, a first process inside the
namespace. When that one ends, the kernel kills everything that is left in the namespace. Without namespaces, the
keeper adopts orphans (Linux) and kills all its descendants.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import socket
import struct
import sys
from contextlib import suppress
from typing import NoReturn

from . import census, kernel
from .spec import Abilities, CommandReport, CommandSpec
from .supervise import Supervisor, end_everything, end_namespace

DESCRIPTORS = 4
"""Standard input, output and error of the program, and the socket that reports its end."""
SPARE_DESCRIPTOR = 3
_zygote = os.getpid()


def main() -> None:
    """Serve commands from standard input, a socket, until the server closes it or dies."""
    try:
        _serve()
    finally:
        if os.getpid() == _zygote:
            # A server that was killed could not wait for its programs or remove their directories.
            with suppress(ChildProcessError):
                while True:
                    os.wait()
            shutil.rmtree(sys.argv[2], ignore_errors=True)


def _serve() -> None:
    server = socket.socket(fileno=os.dup(0))
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the server handles Ctrl-C
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # no need to wait for keepers
    abilities = Abilities(_namespaces_work(), kernel.landlock_version())
    server.sendall(json.dumps({"namespaces": abilities.namespaces, "landlock": abilities.landlock}).encode() + b"\n")
    while True:
        header, fds, _, _ = socket.recv_fds(server, 4, DESCRIPTORS)
        if not header:
            return
        for fd in fds:
            os.set_inheritable(fd, False)
        spec = CommandSpec.from_json(json.loads(_receive(server, struct.unpack("!I", header)[0])))
        if os.fork() == 0:
            server.close()
            _run_keeper(spec, fds)
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


def _namespaces_work() -> bool:
    """Test it: there is no other way to find out what kernel, container and security modules allow."""
    if not kernel.LINUX:
        return False
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    pid = os.fork()
    if pid == 0:
        with suppress(OSError):
            kernel.enter_namespaces()
            inner = os.fork()
            if inner == 0:
                kernel.isolate_namespace(4096)
                room = sys.argv[2]
                kernel.replace_directories({room: room}, [])
                kernel.bind_read_only(sys.prefix, room)
                kernel.refuse_writable(room)
                os._exit(0 if os.path.isdir("/proc/1") and census.namespace_members() == [] else 1)
            os._exit(os.waitstatus_to_exitcode(os.waitpid(inner, 0)[1]) & 1)
        os._exit(1)
    works = os.waitpid(pid, 0)[1] == 0
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    return works


def _run_keeper(spec: CommandSpec, fds: list[int]) -> NoReturn:
    """Run as the keeper of one command; never returns."""
    control = fds[-1]
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.setsid()
        if spec.namespaces:
            kernel.enter_namespaces()
            first = os.fork()
            if first == 0:
                kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
                kernel.isolate_namespace(spec.bounds.shared_memory)
                kernel.replace_directories(spec.mounts, spec.needed)
                _run(spec, fds)
            for fd in fds[:-1]:
                os.close(fd)
            os.waitpid(first, 0)
        else:
            if kernel.LINUX:
                kernel.prctl(kernel.PR_SET_CHILD_SUBREAPER, 1)
            _run(spec, fds)
    except BaseException as exc:
        _send_report(control, CommandReport("error", message=str(exc)))
    os._exit(0)


def _run(spec: CommandSpec, fds: list[int]) -> NoReturn:
    """Start the program, watch it, report, end everything; never returns."""
    control = fds[-1]
    trouble, complaint = os.pipe()
    with suppress(OSError):  # only root may do this, and only root's programs could starve this process
        os.nice(-5)
    program = os.fork()
    if program == 0:
        _exec_program(spec, fds, complaint)
    os.close(complaint)
    for fd in fds[:-1]:
        os.close(fd)
    with os.fdopen(trouble, "rb") as reader:
        message = reader.read().decode("utf-8", "replace")  # ends when the program has started
    members = None if not kernel.LINUX else census.namespace_members if spec.namespaces else census.descendants
    if message:
        report = CommandReport("error", message=message)
    else:
        report = Supervisor(program, control, spec.bounds, members).watch(spec.timeout)
    # Kill before reporting: a program must not see its output being closed.
    if spec.namespaces:
        end_namespace()
    else:
        end_everything(members, program)
    _send_report(control, report)
    os._exit(0)


def _send_report(control: int, report: CommandReport) -> None:
    with suppress(OSError):  # the server is gone
        os.write(control, json.dumps(report.to_json()).encode())


def _exec_program(spec: CommandSpec, fds: list[int], complaint: int) -> NoReturn:
    """Replace this process by the program; never returns."""
    try:
        os.setsid()
        with suppress(OSError):
            os.nice(5 if os.getpriority(os.PRIO_PROCESS, 0) < 0 else 0)
        # Reset signals that this process ignores, also because of a shell's `nohup` or `&`.
        for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
            with suppress(OSError, ValueError):
                signal.signal(number, signal.SIG_DFL)
        # Move the descriptors away from the three standard ones first, so that none is overwritten.
        spare = [_duplicate(fd) for fd in fds[:-1]]
        for target, fd in enumerate(spare):
            os.dup2(fd, target)
        os.chdir(spec.cwd)
        arguments = ["/bin/bash", "-c", spec.command]
        if kernel.LINUX:
            with suppress(OSError), open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
                file.write("1000")
        if spec.landlock:
            # Programs need shared memory; terminals only if they are the program's own.
            usual = [kernel.SHARED_MEMORY, *([kernel.TERMINALS] if spec.namespaces else [])]
            kernel.allow_writes_only_beneath([*spec.writable, *filter(os.path.isdir, usual)])
        if kernel.LINUX:
            kernel.drop_capabilities()
        _limit(spec)
        os.execve(arguments[0], arguments, spec.env)
    except BaseException as exc:
        with suppress(BaseException):
            os.write(complaint, str(exc).encode("utf-8", "replace") or b"?")
    os._exit(127)


def _duplicate(fd: int) -> int:
    copy = os.dup(fd)
    return copy if copy >= SPARE_DESCRIPTOR else _duplicate(copy)


def _limit(spec: CommandSpec) -> None:
    _lower(resource.RLIMIT_CORE, 0)
    _lower(resource.RLIMIT_FSIZE, spec.bounds.file_size)
    if kernel.LINUX and spec.namespaces:
        # Counted within the user namespace, in addition to the supervisor's count. Root is exempt.
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
