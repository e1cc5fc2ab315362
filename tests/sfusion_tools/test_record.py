"""One table from status to outcome, and one fold from events to calls."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfusion.fakes.wire.core import ServedRequest, _line
from sfusion.fakes.wire.message import Answer
from sfusion.harness.core.journal import Journal
from sfusion.harness.core.logs.access_records import access_records
from sfusion.harness.core.logs.own_lines import event_call
from sfusion.harness.lab.promises import RunEvents
from sfusion.harness.lab.runs import run_scenario
from sfusion.harness.studies.learn.attempts import ending_of, outcome_of
from sfusion_tools.outcome import Outcome
from sfusion_tools.record import ANSWERED, Attempt, Call, CallFold, fold_call, spans_of
from sfusion_tools.sandbox.answer import read_answer
from tests.cases import every

NGINX = (
    '10.0.0.7 - - [10/Oct/2025:13:55:36 +0000] "POST /run_code HTTP/1.1" {status} 226 "-" "-" 1.250'
)
UVICORN = 'INFO:     10.0.0.7:5 - "POST /run_code HTTP/1.1" {status} X'


@pytest.mark.parametrize(
    ("status", "outcome"),
    [
        (None, Outcome.UNREACHABLE),
        (200, None),
        (404, Outcome.BAD_RESPONSE),
        (429, Outcome.THROTTLED),
        (499, Outcome.CANCELLED),
        (500, Outcome.SANDBOX_ERROR),
        (503, Outcome.SANDBOX_ERROR),
    ],
)
def test_the_table_of_statuses(status: int | None, outcome: Outcome | None) -> None:
    assert Outcome.of_status(status) is outcome


def events(status: int | None, **more: Any) -> list[dict[str, Any]]:
    base = {"source": "server", "call": "c1", "attempt": 1}
    return [
        {"at": 0.0, "event": "arrived", **base},
        {
            "at": 2.0,
            "event": "answered" if status else "unanswered",
            "status": status,
            **base,
            **more,
        },
    ]


def logged(status: int | None, **facts: Any) -> Call:
    """The request as a fake or a proxy writes it to an event log."""
    answer = None if status is None else Answer(status, b"{}", "application/json")
    known = {"client_gone": False, "spoiled": True, **facts}
    request = ServedRequest(
        call="c1",
        began=1e9,
        seconds=2.0,
        sent=100,
        answer=answer,
        fault=None,
        client_gone=known["client_gone"],
        spoiled=known["spoiled"],
    )
    line = _line("w", (_line, "http://s", request))
    return event_call(json.loads(line))


def run_of(status: int | None) -> Call:
    """The call of a tool that records no attempts, in the journal of a run."""
    called = {"at": 0.0, "source": "world", "event": "called", "call": "c1"}
    (call,) = RunEvents(Journal({}, [called, *events(status)])).records
    return call


@every([*range(100, 600), None], str)
def test_whoever_tells_of_a_status_means_the_same(status: int | None) -> None:
    fold = CallFold()
    told = {
        "journal": next(call for event in events(status) for call in fold.add(event)),
        "log": logged(status),
    }  # type: ignore[arg-type]
    if status is not None:
        for name, line in (("nginx", NGINX), ("uvicorn", UVICORN)):
            (told[name],) = access_records(line.format(status=status).encode(), 1) or ()
    told["run"] = run_of(status)
    outcomes = {name: call.attempts[0].outcome for name, call in told.items()}
    assert set(outcomes.values()) == {Outcome.of_status(status)}
    assert len({ending_of(call.attempts[0]) for call in told.values()}) == 1
    assert {outcome_of(call) for name, call in told.items() if name != "run"} == {
        "ok" if status == 200 else Outcome.of_status(status)
    }


@every([status for status in range(100, 600) if status not in (200, 499)], str)
def test_the_client_means_the_same_by_a_status(status: int) -> None:
    assert read_answer(status, "text/plain", b"").outcome is Outcome.of_status(status)


def test_a_client_that_reads_499_has_not_left() -> None:
    assert Outcome.of_status(499) is Outcome.CANCELLED
    assert read_answer(499, "text/plain", b"").outcome is Outcome.BAD_RESPONSE


def test_a_client_that_left_without_an_answer_had_waited_long_enough() -> None:
    assert Outcome.of_status(None, client_gone=True) is Outcome.TRANSPORT_TIMEOUT
    fold = CallFold()
    (call,) = (call for event in events(None, client_gone=True) for call in fold.add(event))  # type: ignore[arg-type]
    assert call.outcome is logged(None, client_gone=True).outcome is Outcome.TRANSPORT_TIMEOUT


def test_the_fold_of_a_stream_and_of_a_whole_journal_are_the_same() -> None:
    (result,) = run_scenario(Path(__file__).with_name("some-of-everything.yaml").read_text())
    journal = result.journal
    fold = CallFold(of_run=True)
    streamed = [call for event in journal.events for call in fold.add(event)]
    assert list(fold.rest()) == []
    assert len(streamed) == 24
    facts = ("outcome", "seconds", "worker", "problem", "waited", "kind")
    whole = {call.call: call for call in RunEvents(journal).records}
    for one in streamed:
        other = whole[one.call]
        assert [getattr(one, name) for name in facts] == [getattr(other, name) for name in facts]
        assert [attempt.outcome for attempt in one.attempts] == [
            attempt.outcome for attempt in other.attempts
        ]
    assert {one.problem for one in streamed} == {None, "code is missing"}


def test_a_request_belongs_to_the_attempt_during_which_it_arrived() -> None:
    told = [
        ("client", "call_started", 0.0, {}),
        ("client", "attempt_started", 1.0, {"attempt": 1, "endpoint": "a"}),
        ("server", "arrived", 1.1, {"attempt": 1, "sandbox": "a"}),
        ("client", "attempt_ended", 2.0, {"attempt": 1, "outcome": "unreachable", "status": None}),
        ("client", "attempt_started", 3.0, {"attempt": 2, "endpoint": "b"}),
        ("server", "arrived", 3.1, {"attempt": 1, "sandbox": "b"}),
        ("server", "strike", 3.1, {"attempt": 1, "sandbox": "b", "rule": "busy"}),
        ("server", "strike", 3.2, {"attempt": 1, "sandbox": "a", "rule": "late"}),
        (
            "server",
            "answered",
            3.5,
            {"attempt": 1, "sandbox": "b", "status": 429, "retry_after": "7"},
        ),
        ("client", "attempt_ended", 3.5, {"attempt": 2, "outcome": "throttled", "status": 429}),
    ]
    listed: list[Any] = [
        {"at": at, "source": s, "event": e, "call": "c", **more} for s, e, at, more in told
    ]
    call = fold_call("c", listed, 9.0, {})
    found = [(one.endpoint, one.fault, one.retry_after) for one in call.attempts]
    assert found == [("a", "late", None), ("b", "busy", 7.0)]
    assert (call.kind, call.ended) == ("unfinished", 9.0)


@given(
    st.lists(
        st.builds(
            Attempt,
            st.just(1),
            waited=st.floats(0, 9),
            seconds=st.none() | st.floats(0, 9),
            after=st.floats(0, 9),
            status=st.sampled_from([None, 200, 503]),
        ),
        max_size=4,
    ),
    st.floats(0, 99),
    st.floats(0, 9),
)
def test_spans_are_in_order_and_none_ends_before_it_begins(
    attempts: list[Attempt], seconds: float, waited: float
) -> None:
    call = Call("c", 5.0, seconds, attempts=attempts, waited=waited)
    spans = spans_of(call)
    assert all(span.end >= span.start >= call.began - 1e-6 for span in spans)
    assert spans == sorted(spans, key=lambda span: (span.start, span.end))
    assert [span.outcome for span in spans if span.kind == "attempt"].count(ANSWERED) == sum(
        one.status == 200 for one in attempts
    )


def test_a_tool_may_state_anything_as_its_outcome() -> None:
    for stated in ({"ok": 1}, ["ok"], 5, "done", None):
        told = [
            {"at": 0.0, "source": "world", "event": "called", "call": "c"},
            {"at": 1.0, "source": "world", "event": "returned", "call": "c", "outcome": stated},
        ]
        call = fold_call("c", told, 9.0, {})
        assert (call.outcome, call.kind, call.seconds) == (None, "unknown", 1.0)
