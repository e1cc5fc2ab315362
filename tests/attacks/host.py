"""The server of the attacks in one mode: runs the requests that arrive as JSON lines, one after
another."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from dataclasses import replace

from sfusion.fakes.sandbox.executors.python import PythonExecutor, ResourceBounds
from sfusion.fakes.sandbox.protocol import RunCode, RunJupyter

BOUNDS = ResourceBounds(
    tasks=64, memory=128 * 2**20, shared_memory=96 * 2**20, file_size=288 * 2**20
)
WITHOUT_CGROUP = replace(BOUNDS, memory=2**30)
"""Stacks of threads count as memory of a process there, though hardly any of it is used."""


async def main(options: dict[str, bool | None], env: dict[str, str]) -> None:
    served = await asyncio.start_server(lambda *_: None, "127.0.0.1")
    env |= {
        "PORT": str(served.sockets[0].getsockname()[1]),
        "SERVER": str(os.getpid()),
        "SERVER_UID": str(os.getuid()),
        "TASKS": str(BOUNDS.tasks),
        "MEMORY": str(BOUNDS.memory),
        "FILE_SIZE": str(BOUNDS.file_size),
    }
    executor = PythonExecutor(bounds=BOUNDS, env=env, **options)
    held = await executor.confinement()
    if not held.able.control_groups:  # this mode never has one, or this machine offers none
        await executor.aclose()
        executor = PythonExecutor(bounds=WITHOUT_CGROUP, env=env, **options)
    try:
        held = await executor.confinement()
        print(json.dumps([held.level, str(held)]), flush=True)
        while line := await asyncio.to_thread(sys.stdin.readline):
            found = await answer(executor, *json.loads(line))
            await executor.settle()
            print(json.dumps(found), flush=True)
    finally:
        await executor.aclose()


async def answer(executor: PythonExecutor, language: str, cells: list[str]) -> dict[str, object]:
    """Run a program, or a notebook if there are several cells."""
    if len(cells) == 1:
        code = await executor.run_code(RunCode(code=cells[0], language=language, run_timeout=60.0))
        ran = code.run_result
        assert ran is not None or code.message
        return {
            "status": code.status,
            "message": code.message,
            "code": ran.return_code if ran else None,
            "stdout": (ran.stdout or "") if ran else "",
            "stderr": ran.stderr if ran else "",
        }
    notebook = await executor.run_jupyter(RunJupyter(cells=cells, total_timeout=60.0))
    return {
        "status": notebook.status,
        "message": notebook.message,
        "code": notebook.driver.return_code if notebook.driver else None,
        "stdout": "".join(cell.stdout for cell in notebook.cells),
        "stderr": "".join(str(cell.error) for cell in notebook.cells)
        or (notebook.driver.stderr if notebook.driver else ""),
    }


if __name__ == "__main__":
    asyncio.run(main(json.loads(sys.argv[1]), json.loads(sys.argv[2])))
