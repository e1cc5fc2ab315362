"""The journal of a run, read as a log of calls."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from sfusion.harness.journal import Event
from sfusion.harness.logs.record import AttemptRecord, CallRecord


@dataclass(slots=True)
class _OpenCall:
    began: float
    worker: str
    attempts: list[AttemptRecord] = field(default_factory=list)
    is_open: bool = False
    """The last attempt has not ended."""
    from_client: bool = False
    ran_since: float | None = None
    waited: float = 0.0

    def start_attempt(self, at: float, sandbox: str) -> None:
        self.attempts.append(AttemptRecord(at, None, sandbox, waited=self.waited))
        self.is_open, self.waited, self.ran_since = True, 0.0, None

    def note(self, **facts: object) -> None:
        if self.attempts:
            self.attempts[-1] = replace(self.attempts[-1], **facts)  # type: ignore[arg-type]

    def client_event(self, event: Event, at: float) -> None:
        match event["event"]:
            case "permit_granted":
                self.waited = float(event.get("waited") or 0.0)
            case "attempt_started":
                self.from_client = True
                self.start_attempt(at, str(event.get("endpoint", "")).removeprefix("http://"))
            case "attempt_ended" if self.is_open:
                self.is_open = False
                seconds = at - self.attempts[-1].began
                self.note(seconds=seconds, outcome=event.get("outcome"), status=event.get("status"))
            case "backing_off" if event.get("asked") is not None:
                self.note(retry_after=float(event["asked"]))

    def server_event(self, event: Event, at: float) -> None:
        sandbox = str(event.get("sandbox", "sandbox-1"))
        if event["event"] == "arrived" and not self.is_open and not self.from_client:
            self.start_attempt(at, sandbox)
        if not self.is_open or self.attempts[-1].sandbox != sandbox:
            return  # of an attempt that the client has given up
        match event["event"]:
            case "started":
                self.ran_since = at
            case "finished" if self.ran_since is not None:
                self.note(run_seconds=at - self.ran_since)
            case "strike":
                self.note(fault=event.get("rule"))
            case "answered" | "unanswered":
                if event.get("retry_after") is not None:
                    self.note(retry_after=float(event["retry_after"]))
                if not self.from_client:
                    self.is_open = False
                    self.note(seconds=at - self.attempts[-1].began, status=event.get("status"))


def journal_records(events: Iterable[Event], start: float = 0.0) -> Iterator[CallRecord]:
    """Yield the calls of a journal as they end, and at its end those that never did.

    ``start`` is the unix time of the journal's second 0. A tool that reports no attempts is followed at the sandbox.
    """
    calls: dict[str, _OpenCall] = {}
    for event in events:
        name, at = event.get("call"), start + event["at"]
        if name is None:
            continue
        source, kind = event["source"], event["event"]
        if source == "world" and kind == "called":
            calls[name] = _OpenCall(at, str(event.get("worker", "")))
            continue
        call = calls.get(name)
        if call is None:
            continue
        if source == "client":
            call.client_event(event, at)
        elif source == "server":
            call.server_event(event, at)
        elif source == "world" and kind in ("returned", "cancelled", "lost"):
            outcome = None if kind == "lost" else "cancelled" if kind == "cancelled" else event.get("outcome")
            problem = _problem(str(event.get("text", ""))) if outcome == "bad_arguments" else None
            seconds = None if kind == "lost" else at - call.began
            yield _record(name, calls.pop(name), seconds, outcome, problem)
    for name, call in calls.items():
        yield _record(name, call, None, None, None)


def _problem(text: str) -> str:
    """What the model reads about its call, without what all such texts begin with."""
    return text.rpartition("nothing was run: ")[2]


def _record(name: str, call: _OpenCall, seconds: float | None, outcome: str | None, problem: str | None) -> CallRecord:
    return CallRecord(name, call.began, seconds, "client", outcome, call.worker, tuple(call.attempts), problem)
