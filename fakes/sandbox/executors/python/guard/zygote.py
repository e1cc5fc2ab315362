"""The guard's main loop: keeps one keeper ready, which takes the next command from the server."""

from __future__ import annotations

import gc
import json
import os
import signal
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from typing import NoReturn

from . import bubblewrap, kernel, privileges, seccomp
from .cgroups import ControlGroups, writable_places
from .keeper import Keeper, receive_command
from .processes import numbers
from .spec import Abilities, CommandReport, GuardOptions
from .trees import remove_tree, sweep

TAKEN = b"1"
"""What a keeper tells when it has taken a command: the next keeper is needed."""
NO_MORE = b"0"
"""What it tells when the server has closed the socket."""
_zygote = os.getpid()


def main() -> None:
    """Serve commands from standard input, a socket, until the server closes it or dies."""
    options = GuardOptions.from_json(sys.argv[2])
    kernel.make_empty(options.room, options.hidden, options.needed)
    if options.bubblewrap and not options.wrapped:
        _enter_bubblewrap_if_needed(options)
    groups = _groups(options)
    try:
        _serve(options, groups)
    finally:
        if os.getpid() == _zygote:
            # A server that was killed could not wait for its programs or remove their directories.
            with suppress(ChildProcessError):
                while True:
                    os.wait()
            if groups is not None:
                groups.close()
            remove_tree(options.room)


def _enter_bubblewrap_if_needed(options: GuardOptions) -> None:
    """Run this process again inside bubblewrap if only that can confine programs."""
    if _succeeds(partial(_try_namespaces, options)) or _own_users(options) is not None:
        return
    writable = [os.path.dirname(options.room)]
    if options.control_groups:
        writable += writable_places(options.bounds)
    if bubblewrap.works(options.bubblewrap, writable, network=options.network):
        bubblewrap.enter(options, writable)


def _groups(options: GuardOptions) -> ControlGroups | None:
    """Return the control groups for commands, if this process may use any."""
    if not kernel.LINUX or not options.control_groups:
        return None
    groups = ControlGroups.of_this_process(options.bounds, os.path.basename(options.room))
    if groups is not None and not _succeeds(partial(_try_group, groups)):
        groups.close()
        return None
    return groups


def _serve(options: GuardOptions, groups: ControlGroups | None) -> None:
    os.set_inheritable(options.lock, False)
    server = socket.socket(fileno=os.dup(0))
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the server handles Ctrl-C
    able = _abilities(options, groups)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # no need to wait for keepers
    server.sendall(json.dumps(asdict(able)).encode() + b"\n")
    if os.fork() == 0:
        server.close()
        with suppress(OSError):
            for room in sweep(os.path.dirname(options.room)):
                if groups is not None:
                    groups.remove(os.path.basename(room))
        os._exit(0)
    gc.disable()  # what is forked is short-lived, and shares the more memory the less it touches
    gc.freeze()
    go_on = TAKEN
    while go_on != NO_MORE:
        took, tell = os.pipe()
        if os.fork() == 0:
            os.close(took)
            _keep(options, able, groups, server, tell)
        os.close(tell)
        go_on = os.read(took, 1)
        os.close(took)


def _keep(
    options: GuardOptions,
    able: Abilities,
    groups: ControlGroups | None,
    server: socket.socket,
    tell: int,
) -> NoReturn:
    """Make a place for a command, wait for the command, run it there and report its end."""
    keeper: Keeper | None = None
    trouble = ""
    try:
        keeper = Keeper(options, able, groups)
    except BaseException as exc:
        trouble = str(exc) or repr(exc)
    try:
        payload, descriptors = receive_command(server)
    except BaseException:
        os.write(tell, NO_MORE)
        if keeper is not None:
            keeper.end()
        os._exit(0)
    os.write(tell, TAKEN)
    os.close(tell)
    server.close()
    try:
        report = CommandReport("error", message=trouble)
        if keeper is not None:
            report = keeper.run(payload, descriptors)
    except BaseException as exc:
        report = CommandReport("error", message=str(exc) or repr(exc))
    with suppress(OSError):  # the server is gone
        os.write(descriptors[-1], json.dumps(asdict(report)).encode())
    if keeper is not None:
        keeper.end()
    os._exit(0)


def _abilities(options: GuardOptions, groups: ControlGroups | None) -> Abilities:
    """Test what kernel, container and security modules allow.

    There is no other way to find out.
    """
    if not kernel.LINUX:
        return Abilities()
    own_network = _enter_own_network(options)
    namespaces = options.namespaces and not options.wrapped
    if namespaces:
        namespaces = _succeeds(partial(_try_namespaces, options))
    users = _own_users(options)
    return Abilities(
        namespaces=namespaces,
        landlock=kernel.landlock_version() if options.landlock else 0,
        users=users,
        root_of_own=users is not None and _succeeds(partial(_try_root_of_own, users[0])),
        seccomp=seccomp.available_here() and _succeeds(_try_seccomp),
        control_groups=groups is not None,
        bubblewrap=options.wrapped,
        own_network=own_network,
    )


def _enter_own_network(options: GuardOptions) -> bool:
    """Leave the machine's network, if programs should not have it; return whether that worked."""
    if options.network:
        return False
    if options.wrapped:  # bubblewrap has done it
        return True
    if not options.namespaces or not _succeeds(kernel.enter_network):
        return False
    kernel.enter_network()
    return True


def _own_users(options: GuardOptions) -> tuple[int, int] | None:
    """Return first id and number of the users that programs may become, if this process may."""
    for first, number in privileges.OWN_USERS:
        if _succeeds(partial(_try_user, options, first)):
            return first, number
    return None


def _succeeds(attempt: Callable[[], object]) -> bool:
    """Try something in a process of its own."""
    pid = os.fork()
    if pid == 0:
        try:
            attempt()
            os._exit(0)
        except BaseException:
            os._exit(1)
    return os.waitpid(pid, 0)[1] == 0


def _try_namespaces(options: GuardOptions) -> None:
    kernel.enter_namespaces()
    if not _succeeds(partial(_try_isolation, options)):
        raise OSError("a namespace cannot be isolated")


def _try_isolation(options: GuardOptions) -> None:
    room = os.open(options.room, os.O_PATH | os.O_CLOEXEC)
    kernel.isolate_namespace(room, 4096, options.hidden, options.needed, options.known)
    kernel.mount_directories(room, {"/tmp": ""}, [])
    os.rmdir(_own_directory("/tmp"))
    if any(pid > 1 for pid in numbers("/proc")):
        raise OSError("other processes are visible")


def _own_directory(room: str) -> str:
    path = os.path.join(room, f"try-{os.getpid()}")
    os.mkdir(path, 0o700)
    return path


def _try_user(options: GuardOptions, user: int) -> None:
    if os.geteuid():
        raise OSError("only root can become another user")
    path = _own_directory(options.room)
    try:
        os.chown(path, user, user)
    finally:
        os.rmdir(path)
    privileges.become(user, reads=False)


def _try_seccomp() -> None:
    kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
    seccomp.install(namespaces=False, same_user=True)


def _try_group(groups: ControlGroups) -> None:
    group = groups.open()
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
