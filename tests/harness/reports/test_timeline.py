"""The timeline of a run."""

from __future__ import annotations

from sfusion.harness.reports.timeline import Mark, Steps, build_timeline
from tests.harness.reports.synthetic import Simulation
from tests.harness.reports.test_calls import RETRIED, line


def test_in_flight_waiting_and_limit_follow_the_events() -> None:
    resized = line(3.0, "limiter", "resized", rate_limit=2)
    timeline = build_timeline([line(0.0, "world", "began", limit=5), *RETRIED, resized])
    assert timeline.in_flight == Steps((2.0, 2.5, 3.5, 4.7), (1, 0, 1, 0))
    assert timeline.waiting == Steps((0.5, 2.0), (1, 0))
    assert timeline.limit == Steps((0.0, 3.0), (5, 2))
    assert timeline.marks == (
        Mark(2.2, "strike", "busy: status in phase before", "a"),
        Mark(3.0, "resized", "limit resized"),
    )


def test_a_permit_that_changes_hands_within_an_instant_is_counted_once() -> None:
    events = []
    for number in range(5):
        call = f"c{number}"
        events += [
            line(float(number), "client", "attempt_started", call=call, attempt=1),
            line(
                number + 1.0,
                "client",
                "attempt_ended",
                call=call,
                attempt=1,
                outcome="ok",
                status=200,
            ),
        ]
    events.sort(key=lambda event: event["at"])
    assert max(build_timeline(events).in_flight.values) == 1


def test_attempts_of_zero_duration_are_visible() -> None:
    started = [
        line(1.0, "client", "attempt_started", call=f"c{n}", attempt=1, worker="w")
        for n in range(3)
    ]
    ended = [
        line(1.0, "client", "attempt_ended", call=f"c{n}", attempt=1, worker="w", outcome="ok")
        for n in range(3)
    ]
    timeline = build_timeline([line(0.0, "world", "began", limit=5), *started, *ended])
    assert timeline.in_flight == Steps((1.0, 1.0), (3, 0))


def test_the_server_provides_in_flight_counts_when_clients_record_none() -> None:
    events = [
        line(1.0, "server", "arrived", call="a", attempt=1),
        line(2.0, "server", "answered", call="a", attempt=1, status=200),
    ]
    assert build_timeline(events).in_flight == Steps((1.0, 2.0), (1, 0))


def test_the_attempts_of_a_dead_worker_are_no_longer_in_flight() -> None:
    started = [
        line(1.0, "client", "attempt_started", call=f"c{n}", attempt=1, worker=f"w{n}")
        for n in range(3)
    ]
    died = line(2.0, "world", "worker_died", worker="w1")
    assert build_timeline([*started, died]).in_flight == Steps((1.0, 2.0), (3, 2))


def test_the_simulated_limiter_keeps_its_limit() -> None:
    timeline = build_timeline(Simulation(400, limit=6).run())
    assert max(timeline.in_flight.values) == 6
    assert max(timeline.at_server.values) == 6
    assert (
        timeline.in_flight.values[-1]
        == timeline.waiting.values[-1]
        == timeline.at_server.values[-1]
        == 0
    )


def test_marks_of_lasting_events_have_an_end() -> None:
    events = [
        line(1.0, "server", "crash", sandbox="sandbox-2"),
        line(1.5, "server", "crash", sandbox="sandbox-1"),
        line(2.0, "world", "worker_died", worker="n1-w1"),
        line(3.0, "server", "restart", sandbox="sandbox-2"),
        line(4.0, "world", "limiter_died", life=1),
        line(9.0, "world", "ended"),
    ]
    assert build_timeline(events).marks == (
        Mark(1.0, "crash", "crash: sandbox-2", until=3.0),
        Mark(1.5, "crash", "crash: sandbox-1", until=9.0),
        Mark(2.0, "worker_died", "worker died: n1-w1"),
        Mark(4.0, "limiter_died", "limiter died", until=9.0),
    )


def test_an_empty_journal_is_an_empty_timeline() -> None:
    timeline = build_timeline([])
    assert (timeline.start, timeline.end, timeline.marks, timeline.in_flight) == (
        0.0,
        0.0,
        (),
        Steps(),
    )
