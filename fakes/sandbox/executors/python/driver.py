"""Runs the cells of one notebook and writes their output to descriptor 3.

The cells cannot reach it. This file is copied into the work directory and run there as
`main.py`, like the driver of the real server: its output, the files it reads and writes and the
number of the first cell are part of the answer. It uses only the standard library and what
`sfusion[jupyter]` installs.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import sys
import tempfile
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

FOLDER = os.path.abspath(os.path.join(__file__, "../tmp/sandbox/configs"))
RESULTS = 3
PR_SET_DUMPABLE = 4
CHECK = "print(123)"
"""Run before the first cell, to test the kernel; so the first cell is number 2."""
ARGUMENTS = [
    "--IPKernelApp.log_level=ERROR",  # newer kernels print more at startup than the recorded ones
    # A cell's file, which does not exist, is named after the directory for temporary files: after
    # everybody's one, not the one that this request happens to have.
    "--IPKernelApp.exec_lines=__import__('ipykernel.compiler').compiler.get_tmp_directory = "
    "lambda: '/tmp/ipykernel_%d' % __import__('os').getpid()",
]
NO_KERNEL = 66
"""The exit code if ipykernel is not installed."""

Result = dict[str, Any]
RunCell = Callable[[str], Result]
End = Callable[[], object]


def blank() -> Result:
    """Return the result of a cell without output."""
    return {"stdout": "", "stderr": "", "display": [], "error": []}


def add(result: Result, kind: str, content: dict[str, Any]) -> None:
    """Add one message of a kernel to the result of a cell."""
    if kind == "stream":
        result[content["name"]] += content["text"]
    elif kind in ("display_data", "execute_result"):
        result["display"].append(content["data"])
    elif kind == "error":
        result["error"].append({name: content[name] for name in ("traceback", "ename", "evalue")})


def start_kernel(name: str) -> tuple[RunCell, End]:
    """Start an ipykernel; return functions that run a cell and end the kernel."""
    if not (find_spec("ipykernel") and find_spec("jupyter_client")):
        sys.exit(NO_KERNEL)
    from jupyter_client.manager import AsyncKernelManager

    # Local sockets instead of ports: two kernels that start at the same time could choose the same
    # port.
    sockets = os.path.join(tempfile.gettempdir(), "k")
    manager = AsyncKernelManager(kernel_name=name, transport="ipc", ip=sockets)
    wait = asyncio.new_event_loop().run_until_complete
    wait(manager.start_kernel(extra_arguments=ARGUMENTS))
    client = manager.client()
    client.start_channels()
    wait(client.wait_for_ready())

    def run(cell: str) -> Result:
        result = blank()

        def hook(message: dict[str, Any]) -> None:
            add(result, message["msg_type"], message["content"])

        wait(client.execute_interactive(cell, output_hook=hook))
        return result

    return run, lambda: wait(manager.shutdown_kernel(now=True))


def hide() -> None:
    """Keep the cells, which run as the same user, from this process and its descriptors."""
    os.set_inheritable(RESULTS, False)
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)


def main() -> None:
    """Run the notebook described in the work directory."""
    hide()
    with open(os.path.join(FOLDER, "input.json"), encoding="utf-8") as file:
        config = json.load(file)
    for name in ("cell_timeout", "total_timeout"):
        config[name] = float(config[name])
    # Not flushed, like the real one: a driver that is killed leaves no output of its own.
    print(f"config: \n{json.dumps(config, indent=2, ensure_ascii=False)}")
    run, end = start_kernel(config["kernel"])
    run(CHECK)
    cells = [run(cell) for cell in config["cells"]]
    end()
    with os.fdopen(RESULTS, "w", encoding="utf-8") as file:
        json.dump(cells, file)
    sys.stdout.flush()
    os._exit(0)  # do not wait for the client's threads


if __name__ == "__main__":
    main()
