"""A ledger of sandboxes on the time of the running loop, with the executor of their commands."""

from __future__ import annotations

import asyncio
import base64
import re
from collections.abc import Callable
from typing import Any, cast

from sfusion_tools._loops import resolve

from ..lifecycle.events import LifecycleEvent
from ..lifecycle.ledger import SandboxLedger
from ..lifecycle.model import Lifecycle
from ..lifecycle.sandbox import Sandbox
from ..sandbox.protocol import CommandResult, Executor, RunCode
from ..wire.events import EventSink, ServerEvent

_UNKNOWN_COMMAND = 127
"""The exit code of a shell for a command that there is not."""
_NO_LIMIT = 3600.0
"""Seconds of a command whose client names no limit (chosen: longer than any fault lasts)."""
_PLAIN = r"[A-Za-z0-9_][A-Za-z0-9_ .:,/+=-]*"
"""Words in which no shell finds anything to do."""
_ECHO = re.compile(rf"(?:/bin/)?echo +(?P<quote>['\"]?)(?P<words>{_PLAIN})(?P=quote)")
_PRINTF = re.compile(rf"printf +(?P<quote>['\"]?)(?P<words>{_PLAIN})(?P<line>(\\n)?)(?P=quote)")
_PRINT = re.compile(rf"print\((?P<quote>['\"])(?P<words>{_PLAIN})(?P=quote)\)")


class Host:
    """Lets sandboxes boot, expire and die in time, and runs their commands."""

    def __init__(
        self,
        model: Lifecycle,
        *,
        executor: Executor,
        seed: int,
        journal: Callable[[], EventSink | None],
    ) -> None:
        self.executor = executor
        self.ledger = SandboxLedger(model, seed=seed, note=self._note)
        self._journal = journal
        self._timer: asyncio.TimerHandle | None = None
        self._watchers: dict[str, asyncio.Future[None]] = {}

    def now(self) -> float:
        return asyncio.get_running_loop().time()

    def _note(self, event: LifecycleEvent) -> None:
        journal = self._journal()
        if journal is not None:
            journal(cast(ServerEvent, event))
        watcher = self._watchers.pop(event.get("instance", ""), None)
        if watcher is not None:
            resolve(watcher, None)

    def advance(self) -> None:
        """Let happen what is due, and wake up when the next thing is."""
        self.ledger.advance(self.now())
        self.close()
        following = self.ledger.next_at()
        if following is not None:
            self._timer = asyncio.get_running_loop().call_at(following, self.advance)

    def close(self) -> None:
        """Set no timer any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def clear(self) -> None:
        """Forget all sandboxes; commands that run in them end."""
        self.ledger.clear()
        for watcher in self._watchers.values():
            resolve(watcher, None)
        self._watchers.clear()
        self.close()

    def _changed(self, sandbox: Sandbox) -> asyncio.Future[None]:
        """A future that is done with the next event of a sandbox."""
        watcher = self._watchers.get(sandbox.id)
        if watcher is None:
            watcher = asyncio.get_running_loop().create_future()
            self._watchers[sandbox.id] = watcher
        return watcher

    async def until_settled(self, sandbox: Sandbox) -> None:
        """Wait until a sandbox has booted, or has ended before."""
        self.advance()
        while sandbox.state == "pending":
            await asyncio.shield(self._changed(sandbox))

    async def run(
        self,
        sandbox: Sandbox,
        command: str,
        *,
        call: str,
        language: str = "bash",
        limit: float | None = None,
    ) -> CommandResult | None:
        """Run a command; None if its sandbox ended before it did."""
        self.ledger.begin(sandbox, self.now(), call)
        request = RunCode(code=command, language=language, run_timeout=limit or _NO_LIMIT)
        if self.executor.runs_code:
            request.files = {
                path: base64.b64encode(stored.content).decode()
                for path, stored in sandbox.files.items()
            }
            request.fetch_files = list(sandbox.files)
        running = asyncio.ensure_future(self.executor.run_code(request))
        try:
            await self._until_done(running, sandbox)
            if not running.done():
                return None
            answer = running.result()
        finally:
            running.cancel()
            self.ledger.end(sandbox, self.now())
            self.advance()
        for path, text in answer.files.items():
            stored = sandbox.files.get(path)
            content = base64.b64decode(text)
            if stored is not None and stored.content != content:
                self.ledger.write(sandbox, path, content, now=self.now(), writer=stored.writer)
        result = _result(answer.run_result, answer.message)
        return result if self.executor.runs_code else _with_plain_text(result, command)

    async def _until_done(self, running: asyncio.Future[Any], sandbox: Sandbox) -> None:
        while not running.done() and sandbox.state == "running":
            await asyncio.wait(
                {running, self._changed(sandbox)}, return_when=asyncio.FIRST_COMPLETED
            )


def _result(result: CommandResult | None, message: str) -> CommandResult:
    """The result of a command; a command that the executor has no answer for is not found."""
    if result is not None and result.status != "Error":
        return result
    why = message or (result.stderr if result is not None else "") or "sfusion: it cannot be run"
    return CommandResult("Error", 0.0, _UNKNOWN_COMMAND, stdout="", stderr=why)


def _with_plain_text(result: CommandResult, command: str) -> CommandResult:
    """Return what a command prints that only prints plain text, where no code runs.

    Clients ask with ``echo ready`` whether a sandbox is usable, and compare what comes back.
    """
    is_answered = result.status != "Error" and (result.stdout or result.return_code)
    text = None if is_answered else _text_printed_by(command)
    if text is None:
        return result
    return CommandResult("Finished", result.execution_time, 0, stdout=text, stderr="")


def _text_printed_by(command: str) -> str | None:
    """Return what a command prints if that can be read off it; None if it would have to run."""
    command = command.strip()
    if found := _PRINTF.fullmatch(command):
        return found["words"] + ("\n" if found["line"] else "")
    if found := _ECHO.fullmatch(command) or _PRINT.fullmatch(command):
        return found["words"] + "\n"
    return None
