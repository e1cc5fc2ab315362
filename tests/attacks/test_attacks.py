"""Runs every program of this folder against the python executor, in every mode that this machine offers.

To add an attack, put a file into `programs`. Its docstring is the promise that it tries to break; lines `# %%` divide
it into the cells of a notebook. It finds a directory to attack in the variable OUTSIDE and the server's own one in
ROOMS, the process id of the server in SERVER, the bounds in PROCESSES and MEMORY, and what to call shared memory, which
another run on this machine must not take for its own, in SHARED_NAME and SHARED_KEY. It prints `broken: ` and what it
could do, and `held` at its end, unless the promise is that it is killed. After it, OUTSIDE, the server and shared
memory must be as before, and the next program must run.

An attack may touch only its own work directory, OUTSIDE and ROOMS, and the processes up to SERVER: it runs as root, and
perhaps on a day on which the promise does not hold.

A promise that a mode does not make is named: a paragraph `Named in MODE, MODE: ...` in the docstring, and in the docs.
`unreachable-python` stands for a server of root's whose Python, or a folder on the way to it, only root may read,
`no-cgroup` for a server that may make no control groups (version 2) with the controllers of memory and processes, and
`no-signal-scope` for one without a user per request on a kernel before 6.12.
"""

from __future__ import annotations

import ast
import fcntl
import json
import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sfusion.fakes.sandbox.executors.python.guard.trees import remove_tree
from tests import ROOT
from tests.fakes.sandbox.executors.conftest import on_linux

pytestmark = [on_linux, pytest.mark.xdist_group("attacks")]

PROGRAMS = sorted((Path(__file__).parent / "programs").glob("*.py"))
MODES = ["root", "root-without-namespaces", "user", "user-without-namespaces"]
if shutil.which("bwrap") and os.getuid() == 0:
    MODES.append("bubblewrap")
WEAK = "-sys_admin,-setuid,-chown"
"""What makes root need bubblewrap: without these it can neither make namespaces nor become another user."""
KILLED = -9
SHARED_NAME = f"sfusion-attack-{os.getpid()}-"
"""How the names of files begin that attacks make in shared memory."""
SHARED_KEY = 0x5F00_0000 + 2 * os.getpid()
"""The first of the two keys of the segments that attacks make."""
FS_IOC_GETFLAGS = 0x80086601


def other_user() -> list[str]:
    """Return the command that runs a server as an ordinary user."""
    return ["unshare", "--user", "--map-user=1000", "--map-group=1000"] if os.getuid() == 0 else []


class Target:
    """A server in one mode, and a directory that its programs must not change."""

    def __init__(self, mode: str, directory: Path) -> None:
        self.mode = mode
        self.outside, self.rooms = directory / "outside", directory / "rooms"
        self.rooms.mkdir(mode=0o755)
        self.outside.mkdir()
        (self.outside / "folder").mkdir()
        for name, permissions in (("file", 0o644), ("open-to-all", 0o666), ("private", 0o600)):
            (self.outside / name).write_text("precious")
            (self.outside / name).chmod(permissions)
            os.setxattr(self.outside / name, "user.precious", b"1")
        user, _, without = mode.partition("-")
        prefix = ["setpriv", "--inh-caps=+chown,+kill,+setuid"] if user == "root" else other_user()
        if mode == "bubblewrap":
            prefix = ["setpriv", f"--bounding-set={WEAK}"]
        places = {"OUTSIDE": str(self.outside), "ROOMS": str(self.rooms)}
        shared = {"SHARED_NAME": SHARED_NAME, "SHARED_KEY": str(SHARED_KEY)}
        self._server = subprocess.Popen(
            [
                *prefix,
                sys.executable,
                "-m",
                "tests.attacks.host",
                json.dumps(None if mode == "bubblewrap" else not without),
                json.dumps(places | shared),
            ],
            cwd=ROOT,
            env=os.environ | {"TMPDIR": str(self.rooms), "SECRET": "hunter2"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.confinement = self._read()

    def run(self, *cells: str, language: str = "python") -> dict[str, Any]:
        assert self._server.stdin is not None
        self._server.stdin.write(json.dumps([language, cells]) + "\n")
        self._server.stdin.flush()
        answer: dict[str, Any] = self._read()
        return answer

    def _read(self) -> Any:
        assert self._server.stdout is not None
        line = self._server.stdout.readline()
        if not line:
            _, errors = self._server.communicate()
            raise AssertionError(f"the server is dead: {errors}")
        return json.loads(line)

    def close(self) -> None:
        self._server.communicate()

    def state(self) -> dict[str, Any]:
        """Return all that an attack might have changed."""
        paths = [self.rooms, *self.rooms.iterdir(), self.outside, *self.outside.rglob("*")]
        limits = Path(f"/proc/{self._server.pid}/limits").read_text()
        return {
            "files": {str(path): _attributes(path) for path in paths},
            "limits": [line for line in limits.splitlines() if "files" in line or "processes" in line],
            "priority": os.getpriority(os.PRIO_PROCESS, self._server.pid),
            "scheduler": os.sched_getscheduler(self._server.pid),
            "shared memory": _left_in_shared_memory(),
            "segments": _segments() & {SHARED_KEY, SHARED_KEY + 1},
            "requests": [path.name for room in self.rooms.iterdir() for path in room.glob("run-*")],
        }


def _left_in_shared_memory() -> list[str]:
    return [name for name in os.listdir("/dev/shm") if name.startswith(SHARED_NAME)]


def _segments() -> set[int]:
    """Return the keys of the System V segments of this machine."""
    _, *lines = Path("/proc/sysvipc/shm").read_text().splitlines()
    return {int(line.split()[0]) for line in lines}


def _attributes(path: Path) -> tuple[Any, ...]:
    found = path.lstat()
    flags = _flags(path)
    times = () if "rooms" in path.parts else (found.st_mtime_ns,)
    return (stat.filemode(found.st_mode), found.st_uid, found.st_gid, *times, os.listxattr(path), flags)


def _flags(path: Path) -> bytes:
    opened = os.open(path, os.O_RDONLY)
    try:
        return fcntl.ioctl(opened, FS_IOC_GETFLAGS, bytes(8))
    except OSError:  # this file system has none
        return b""
    finally:
        os.close(opened)


class Targets:
    """One server per mode; an attack that succeeded costs a new one."""

    def __init__(self) -> None:
        self._running: dict[str, tuple[Target, str]] = {}

    def __getitem__(self, mode: str) -> Target:
        if mode not in self._running:
            _skip_unless_possible(mode)
            # Programs do not see the machine's /tmp where they have their own, and so could not attack it.
            directory = tempfile.mkdtemp(prefix="attacks-", dir="/var/tmp")
            os.chmod(directory, 0o755)
            try:
                self._running[mode] = Target(mode, Path(directory)), directory
            except BaseException:
                remove_tree(directory)
                raise
        return self._running[mode][0]

    def close(self, mode: str) -> None:
        target, directory = self._running.pop(mode)
        target.close()
        remove_tree(directory)

    def close_all(self) -> None:
        for mode in list(self._running):
            self.close(mode)


def _skip_unless_possible(mode: str) -> None:
    if mode == "bubblewrap":
        return
    user, _, without = mode.partition("-")
    if user == "root" and os.getuid():
        pytest.skip("only root can start a server as root")
    if user == "user" and not _succeeds(*other_user(), "true"):
        pytest.skip("root becomes an ordinary user by a user namespace, which this machine does not offer")
    prefix = [*other_user(), "unshare", "-U"] if user == "user" else ["unshare"]
    if not without and not _succeeds(*prefix, "--pid", "--fork", "--mount-proc", "true"):
        pytest.skip("this machine does not offer the namespaces of this mode")


def _succeeds(*command: str) -> bool:
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


@pytest.fixture(scope="module")
def targets() -> Iterator[Targets]:
    made = Targets()
    yield made
    made.close_all()


def cells_of(text: str) -> list[str]:
    return text.split("# %%\n")[1:] or [text]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.stem)
def test_promise_holds(program: Path, mode: str, targets: Targets) -> None:
    text = program.read_text(encoding="utf-8")
    promise = ast.get_docstring(ast.parse(text))
    assert promise, f"{program.name} does not say in its docstring which promise it tries to break"
    cells = cells_of(text)
    if len(cells) > 1:
        pytest.importorskip("ipykernel")
    target = targets[mode]
    before = target.state()
    try:
        answer = target.run(*cells)
        alive = target.run("echo alive", language="bash")
        shown = f"{promise}\n{mode}, {target.confinement}\n{answer}"
        assert alive["stdout"] == "alive\n", f"{shown}\nthe next request: {alive}"
        assert "broken" not in answer["stdout"], shown
        assert answer["status"] != "SandboxError", shown
        assert "held" in answer["stdout"] or answer["code"] == KILLED, shown
        assert target.state() == before, shown
    except AssertionError:
        named = re.search(r"^Named in ([\w, -]+):", promise, re.MULTILINE)
        modes = {mode}
        modes |= {"unreachable-python"} if "own-reading" in str(target.confinement) else set()
        modes |= {"no-signal-scope"} if "signals=False" in str(target.confinement) else set()
        modes |= {"no-cgroup"} if "control_group=False" in str(target.confinement) else set()
        if named and modes & set(re.split(r",\s+", named[1])):
            pytest.xfail(promise.splitlines()[-1])
        targets.close(mode)
        raise
    finally:
        for name in _left_in_shared_memory():
            os.unlink(f"/dev/shm/{name}")
