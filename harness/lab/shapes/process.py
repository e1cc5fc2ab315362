"""A command as a client: programs go to its stdin, results come from its stdout, one JSON object
per line.

    → {"call": "c1", "code": "print(1)", "language": "python", "stdin": null, "files": {},
    "timeout": 8.0, …} ← {"call": "c1", "text": "1\\n"}

The address is in an environment variable, and replaces ``{url}`` in the arguments. A command may
begin with a line ``{"takes": ["language", "stdin", "concurrent"]}`` that says what it carries;
without one, first calls show it. A command that does not answer lines is started once per call, and
judged by its requests alone.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import Any

from ....fakes.call_mark import mark_for
from ...errors import MissingWorld
from ..client import UNSET, WARM_UP, Returned, Settings, TrialAsk
from ..facts.sent import encoded_files
from .parameters import seen_in
from .results import returned_from

SETTINGS = "SFUSION_SETTINGS"
"""The variable with all settings as JSON, for commands that take more than the address."""
_LONGEST_LINE = 64 * 1024 * 1024
_LEAVING = 2.0
"""Seconds that a command has to exit when its stdin is closed."""


class ProcessClient:
    """One process for each scene; for each call if it does not speak the protocol."""

    own_address = True
    learned = ("route", "takes", "speaks")
    route = ""

    def __init__(self, command: Sequence[str], variable: str) -> None:
        self._command = command
        self._variable = variable
        self._process: Process | None = None
        self._reading: list[asyncio.Task[None]] = []
        self._waiting: dict[str, asyncio.Future[Returned]] = {}
        self._turn = asyncio.Lock()
        self._stated: frozenset[str] | None = None
        self._settings: Settings
        self.speaks = True
        """It answers lines."""
        self.printed = ""
        """Its stderr, and what it writes to stdout beside results."""
        self.takes: frozenset[str] = frozenset({"code", "text", "raises"})

    def learn(self, sent: Mapping[str, Any], asked: Mapping[str, Any], returned: Returned) -> None:
        """Note what a first call showed: whether it answers lines, and what of a program reaches
        the sandbox."""
        if returned.raised is not None and returned.raised.startswith(_SILENT):
            self.speaks = False
            self.takes = frozenset()
            return
        seen = set(seen_in(sent, asked))
        if "timeout" in seen:
            seen.add("default_timeout")
        if self._stated is not None:
            seen = set(self._stated)
        self.takes = self.takes | seen | ({"reward"} if returned.reward is not None else set())

    async def begin(self, settings: Settings) -> None:
        self._settings = settings
        if self.speaks:
            await self._start(PIPE)
            # Its start takes time that is no part of any call.
            await self._asked(TrialAsk(WARM_UP, f"# {mark_for(WARM_UP)}\nprint()\n"))

    async def _start(self, stdin: int) -> Process:
        address = self._settings.urls[0] + self.route
        env = {**os.environ, self._variable: address, SETTINGS: json.dumps(asdict(self._settings))}
        command = [part.replace("{url}", address) for part in self._command]
        try:
            self._process = process = await asyncio.create_subprocess_exec(
                *command,
                stdin=stdin,
                stdout=PIPE,
                stderr=PIPE,
                env=env,
                limit=_LONGEST_LINE,
                start_new_session=True,
            )
        except OSError as error:
            if len(command) > 1:
                hint = ""
            else:
                hint = "; a function or a class is given as module:name or file.py:name"
            raise MissingWorld(f"{command[0]}: {error.strerror}{hint}") from None
        self._reading = [
            asyncio.ensure_future(self._results(process)),
            asyncio.ensure_future(self._errors(process)),
        ]
        return process

    async def _results(self, process: Process) -> None:
        assert process.stdout is not None
        async for line in process.stdout:
            found = _parsed(line)
            if not found or not self._understood(found):
                self.printed += line.decode("utf-8", "replace")
        code = await process.wait()
        if process is not self._process:
            return  # it was killed, and what waits now waits for another
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_result(Returned(raised=f"{_SILENT} exited with code {code}"))

    def _understood(self, found: dict[str, Any]) -> bool:
        """Take a line that says what the command carries, or that answers a call that waits."""
        call = found.pop("call", None)
        if call is None and "text" in found and len(self._waiting) == 1:
            call = next(iter(self._waiting))
        if call is None and "takes" in found:
            self._stated = frozenset(map(str, found["takes"]))
            return True
        if call not in self._waiting or self._waiting[call].done():
            return False
        self._answered(call, found)
        return True

    def _answered(self, call: str, found: dict[str, Any]) -> None:
        error = None
        if not found.get("text"):
            error = found.pop("raised", None) or found.pop("error", None)
        returned = returned_from(found)
        fields = {name: value for name, value in returned.fields.items() if name != "text"}
        self._waiting[call].set_result(
            Returned(returned.text, fields, returned.reward, None if error is None else str(error))
        )

    async def _errors(self, process: Process) -> None:
        assert process.stderr is not None
        async for line in process.stderr:
            self.printed += line.decode("utf-8", "replace")

    async def call(self, ask: TrialAsk) -> Returned:
        if not self.speaks:
            async with self._turn:
                return await self._alone()
        if "concurrent" in self.takes:
            return await self._asked(ask)
        async with self._turn:
            return await self._asked(ask)

    async def _asked(self, ask: TrialAsk) -> Returned:
        process = self._process
        if process is None or process.returncode is not None:  # it ended with the call before
            await self.end()
            process = await self._start(PIPE)
        assert process.stdin is not None
        settings = self._settings
        line: dict[str, Any] = {
            "call": ask.call,
            "code": ask.code,
            "language": ask.language,
            "stdin": ask.stdin,
            "files": encoded_files(ask),
            "timeout": settings.default_timeout if ask.timeout is None else ask.timeout,
            "compile_timeout": settings.compile_timeout,
            "memory_limit_mb": settings.memory_limit_mb,
        }
        if ask.tests:
            line["tests"] = [list(test) for test in ask.tests]
        if ask.arguments is not UNSET:
            line["arguments"] = ask.arguments
        answer: asyncio.Future[Returned]
        self._waiting[ask.call] = answer = asyncio.get_running_loop().create_future()
        try:
            process.stdin.write(json.dumps(line).encode() + b"\n")
            await process.stdin.drain()
            return await answer
        except ConnectionError:
            return Returned(raised=f"{_SILENT} exited with code {await process.wait()}")
        except asyncio.CancelledError:
            _kill(process)  # it may be stuck, and would answer the next call with this one
            self._process = None
            raise
        finally:
            del self._waiting[ask.call]

    async def _alone(self) -> Returned:
        """Let the command make the calls that it makes by itself."""
        process = await self._start(DEVNULL)
        try:
            await asyncio.gather(*self._reading)
            return Returned(fields={"exit_status": await process.wait()})
        finally:
            await self.end()

    async def end(self) -> None:
        process = self._process
        self._process = None
        if process is None:
            return
        if process.stdin is not None:
            process.stdin.close()
        with suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), _LEAVING if process.stdin is not None else 0.0)
        _kill(process)
        await process.wait()
        await asyncio.wait(self._reading, timeout=_LEAVING)

    def inside(self) -> Any:
        return None


_SILENT = "the command"


def _kill(process: Process) -> None:
    """Kill a process with all that it has started."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


def _parsed(line: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None
