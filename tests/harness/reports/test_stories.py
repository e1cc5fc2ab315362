"""What a journal says of each call."""

from __future__ import annotations

from typing import Any

from sfusion.harness.reports import Span, stories
from tests.harness.reports.synthetic import Simulation


def line(at: float, source: str, event: str, **more: Any) -> dict[str, Any]:
    return {"at": at, "source": source, "event": event, **more}


RETRIED = [
    line(0.0, "world", "called", call="a", worker="n1-w1"),
    line(0.0, "client", "call_started", call="a", worker="n1-w1"),
    line(2.0, "client", "permit_granted", call="a", attempt=1, worker="n1-w1", waited=1.5),
    line(2.0, "client", "attempt_started", call="a", attempt=1, worker="n1-w1"),
    line(2.1, "server", "arrived", call="a", attempt=1),
    line(2.2, "server", "strike", call="a", attempt=1, rule="busy", phase="before", kind="status", code_ran="no"),
    line(2.5, "client", "attempt_ended", call="a", attempt=1, worker="n1-w1", outcome="throttled", status=429),
    line(2.5, "client", "backing_off", call="a", attempt=1, worker="n1-w1", seconds=1.0, asked=1.0),
    line(3.5, "client", "permit_granted", call="a", attempt=2, worker="n1-w1", waited=0.0),
    line(3.5, "client", "attempt_started", call="a", attempt=2, worker="n1-w1"),
    line(3.6, "server", "started", call="a", attempt=2),
    line(4.6, "server", "finished", call="a", attempt=2),
    line(4.7, "client", "attempt_ended", call="a", attempt=2, worker="n1-w1", outcome="ok", status=200),
    line(4.7, "client", "call_ended", call="a", worker="n1-w1", outcome="ok", executions=1),
    line(4.8, "world", "returned", call="a", worker="n1-w1", outcome="ok"),
]


def test_a_call_is_told_from_its_start_to_its_end() -> None:
    (story,) = stories(RETRIED)
    assert (story.call, story.worker, story.start, story.end, story.outcome) == ("a", "n1-w1", 0.0, 4.8, "ok")
    assert (story.attempts, story.executions, story.strikes) == (2, 1, 1)
    assert story.events == RETRIED
    assert story.spans == [
        Span("waiting", 0.5, 2.0, 1),
        Span("attempt", 2.0, 2.5, 1, "throttled", 429),
        Span("pause", 2.5, 3.5, 1),
        Span("attempt", 3.5, 4.7, 2, "ok", 200),
        Span("running", 3.6, 4.6, 2),
    ]


def test_a_call_whose_worker_died_ends_with_it_and_is_unfinished() -> None:
    died = [*RETRIED[:4], line(2.3, "world", "worker_died", worker="n1-w1"), line(9.0, "world", "ended")]
    (story,) = stories(died)
    assert (story.end, story.outcome) == (2.3, "unfinished")
    assert story.spans[-1] == Span("attempt", 2.0, 2.3, 1, "unfinished")


def test_a_call_that_never_got_a_permit_waits_until_its_end() -> None:
    events = [
        line(1.0, "client", "call_started", call="a"),
        line(6.0, "client", "call_ended", call="a", outcome="throttled"),
    ]
    (story,) = stories(events)
    assert story.spans == [Span("waiting", 1.0, 6.0, 1)]


def test_a_tool_that_tells_nothing_is_told_by_the_world_and_the_server() -> None:
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
    (story,) = stories(events)
    assert (story.end, story.outcome, story.executions, story.attempts) == (0.8, "program_error", 1, 2)
    assert [span for span in story.spans if span.kind == "attempt"] == [
        Span("attempt", 0.1, 0.4, 1, "sandbox_error", 503),
        Span("attempt", 0.6, 0.7, 2, "program_error", 200),
    ]


def test_a_call_that_its_caller_gave_up_is_cancelled() -> None:
    events = [line(0.0, "world", "called", call="a", worker="w"), line(0.5, "world", "cancelled", call="a", worker="w")]
    (story,) = stories(events)
    assert (story.end, story.outcome) == (0.5, "cancelled")


def test_a_journal_without_calls_has_no_stories() -> None:
    assert stories([]) == []
    assert stories([line(0.0, "world", "began", limit=3)]) == []


def test_stories_come_in_the_order_in_which_the_calls_began() -> None:
    told = stories(Simulation(50).run())
    assert len(told) == 50
    assert [story.start for story in told] == sorted(story.start for story in told)
    assert sum(len(story.events) for story in told) == sum("call" in event for event in Simulation(50).run())
