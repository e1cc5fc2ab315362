"""Starts commands through the guard process, which ends with the executor."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import socket
import struct
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from .guard.spec import Abilities, CommandSpec

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
