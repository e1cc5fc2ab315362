"""What the sandbox client writes to an event log about each of its calls."""

from __future__ import annotations

import time

from sfusion_tools.event_lines import attempt_json, call_line, line_start, quoted
from sfusion_tools.event_log import EventLog, EventLogSettings, open_event_log
from sfusion_tools.outcome import Outcome
from sfusion_tools.runtime import LoopScope, runtime
from sfusion_tools.sandbox.arguments import BadArguments
from sfusion_tools.sandbox.program import Program
from sfusion_tools.sandbox.result import CallResult
from sfusion_tools.sandbox.text import cut_middle

LONGEST = 100_000
"""Characters of a program or of an output that are kept of it, where they are wanted at all."""


class CallLog:
    """Writes calls to the event log of this process: by default how they went, never what they were about."""

    def __init__(self, settings: EventLogSettings) -> None:
        self._log = open_event_log(settings)
        self._code = "code" in settings.include
        self._output = "output" in settings.include

    def of(self, scope: LoopScope) -> EventLog | None:
        return self._log.of(scope)

    def ended(self, log: EventLog, began: float, result: CallResult, program: Program) -> None:
        """Write a call that began at this unix time."""
        more = ""
        if self._code:
            more = f',"language":{quoted(program.language)},"code":{_text(program.code)}'
        if self._output:
            more += f',"stdout":{_text(result.stdout)},"stderr":{_text(result.stderr)}'
        attempts = [
            attempt_json(
                one.after,
                one.seconds,
                one.waited,
                one.endpoint,
                one.outcome.value,
                one.status,
                one.sent,
                one.received,
                run_seconds=one.execution_time,
                retry_after=one.retry_after,
            )
            for one in result.attempts
        ]
        if result.waited and not attempts:
            more += f',"waited":{result.waited:.6f}'
        start = line_start("client", log.worker)
        log.add(call_line(start, result.call_id, began, result.seconds, result.outcome.value, attempts, more))

    def refused(self, call: str, error: BadArguments) -> None:
        """Write a call whose arguments could not be used. Only the message quotes them."""
        log = self._log.of(runtime.scope())
        if log is None:
            return
        more = f',"problem":{quoted(error.problem)}'
        if self._code:
            more += f',"message":{_text(str(error))}'
        start = line_start("client", log.worker)
        log.add(call_line(start, call, time.time(), 0.0, Outcome.BAD_ARGUMENTS.value, (), more))


def _text(text: str) -> str:
    return quoted(cut_middle(text, LONGEST))
