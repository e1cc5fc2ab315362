"""Runs a notebook: writes the files of the driver, runs it as a command, reads its results from a nameless file."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import IO, Literal

from sfusion.fakes.sandbox import jupyter
from sfusion.fakes.sandbox.protocol import CellResult, RunJupyter, RunJupyterAnswer

from .command import CommandRunner, Workspace, logger
from .files import WorkDirectory

NotebookKind = Literal["auto", "kernel", "builtin"]
"""A real ipykernel, the built-in cell runner, or ``auto``: ipykernel if it is installed."""

WITHOUT_KERNEL = (
    "the programs' Python has no ipykernel, so notebooks run in a built-in runner, without inline plots and most "
    "magics; install sfusion[jupyter] for a real kernel"
)
RESULTS_LIMIT = 16 * 2**20
"""Maximum bytes of the results of all cells, which are parsed in one go; the real server has no limit."""
SLACK = 10.0
"""Seconds that the real server adds to the requested time."""
_DRIVER = Path(jupyter.__file__).with_name("driver.py")
DRIVER_FOLDER = str(_DRIVER.parent)
_CONFIGS = "tmp/sandbox/configs"
_FIND_KERNEL = """python -c 'from importlib.util import find_spec as find
exit(not (find("ipykernel") and find("jupyter_client")))'"""


class TooMuchOutputError(Exception):
    """Raised if the cells have more output than the answer may have."""


async def installed_kind(runner: CommandRunner, place: Workspace) -> NotebookKind:
    """Return which kind the Python of the programs supports."""
    found = await runner.run(_FIND_KERNEL, place, 60.0)
    if found.return_code == 0:
        return "kernel"
    logger.warning(WITHOUT_KERNEL)
    return "builtin"


async def run_notebook(
    request: RunJupyter, runner: CommandRunner, work: WorkDirectory, place: Workspace, kind: NotebookKind, limit: int
) -> RunJupyterAnswer:
    """Run the cells; a cell that raises is a success, a driver that does not finish is not."""
    work.restore(request.files)
    shutil.copyfile(_DRIVER, os.path.join(work.folder, "main.py"))
    os.makedirs(os.path.join(work.folder, _CONFIGS))
    _write_config(request, os.path.join(work.folder, _CONFIGS, "input.json"))
    work.hand_over()
    command = f"exec python main.py {kind} {DRIVER_FOLDER}"
    with tempfile.TemporaryFile(dir=os.path.dirname(work.outer)) as results:
        driver = await runner.run(command, place, request.total_timeout + SLACK, results=results.fileno())
        written = await asyncio.to_thread(_read_bounded, results) if driver.status == "Finished" else b""
    if not written:
        return RunJupyterAnswer("Failed", "", driver)
    cells = [CellResult(**cell) for cell in json.loads(written)]
    fetched = await asyncio.to_thread(work.fetch, request.fetch_files, limit)
    return RunJupyterAnswer("Success", "", driver, cells, None, fetched)


def _write_config(request: RunJupyter, path: str) -> None:
    config = {
        "kernel": request.kernel,
        "cells": request.cells,
        "cell_timeout": request.cell_timeout,
        "total_timeout": request.total_timeout,
    }
    Path(path).write_text(json.dumps(config, indent=2), encoding="utf-8")


def _read_bounded(results: IO[bytes]) -> bytes:
    size = os.fstat(results.fileno()).st_size
    if size > RESULTS_LIMIT:
        raise TooMuchOutputError(f"the results of the cells are larger than {RESULTS_LIMIT} bytes")
    results.seek(0)
    return results.read(RESULTS_LIMIT)
