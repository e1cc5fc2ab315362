"""Cells share state, have the output of a kernel, and leave no kernel behind, in every mode of
confinement."""

from __future__ import annotations

import asyncio
import base64
import logging
import sys
from collections.abc import Callable

import pytest

from sfusion.fakes.sandbox.executors.python import PythonExecutor
from sfusion.fakes.sandbox.executors.python import notebook as notebooks
from sfusion.fakes.sandbox.protocol import RunJupyter, RunJupyterAnswer, RunJupyterRequest
from tests.fakes.sandbox.executors.calls import cells, run
from tests.fakes.sandbox.executors.conftest import on_linux
from tests.fakes.sandbox.executors.liveness import LivenessSocket, dead


@pytest.fixture
def notebook(executor: PythonExecutor) -> PythonExecutor:
    pytest.importorskip("ipykernel")
    return executor


async def test_every_kind_of_cell_output_is_returned(notebook: PythonExecutor) -> None:
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
        "import subprocess; subprocess.run(['true']).returncode",
        (
            "class Rich:\n    def _repr_html_(self): return '<i>rich</i>'\n    def "
            "__repr__(self): return 'rich'\nRich()"
        ),
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
    plain = "".join(
        part.partition("m")[2] if at else part
        for at, part in enumerate("\n".join(drawn).split("\x1b"))
    )
    assert "In[6], line 4" in plain
    assert "In[6], line 2" in plain
    assert "----> 2     return [1][2]" in plain
    assert plain.endswith("IndexError: list index out of range")
    assert (outputs[4], texts[5], answer.cells[6].error[0]["evalue"]) == ("before\n", ["42"], "3")
    assert (outputs[7], texts[7], texts[8]) == ("0\n1\n2\n", ["2"], ["True"])
    assert texts[9] == ["0"]
    assert answer.cells[10].display == [{"text/plain": "rich", "text/html": "<i>rich</i>"}]
    assert texts[11] == ["'a'", "2", "4"]
    assert texts[12] == ["[0,\n " + ",\n ".join(map(str, range(1, 40))) + "]"]
    assert names[14] == ["SyntaxError"]
    assert answer.cells[14].error[0]["evalue"].startswith("invalid syntax (")
    assert answer.cells[14].error[0]["evalue"].endswith(".py, line 1)")
    assert outputs[15] == "shell\r\n"
    assert answer.cells[16].stderr == "to stderr\n"


async def test_after_the_timeout_all_cells_are_lost_also_if_the_kernel_died_early(
    notebook: PythonExecutor,
) -> None:
    last = "import time; time.sleep(600)", "import os; os._exit(1)"
    answers = await asyncio.gather(
        *(cells(notebook, "print(1)", cell, total_timeout=-6.0) for cell in last)
    )
    for answer in answers:
        assert (answer.status, answer.message, answer.cells, answer.files) == ("Failed", "", [], {})
        assert answer.driver is not None
        assert (answer.driver.status, answer.driver.return_code) == ("TimeLimitExceeded", None)
        assert answer.driver.stdout == "", "the driver has not flushed its own output"


async def test_the_driver_s_files_are_the_real_ones(notebook: PythonExecutor) -> None:
    """Timeouts that were not sent are whole numbers in its input; its result cannot be fetched."""
    folder = "tmp/sandbox/configs"
    defaults = await notebook.run_jupyter(
        RunJupyter(
            **dict(
                RunJupyterRequest(
                    cells=[], fetch_files=[f"{folder}/input.json", f"{folder}/output.json"]
                )
            )
        )
    )
    assert list(defaults.files) == [f"{folder}/input.json"]
    written = base64.b64decode(defaults.files[f"{folder}/input.json"]).decode()
    assert written == (
        '{\n  "kernel": "python3",\n  "cells": [],\n  "cell_timeout": 0,\n  "total_timeout": 45\n}'
    )
    assert defaults.driver is not None
    assert '"cell_timeout": 0.0' in (defaults.driver.stdout or "")


async def test_a_cell_may_delete_the_files_of_the_driver_and_the_next_notebook_starts_afresh(
    notebook: PythonExecutor,
) -> None:
    delete = "import os, shutil; shutil.rmtree({})".format
    answer = await cells(
        notebook, delete("'tmp'"), "x = 1; print(x)", delete("os.getcwd()"), "print(2)"
    )
    assert (answer.status, [cell.stdout for cell in answer.cells]) == (
        "Success",
        ["", "1\n", "", "2\n"],
    )
    following = await cells(notebook, "import os; print('x' in globals(), sorted(os.listdir()))")
    assert following.cells[0].stdout == "False ['main.py', 'tmp']\n"


async def test_results_are_read_only_up_to_a_limit(
    notebook: PythonExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are parsed in one go, during which the server answers nobody."""
    monkeypatch.setattr(notebooks, "RESULTS_LIMIT", 1000)
    assert (await cells(notebook, "print('x' * 800)")).status == "Success"
    answer = await cells(notebook, "print('x' * 1000)")
    assert answer.status == "SandboxError"
    assert "the results of the cells are larger than 1000 bytes" in answer.message


@on_linux
@pytest.mark.parametrize(
    "options",
    [{}, {"namespaces": False}, {"namespaces": False, "own_user": False}],
    ids=["default", "no namespaces", "no namespaces and the server's user"],
)
async def test_a_kernel_runs_in_every_mode_and_neither_it_nor_its_children_outlive_the_request(
    options: dict[str, bool], shared: Callable[..., PythonExecutor], liveness: LivenessSocket
) -> None:
    pytest.importorskip("ipykernel")
    notebook = shared(**options)
    fork = "import os\nif os.fork() == 0:\n    os.setsid()\n    import time\n    time.sleep(600)\n"
    running = asyncio.ensure_future(cells(notebook, liveness.python, fork))
    kernel = await liveness.accept()
    assert (await running).status == "Success"
    assert await dead(kernel)


@on_linux
async def test_a_cancelled_notebook_leaves_no_kernel(
    notebook: PythonExecutor, liveness: LivenessSocket
) -> None:
    running = asyncio.ensure_future(
        cells(notebook, liveness.python, "import time; time.sleep(600)")
    )
    kernel = await liveness.accept()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert await dead(kernel)


async def test_the_error_quotes_a_hundred_characters_if_nothing_could_run(
    notebook: PythonExecutor,
) -> None:
    answer = await cells(notebook, "a" * 90, "b" * 90, files={"x": "a"})
    assert answer.status == "SandboxError"
    assert answer.message.startswith(
        f"exception on running jupyter {'a' * 90}\n{'b' * 9}: Invalid base64"
    )


async def test_without_ipykernel_a_notebook_is_a_sandbox_error_with_one_warning_and_programs_run(
    tmp_path_factory: pytest.TempPathFactory, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path_factory.mktemp("bin")
    (folder / "python").write_text(
        f'#!/bin/sh\nexec {sys.executable} -S "$@"\n'
    )  # -S: without installed packages
    (folder / "python").chmod(0o755)
    executor = PythonExecutor(path=f"{folder}:/usr/bin:/bin")
    try:
        answers = [await cells(executor, "1 + 1") for _ in "12"]
        program = await run(executor, "print(1)")
    finally:
        await executor.aclose()
    advice = (
        "notebooks need ipykernel, which is missing: install sfusion[jupyter] in the "
        "Python that runs the programs"
    )
    for answer in answers:
        assert answer == RunJupyterAnswer(
            "SandboxError", f"exception on running jupyter 1 + 1: {advice} None"
        )
    assert [record.message for record in caplog.records if record.levelno == logging.WARNING] == [
        advice
    ]
    assert program.status == "Success"
