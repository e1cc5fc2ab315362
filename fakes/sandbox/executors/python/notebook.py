"""Runs a notebook.

Writes the files of the driver, runs it as a command, and reads its results from a nameless file.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import IO

from ...protocol import DRIVER_GRACE, CellResult, RunJupyter, RunJupyterAnswer
from . import driver as notebook_driver
from .command import CommandRunner
from .files import RefusedError, WorkDirectory

WITHOUT_KERNEL = (
    "notebooks need ipykernel, which is missing: install sfusion[jupyter] in "
    "the Python that runs the programs"
)
RESULTS_LIMIT = 16 * 2**20
"""Maximum bytes of the results of all cells.

Chosen: they are parsed in one go. The real server has no limit.
"""
_CONFIGS = "tmp/sandbox/configs"


class NoKernelError(Exception):
    """Raised if the Python that runs the programs has no ipykernel."""


async def run_notebook(
    request: RunJupyter, runner: CommandRunner, work: WorkDirectory, limit: int
) -> RunJupyterAnswer:
    """Run the cells; a cell that raises is a success, a driver that does not finish is not."""
    await asyncio.to_thread(_write_files, request, work)
    with tempfile.TemporaryFile(dir=os.path.dirname(work.outer)) as results:
        limit_seconds = request.total_timeout + DRIVER_GRACE
        driver = await runner.run(
            "exec python main.py", work, limit_seconds, results=results.fileno()
        )
        written = b""
        if driver.status == "Finished":
            written = await asyncio.to_thread(_read_bounded, results)

    if driver.return_code == notebook_driver.NO_KERNEL:
        raise NoKernelError(WITHOUT_KERNEL)
    if not written:
        return RunJupyterAnswer("Failed", driver=driver)
    cells = [CellResult(**cell) for cell in json.loads(written)]
    fetched = await asyncio.to_thread(work.fetch, request.fetch_files, limit)
    return RunJupyterAnswer("Success", driver=driver, cells=cells, files=fetched)


def _write_files(request: RunJupyter, work: WorkDirectory) -> None:
    work.restore(request.files)
    shutil.copyfile(notebook_driver.__file__, os.path.join(work.folder, "main.py"))
    os.makedirs(os.path.join(work.folder, _CONFIGS))
    Path(work.folder, _CONFIGS, "input.json").write_text(request.driver_config(), encoding="utf-8")
    work.hand_over()


def _read_bounded(results: IO[bytes]) -> bytes:
    size = os.fstat(results.fileno()).st_size
    if size > RESULTS_LIMIT:
        raise RefusedError(f"the results of the cells are larger than {RESULTS_LIMIT} bytes")
    results.seek(0)
    return results.read(RESULTS_LIMIT)
