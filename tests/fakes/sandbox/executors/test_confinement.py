"""Programs cannot write elsewhere, outlive their request, or exceed their bounds."""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from sfusion.fakes.sandbox.executors.python import PythonExecutor, ResourceBounds, files
from sfusion.fakes.sandbox.executors.python import command as commands
from sfusion.fakes.sandbox.executors.python import executor as executors
from sfusion.fakes.sandbox.executors.python.command import Confinement
from sfusion.fakes.sandbox.executors.python.executor import default_path
from sfusion.fakes.sandbox.executors.python.files import HOME, TMP
from sfusion.fakes.sandbox.executors.python.guard import kernel, trees
from sfusion.fakes.sandbox.executors.python.guard.spec import Abilities
from tests.fakes.sandbox.executors.calls import cells, ran, run
from tests.fakes.sandbox.executors.conftest import on_linux
from tests.fakes.sandbox.executors.liveness import LivenessSocket, dead
from tests.patience import PATIENCE

pytestmark = on_linux


landlocked = pytest.mark.skipif(not kernel.landlock_version(), reason="this kernel has no Landlock")


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.message for record in caplog.records if record.levelno == logging.WARNING]


ALL = Abilities(namespaces=True, landlock=7, seccomp=True, control_groups=True, own_network=True)


@pytest.mark.parametrize(
    ("confinement", "level", "lines"),
    [
        (Confinement(ALL, "root-of-own"), "contained", []),
        (Confinement(ALL), "contained", ["NOT confined: reading what the server can read"]),
        (
            Confinement(replace(ALL, control_groups=False), "own"),
            "accident-proof",
            [
                "NOT confined: memory and processes of a hostile program",
                (
                    "for contained: cgroup (start it with `systemd-run --user --scope -p "
                    "Delegate=yes`, or as root)"
                ),
            ],
        ),
        (
            Confinement(replace(ALL, own_network=False), "own"),
            "accident-proof",
            [
                "NOT confined: this server, which programs can call",
                "for contained: own network (leave out --network)",
            ],
        ),
        (
            Confinement(replace(ALL, namespaces=False, bubblewrap=True), root=True),
            "accident-proof",
            [
                (
                    "NOT confined: making files that run as root, files in /dev/shm, reading "
                    "what the server can read"
                ),
                (
                    "for contained: namespaces (in a container, allow it CAP_SYS_ADMIN or user "
                    "namespaces)"
                ),
            ],
        ),
    ],
)
def test_the_level_what_it_lacks_and_what_would_raise_it_are_named(
    confinement: Confinement, level: str, lines: list[str]
) -> None:
    first, *rest = confinement.describe().splitlines()
    assert (confinement.level, first.partition(":")[0], rest) == (level, level, lines)


# -- writes --


@landlocked
@pytest.mark.parametrize(
    "attempt",
    [
        "open({target!r}, 'w')",
        "open({target!r}, 'a')",
        "import os; os.truncate({target!r}, 0)",
        "import os; os.unlink({target!r})",
        "import os; os.rename({target!r}, 'mine')",
        "import os; os.link('.bashrc', {target!r} + '2')",
        "import os; os.mkdir({target!r} + '3')",
        "import os; os.symlink('x', {target!r} + '4')",
        "import subprocess; subprocess.run(['cp', '/bin/true', {target!r}], check=True)",
    ],
)
async def test_writes_outside_the_work_directory_are_refused_and_logged(
    held: PythonExecutor, attempt: str, elsewhere: Path, caplog: pytest.LogCaptureFixture
) -> None:
    target = elsewhere / "precious"
    target.write_text("precious")
    answer = await run(held, "open('.bashrc', 'w')\n" + attempt.format(target=str(target)))
    assert answer.status == "Failed"
    assert (target.read_text(), os.listdir(elsewhere)) == ("precious", ["precious"])
    if "cross-device" not in str(
        answer
    ):  # what Landlock says to a link or rename between two places
        assert any(
            text.startswith("refused a program to write outside") for text in warnings(caplog)
        )


async def test_temporary_files_and_shared_memory_work(held: PythonExecutor) -> None:
    code = (
        "import tempfile, multiprocessing\n"
        "with tempfile.NamedTemporaryFile() as file: file.write(b'x')\n"
        "queue = multiprocessing.Queue()\nqueue.put(1)\nprint(queue.get())\n"
        "with multiprocessing.Pool(2) as pool: print(pool.map(abs, [-1, -2]))\n"
    )
    assert (await ran(held, code)).stdout == "1\n[1, 2]\n"


@landlocked
async def test_a_notebook_is_confined_like_a_program(
    elsewhere: Path, executor: PythonExecutor
) -> None:
    pytest.importorskip("ipykernel")
    answer = await cells(executor, f"open({str(elsewhere / 'x')!r}, 'w')")
    assert answer.cells[0].error[0]["ename"] in (
        "PermissionError",
        "OSError",
    )  # the latter for a read-only mount
    assert os.listdir(elsewhere) == []


# -- private /tmp and home --
# These tests touch only files of their own: a broken guard must not remove those of the machine.


async def test_files_in_tmp_and_home_work_and_reach_neither_the_machine_nor_the_next_request(
    private: PythonExecutor, tmp_path: Path
) -> None:
    mine = tmp_path / "mine"
    mine.write_text("mine")
    name = f"sfusion-{os.getpid()}"
    places = [f"{TMP}/{name}", f"{HOME}/{name}", f"../{name}2", str(mine)]
    code = (
        f"import os, tempfile\nplaces = {places}\nprint([os.path.exists(place) for place "
        "in places])\n"
        "for place in places:\n"
        "    os.makedirs(os.path.dirname(place), exist_ok=True)\n    open(place, 'w').write('x')\n"
        "print(os.path.expanduser('~'), tempfile.gettempdir(), os.getcwd()[:8])\n"
    )
    for _ in range(2):
        assert (await ran(private, code)).stdout == f"{[False] * 4}\n{HOME} {TMP} {TMP}/tmp\n"
    assert name not in os.listdir("/tmp")
    assert mine.read_text() == "mine"


async def test_what_programs_need_beneath_tmp_is_visible_but_cannot_be_changed(
    tmp_path: Path,
) -> None:
    """The sandbox may be installed in /tmp or in root's home, with programs as links to there."""
    kit, links, library = tmp_path / "kit", tmp_path / "links", tmp_path / "library"
    (kit / "bin").mkdir(parents=True)
    (kit / "bin" / "tool").write_text("#!/bin/sh\ncat $(dirname $(readlink -f $0))/../data\n")
    (kit / "bin" / "tool").chmod(0o755)
    (kit / "data").write_text("data\n")
    links.mkdir()
    library.mkdir()
    (links / "tool").symlink_to(kit / "bin" / "tool")
    executor = PythonExecutor(path=f"{links}:{default_path()}", env={"LIBRARY": str(library)})
    try:
        if not (await executor.confinement()).namespaces:
            pytest.skip("this machine offers no namespaces, so requests have no private /tmp")
        assert (await ran(executor, "tool", "bash")).stdout == "data\n"
        refused = await ran(executor, f"echo x > $LIBRARY/y; rm {kit}/data", "bash")
    finally:
        await executor.aclose()
    assert (refused.stderr or "").count("Read-only file system") == 2
    assert (os.listdir(library), (kit / "data").read_text()) == ([], "data\n")


async def test_what_came_into_the_root_directory_after_the_start_looks_empty(
    private: PythonExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    came = ["/sys", *files.hidden_files({})]
    before = [path for path in files.root_entries() if path not in came]
    monkeypatch.setattr(executors, "root_entries", lambda: before)
    monkeypatch.setattr(executors, "hidden_files", lambda _: [])
    executor = PythonExecutor()
    try:
        code = "import os\nprint(os.listdir('/sys'))\n"
        code += "".join(f"print(open({path!r}, 'rb').read())\n" for path in came[1:])
        assert (await ran(executor, code)).stdout == "[]\n" + "b''\n" * len(came[1:])
    finally:
        await executor.aclose()


def test_no_program_starts_if_what_it_needs_is_writable(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="should be read-only and is not"):
        kernel.refuse_writable(str(tmp_path))


AS_ANOTHER_USER = """
import asyncio, os
from sfusion.fakes.sandbox.executors.python import PythonExecutor
from sfusion.fakes.sandbox.protocol import RunCode

async def main():
    executor = PythonExecutor(namespaces=True)
    code = "open('/tmp/sfusion-user', 'w').write('x')\\nprint(open('/tmp/sfusion-user').read())"
    answer = await executor.run_code(RunCode(code=code, language="python"))
    print(os.getuid(), answer.run_result and answer.run_result.stdout, answer.message)
    await executor.aclose()
    refused = await PythonExecutor(own_user=True).run_code(RunCode(code=code, language="python"))
    print(refused.message.rpartition(": ")[2])

asyncio.run(main())
"""


def test_users_other_than_root_have_a_private_tmp_too() -> None:
    """They need a user namespace, in which the kernel allows less."""
    other = ["unshare", "--user", "--map-user=1000", "--map-group=1000"] if os.getuid() == 0 else []
    if subprocess.run(
        [*other, "unshare", "--user", "true"], capture_output=True, check=False
    ).returncode:
        pytest.skip("this machine offers no user namespaces")
    done = subprocess.run(
        [*other, sys.executable, "-c", AS_ANOTHER_USER],
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )
    refused = (
        "a user of its own is not available on this machine, but was set to True for "
        "this executor None"
    )
    assert done.stdout == f"{1000 if other else os.getuid()} x\n \n{refused}\n", done.stderr
    assert "sfusion-user" not in os.listdir("/tmp")


async def test_mounts_of_a_request_cannot_be_undone_from_inside(private: PythonExecutor) -> None:
    attempts = [
        "umount /tmp",
        "umount -l /root",
        "mount -o remount,rw /tmp",
        "mount --bind / /tmp",
        "unshare -m true",
        "unshare -Urm umount /tmp",
    ]
    code = "".join(f"{attempt} 2> /dev/null && echo {attempt}\n" for attempt in attempts)
    result = await ran(
        private, code + "ls -d /tmp/sfusion-* /tmp/pytest-* 2> /dev/null; true", "bash"
    )
    assert result.stdout == ""


# -- environment --


async def test_programs_do_not_see_the_environment_of_the_server(
    held: PythonExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("API_KEY", "hunter2")
    result = await ran(held, "import os; print('\\n'.join(sorted(os.environ)))")
    own_tmp = (await held.confinement()).namespaces
    expected = {"HOME", "LANG", "PATH", "PWD", "SHLVL", "_"} | (set() if own_tmp else {"TMPDIR"})
    assert set((result.stdout or "").split()) == expected
    peek = await ran(held, f"print(b'hunter2' in open('/proc/{os.getpid()}/environ', 'rb').read())")
    assert peek.return_code == 1


async def test_variables_can_be_added_to_the_environment() -> None:
    executor = PythonExecutor(env={"MODEL": "tiny"})
    try:
        assert (await ran(executor, "echo $MODEL", "bash")).stdout == "tiny\n"
    finally:
        await executor.aclose()


# -- the guard --


async def test_a_program_starts_without_ignored_signals(held: PythonExecutor) -> None:
    """Python ignores SIGPIPE, and the guard SIGINT."""
    found = await ran(held, "grep SigIgn /proc/self/status", "bash")
    ignored = {number + 1 for number in range(64) if int(found.stdout.split()[1], 16) >> number & 1}
    # glibc's posix_spawn ignores its two internal signals (32 and 33) in what it starts: everything
    # below make, and below subprocess since Python 3.13. It lets no program change or use them.
    assert not ignored & signal.valid_signals()


def test_the_guard_imports_nothing_that_makes_every_fork_expensive() -> None:
    """What these do after a fork touches hundreds of pages, each of which the kernel then has to
    copy."""
    costly = {"random", "subprocess", "tempfile", "threading"}
    code = "import sys; sys.path.insert(0, sys.argv[1]); import guard.zygote; print(*sys.modules)"
    command = [sys.executable, "-I", "-S", "-c", code, str(Path(commands.__file__).parent)]
    modules = subprocess.run(command, capture_output=True, check=True, text=True).stdout.split()
    assert not costly & set(modules)


# -- leftover processes --

DAEMON = """import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
ready, tell = os.pipe()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.setsid()
{connect}
        os.write(tell, b".")
        os.close(1), os.close(2)
        time.sleep(600)
    os._exit(0)
os.wait()
os.read(ready, 1)
"""


def indented(text: str) -> str:
    return "".join(f"        {line}\n" for line in text.splitlines())


@pytest.mark.parametrize("end", ["pass", "time.sleep(600)", "os.kill(os.getpid(), 9)"])
async def test_a_daemon_is_killed_with_its_request(
    held: PythonExecutor, liveness: LivenessSocket, end: str, caplog: pytest.LogCaptureFixture
) -> None:
    code = DAEMON.format(connect=indented(liveness.python)) + f"{end}\n"
    running = asyncio.ensure_future(run(held, code, run_timeout=5.0 if "sleep" in end else 60.0))
    daemon = await liveness.accept()
    await running
    assert await dead(daemon)
    if end != "time.sleep(600)":
        assert any(
            text.startswith("killed 1 process that a program left behind")
            for text in warnings(caplog)
        )


async def test_a_cancelled_request_leaves_no_processes(
    held: PythonExecutor, liveness: LivenessSocket
) -> None:
    running = asyncio.ensure_future(
        run(held, f"{liveness.python}\nimport time; time.sleep(600)", run_timeout=600.0)
    )
    program = await liveness.accept()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert await dead(program)


async def test_closing_the_executor_ends_running_programs(
    liveness: LivenessSocket, path: str
) -> None:
    executor = PythonExecutor(path=path)
    running = asyncio.ensure_future(
        run(executor, f"{liveness.python}\nimport time; time.sleep(600)", run_timeout=600.0)
    )
    program = await liveness.accept()
    await executor.aclose()
    assert await dead(program)
    answer = await running
    assert answer.status == "SandboxError"
    assert answer.message.endswith("the executor was closed while the program ran | None")


async def test_a_closed_executor_can_be_used_again() -> None:
    executor = PythonExecutor()
    for _ in range(2):
        assert (await ran(executor, "print(1)")).stdout == "1\n"
        await executor.aclose()


async def test_a_dead_guard_is_replaced() -> None:
    executor = PythonExecutor()
    try:
        assert (await ran(executor, "print(1)")).stdout == "1\n"
        guard = executor._spawner._process if executor._spawner else None
        assert guard is not None
        guard.kill()
        await asyncio.to_thread(guard.wait)
        assert (await ran(executor, "print(2)")).stdout == "2\n"
    finally:
        await executor.aclose()


SERVER = """
import asyncio, sys, tempfile
from sfusion.fakes.sandbox.executors.python import PythonExecutor
from sfusion.fakes.sandbox.protocol import RunCode
tempfile.tempdir = sys.argv[1]
executor = PythonExecutor(path=sys.argv[3])
program = RunCode(code=sys.argv[2], language="python", run_timeout=600.0)
asyncio.run(executor.run_code(program))
"""


async def test_a_killed_server_leaves_neither_programs_nor_files(
    liveness: LivenessSocket, tmp_path: Path, path: str
) -> None:
    code = f"{liveness.python}\nimport os, time\nif os.fork() == 0: os.setsid()\ntime.sleep(600)"
    server = await asyncio.create_subprocess_exec(
        sys.executable, "-c", SERVER, str(tmp_path), code, path, stderr=asyncio.subprocess.PIPE
    )
    assert server.stderr is not None
    try:
        program = await liveness.accept()
        assert len(os.listdir(tmp_path)) == 1
    finally:
        server.kill()
    assert await dead(program)
    await server.stderr.read()  # until the guard, which has it too, is gone
    assert os.listdir(tmp_path) == []
    await server.wait()


async def test_the_directories_of_a_server_that_was_killed_with_its_guard_are_removed_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    (tmp_path / "sfusion-of-an-older-version").mkdir()
    abandoned, lock = files.make_room()
    os.makedirs(os.path.join(abandoned, "run-1", "tmp"))
    running = PythonExecutor()
    try:
        await ran(running, "print(1)")
        rooms = set(os.listdir(tmp_path))
        os.close(lock)  # the kernel does it for processes that are killed
        following = PythonExecutor()
        await following.confinement()
        await following.aclose()
        assert rooms - set(os.listdir(tmp_path)) == {os.path.basename(abandoned)}
        assert (await ran(running, "print(2)")).stdout == "2\n"
    finally:
        await running.aclose()
    assert os.listdir(tmp_path) == ["sfusion-of-an-older-version"]


def test_a_tree_of_any_depth_and_without_permissions_is_removed(tmp_path: Path) -> None:
    top = tmp_path / "top"
    top.mkdir()
    (tmp_path / "kept").write_text("kept")
    (top / "link").symlink_to(tmp_path)
    here = os.open(top, os.O_RDONLY)
    for _ in range(1100):
        os.mkdir("d", dir_fd=here)
        os.close(os.open("f", os.O_CREAT | os.O_WRONLY, dir_fd=here))
        below = os.open("d", os.O_RDONLY, dir_fd=here)
        os.fchmod(here, 0)
        os.close(here)
        here = below
    os.close(here)
    assert trees.remove_tree(str(top))
    assert trees.remove_tree(str(top)), "there is nothing to remove"
    assert os.listdir(tmp_path) == ["kept"]


# -- signals --


async def test_other_processes_cannot_be_signalled(held: PythonExecutor) -> None:
    """Use a harmless signal: a broken guard must not kill the machine that tests it."""
    if not (await held.confinement()).signals:
        pytest.skip("this kernel's Landlock does not hold signals back")
    received: list[int] = []
    before = signal.signal(signal.SIGWINCH, lambda number, frame: received.append(number))
    attempt = "  try: os.kill(pid, signal.SIGWINCH)\n  except OSError: print('no')"
    code = f"import os, signal\nfor pid in (os.getppid(), {os.getpid()}):\n{attempt}\n"
    signal_all = "try: os.kill(-1, signal.SIGWINCH)\nexcept OSError: pass\n"
    try:
        assert (await ran(held, code + signal_all)).stdout == "no\nno\n"
    finally:
        signal.signal(signal.SIGWINCH, before)
    assert received == []


# -- bounds --


BOUNDS = ResourceBounds(tasks=60, memory=200 * 2**20)
LEVELS: dict[str, dict[str, bool]] = {
    "cgroup": {"control_groups": True},
    "namespaces": {"namespaces": True, "control_groups": False},
    "own user": {"namespaces": False, "control_groups": False},
}
"""What bounds the tasks: the cgroup, or the user namespace or the user that the program has for
itself."""


@pytest.fixture(params=LEVELS)
async def bounded(
    request: pytest.FixtureRequest, shared: Callable[..., PythonExecutor]
) -> PythonExecutor:
    made = shared(bounds=BOUNDS, **LEVELS[request.param])
    try:
        confinement = await made.confinement()
    except RuntimeError as missing:
        pytest.skip(str(missing))
    if request.param == "own user" and not confinement.own_user:
        pytest.skip("only root can give programs a user of their own")
    return made


# All stop at a few hundred, so that a broken guard does not bring the machine down.
BOMBS = {
    "processes": (
        "try:\n    while count < 300:\n        if os.fork() == 0: "
        "time.sleep(99)\n        count += 1\n"
    ),
    "threads": (
        "try:\n    for count in range(300): threading.Thread(target=time.sleep, "
        "args=(99,)).start()\n"
    ),
}


@pytest.mark.parametrize("bomb", BOMBS)
async def test_processes_and_threads_are_bounded(bounded: PythonExecutor, bomb: str) -> None:
    before = "import os, threading, time\ncount = 0\n"
    after = "except (OSError, RuntimeError): pass\nprint(count, flush=True)\nos._exit(0)"
    result = await ran(bounded, before + BOMBS[bomb] + after, run_timeout=30.0)
    assert 20 < int(result.stdout or 999) < 60
    assert (await ran(bounded, "print('alive')")).stdout == "alive\n"


# Without namespaces, /dev/shm is the machine's, and another run of this may be using it.
SHARED_BY_FOUR = """import mmap, os, tempfile, time
memfd = os.memfd_create("x")
os.ftruncate(memfd, 40_000_000)
segment = tempfile.TemporaryFile(dir="/dev/shm")
segment.truncate(40_000_000)
kept = [mmap.mmap(file, 40_000_000) for file in (-1, memfd, segment.fileno())]
os.fork(), os.fork()
for memory in kept:
    while memory.tell() < 40_000_000: memory.write(b"x" * 1_000_000)
"""


HOG = "kept = [bytearray(2_000_000) for _ in range(300)]"


async def test_a_process_that_takes_too_much_memory_fails(bounded: PythonExecutor) -> None:
    assert (await ran(bounded, HOG, run_timeout=30.0)).return_code in (1, -9)


async def test_a_cgroup_bounds_memory_of_all_processes_together(
    shared: Callable[..., PythonExecutor], caplog: pytest.LogCaptureFixture
) -> None:
    executor = shared(bounds=BOUNDS, control_groups=True)
    hogs = (
        "import os, time\nfor _ in range(3): os.fork()\nkept = "
        "bytearray(60_000_000)\ntime.sleep(1)\n"
    )
    await ran(executor, hogs, run_timeout=30.0)
    assert any("more than 200 MiB of memory" in text for text in warnings(caplog))
    caplog.clear()
    shared_pages = "import os\nkept = bytearray(120_000_000)\nos.fork(); os.fork()"
    assert (await ran(executor, shared_pages)).return_code == 0
    assert (await ran(executor, SHARED_BY_FOUR)).return_code == 0
    assert not [text for text in warnings(caplog) if "memory" in text]


async def test_a_cgroup_bounds_processor_time(shared: Callable[..., PythonExecutor]) -> None:
    """What runs for a second of wall time has used a fraction of that."""
    executor = shared(bounds=ResourceBounds(cpus=0.2), control_groups=True)
    code = "import time\nstarted = time.monotonic()\nwhile time.process_time() < 0.2: pass\n"
    result = await ran(executor, code + "print(time.monotonic() - started > 0.5)")
    assert result.stdout == "True\n"


async def test_file_size_is_bounded() -> None:
    executor = PythonExecutor(bounds=ResourceBounds(file_size=2**20))
    try:
        assert (
            await ran(executor, "exec cat /dev/zero > a", "bash")
        ).return_code == -signal.SIGXFSZ
    finally:
        await executor.aclose()


async def test_output_does_not_grow_the_server(executor: PythonExecutor) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    floods = ("yes", "yes >&2", "head -c 100000000 /dev/zero", "cat /dev/zero > big")
    await asyncio.gather(*(run(executor, flood, "bash", run_timeout=0.5) for flood in floods))
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 20_000  # KiB


# -- machines without confinement --


async def test_programs_run_unconfined_with_a_warning_if_nothing_is_available(
    caplog: pytest.LogCaptureFixture,
) -> None:
    executor = PythonExecutor(namespaces=False, landlock=False, own_user=False)
    try:
        assert (await ran(executor, "print(1)")).stdout == "1\n"
        confinement = await executor.confinement()
        assert (confinement.namespaces, confinement.able.landlock, confinement.signals) == (
            False,
            0,
            False,
        )
    finally:
        await executor.aclose()
    assert any("write wherever this user can" in text for text in warnings(caplog))


def test_the_executor_can_be_imported_on_macos() -> None:
    code = (
        "import sfusion.fakes.sandbox.fake, os, sys\nsys.platform = 'darwin'\ndel "
        "os.pidfd_open, os.O_PATH\n"
        "import sfusion.fakes.sandbox.executors.python.executor, "
        "fakes.sandbox.executors.python.guard.zygote"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


async def test_the_executor_runs_programs_on_macos(
    liveness: LivenessSocket, monkeypatch: pytest.MonkeyPatch
) -> None:
    boot = (
        "import sys, os; sys.platform = 'darwin'; del os.pidfd_open, os.O_PATH; " + commands._BOOT
    )
    monkeypatch.setattr(commands, "_BOOT", boot)
    executor = PythonExecutor()
    try:
        assert (await ran(executor, "print(input())", stdin="x")).stdout == "x\n"
        assert (
            await ran(executor, "import time; time.sleep(60)", run_timeout=0.2)
        ).status == "TimeLimitExceeded"
        running = asyncio.ensure_future(
            run(executor, f"{liveness.python}\nimport os\nif os.fork() == 0: os.read(0, 1)")
        )
        child = await liveness.accept()
        await running
        assert await dead(child)  # still in the program's process group, as most are
        confinement = await executor.confinement()
        assert (confinement.namespaces, confinement.able.landlock, confinement.signals) == (
            False,
            0,
            False,
        )
    finally:
        await executor.aclose()
