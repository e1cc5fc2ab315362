"""Shell lines and the few magics that models write in notebooks."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

_SHELLS = {"bash": "bash", "sh": "sh"}


def shell(command: str) -> None:
    done = subprocess.run(command, shell=True, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    # A kernel runs these lines on a terminal, which ends lines with \\r\\n.
    sys.stdout.write(done.stdout.decode("utf-8", "replace").replace("\n", "\r\n"))


def capture(command: str) -> list[str]:
    """Return the lines that a command prints, on both streams."""
    done = subprocess.run(command, shell=True, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    return done.stdout.decode("utf-8", "replace").splitlines()


def magic(name: str, line: str = "", body: str | None = None) -> None:
    if body is not None and name in _SHELLS:
        _script([_SHELLS[name], *line.split()], body)
    elif body is not None and name == "script" and line:
        _script(line.split(), body)
    elif body is not None and name in ("writefile", "file") and line:
        _write(line.split(), body)
    else:
        kind = "Line magic function `%" if body is None else "Cell magic `%%"
        print(f"UsageError: {kind}{name}` not found.", file=sys.stderr)


def _script(command: list[str], body: str) -> None:
    done = subprocess.run(command, input=body.encode(), check=False, capture_output=True)
    sys.stdout.write(done.stdout.decode("utf-8", "replace"))
    sys.stderr.write(done.stderr.decode("utf-8", "replace"))
    if done.returncode:
        raise subprocess.CalledProcessError(done.returncode, body.encode(), done.stdout, done.stderr)


def _write(words: list[str], body: str) -> None:
    append = words[0] in ("-a", "--append")
    path = os.path.expanduser(words[-1])
    print("Appending to" if append else "Overwriting" if os.path.exists(path) else "Writing", path)
    with open(path, "a" if append else "w", encoding="utf-8") as file:
        file.write(body)


class InteractiveShell:
    """What `get_ipython()` returns, with the methods that programs use."""

    def __init__(self, names: Callable[[], dict[str, Any]]) -> None:
        self._names = names

    @property
    def user_ns(self) -> dict[str, Any]:
        return self._names()

    def system(self, command: str) -> None:
        shell(command)

    def getoutput(self, command: str) -> list[str]:
        return capture(command)

    def run_line_magic(self, name: str, line: str) -> None:
        magic(name, line)

    def run_cell_magic(self, name: str, line: str, cell: str) -> None:
        magic(name, line, cell)
