"""What the sandbox client writes to an event log about each of its calls."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from weakref import WeakSet, ref

from sfusion_tools.event_lines import call_line, quoted
from sfusion_tools.event_log import LINE, EventLog, EventLogSettings, Facts, open_event_log
from sfusion_tools.outcome import Outcome
from sfusion_tools.runtime import runtime
from sfusion_tools.sandbox.arguments import BadArguments
from sfusion_tools.sandbox.program import Program
from sfusion_tools.sandbox.result import CallResult
from sfusion_tools.sandbox.text import cut_middle, model_text

LONGEST = 100_000
"""Characters of a program or of an output that are kept, where they are wanted at all. Chosen: far
more than programs of models have, and a line that any reader of logs accepts."""


class CallLog:
    """Writes calls to the event log of this process.

    By default it writes how they went, never what they were about.
    """

    def __init__(self, settings: EventLogSettings, tool: str = "code_interpreter") -> None:
        self._tool = tool
        self._log = open_event_log(settings)
        self._code = "code" in settings.include
        self._output = "output" in settings.include
        self._plain = not settings.include
        _all.add(self)
        self.known: tuple[Callable[[], object], EventLog | None] = _no_loop, None
        """The loop of the last call, and what ``enter`` returned for it.

        Asking here spares most calls the function.
        """

    def enter(self, loop: asyncio.AbstractEventLoop) -> EventLog | None:
        """Return the log for calls in the running loop; None where it keeps its own time."""
        log = self._log.of(runtime.scope())
        self.known = ref(loop), log
        return log

    def ended(self, log: EventLog, result: CallResult, program: Program) -> None:
        """Write a call that has just ended."""
        more = ""
        size = LINE
        attempts = result.attempts
        if not (self._plain and attempts and result.outcome.is_from_program):
            more = self._included(result, program)
            size += len(more)
        # What log.add does: to call it would cost a sixth more.
        if log.room < 0:
            log.dropped += 1
            return
        log.room -= size
        ids = result.call_id, result.trajectory, result.group
        log.queue.append((_line, time.time(), result.seconds, ids, result.outcome, attempts, more))

    def malformed(self, call: CallResult, error: BadArguments) -> None:
        """Write a call whose arguments could not be used. Only the message quotes them."""
        more = f',"problem":{quoted(error.problem)}'
        if self._code:
            more += f',"message":{_text(str(error))}'
        self._not_made(call, Outcome.BAD_ARGUMENTS, more)

    def refused(self, result: CallResult, program: Program) -> None:
        """Write a call that the guard did not let through."""
        more = ',"refused":"guard"' + self._included(result, program)
        self._not_made(result, result.outcome, more)

    def _not_made(self, call: CallResult, outcome: Outcome, more: str) -> None:
        log = self._log.of(runtime.scope())
        if log is not None:
            ids = call.call_id, call.trajectory, call.group
            log.add((_line, time.time(), 0.0, ids, outcome, (), more), LINE + len(more))

    def _included(self, result: CallResult, program: Program) -> str:
        more = ""
        if self._code:
            more += f',"language":{quoted(program.language)},"code":{_text(program.code)}'
        if self._output:
            more += f',"stdout":{_text(result.stdout)},"stderr":{_text(result.stderr)}'
        if result.waited and not result.attempts:
            more += f',"waited":{result.waited:.6f}'
        if not result.outcome.is_from_program and result.outcome is not Outcome.CANCELLED:
            more += f',"read":{quoted(model_text(result, self._tool, timeout=0.0, limit=0))}'
        return more


def _line(worker: str, facts: Facts) -> bytes:
    _, ended, seconds, (call, trajectory, group), outcome, attempts, more = facts
    return call_line(
        source="client",
        worker=worker,
        call=call,
        began=ended - seconds,
        seconds=seconds,
        outcome=outcome,
        attempts=attempts,
        more=more,
        trajectory=trajectory,
        group=group,
    )


def _no_loop() -> None:
    return None


_all: WeakSet[CallLog] = WeakSet()


def _forget() -> None:
    """In a forked child, logs must be entered again, also if its parent's loop goes on there."""
    for log in _all:
        log.known = _no_loop, None


if hasattr(os, "register_at_fork"):  # not on Windows, which cannot fork
    os.register_at_fork(after_in_child=_forget)


def _text(text: str) -> str:
    return quoted(cut_middle(text, LONGEST))
