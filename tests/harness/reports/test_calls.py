"""The calls of a journal, and what each consists of."""

from __future__ import annotations

from typing import Any

from sfusion.harness.core.journal import Journal
from sfusion.harness.lab.promises import RunEvents
from sfusion_tools.record import Call, Span, spans_of
from tests.harness.reports.synthetic import Simulation


def line(at: float, source: str, event: str, **more: Any) -> dict[str, Any]:
    return {"at": at, "source": source, "event": event, **more}


def calls_of(events: list[dict[str, Any]]) -> list[Call]:
    return RunEvents(Journal({}, events)).records


RETRIED = [
    line(0.0, "world", "called", call="a", worker="n1-w1"),
    line(0.0, "client", "call_started", call="a", worker="n1-w1"),
    line(2.0, "client", "permit_granted", call="a", attempt=1, worker="n1-w1", waited=1.5),
    line(2.0, "client", "attempt_started", call="a", attempt=1, worker="n1-w1"),
    line(2.1, "server", "arrived", call="a", attempt=1),
    line(
        2.2,
        "server",
        "strike",
        call="a",
        attempt=1,
        rule="busy",
        phase="before",
        kind="status",
        code_ran="no",
    ),
    line(
        2.5,
        "client",
        "attempt_ended",
        call="a",
        attempt=1,
        worker="n1-w1",
        outcome="throttled",
        status=429,
    ),
    line(2.5, "client", "backing_off", call="a", attempt=1, worker="n1-w1", seconds=1.0, asked=1.0),
    line(3.5, "client", "permit_granted", call="a", attempt=2, worker="n1-w1", waited=0.0),
    line(3.5, "client", "attempt_started", call="a", attempt=2, worker="n1-w1"),
    line(3.6, "server", "started", call="a", attempt=2),
    line(4.6, "server", "finished", call="a", attempt=2),
    line(
        4.7,
        "client",
        "attempt_ended",
        call="a",
        attempt=2,
        worker="n1-w1",
        outcome="ok",
        status=200,
    ),
    line(4.7, "client", "call_ended", call="a", worker="n1-w1", outcome="ok", executions=1),
    line(4.8, "world", "returned", call="a", worker="n1-w1", outcome="ok"),
]


def test_a_call_with_a_retry_has_every_span() -> None:
    (call,) = calls_of(RETRIED)
    assert (call.call, call.worker, call.began, call.ended, call.kind) == (
        "a",
        "n1-w1",
        0.0,
        4.8,
        "ok",
    )
    assert [(one.may_have_run, one.fault) for one in call.attempts] == [
        (False, "busy"),
        (True, None),
    ]
    assert spans_of(call) == [
        Span("waiting", 0.5, 2.0, 1),
        Span("attempt", 2.0, 2.5, 1, "throttled", 429),
        Span("pause", 2.5, 3.5, 1),
        Span("attempt", 3.5, 4.7, 2, "ok", 200),
        Span("running", 3.6, 4.6, 2),
    ]


def test_a_call_ends_unfinished_when_its_worker_dies() -> None:
    died = [
        *RETRIED[:4],
        line(2.3, "world", "worker_died", worker="n1-w1"),
        line(9.0, "world", "ended"),
    ]
    (call,) = calls_of(died)
    assert (call.ended, call.kind) == (2.3, "unfinished")
    assert spans_of(call)[-1] == Span("attempt", 2.0, 2.3, 1, "unfinished")


def test_a_call_without_a_permit_waits_until_its_end() -> None:
    events = [
        line(1.0, "client", "call_started", call="a"),
        line(6.0, "client", "call_ended", call="a", outcome="throttled"),
    ]
    (call,) = calls_of(events)
    assert spans_of(call) == [Span("waiting", 1.0, 6.0, 1)]


def test_the_server_provides_the_attempts_of_a_tool_that_records_none() -> None:
    events = [
        line(0.0, "world", "called", call="a", worker="w"),
        line(0.1, "server", "arrived", call="a", attempt=1),
        line(0.1, "server", "started", call="a", attempt=1),
        line(0.4, "server", "finished", call="a", attempt=1),
        line(0.4, "server", "answered", call="a", attempt=1, status=503),
        line(0.6, "server", "arrived", call="a", attempt=2),
        line(0.7, "server", "answered", call="a", attempt=2, status=200),
        line(0.8, "world", "returned", call="a", worker="w", outcome="program_error"),
    ]
    (call,) = calls_of(events)
    assert (call.ended, call.kind, len(call.attempts)) == (0.8, "program_error", 2)
    assert [one.may_have_run for one in call.attempts] == [True, False]
    assert [span for span in spans_of(call) if span.kind == "attempt"] == [
        Span("attempt", 0.1, 0.4, 1, "sandbox_error", 503),
        Span("attempt", 0.6, 0.7, 2, "program_error", 200),
    ]


def test_a_call_that_its_caller_gave_up_is_cancelled() -> None:
    events = [
        line(0.0, "world", "called", call="a", worker="w"),
        line(0.5, "world", "cancelled", call="a", worker="w"),
    ]
    (call,) = calls_of(events)
    assert (call.ended, call.kind) == (0.5, "cancelled")


def test_a_journal_without_calls_has_no_timelines() -> None:
    assert calls_of([]) == []
    assert calls_of([line(0.0, "world", "began", limit=3)]) == []


def test_calls_are_ordered_by_their_start() -> None:
    calls = calls_of(Simulation(50).run())
    assert len(calls) == 50
    assert [call.began for call in calls] == sorted(call.began for call in calls)


def test_a_program_stops_running_when_it_finishes_or_is_broken_off() -> None:
    for ending in ("finished", "broken_off"):
        events = [
            line(0.1, "server", "started", call="a", attempt=1),
            line(0.4, "server", ending, call="a", attempt=1),
            line(0.9, "world", "returned", call="a", outcome="ok"),
        ]
        (call,) = calls_of(events)
        assert Span("running", 0.1, 0.4, 1) in spans_of(call)
