"""What the sandbox client writes to an event log about each of its calls."""

from __future__ import annotations

import time
from functools import lru_cache

from sfusion_tools.event_lines import attempt_json, call_line, line_start, quoted
from sfusion_tools.event_log import LINE, EventLog, EventLogSettings, Facts, open_event_log
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
        more = self._included(result, program) if self._code or self._output else ""
        times = result.seconds, result.waited
        log.add(
            (_line, log.worker, result.call_id, began, times, result.outcome, result.attempts, more), LINE + len(more)
        )

    def malformed(self, call: str, error: BadArguments) -> None:
        """Write a call whose arguments could not be used. Only the message quotes them."""
        more = f',"problem":{quoted(error.problem)}'
        if self._code:
            more += f',"message":{_text(str(error))}'
        self._not_made(call, Outcome.BAD_ARGUMENTS, more)

    def refused(self, result: CallResult, program: Program) -> None:
        """Write a call that the guard did not let through."""
        self._not_made(result.call_id, result.outcome, ',"refused":"guard"' + self._included(result, program))

    def _not_made(self, call: str, outcome: Outcome, more: str) -> None:
        log = self._log.of(runtime.scope())
        if log is not None:
            log.add((_line, log.worker, call, time.time(), (0.0, 0.0), outcome, (), more), LINE + len(more))

    def _included(self, result: CallResult, program: Program) -> str:
        more = f',"language":{quoted(program.language)},"code":{_text(program.code)}' if self._code else ""
        if self._output:
            more += f',"stdout":{_text(result.stdout)},"stderr":{_text(result.stderr)}'
        return more


def _line(facts: Facts) -> str:
    _, worker, call, began, (seconds, waited), outcome, attempts, more = facts
    texts = ""
    for one in attempts:
        text = attempt_json(
            one.after,
            one.seconds,
            one.waited,
            one.endpoint,
            one.outcome._value_,
            one.status,
            one.sent,
            one.received,
            one.execution_time,
            one.retry_after,
        )
        texts = f"{texts},{text}" if texts else text
    if waited and not texts:
        more += f',"waited":{waited:.6f}'
    return call_line(_start(worker), call, began, seconds, outcome._value_, texts, more)


@lru_cache(maxsize=1)
def _start(worker: str) -> str:
    return line_start("client", worker)


def _text(text: str) -> str:
    return quoted(cut_middle(text, LONGEST))
