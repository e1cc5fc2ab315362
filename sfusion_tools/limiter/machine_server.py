"""The process that keeps a limiter for a machine: started by the first client, gone soon after the
last.

It lives in a folder of this user, with a lock, a socket and a record for each name. A client's
connection lasts as long as its process: when it ends, the permits of the client return at once.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import pickle
import socket
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any

from sfusion_tools.errors import ConfigError, LimiterError
from sfusion_tools.limiter.messages import PROTOCOL, LimiterRecord
from sfusion_tools.limiter.record import RecordedLimiter
from sfusion_tools.limiter.settings import LimiterSettings

FOLDER = "SFUSION_LIMITER_DIR"
"""The variable that names another folder: one that several containers of a user share, for
example."""
TAKEN = 3
"""The exit code of a server that found another one at work."""
_START_SECONDS = 60
_LONGEST_PATH = 100
_HEAD = struct.Struct(">I")
_LOOK_SECONDS = 0.5
_SHORTEST_IDLE = 2.0


class Place:
    """The files of one limiter."""

    def __init__(self, folder: Path, name: str) -> None:
        self.name = name
        self.folder = folder
        base = str(
            folder / blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
        )
        self.lock_file, self.starting_file, self.log = (
            f"{base}.lock",
            f"{base}.starting",
            f"{base}.log",
        )
        self.socket, self.record = f"{base}.sock", f"{base}.json"

    @classmethod
    def of(cls, name: str) -> Place:
        """Return that of this user and machine; the folder is made if there is none."""
        runtime = os.environ.get("XDG_RUNTIME_DIR", "")
        usual = Path(runtime, "sfusion") if os.path.isdir(runtime) else Path(tempfile.gettempdir())
        folder = Path(
            os.environ.get(FOLDER) or (usual if runtime else usual / f"sfusion-{os.getuid()}")
        )
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = folder.stat()
        if found.st_uid != os.getuid() or found.st_mode & 0o022:
            raise ConfigError(
                f"limiter: host: {folder} belongs to another user, or others may write to "
                f"it; set {FOLDER}"
            )
        place = cls(folder, name)
        if len(os.fsencode(place.socket)) > _LONGEST_PATH:
            raise ConfigError(
                f"limiter: host: the path {folder} is too long for a socket; set {FOLDER} "
                "to a shorter one"
            )
        return place

    def take_lock(self) -> int | None:
        """Become the only server, as long as the descriptor is open; None if there is one."""
        descriptor = os.open(self.lock_file, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return None
        return descriptor

    def is_lock(self, descriptor: int) -> bool:
        """False if the file is gone or another one: somebody cleaned up, and another server may
        have begun."""
        try:
            now, then = os.stat(self.lock_file), os.fstat(descriptor)
        except FileNotFoundError:
            return False
        return (now.st_dev, now.st_ino) == (then.st_dev, then.st_ino)

    def connect(self) -> socket.socket | None:
        """Connect to the server, None if there is none."""
        client = socket.socket(socket.AF_UNIX)
        try:
            client.connect(self.socket)
        except (FileNotFoundError, ConnectionRefusedError):
            client.close()
            return None
        except BaseException:
            client.close()
            raise
        return client

    def connect_or_start(self, settings: LimiterSettings) -> socket.socket:
        """Connect to the server; of the processes that find none, one at a time starts one. This
        blocks."""
        client = self.connect()
        while client is None:
            with open(self.starting_file, "w") as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                client = self.connect()
                if client is None and (code := self._start(settings)) not in (0, TAKEN):
                    raise LimiterError(
                        f"limiter {self.name!r} of this host could not be started "
                        f"({code}): {self._last_words()}"
                    )
            client = client or self.connect()
        return client

    def _start(self, settings: LimiterSettings) -> int:
        """Start the server, which leaves this process's session when it accepts connections;
        return the exit code."""
        arguments = [str(self.folder), self.name, json.dumps(asdict(settings))]
        path = os.pathsep.join(entry for entry in sys.path if entry)
        with open(self.log, "w") as log:
            return subprocess.call(
                [sys.executable, "-m", "sfusion_tools.limiter.machine_server", *arguments],
                env={**os.environ, "PYTHONPATH": path},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                start_new_session=True,
                timeout=_START_SECONDS,
            )

    def _last_words(self) -> str:
        with suppress(OSError):
            return Path(self.log).read_text(errors="replace").strip().rpartition("\n")[2]
        return "no log"


class FileStore:
    """The record of a limiter in a file."""

    def __init__(self, path: str) -> None:
        self._path = path

    def read(self) -> LimiterRecord | None:
        try:
            return LimiterRecord(**json.loads(Path(self._path).read_bytes()))
        except (OSError, ValueError, TypeError):
            return None

    def write(self, record: LimiterRecord) -> None:
        fresh = f"{self._path}.{os.getpid()}"
        Path(fresh).write_text(json.dumps(asdict(record)))
        os.replace(fresh, self._path)

    def seconds_since_removal(self, actor: str) -> float | None:
        return None


def framed(message: tuple[Any, ...]) -> bytes:
    """Return a message as it is sent: both ends are processes of one user, as in Ray."""
    data = pickle.dumps(message, 5)
    return _HEAD.pack(len(data)) + data


def unframed(buffer: bytearray) -> Iterator[tuple[Any, ...]]:
    """Take whole messages out of what has arrived."""
    while len(buffer) >= _HEAD.size:
        end = _HEAD.size + _HEAD.unpack_from(buffer)[0]
        if len(buffer) < end:
            return
        message = pickle.loads(bytes(buffer[_HEAD.size : end]))
        del buffer[:end]
        yield message


class MachineServer:
    """Serves the processes of one user until none is left."""

    def __init__(self, place: Place, lock: int, settings: LimiterSettings) -> None:
        self._place = place
        self._lock = lock
        self._limiter = RecordedLimiter(place.name, FileStore(place.record), settings)
        self._attached_by: dict[str, asyncio.StreamWriter] = {}
        """The connection of each client: the last one over which it attached."""
        self._connections = 0
        self._idle_since = 0.0

    async def serve(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        self._idle_since = loop.time()
        server = await asyncio.start_unix_server(self._talk, sock=listening)
        while self._place.is_lock(self._lock):
            await asyncio.sleep(_LOOK_SECONDS)
            idle = max(self._limiter.host.settings.lease, _SHORTEST_IDLE)
            if not self._connections and loop.time() - self._idle_since > idle:
                for path in (self._place.socket, self._place.record):
                    with suppress(FileNotFoundError):
                        os.unlink(path)
                break
        server.close()

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections += 1
        polls: set[asyncio.Task[None]] = set()
        buffer = bytearray()
        try:
            with suppress(ConnectionError):
                while data := await reader.read(1 << 16):
                    buffer += data
                    for number, verb, message in unframed(buffer):
                        if verb == "wait":
                            poll = asyncio.create_task(self._wait(writer, number, message))
                            polls.add(poll)
                            poll.add_done_callback(polls.discard)
                        else:
                            _answer(writer, number, partial(self._do, verb, message, writer))
            # Not when this server ends: its successor has to know of the client.
            for client in [name for name, owner in self._attached_by.items() if owner is writer]:
                del self._attached_by[client]
                self._limiter.forget(client)
        finally:
            self._connections -= 1
            self._idle_since = asyncio.get_running_loop().time()
            for poll in polls:
                poll.cancel()
            writer.close()

    def _do(self, verb: str, message: Any, writer: asyncio.StreamWriter) -> Any:
        match verb:
            case "exchange":
                if message.attach is not None:
                    self._attached_by[message.client] = writer
                return self._limiter.exchange(message)
            case "hello":
                return PROTOCOL, asdict(self._limiter.host.settings)
            case "configure":
                return self._limiter.configure(message)
            case "snapshot":
                return self._limiter.host.snapshot()
        raise ValueError(f"unknown verb {verb!r}")

    async def _wait(self, writer: asyncio.StreamWriter, number: int, message: Any) -> None:
        reply = await self._limiter.host.wait(message)
        _answer(writer, number, lambda: reply)


def _answer(writer: asyncio.StreamWriter, number: int, work: Callable[[], Any]) -> None:
    try:
        reply = framed((number, True, work()))
    except Exception as error:
        reply = framed((number, False, f"{type(error).__name__}: {error}"))
    if not writer.is_closing():
        writer.write(reply)


def main() -> int:
    folder, name, settings = sys.argv[1:]
    place = Place(Path(folder), name)
    lock = place.take_lock()
    if lock is None:
        return TAKEN
    with suppress(FileNotFoundError):
        os.unlink(place.socket)
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(place.socket)
    os.chmod(place.socket, 0o600)
    listening.listen(1024)
    if os.fork():  # whoever started this may go on: connections are accepted
        os._exit(0)
    os.ftruncate(lock, 0)
    os.write(lock, str(os.getpid()).encode())
    listening.setblocking(False)
    asyncio.run(
        MachineServer(place, lock, LimiterSettings(**json.loads(settings))).serve(listening)
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
