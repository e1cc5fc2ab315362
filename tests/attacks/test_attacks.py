"""Runs the programs of this folder against the python executor, in every mode of both levels that
this machine offers.

To add an attack, put a file into `programs`. Its docstring is the promise that it tries to break;
lines `# %%` divide it into the cells of a notebook. It finds a directory to attack in the variable
OUTSIDE and the server's own one in ROOMS, the process id of the server in SERVER, the port of its
loopback address in PORT, the bounds in TASKS, MEMORY and FILE_SIZE, what to call its processes in
NAME, and what to call shared memory, which another run on this machine must not take for its own,
in SHARED_NAME and SHARED_KEY. It prints `broken: ` and what it could do, and `held` at its end,
unless the promise is that it is killed. After it, OUTSIDE, the server, shared memory and processes
must be as before, and the next program must run.

An attack may touch only its own work directory, OUTSIDE and ROOMS, and the processes up to SERVER:
it runs as root, and perhaps on a day on which the promise does not hold. It takes no more than a
few times what is bounded.

A promise that a level or mode does not make is a gap with a name: a last paragraph `Not promised:
NAME, NAME (why).` in the docstring, from which the table of docs/security.md is made. There the
attack is not run. A name is a level, a mode of MODES, or what this machine may lack:
`unreachable-python` stands for a server of root's whose Python, or a folder on the way to it, only
root may read, `no-signal-scope` for one without a user per request on a kernel before 6.12, and
`root-without-cgroup` for a root that has neither a cgroup nor another user for its programs: also
the ordinary user of these tests, if they are started by root.
"""

from __future__ import annotations

import ast
import contextlib
import fcntl
import json
import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from sfusion.fakes.sandbox.executors.python.command import SIGNAL_SCOPE_VERSION
from sfusion.fakes.sandbox.executors.python.guard.trees import remove_tree
from tests import ROOT
from tests.fakes.sandbox.executors.conftest import on_linux

pytestmark = [on_linux, pytest.mark.xdist_group("attacks")]

PROGRAMS = sorted((Path(__file__).parent / "programs").glob("*.py"))
WEAK = "-sys_admin,-setuid,-chown"
"""What makes root need bubblewrap: without these it can neither make namespaces nor become
another user."""
NO_GROUPS = {"control_groups": False}
NO_NAMESPACES = {"namespaces": False, **NO_GROUPS}
MODES: dict[str, tuple[str, dict[str, bool]]] = {
    "root": ("contained", {}),
    "user": ("contained", {}),
    "user-without-cgroup": ("accident-proof", NO_GROUPS),
    "bubblewrap": ("accident-proof", {}),
    "root-without-namespaces": ("accident-proof", NO_NAMESPACES),
    "user-without-namespaces": ("accident-proof", NO_NAMESPACES),
}
"""The level that a mode has on a machine that offers everything, and the options of its
executor."""
GROUP = "sfusion-attacks"
"""The control groups in which the server of an ordinary user may make its own."""
NAME = f"attack-{os.getpid()}"
KILLED = -9
SHARED_NAME = f"sfusion-attack-{os.getpid()}-"
"""How the names of files begin that attacks make in shared memory."""
SHARED_KEY = 0x5F00_0000 + 2 * os.getpid()
"""The first of the two keys of the segments that attacks make."""
FS_IOC_GETFLAGS = 0x80086601


def other_user() -> list[str]:
    """Return the command that runs a server as an ordinary user."""
    return ["unshare", "--user", "--map-user=1000", "--map-group=1000"] if os.getuid() == 0 else []


def made_groups() -> list[Path]:
    """Make control groups (version 1) that belong to this user, beneath those of this process;
    none if it may not."""
    own = {
        names: path
        for _, names, path in (
            line.split(":", 2) for line in _read("/proc/self/cgroup").split("\n")[:-1]
        )
    }
    folders = [
        Path(f"/sys/fs/cgroup/{name}{own.get(name, '/-')}", GROUP) for name in ("memory", "pids")
    ]
    try:
        for folder in folders:
            folder.mkdir(exist_ok=True)
    except OSError:
        return []
    return folders


def in_groups(folders: list[Path]) -> list[str]:
    """Return the command that runs a server in these control groups."""
    return [
        "sh",
        "-c",
        "".join(f"echo 0 > {folder}/cgroup.procs; " for folder in folders) + 'exec "$@"',
        "sh",
    ]


def _read(path: str) -> str:
    return Path(path).read_text(encoding="utf-8", errors="replace")


class Target:
    """A server in one mode, and a directory that its programs must not change."""

    def __init__(self, mode: str, directory: Path) -> None:
        self.mode = mode
        self.outside, self.rooms = directory / "outside", directory / "rooms"
        self.rooms.mkdir(mode=0o755, exist_ok=True)
        self.rooms.chmod(0o755)
        self.outside.mkdir()
        (self.outside / "folder").mkdir()
        (directory / "lock").touch()
        for name, permissions in (("file", 0o644), ("open-to-all", 0o666), ("private", 0o600)):
            (self.outside / name).write_text("precious")
            (self.outside / name).chmod(permissions)
            os.setxattr(self.outside / name, "user.precious", b"1")
        user = mode.partition("-")[0]
        prefix = ["setpriv", "--inh-caps=+chown,+kill,+setuid"] if user == "root" else other_user()
        if mode == "bubblewrap":
            prefix = ["setpriv", f"--bounding-set={WEAK}"]
        if mode == "user":
            prefix = [*in_groups(made_groups()), *prefix]
        places = {"OUTSIDE": str(self.outside), "ROOMS": str(self.rooms), "NAME": NAME}
        shared = {"SHARED_NAME": SHARED_NAME, "SHARED_KEY": str(SHARED_KEY)}
        host = [
            sys.executable,
            "-m",
            "tests.attacks.host",
            json.dumps(MODES[mode][1]),
            json.dumps(places | shared),
        ]
        self._server = subprocess.Popen(
            [*prefix, *host],
            cwd=ROOT,
            env=os.environ | {"TMPDIR": str(self.rooms), "SECRET": "hunter2"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.level, self.confinement = self._read()

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
        """Return all that an attack might have changed; directories of requests may go a moment
        after the answer."""
        for _ in range(20):
            if not self._requests():
                break
            self.run("true", language="bash")
        paths = [self.rooms, *self.rooms.iterdir(), self.outside, *self.outside.rglob("*")]
        limits = Path(f"/proc/{self._server.pid}/limits").read_text()
        return {
            "files": {str(path): _attributes(path) for path in paths},
            "limits": [
                line for line in limits.splitlines() if "files" in line or "processes" in line
            ],
            "priority": os.getpriority(os.PRIO_PROCESS, self._server.pid),
            "scheduler": os.sched_getscheduler(self._server.pid),
            "shared memory": _left_in_shared_memory(),
            "segments": _segments() & {SHARED_KEY, SHARED_KEY + 1},
            "requests": self._requests(),
            "processes": _processes(),
        }

    def _requests(self) -> list[str]:
        return [path.name for room in self.rooms.iterdir() for path in room.glob("run-*")]


def _processes() -> list[str]:
    """Return the processes of attacks, also those whose first thread has ended."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            found += [pid] if _read(f"/proc/{pid}/comm").strip() == NAME else []
        except OSError:  # it has ended
            continue
    return found


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
    return (
        stat.filemode(found.st_mode),
        found.st_uid,
        found.st_gid,
        *times,
        os.listxattr(path),
        flags,
    )


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
            # Programs do not see the machine's /tmp where they have their own, and so could not
            # attack it.
            directory = Path(tempfile.mkdtemp(prefix="attacks-", dir="/var/tmp"))
            directory.chmod(0o755)
            try:
                if mode == "root":
                    (directory / "rooms").mkdir()
                    # What programs write to /tmp is in memory then.
                    subprocess.run(
                        ["mount", "-t", "tmpfs", "-o", "size=1g", NAME, directory / "rooms"],
                        check=False,
                    )
                self._running[mode] = Target(mode, directory), str(directory)
            except BaseException:
                _remove(str(directory))
                raise
        return self._running[mode][0]

    def close(self, mode: str) -> None:
        target, directory = self._running.pop(mode)
        target.close()
        _remove(directory)

    def close_all(self) -> None:
        for mode in list(self._running):
            self.close(mode)


def _remove(directory: str) -> None:
    subprocess.run(["umount", "-l", f"{directory}/rooms"], capture_output=True, check=False)
    remove_tree(directory)
    for folder in made_groups():
        with contextlib.suppress(OSError):
            folder.rmdir()


def _skip_unless_possible(mode: str) -> None:
    if mode == "bubblewrap":
        if os.getuid() or not shutil.which("bwrap"):
            pytest.skip(
                "only root can start a server that needs bubblewrap, which must be installed"
            )
        return
    user, without = mode.partition("-")[0], not MODES[mode][1].get("namespaces", True)
    if user == "root" and os.getuid():
        pytest.skip("only root can start a server as root")
    if user == "user" and not _succeeds(*other_user(), "true"):
        pytest.skip(
            "root becomes an ordinary user by a user namespace, which this machine does not offer"
        )
    prefix = [*other_user(), "unshare", "-U"] if user == "user" else ["unshare"]
    if not without and not _succeeds(*prefix, "--pid", "--fork", "--mount-proc", "true"):
        pytest.skip("this machine does not offer the namespaces of this mode")


def _succeeds(*command: str) -> bool:
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def cells_of(text: str) -> list[str]:
    return text.split("# %%\n")[1:] or [text]


def promise_of(program: Path) -> str:
    promise = ast.get_docstring(ast.parse(program.read_text(encoding="utf-8")))
    assert promise, f"{program.name} does not say in its docstring which promise it tries to break"
    return promise


def gaps_of(program: Path) -> dict[str, str]:
    """Return where the promise is not made, and why."""
    found = re.search(
        r"^Not promised: ([\w, -]+)\s\(([^)]*)\)\.$", promise_of(program), re.MULTILINE
    )
    return dict.fromkeys(found[1].split(", "), found[2].replace("\n", " ")) if found else {}


PROMISED = [
    pytest.param(program, mode, id=f"{program.stem}-{mode}")
    for program in PROGRAMS
    for mode, (level, _) in MODES.items()
    if not {mode, level} & set(gaps_of(program))
]


@pytest.mark.parametrize(("program", "mode"), PROMISED)
def test_promise_holds(program: Path, mode: str, targets: Targets) -> None:
    check_promise(program, mode, targets, cells_of(program.read_text(encoding="utf-8")))


def check_promise(program: Path, mode: str, targets: Targets, cells: list[str]) -> None:
    """Run an attack, and see whether the promise of the program holds in this mode."""
    if len(cells) > 1:
        pytest.importorskip("ipykernel")
    target = targets[mode]
    here = {target.level}
    here |= {"unreachable-python"} if "own-reading" in target.confinement else set()
    exempt = (
        os.getuid() == 0
        and "control_groups=False" in target.confinement
        and "user_kind=''" in target.confinement
    )
    here |= {"root-without-cgroup"} if exempt else set()
    scope = int(re.findall(r"landlock=(\d+)", target.confinement)[0]) >= SIGNAL_SCOPE_VERSION
    here |= {"no-signal-scope"} if mode == "user-without-namespaces" and not scope else set()
    if lacking := here & set(gaps_of(program)):
        pytest.xfail(f"{', '.join(lacking)}: {gaps_of(program)[lacking.pop()]}")
    before = target.state()
    try:
        answer = target.run(*cells)
        alive = target.run("echo alive", language="bash")
        shown = f"{promise_of(program)}\n{mode}, {target.confinement}\n{answer}\n{cells}"
        assert alive["stdout"] == "alive\n", f"{shown}\nthe next request: {alive}"
        assert "broken" not in answer["stdout"], shown
        assert answer["status"] != "SandboxError", shown
        assert "held" in answer["stdout"] or answer["code"] == KILLED, shown
        assert target.state() == before, shown
    except AssertionError:
        targets.close(mode)
        raise
    finally:
        for name in _left_in_shared_memory():
            os.unlink(f"/dev/shm/{name}")


def table() -> str:
    """The table of docs/security.md, from what the programs say."""
    rows = ["| promise | contained | accident-proof | test |", "|---|---|---|---|"]
    for program in PROGRAMS:
        sentence = promise_of(program).split("\n\n")[0].replace("\n", " ")
        gaps, cells = gaps_of(program), []
        for level in ("contained", "accident-proof"):
            modes = [mode for mode in MODES if MODES[mode][0] == level]
            lacking = [
                name
                for name in gaps
                if name in (level, *modes) or (level, name in MODES) == ("accident-proof", False)
            ]
            where = (
                ""
                if level in lacking or set(modes) <= set(lacking)
                else f" in {', '.join(lacking)}"
            )
            cells.append(f"**no**{where}: {gaps[lacking[0]]}" if lacking else "✓")
        rows.append(f"| {sentence} | {' | '.join(cells)} | `{program.stem}` |")
    return "\n".join(rows)


def test_the_table_of_the_docs_names_every_promise_and_every_gap() -> None:
    page = (ROOT / "docs/security.md").read_text(encoding="utf-8")
    assert page.partition("<!-- attacks -->\n")[2].partition("\n<!-- /attacks -->")[0] == table()
