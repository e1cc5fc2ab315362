"""What ``sfusion look`` concludes from a log."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from sfusion.harness.logs import LoggedAttempt, LoggedCall
from sfusion.harness.logs.digest import Digest
from sfusion.harness.logs.overview import Overview, overview
from sfusion.harness.logs.telling import sentence
from tests.harness.logs.made_up import OUTAGE, START, degrading


def found(records: Iterable[LoggedCall]) -> Overview:
    digest = Digest()
    for record in records:
        digest.add(record)
    return overview(digest)


def test_it_tells_when_it_got_worse_which_sandbox_and_what_the_model_read():
    told = found(degrading())
    worse, better = (turn for turn in told.turns if turn.what == "failed")
    assert worse.worse
    assert not better.worse
    assert [worse.at - START, better.at - START] == pytest.approx(OUTAGE, abs=30)
    assert (worse.mostly, worse.before) == ("throttled", 0.0)
    assert worse.after == pytest.approx(0.25, abs=0.05)
    longer, _ = (turn for turn in told.turns if turn.what == "duration")
    assert longer.worse
    assert told.suspect == "http://10.0.0.2:8080"
    assert told.faults == {"busy": told.outcomes["throttled"]}
    assert told.malformed == {"code is missing": 1}
    texts = {kind: text for kind, _, text in told.read}
    assert texts["ok"] == "the program's output"
    assert "the sandbox failed, not your code (throttled" in texts["throttled"]
    assert sum(row.calls for row in told.over_time) == told.calls == 3001
    assert told.failed == told.outcomes["throttled"]
    assert max(row.waiting for row in told.over_time) > 1
    assert (told.unit, told.workers) == ("unix", 4)


def call(source: str, attempt: LoggedAttempt) -> LoggedCall:
    return LoggedCall("c", attempt.began, 1.0, source, attempt.outcome, attempts=(attempt,))


def test_a_slow_sandbox_is_named_even_if_it_never_fails():
    told = found(
        call("client", LoggedAttempt(START + number, 3.0 if number % 2 else 1.0, f"s{number % 2}", 200, "ok"))
        for number in range(100)
    )
    assert told.suspect == "s1"
    assert told.turns == []


def test_one_sandbox_is_never_a_suspect():
    told = found(call("server", LoggedAttempt(START + number, 1.0, "s", 500, "sandbox_error")) for number in range(100))
    assert told.suspect == ""
    assert told.read == [], "a server does not know what the model read"


@pytest.mark.parametrize(
    ("record", "unit", "shown"),
    [
        (LoggedCall("c", START, 1.0, "client", "ok"), "unix", "2025-11-15 09:46:40 UTC"),
        (LoggedCall("c", 12.0, 1.0, "client", "ok"), "seconds", "12.0 s"),
        (LoggedCall("c", 12.0, None, "dump", "ok", timed=False), "step", "step 12"),
        (LoggedCall("", 12.0, None, "access", None, timed=False), "line", "line 12"),
    ],
)
def test_times_are_shown_as_what_they_are(record, unit, shown):
    told = found([record])
    assert told.unit == unit
    assert told.when(told.start) == shown


def test_an_empty_log_has_an_overview():
    told = found([])
    assert (told.calls, told.turns, told.over_time, told.outcomes) == (0, [], [], {})


def test_retried_failures_are_told_as_those_of_attempts():
    def records() -> Iterable[LoggedCall]:
        for number in range(600):
            at = START + number
            outcomes = ["unreachable", "ok"] if number >= 300 else ["ok"]
            attempts = tuple(
                LoggedAttempt(at + place, 0.1, "s", 200, outcome) for place, outcome in enumerate(outcomes)
            )
            yield LoggedCall("c", at, 0.1, "client", "ok", attempts=attempts)

    (turn,) = found(records()).turns
    assert (turn.what, turn.worse, turn.mostly) == ("attempts", True, "unreachable")
    assert turn.after == pytest.approx(0.5, abs=0.02)
    assert turn.at - START == pytest.approx(300, abs=5)


@pytest.mark.parametrize(
    ("kind", "what", "mostly", "said"),
    [
        ("program_error", "programs", "program_error", "more programs failed: 100.0% program_error instead of"),
        ("program_timeout", "programs", "program_timeout", "more programs failed: 100.0% program_timeout instead of"),
        ("cancelled", "cancelled", "", "more calls were cancelled: 100.0% instead of"),
    ],
)
def test_a_wave_of_any_outcome_is_told_without_counting_as_failed(kind, what, mostly, said):
    told = found(
        call("client", LoggedAttempt(START + number, 1.0, "s", 200, kind if number >= 300 else "ok"))
        for number in range(600)
    )
    (turn,) = told.turns
    assert (turn.what, turn.mostly, turn.after) == (what, mostly, 1.0)
    assert turn.before < 0.02
    assert turn.at - START == pytest.approx(300, abs=5)
    assert said in sentence(told, turn)
    assert told.failed == 0


def test_an_outage_is_not_told_as_better_programs():
    outcomes = ["program_error", "ok"] * 150 + ["unreachable"] * 300
    told = found(
        call("client", LoggedAttempt(START + number, 1.0, "s", 200, outcome)) for number, outcome in enumerate(outcomes)
    )
    assert [turn.what for turn in told.turns] == ["failed"]
