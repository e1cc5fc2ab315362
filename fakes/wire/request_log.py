"""What a server writes to an event log about each request for work, in the same form as the tool's calls."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from sfusion.fakes.wire.message import Answer
from sfusion_tools.event_lines import call_line
from sfusion_tools.event_log import LINE, EventLogSettings, Facts, open_event_log
from sfusion_tools.outcome import Outcome
from sfusion_tools.record import Attempt
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
            facts = self._sandbox(), call, began, seconds, sent, answer, fault, client_gone, spoiled
            log.add((_line, *facts), LINE + (len(answer.body) if answer is not None else 0))

    def flush(self) -> None:
        self._log.flush()


def _line(worker: str, facts: Facts) -> bytes:
    _, sandbox, call, began, seconds, sent, answer, fault, client_gone, spoiled = facts
    served = Attempt(
        1, sandbox, Outcome.of_status(None, client_gone=client_gone), seconds=seconds, sent=sent, fault=fault
    )
    if answer is not None:
        served.status, served.received = answer.status, len(answer.body) or answer.length or 0
        headers = {name.title(): value for name, value in answer.headers}
        served.retry_after = retry_after(headers, began + seconds)
        served.outcome = Outcome.of_status(answer.status)
        if answer.status == 200 and not (spoiled or answer.stream is not None or "Content-Encoding" in headers):
            reading = read_answer(answer.status, answer.content_type or "", answer.body)
            served.outcome, served.execution_time = reading.outcome, reading.execution_time
    return call_line("server", worker, call, began, seconds, served.outcome, [served])
