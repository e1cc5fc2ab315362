"""Starts commands through the guard process, and sees that the guard ends with the executor."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import struct
import subprocess
import sys
from pathlib import Path

from .guard.spec import Abilities, CommandSpec

# The guard is imported from its own folder as a top-level package: importing it as a part of this one would load
# the whole server into it.
_BOOT = "import sys; sys.path.insert(0, sys.argv[1]); from guard.zygote import main; main()"
_FOLDER = Path(__file__).parent


class Spawner:
    """A guard process and the socket on which it takes commands; started with the first command."""

    def __init__(self, room: str) -> None:
        """Start nothing yet. `room` is the directory to remove should the server be killed."""
        self._room = room
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None
        self._starting = asyncio.Lock()
        self._abilities: Abilities | None = None

    async def abilities(self) -> Abilities:
        """Say what this machine lets the guard do; starts the guard when it is not running."""
        async with self._starting:
            if self._process is not None and self._process.poll() is None and self._abilities is not None:
                return self._abilities
            self._forget()
            ours = self._launch()
            hello = await asyncio.get_running_loop().sock_recv(ours, 4096)
            if not hello:
                self._forget()
                raise RuntimeError("the guard process that should run the programs ended at once")
            self._abilities = Abilities(**json.loads(hello))
            return self._abilities

    def _launch(self) -> socket.socket:
        ours, theirs = socket.socketpair()
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _BOOT, str(_FOLDER), self._room],
            stdin=theirs.fileno(),
            stdout=subprocess.DEVNULL,
            env={"PATH": os.defpath, "LANG": "C.UTF-8"},
            cwd="/",
            start_new_session=True,
        )
        theirs.close()
        ours.setblocking(False)
        self._socket = ours
        return ours

    def start(self, spec: CommandSpec, standard: tuple[int, int, int]) -> socket.socket:
        """Start a command on these descriptors; give the socket on which its end is reported.

        Closing that socket's writing side ends the command and all it has started; the guard closes the other
        end when nothing of it is left.
        """
        if self._socket is None:
            raise RuntimeError("the guard process is not running")
        ours, theirs = socket.socketpair()
        try:
            payload = json.dumps(spec.to_json()).encode()
            # Blocking, but the guard does nothing between two commands but read them.
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
        """Let the guard end; it has nothing running any more when its commands' sockets are closed."""
        async with self._starting:
            process = self._process
            self._forget(reap=False)
            if process is not None:
                await asyncio.get_running_loop().run_in_executor(None, process.wait)

    def _forget(self, *, reap: bool = True) -> None:
        if self._socket is not None:
            self._socket.close()
        if reap and self._process is not None:
            self._process.wait()
        self._socket = self._process = self._abilities = None
