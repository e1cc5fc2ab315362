"""A warm command behaves as the real one does: streams, folder, environment, exit code, signals."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.warm import _folder, warm

SHOWN = """
import os, sys
loaded = "sfusion.harness.lab.runs" in sys.modules
mine = os.environ.get("MINE")
print(sys.argv, os.getcwd(), mine, sys.stdin.read(), sys.path[0], __name__, loaded)
print("to stderr", file=sys.stderr)
sys.exit(7)
"""


@pytest.mark.parametrize(
    ("environ", "is_warm"),
    [({}, True), ({"PYTHONBREAKPOINT": "a.b"}, True), ({"PYTHONHASHSEED": "5"}, False)],
    ids=["warm", "after Ray", "cold"],
)
def test_a_program_sees_its_own_words_folder_environment_and_streams(
    tmp_path: Path, environ: dict[str, str], is_warm: bool
) -> None:
    (tmp_path / "program.py").write_text(SHOWN)
    done = subprocess.run(
        [warm("python"), "program.py", "a b"],
        cwd=tmp_path,
        env={**os.environ, "MINE": "ü", **environ},
        input="typed",
        capture_output=True,
        text=True,
        check=False,
    )
    shown = f"['program.py', 'a b'] {tmp_path} ü typed {tmp_path} __main__ {is_warm}\n"
    assert (done.returncode, done.stdout, done.stderr) == (7, shown, "to stderr\n")


def test_what_the_first_test_to_ask_had_set_does_not_make_later_commands_cold(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _folder.cache_clear()  # the launchers of before serve on until the session ends
    monkeypatch.setenv("PYTHONPATH", "/nowhere")
    warm()
    monkeypatch.undo()
    code = "import sys; print('sfusion_tools' in sys.modules)"
    done = subprocess.run(
        [warm("python"), "-c", code], stdout=subprocess.PIPE, text=True, check=True
    )
    assert done.stdout == "True\n"


def test_the_usage_names_the_command_as_the_console_script_does() -> None:
    done = subprocess.run(
        [warm("sfusion"), "check", "--nonsense"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert done.stderr.startswith("Usage: sfusion check ")


def test_a_warm_pytest_does_not_search_the_folder_for_modules(tmp_path: Path) -> None:
    (tmp_path / "beside.py").touch()
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "test_it.py").write_text("def test_it():\n    import beside\n")
    done = subprocess.run(
        [warm("pytest"), "-q", "inner"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (1, "")
    assert "No module named 'beside'" in done.stdout


def test_another_copy_of_the_product_in_the_folder_is_the_one_that_runs(tmp_path: Path) -> None:
    (tmp_path / "sfusion_tools").mkdir()
    (tmp_path / "sfusion_tools" / "__init__.py").write_text("name = 'a copy'\n")
    command = [warm("python"), "-c", "import sfusion_tools; print(sfusion_tools.name)"]
    assert (
        subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
        == "a copy\n"
    )


LASTS = """
import atexit, threading
atexit.register(print, "last")
threading.Thread(target=lambda: print(input())).start()
print("main ends", flush=True)
"""


def test_threads_and_exit_functions_end_before_the_command() -> None:
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [warm("python"), "-c", LASTS], stdin=pipe, stdout=pipe, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "main ends\n"
        assert process.communicate("thread")[0] == "thread\nlast\n"


WAITS = """
import os, select, signal
woken, wake = os.pipe()
os.set_blocking(wake, False)
signal.set_wakeup_fd(wake)  # an interrupt just before a read would not end it
print("runs", flush=True)
select.select([0, woken], [], [])
print("read to the end")
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_signal_to_the_launcher_ends_the_command(number: signal.Signals) -> None:
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [warm("python"), "-c", WAITS], stdin=pipe, stdout=pipe, stderr=pipe, text=True
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()  # it runs
        process.send_signal(number)
        # The pipes end with the command itself, which may outlive its launcher for a moment.
        assert process.stdout.read() == ""
    assert process.returncode == -number


def test_a_signal_that_was_ignored_stays_ignored() -> None:
    command = [
        warm("python"),
        "-c",
        "import signal; print(signal.getsignal(signal.SIGINT) is signal.SIG_IGN)",
    ]
    for shell, ignored in (("trap '' INT; ", "True\n"), ("", "False\n")):
        line = f'{shell}exec "$0" "$@"'
        done = subprocess.run(
            ["sh", "-c", line, *command], stdout=subprocess.PIPE, text=True, check=True
        )
        assert done.stdout == ignored


def test_the_real_interpreter_runs_the_command_when_no_warm_one_is_there(tmp_path: Path) -> None:
    alone = tmp_path / "python"
    alone.write_text(warm("python").read_text())
    alone.chmod(0o755)
    code = "import sys; print(sys.executable, 'sfusion_tools' in sys.modules)"
    done = subprocess.run([alone, "-c", code], stdout=subprocess.PIPE, text=True, check=True)
    assert done.stdout == f"{sys.executable} False\n"
