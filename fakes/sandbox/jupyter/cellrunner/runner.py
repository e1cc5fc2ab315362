"""Runs cells one after another in one namespace and sends their output."""

from __future__ import annotations

import asyncio
import builtins
import getpass
import inspect
import json
import linecache
import os
import sys
import types
import zlib
from typing import Any, NoReturn

from . import display, magics, source, tracebacks
from .display import OutStream, Send, sendable

EXIT_NOTE = "To exit: use 'exit', 'quit', or Ctrl-D."


class CellRunner:
    """The state of one notebook."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._count = 0
        self._numbers: dict[str, int] = {}
        shell = magics.InteractiveShell(self._names_of)
        module = types.ModuleType("__main__", "")
        sys.modules["__main__"] = module
        self._names = module.__dict__
        self._out: dict[int, object] = {}
        self._names["display"] = display.install(lambda data: send("display_data", {"data": data}))
        self._names.update(
            {
                "exit": _exit,
                "quit": _exit,
                "In": [""],
                "Out": self._out,
                "_": "",
                "get_ipython": lambda: shell,
                source.SHELL: magics.shell,
                source.CAPTURE: magics.capture,
                source.MAGIC: magics.magic,
            }
        )
        # A kernel asks its frontend, not a terminal.
        builtins.input = self._input
        getpass.getpass = self._input  # type: ignore[assignment]  # its second argument means nothing here

    async def run(self, text: str) -> None:
        """Run one cell inside the running loop, like a kernel; exceptions are sent as output."""
        self._count += 1
        filename = f"/tmp/ipykernel_{os.getpid()}/{zlib.crc32(text.encode('utf-8', 'replace')) + 10**9}.py"
        self._numbers[filename] = self._count
        linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
        self._names["In"].append(text)
        try:
            await self._run(source.compiled(text, filename))
        except BaseException as exc:
            self._show_error(exc)
        sys.stdout.flush()
        sys.stderr.flush()
        self._send("done", None)

    async def _run(self, cell: source.Cell) -> None:
        await self._evaluate(cell.statements)
        if cell.expression is None:
            return
        value = await self._evaluate(cell.expression)
        if value is None or cell.silent:
            return
        self._send("execute_result", {"data": display.bundle(value)})
        self._out[self._count] = value
        self._names.update({"_": value, f"_{self._count}": value})

    async def _evaluate(self, code: types.CodeType) -> object:
        value: Any = eval(code, self._names)  # running code is the purpose of this module
        return await value if code.co_flags & inspect.CO_COROUTINE else value

    def _show_error(self, exc: BaseException) -> None:
        trace = tracebacks.formatted(exc, self._numbers.get)
        if isinstance(exc, SystemExit):
            print(f"UserWarning: {EXIT_NOTE}", file=sys.stderr)
        self._send("error", {"traceback": trace, "ename": type(exc).__name__, "evalue": _text(exc)})

    def _names_of(self) -> dict[str, Any]:
        return self._names

    def _input(self, prompt: object = "") -> NoReturn:
        """Prompt like a kernel without a frontend."""
        self._send("prompt", str(prompt))
        raise EOFError


def _text(exc: BaseException) -> str:
    try:
        return str(exc)
    except Exception:
        return "<exception str() failed>"


def _exit(keep_kernel: bool = False) -> None:
    """Do nothing: a kernel that is asked to exit lives on for a moment, in which the next cells run."""


def main() -> None:
    """Run cells that arrive as JSON lines on one descriptor; send messages as JSON lines on another."""
    commands, events = (int(argument) for argument in sys.argv[2:4])
    sys.argv = [""]
    os.set_inheritable(commands, False)
    os.set_inheritable(events, False)
    out = os.fdopen(events, "w", encoding="utf-8")

    def send(kind: str, content: Any) -> None:
        # One write per message: threads of a cell may print at the same time.
        out.write(json.dumps([kind, sendable(content)], default=str) + "\n")
        out.flush()

    sys.stdout = OutStream("stdout", 1, send)
    sys.stderr = OutStream("stderr", 2, send)
    runner = CellRunner(send)
    asyncio.run(_serve(runner, commands))


async def _serve(runner: CellRunner, commands: int) -> None:
    with os.fdopen(commands, encoding="utf-8") as lines:
        while line := await asyncio.to_thread(lines.readline):
            await runner.run(json.loads(line))
