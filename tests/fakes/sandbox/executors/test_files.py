"""Files are written to and fetched from the work directory, and nowhere else."""

from __future__ import annotations

import asyncio
import base64
import logging
import os
import tempfile
import threading
from pathlib import Path
from typing import Any

import pytest

from sfusion.fakes.sandbox.executors.python import PythonExecutor
from sfusion.fakes.sandbox.executors.python.files import HOME, TMP, WorkDirectory
from tests.fakes.sandbox.executors.calls import cells, ran, run


def b64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


async def test_files_may_be_in_folders_or_empty(executor: PythonExecutor) -> None:
    files = {"a/b/c.txt": b64("deep"), "skipped": None, "x/../y.txt": b64("y"), "./z": b64("z")}
    code = (
        "import os; print(open('a/b/c.txt').read(), os.path.exists('skipped'), "
        "open('y.txt').read(), os.listdir('x'))"
    )
    assert (await ran(executor, code, files=files)).stdout == "deep False y []\n"


async def test_base64_may_contain_foreign_characters(executor: PythonExecutor) -> None:
    assert (
        await ran(executor, "print(open('a').read())", files={"a": "aG V\nsb*G8="})
    ).stdout == "hello\n"


@pytest.mark.parametrize(
    ("name", "content", "complaint"),
    [
        ("d/", "eA==", "[Errno 21] Is a directory: "),
        ("a\0b", "eA==", "embedded null byte"),
        (
            "ok",
            "a",
            (
                "Invalid base64-encoded string: number of data characters (1) cannot be 1 more "
                "than a multiple of 4"
            ),
        ),
        ("ok", "aGVsbG8", "Incorrect padding"),
    ],
)
async def test_files_that_cannot_be_written_are_a_sandbox_error(
    executor: PythonExecutor, name: str, content: str, complaint: str
) -> None:
    answer = await run(executor, "print(1)", files={name: content})
    assert (answer.status, answer.run_result, answer.compile_result) == ("SandboxError", None, None)
    assert answer.message.startswith(f"exception on running code print(1): {complaint}")
    assert answer.message.endswith(" None")


async def refusals(executor: PythonExecutor, name: str, where: str) -> None:
    refused = f"refused: the file name {name!r} leaves {where} None"
    for fields in ({"files": {name: b64("x")}}, {"fetch_files": [name]}):
        answer = await run(executor, "print(1)", **fields)
        assert (answer.status, answer.message) == (
            "SandboxError",
            f"exception on running code print(1): {refused}",
        )
        notebook = await cells(executor, "print(1)", **fields)
        assert notebook.message == f"exception on running jupyter print(1): {refused}"
        assert (notebook.status, notebook.driver, notebook.cells) == ("SandboxError", None, [])


async def test_names_that_leave_the_work_directory_are_refused_and_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    names = ["../x", "/etc/passwd", "a/../../x", "..", "./../x", "/tmp/x"]
    executor = PythonExecutor(namespaces=False)
    try:
        for name in names:
            await refusals(executor, name, "the work directory")
    finally:
        await executor.aclose()
    messages = [record.message for record in caplog.records if record.levelno == logging.WARNING]
    assert messages == [
        f"refused the file name {name!r}: it leaves the work directory"
        for name in names
        for _ in "1234"
    ]


async def test_names_that_leave_the_private_directories_are_refused_and_logged(
    private: PythonExecutor, caplog: pytest.LogCaptureFixture
) -> None:
    names = ["/etc/passwd", "../../x", "/tmp/../etc/x", "/tmpx", "/", "//"]
    for name in names:
        await refusals(private, name, "/tmp and /root")
    messages = [record.message for record in caplog.records if record.levelno == logging.WARNING]
    assert messages == [
        f"refused the file name {name!r}: it leaves /tmp and /root"
        for name in names
        for _ in "1234"
    ]


async def test_absolute_and_parent_names_lead_to_the_private_directories(
    private: PythonExecutor,
) -> None:
    names = ["/tmp/sfusion/a", "../b", f"/{HOME}//c", f"/tmp/..{HOME}/d"]
    places = ("/tmp/sfusion/a", "/tmp/b", f"{HOME}/c", f"{HOME}/d")
    code = (
        f"import os\nfor name in {places}: print(open(name).read())\n"
        "os.symlink('/tmp/b', 'absolute')\nos.symlink('../b', '/tmp/sfusion/relative')\n"
        "os.symlink('/etc/passwd', '/tmp/outside')\nos.symlink('/tmp/loop', '/tmp/loop')\n"
    )
    wanted = [
        *names,
        "absolute",
        "/tmp/sfusion/relative",
        "/tmp/outside",
        "/tmp/loop",
        "/tmp/missing",
    ]
    answer = await run(
        private, code, files={name: b64(name[-1]) for name in names}, fetch_files=wanted
    )
    assert answer.run_result is not None
    assert answer.run_result.stdout == "a\nb\nc\nd\n"
    served = {name: b64(name[-1]) for name in names}
    assert answer.files == served | {"absolute": b64("b"), "/tmp/sfusion/relative": b64("b")}


@pytest.mark.skipif(not os.path.isdir(TMP), reason="only a target beneath /tmp can be named")
def test_a_name_that_climbs_above_the_root_of_programs_stays_in_their_directories(
    tmp_path: Path,
) -> None:
    work = WorkDirectory(str(tmp_path), [TMP])
    with tempfile.TemporaryDirectory(dir=TMP) as machines:
        exactly = "../" * len(Path(work.folder).parents)
        for climb in (exactly, "../" * 99, f"{TMP}/" + "../" * 99):
            work.restore({f"{climb}{machines.strip('/')}/file": b64("own")})
            assert os.listdir(machines) == []
            assert Path(work.outer + TMP, os.path.basename(machines), "file").read_text() == "own"


async def test_a_link_out_of_the_work_directory_is_not_followed(
    held: PythonExecutor, elsewhere: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (elsewhere / "secret").write_text("secret")
    code = (
        f"import os\nos.symlink({str(elsewhere / 'secret')!r}, "
        f"'link')\nos.symlink({str(elsewhere)!r}, 'folder')\n"
        "open('own', 'w').write('own')\nos.symlink('own', 'inner')\n"
    )
    answer = await run(held, code, fetch_files=["link", "folder/secret", "inner"])
    assert answer.files == {"inner": b64("own")}
    assert sum("out of the work directory" in record.message for record in caplog.records) == 2


async def test_a_work_directory_turned_into_a_link_is_not_followed(
    held: PythonExecutor, elsewhere: Path
) -> None:
    (elsewhere / "secret").write_text("secret")
    code = (
        "import os\nhere = os.getcwd()\nos.rename(here, here + "
        f"'x')\nos.symlink({str(elsewhere)!r}, here)"
    )
    answer = await run(held, code, fetch_files=["secret"])
    assert (answer.status, answer.files) == ("Success", {})


async def test_folders_and_pipes_are_not_files(executor: PythonExecutor) -> None:
    answer = await run(
        executor, "import os; os.mkdir('d'); os.mkfifo('p')", fetch_files=["d", "p", ""]
    )
    assert (answer.status, answer.files) == ("Success", {})


async def test_fetching_too_large_files_is_a_sandbox_error(executor: PythonExecutor) -> None:
    answer = await run(executor, "open('big', 'wb').truncate(2**29)", fetch_files=["big"])
    assert answer.status == "SandboxError"
    assert "larger than" in answer.message


async def test_errors_show_paths_as_programs_know_them(executor: PythonExecutor) -> None:
    answer = await run(executor, "print(1)", files={"x" * 300: ""})
    assert "File name too long: '/tmp" in answer.message
    assert "sfusion-" not in answer.message


@pytest.mark.parametrize(
    "given",
    [
        {"files": dict.fromkeys(map(str, range(2001)), "")},
        {"fetch_files": list(map(str, range(2001)))},
        {"files": {f"{number}/" + "x/" * 2_000: "" for number in range(11)}},
        {"fetch_files": ["x/" * 20_001]},
    ],
)
async def test_the_files_of_a_request_are_bounded_together(
    executor: PythonExecutor, given: dict[str, Any]
) -> None:
    answer = await run(executor, "print(1)", **given)
    assert (answer.status, "a request may have 2,000" in answer.message) == ("SandboxError", True)


async def test_the_bytes_of_all_files_are_bounded_together(
    executor: PythonExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sfusion.fakes.sandbox.executors.python.files.MOST_BYTES", 2_000)
    sizes: dict[str, str | None] = {"a": b64("x" * 999), "b": b64("x" * 999)}
    assert (await run(executor, "print(1)", files=sizes)).status == "Success"
    answer = await run(executor, "print(1)", files=sizes | {"c": b64("x" * 999)})
    assert (answer.status, "3 files with 2,997 bytes" in answer.message) == ("SandboxError", True)


async def test_work_directories_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    executor = PythonExecutor()
    await executor.confinement()
    removed = threading.Event()
    remove = WorkDirectory.remove

    def remove_and_tell(work: WorkDirectory) -> None:
        remove(work)
        removed.set()

    monkeypatch.setattr(WorkDirectory, "remove", remove_and_tell)
    code = (
        "import os\nos.makedirs('a/b')\nopen('a/b/c', 'w')\nos.chmod('a/b', "
        "0)\nos.chmod('a', 0)\nos.chmod('.', 0)"
    )
    assert (await run(executor, code)).status == "Success"
    assert await asyncio.to_thread(removed.wait, 30)
    room = os.path.join(tmp_path, os.listdir(tmp_path)[0])
    assert [name for name in os.listdir(room) if name.startswith("run-")] == []
    await executor.aclose()
    assert os.listdir(tmp_path) == []


async def test_a_request_waits_while_too_many_directories_wait_to_be_removed(
    executor: PythonExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    await executor.confinement()
    removable = threading.Event()
    remove = WorkDirectory.remove

    def when_allowed(work: WorkDirectory) -> None:
        removable.wait()
        remove(work)

    monkeypatch.setattr(WorkDirectory, "remove", when_allowed)
    monkeypatch.setattr("sfusion.fakes.sandbox.executors.python.executor.MOST_REMOVALS", 1)
    assert (await run(executor, "print(1)")).status == "Success"
    second = asyncio.ensure_future(run(executor, "print(2)"))
    try:
        assert await asyncio.wait([second], timeout=1) == (set(), {second})
    finally:
        removable.set()
    assert (await second).status == "Success"
