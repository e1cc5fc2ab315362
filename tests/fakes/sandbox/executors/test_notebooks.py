"""Cells share state, have the output of a kernel, and leave no kernel behind; with a real kernel and without."""

from __future__ import annotations

import asyncio
import base64
import sys
from collections.abc import Callable

import pytest

from sfusion.fakes.sandbox.body import render
from sfusion.fakes.sandbox.executors.python import PythonExecutor
from sfusion.fakes.sandbox.executors.python import notebook as notebooks
from sfusion.fakes.sandbox.protocol import RunJupyter
from sfusion.fakes.sandbox.requests import RunJupyterRequest
from tests.fakes.sandbox.executors.calls import cells
from tests.fakes.sandbox.executors.conftest import on_linux
from tests.fakes.sandbox.executors.liveness import LivenessSocket, dead


@pytest.fixture(params=["kernel", "builtin"])
def notebook(request: pytest.FixtureRequest, shared: Callable[..., PythonExecutor]) -> PythonExecutor:
    if request.param == "kernel":
        pytest.importorskip("ipykernel")
    return shared(jupyter=request.param)


@pytest.fixture
def builtin(shared: Callable[..., PythonExecutor]) -> PythonExecutor:
    return shared(jupyter="builtin")


async def test_every_kind_of_cell_output_is_returned(notebook: PythonExecutor, request: pytest.FixtureRequest) -> None:
    answer = await cells(
        notebook,
        "x = 1\nimport mine",
        "1/0",
        "x + mine.y",
        "x;",
        "def f():\n    return [1][2]\nprint('before')\nf()",
        "_",
        "raise SystemExit(3)",
        "for i in range(3): print(i)\ni",
        "import asyncio\nawait asyncio.sleep(0)\nasyncio.get_running_loop().is_running()",
        "import subprocess; subprocess.run(['sh', '-c', 'echo out; echo err >&2']).returncode",
        "class Rich:\n    def _repr_html_(self): return '<i>rich</i>'\n    def __repr__(self): return 'rich'\nRich()",
        "display('a', 2)\nopen('made', 'w').write('made')",
        "list(range(40))",
        "int, f",
        "x = = 1",
        "!echo shell",
        "import sys\nprint('to stderr', file=sys.stderr)",
        files={"mine.py": "eSA9IDQx"},
        fetch_files=["made"],
    )
    assert (answer.status, answer.message, answer.files) == ("Success", "", {"made": "bWFkZQ=="})
    assert answer.driver is not None
    assert (answer.driver.status, answer.driver.return_code) == ("Finished", 0)
    texts = [[shown["text/plain"] for shown in cell.display] for cell in answer.cells]
    names = [[error["ename"] for error in cell.error] for cell in answer.cells]
    outputs = [cell.stdout for cell in answer.cells]
    assert texts[:4] == [[], [], ["42"], []]
    assert names[:8] == [[], ["ZeroDivisionError"], [], [], ["IndexError"], [], ["SystemExit"], []]
    drawn = answer.cells[4].error[0]["traceback"]
    assert "\x1b[" in drawn[0]
    plain = "".join(part.partition("m")[2] if at else part for at, part in enumerate("\n".join(drawn).split("\x1b")))
    assert "In[6], line 4" in plain
    assert "In[6], line 2" in plain
    assert "----> 2     return [1][2]" in plain
    assert plain.endswith("IndexError: list index out of range")
    assert (outputs[4], texts[5], answer.cells[6].error[0]["evalue"]) == ("before\n", ["42"], "3")
    assert (outputs[7], texts[7], texts[8]) == ("0\n1\n2\n", ["2"], ["True"])
    assert texts[9] == ["0"]
    if (
        "builtin" in request.node.name
    ):  # a thread of ipykernel passes on what a child prints, maybe after the cell's end
        assert (outputs[9], answer.cells[9].stderr) == ("out\n", "err\n")
    assert answer.cells[10].display == [{"text/plain": "rich", "text/html": "<i>rich</i>"}]
    assert texts[11] == ["'a'", "2", "4"]
    assert texts[12] == ["[0,\n " + ",\n ".join(map(str, range(1, 40))) + "]"]
    assert names[14] == ["SyntaxError"]
    assert answer.cells[14].error[0]["evalue"].startswith("invalid syntax (")
    assert answer.cells[14].error[0]["evalue"].endswith(".py, line 1)")
    assert outputs[15] == "shell\r\n"
    assert answer.cells[16].stderr == "to stderr\n"


async def test_nothing_is_shared_between_requests(builtin: PythonExecutor) -> None:
    first, second = [await cells(builtin, "x = globals().get('x', 0) + 1\nx") for _ in range(2)]
    assert first.cells[0].display == second.cells[0].display == [{"text/plain": "1"}]


async def test_after_the_timeout_all_cells_are_lost(builtin: PythonExecutor) -> None:
    answer = await cells(builtin, "print(1)", "import time; time.sleep(600)", total_timeout=-8.0)
    assert (answer.status, answer.message, answer.cells, answer.files) == ("Failed", "", [], {})
    assert answer.driver is not None
    assert (answer.driver.status, answer.driver.return_code) == ("TimeLimitExceeded", None)
    assert answer.driver.stdout == "", "the driver has not flushed its own output"


async def test_a_dead_kernel_is_waited_for_until_the_timeout(builtin: PythonExecutor) -> None:
    answer = await cells(builtin, "import os; os._exit(1)", "print(2)", total_timeout=-8.0)
    assert (answer.status, answer.cells) == ("Failed", [])
    assert answer.driver is not None
    assert answer.driver.status == "TimeLimitExceeded"


async def test_the_driver_s_files_are_the_real_ones(builtin: PythonExecutor) -> None:
    """Timeouts that were not sent are whole numbers in its input; its result cannot be fetched."""
    folder = "tmp/sandbox/configs"
    defaults = await builtin.run_jupyter(
        RunJupyter(**dict(RunJupyterRequest(cells=[], fetch_files=[f"{folder}/input.json", f"{folder}/output.json"])))
    )
    assert list(defaults.files) == [f"{folder}/input.json"]
    written = base64.b64decode(defaults.files[f"{folder}/input.json"]).decode()
    assert written == '{\n  "kernel": "python3",\n  "cells": [],\n  "cell_timeout": 0,\n  "total_timeout": 45\n}'
    assert defaults.driver is not None
    assert '"cell_timeout": 0.0' in (defaults.driver.stdout or "")


@pytest.mark.parametrize("deleted", ["'tmp'", "os.getcwd()"])
async def test_a_cell_may_delete_the_files_of_the_driver(builtin: PythonExecutor, deleted: str) -> None:
    answer = await cells(builtin, f"import os, shutil; shutil.rmtree({deleted})", "print(2)")
    assert (answer.status, [cell.stdout for cell in answer.cells]) == ("Success", ["", "2\n"])


async def test_results_are_read_only_up_to_a_limit(builtin: PythonExecutor, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are parsed in one go, during which the server answers nobody."""
    monkeypatch.setattr(notebooks, "RESULTS_LIMIT", 1000)
    assert (await cells(builtin, "print('x' * 800)")).status == "Success"
    answer = await cells(builtin, "print('x' * 1000)")
    assert answer.status == "SandboxError"
    assert "the results of the cells are larger than 1000 bytes" in answer.message


async def test_what_models_write_in_notebooks_works_in_the_builtin_runner(builtin: PythonExecutor) -> None:
    answer = await cells(
        builtin,
        "lines = !echo one; echo two\nlines",
        "%%bash\necho out\necho err >&2",
        "%%writefile made.py\nx = 41\n",
        "%%writefile -a made.py\ny = 1\n",
        "import made\nmade.x + made.y",
        "len?",
        "?len\n1 if True else 2",
        "get_ipython().system('echo shell')\nget_ipython().getoutput('echo got')",
        "exit()",
        "print('still here')",
        "print('\\ud800')\n'\\udfff'",
        "raise ValueError('\\ud800')",
        "%%nothing\n1",
        "%%bash\nexit 3",
        'text = """\nlen?\nx = !ls\n"""\nlen(text)',
    )
    assert answer.status == "Success"
    shown = [[one["text/plain"] for one in cell.display] for cell in answer.cells]
    assert shown[0] == ["['one', 'two']"]
    assert (answer.cells[1].stdout, answer.cells[1].stderr) == ("out\n", "err\n")
    assert [answer.cells[2].stdout, answer.cells[3].stdout] == ["Writing made.py\n", "Appending to made.py\n"]
    assert shown[4] == ["42"]
    assert (answer.cells[5].stdout, answer.cells[5].error, shown[6]) == ("", [], ["1"])
    assert (answer.cells[7].stdout, shown[7]) == ("shell\r\n", ["['got']"])
    assert (answer.cells[8].error, answer.cells[9].stdout) == ([], "still here\n")
    assert answer.cells[10].stdout == "\\ud800\n"
    assert answer.cells[11].error[0]["evalue"] == "\\ud800"
    assert "Cell magic `%%nothing` not found" in answer.cells[12].stderr
    assert answer.cells[13].error[0]["ename"] == "CalledProcessError"
    assert shown[14] == ["14"]
    render(answer)  # nothing in it fails to become UTF-8


@on_linux
async def test_neither_kernel_nor_its_children_outlive_the_request(
    notebook: PythonExecutor, liveness: LivenessSocket
) -> None:
    fork = "import os\nif os.fork() == 0:\n    os.setsid()\n    import time\n    time.sleep(600)\n"
    running = asyncio.ensure_future(cells(notebook, liveness.python, fork))
    kernel = await liveness.accept()
    assert (await running).status == "Success"
    assert await dead(kernel)


@on_linux
async def test_a_cancelled_notebook_leaves_no_kernel(notebook: PythonExecutor, liveness: LivenessSocket) -> None:
    running = asyncio.ensure_future(cells(notebook, liveness.python, "import time; time.sleep(600)"))
    kernel = await liveness.accept()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert await dead(kernel)


async def test_the_error_quotes_a_hundred_characters_if_nothing_could_run(builtin: PythonExecutor) -> None:
    answer = await cells(builtin, "a" * 90, "b" * 90, files={"x": "a"})
    assert answer.status == "SandboxError"
    assert answer.message.startswith(f"exception on running jupyter {'a' * 90}\n{'b' * 9}: Invalid base64")


async def test_without_ipykernel_the_builtin_runner_is_used_with_a_warning(
    tmp_path_factory: pytest.TempPathFactory, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path_factory.mktemp("bin")
    (folder / "python").write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')  # -S: without installed packages
    (folder / "python").chmod(0o755)
    executor = PythonExecutor(path=f"{folder}:/usr/bin:/bin")
    try:
        answer = await cells(executor, "1 + 1", "import IPython.display as d\nd.HTML('<b>')")
    finally:
        await executor.aclose()
    assert any("has no ipykernel" in record.message for record in caplog.records)
    assert answer.cells[0].display == [{"text/plain": "2"}]
    assert answer.cells[1].display == [
        {"text/plain": "<IPython.core.display.HTML object>", "text/html": "<b>"},
    ]
