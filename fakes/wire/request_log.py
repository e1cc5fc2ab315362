"""What a server writes to an event log about each request for work, in the same form as the tool's calls."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

from sfusion.fakes.wire.message import Answer
from sfusion_tools.event_lines import attempt_json, call_line, line_start
from sfusion_tools.event_log import EventLogSettings, Facts, open_event_log
from sfusion_tools.outcome import Outcome
from sfusion_tools.runtime import runtime
from sfusion_tools.sandbox.answer import read_answer
from sfusion_tools.sandbox.retry import retry_after

EventLogPath = EventLogSettings | str | Path


class RequestLog:
    """Writes requests to the event log of this process; ``sandbox`` returns the address that it names."""

    def __init__(self, log: EventLogPath, sandbox: Callable[[], str]) -> None:
        settings = log if isinstance(log, EventLogSettings) else EventLogSettings(path=str(log))
        self._log = open_event_log(settings)
        self._sandbox = sandbox

    def ended(
        self,
        call: str,
        began: float,
        seconds: float,
        sent: int,
        answer: Answer | None,
        fault: str | None,
        *,
        client_gone: bool,
        spoiled: bool,
    ) -> None:
        """Write a request that arrived at this unix time; ``answer`` is None if none was sent."""
        log = self._log.of(runtime.scope())
        if log is not None:
            facts = log.worker, self._sandbox(), call, began, seconds, sent, answer, fault, client_gone, spoiled
            log.add((_line, *facts))

    def flush(self) -> None:
        self._log.flush()


def _line(facts: Facts) -> str:
    _, worker, sandbox, call, began, seconds, sent, answer, fault, client_gone, spoiled = facts
    status, received, ran, asked = None, 0, None, None
    # A client that left without an answer has most likely waited long enough.
    outcome: Outcome | None = Outcome.TRANSPORT_TIMEOUT if client_gone else Outcome.UNREACHABLE
    if answer is not None:
        status, received = answer.status, len(answer.body) or answer.length or 0
        headers = {name.title(): value for name, value in answer.headers}
        asked = retry_after(headers, began + seconds)
        outcome = None
        if status != 200 or not (spoiled or answer.stream is not None or "Content-Encoding" in headers):
            reading = read_answer(status, answer.content_type or "", answer.body)
            outcome, ran = reading.outcome, reading.execution_time
    known = None if outcome is None else outcome.value
    attempt = attempt_json(0.0, seconds, 0.0, sandbox, known, status, sent, received, ran, asked, fault)
    return call_line(_start(worker), call, began, seconds, known, attempt)


@lru_cache(maxsize=1)
def _start(worker: str) -> str:
    return line_start("server", worker)
