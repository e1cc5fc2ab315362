"""Runs the cells of one notebook and writes the output of each to descriptor 3, which the cells cannot reach.

This file is copied into the work directory and run there as `main.py KIND FOLDER`, like the driver of the real server:
its output, the files it reads and writes and the number of the first cell are part of the answer. It uses only the
standard library, and the client of the real kernel if there is one.
"""

from __future__ import annotations

import ctypes
import json
import os
import selectors
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

FOLDER = os.path.abspath(os.path.join(__file__, "../tmp/sandbox/configs"))
RESULTS = 3
PR_SET_DUMPABLE = 4
CHECK = "print(123)"
"""Run before the first cell, to test the kernel; so the first cell is number 2."""
ARGUMENTS = [
    "--IPKernelApp.log_level=ERROR",  # newer kernels print more at startup than the recorded ones
    # A cell's file, which does not exist, is named after the directory for temporary files: after everybody's one,
    # not the one that this request happens to have.
    "--IPKernelApp.exec_lines=__import__('ipykernel.compiler').compiler.get_tmp_directory = "
    "lambda: '/tmp/ipykernel_%d' % __import__('os').getpid()",
]
BOOT = "import sys; sys.path.insert(0, sys.argv[1]); from cellrunner.runner import main; del sys.path[0]; main()"

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


def real_kernel(name: str) -> tuple[RunCell, End]:
    """Start an ipykernel; return functions that run a cell and end the kernel."""
    # Not needed by the built-in runner, and half of what the driver takes to start.
    import asyncio
    import tempfile

    from jupyter_client.manager import AsyncKernelManager  # an extra

    # Local sockets instead of ports: two kernels that start at the same time could choose the same port.
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


def builtin_runner(folder: str) -> tuple[RunCell, End]:
    """Start the built-in cell runner; return functions that run a cell and end the runner."""
    commands_out, commands_in = os.pipe()
    events_out, events_in = os.pipe()
    for fd in (commands_out, events_in):
        os.set_inheritable(fd, True)
    process = subprocess.Popen(
        [sys.executable, "-c", BOOT, folder, str(commands_out), str(events_in)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        pass_fds=(commands_out, events_in),
    )
    os.close(commands_out)
    os.close(events_in)
    assert process.stdout is not None
    assert process.stderr is not None
    streams = {process.stdout.fileno(): "stdout", process.stderr.fileno(): "stderr"}
    selector = selectors.DefaultSelector()
    for fd in (events_out, *streams):
        selector.register(fd, selectors.EVENT_READ)
    pending = bytearray()

    def run(cell: str) -> Result:
        result = blank()
        os.write(commands_in, json.dumps(cell).encode() + b"\n")
        done = False
        while not done:
            for key, _ in selector.select():
                data = os.read(key.fd, 65536)
                if not data:
                    if key.fd == events_out:
                        # The real driver waits for a dead kernel until the time limit.
                        time.sleep(10**8)
                    selector.unregister(key.fd)
                elif key.fd in streams:
                    result[streams[key.fd]] += data.decode("utf-8", "replace")
                else:
                    pending.extend(data)
                    *lines, rest = bytes(pending).split(b"\n")
                    pending[:] = rest
                    for line in lines:
                        kind, content = json.loads(line)
                        done = done or kind == "done"
                        if kind == "prompt":
                            print(content, end="", flush=True)
                        elif kind != "done":
                            add(result, kind, content)
        for key, _ in selector.select(0):  # output of child processes just before the end of the cell
            if key.fd in streams:
                result[streams[key.fd]] += os.read(key.fd, 65536).decode("utf-8", "replace")
        return result

    def end() -> None:
        process.kill()
        process.wait()

    return run, end


def hide() -> None:
    """Keep the cells, which run as the same user, from this process and its descriptors."""
    os.set_inheritable(RESULTS, False)
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)


def main() -> None:
    """Run the notebook described in the work directory."""
    hide()
    kind, folder = sys.argv[1:3]
    with open(os.path.join(FOLDER, "input.json"), encoding="utf-8") as file:
        config = json.load(file)
    for name in ("cell_timeout", "total_timeout"):
        config[name] = float(config[name])
    # Not flushed, like the real one: a driver that is killed leaves no output of its own.
    print(f"config: \n{json.dumps(config, indent=2, ensure_ascii=False)}")
    run, end = real_kernel(config["kernel"]) if kind == "kernel" else builtin_runner(folder)
    run(CHECK)
    cells = [run(cell) for cell in config["cells"]]
    end()
    with os.fdopen(RESULTS, "w", encoding="utf-8") as file:
        json.dump(cells, file)
    sys.stdout.flush()
    os._exit(0)  # do not wait for the client's threads


if __name__ == "__main__":
    main()
