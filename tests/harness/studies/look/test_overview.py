"""What ``sfusion look`` concludes from a log."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from sfusion.harness.studies.look.digest import Digest
from sfusion.harness.studies.look.overview import Overview, overview
from sfusion.harness.studies.look.summary import notes, sentence, suspicion
from sfusion_tools.record import Attempt, Call
from tests.harness.studies.look.made_up import OUTAGE, START, degrading
from tests.harness.studies.made_calls import attempt_at, call_at


def found(records: Iterable[Call]) -> Overview:
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


def call(source: str, attempt: Attempt) -> Call:
    return call_at("c", attempt.after, 1.0, source, attempt.outcome, attempts=(attempt,))


def test_a_slow_sandbox_is_named_even_if_it_never_fails():
    told = found(
        call(
            "client",
            attempt_at(START + number, 3.0 if number % 2 else 1.0, f"s{number % 2}", 200, "ok"),
        )
        for number in range(100)
    )
    assert told.suspect == "s1"
    assert told.turns == []


def mixed(
    sandbox: str, attempts: int, failed: int, ok_seconds: float, failed_seconds: float
) -> list[Call]:
    """Calls of one sandbox, the failures spread evenly among the answers."""
    return [
        call(
            "client",
            attempt_at(START + number, failed_seconds, sandbox, 500, "sandbox_error")
            if number * failed // attempts != (number + 1) * failed // attempts
            else attempt_at(START + number, ok_seconds, sandbox, 200, "ok"),
        )
        for number in range(attempts)
    ]


@pytest.mark.parametrize(
    ("sandboxes", "named"),
    [
        ({"a": (800, 268, 0.3, 0.3), "b": (800, 430, 0.3, 0.002)}, "b"),
        ({"a": (170, 98, 0.0015, 0.0015), "b": (46, 46, 1.0, 0.0001)}, "b"),
        ({"a": (1000, 600, 1.0, 1.0), "b": (100, 100, 1.0, 1.0), "c": (1000, 0, 1.0, 1.0)}, "b"),
        ({"a": (100, 0, 3.0, 3.0), "b": (100, 20, 1.0, 1.0)}, "b"),
        ({"a": (1000, 100, 1.0, 60.0), "b": (1000, 80, 1.0, 0.001)}, ""),
        ({"a": (1000, 200, 3.0, 1.0), "b": (1000, 270, 1.0, 1.0)}, ""),
        ({"a": (1000, 4, 3.0, 1.0), "b": (1000, 8, 1.0, 1.0)}, "a"),
        ({"a": (50, 0, 3.0, 1.0), "b": (50, 1, 1.0, 1.0)}, "a"),
        ({"a": (5, 1, 1.0, 1.0), "b": (5, 0, 1.0, 1.0)}, ""),
    ],
    ids=[
        "fails fast",
        "fails always beside one that often fails",
        "fails more than one with more failures",
        "the slow one never fails",
        "only its failures are slow",
        "slow and fails less",
        "slow and fails less by a few calls",
        "slow and the other failed once",
        "a single failure of few",
    ],
)
def test_the_sandbox_that_fails_more_is_named_and_answers_alone_tell_which_is_slow(
    sandboxes, named
):
    told = found(one for name, facts in sandboxes.items() for one in mixed(name, *facts))
    assert told.suspect == named


@pytest.mark.parametrize(
    ("outcome", "seconds", "until"),
    [("unreachable", 1.0, 6000), ("ok", 9.0, 6000), ("unreachable", 1.0, 5850)],
)
def test_a_sandbox_that_broke_late_is_named_with_the_time(outcome, seconds, until):
    def attempts() -> Iterable[Attempt]:
        for number in range(0, 6000, 2):
            bad = number % 3 == 1 and 5700 <= number < until
            took, ended = (seconds, outcome) if bad else (1.0, "ok")
            yield attempt_at(START + number, took, f"s{number % 3}", 200, ended)

    told = found(call("client", one) for one in attempts())
    assert told.suspect == "s1"
    assert told.suspect_since is not None
    assert told.suspect_since - START == pytest.approx(5700, abs=40)
    assert suspicion(told).startswith("s1 does worse than the others from 2025-11-15 11:2")
    if until == 6000:
        assert told.suspect_until is None
    else:
        assert told.suspect_until is not None
        assert told.suspect_until - START == pytest.approx(until, abs=40)


def test_sandboxes_that_break_together_are_no_suspects():
    told = found(
        call(
            "client",
            attempt_at(
                START + number, 1.0, f"s{number % 3}", 200, "ok" if number < 1500 else "throttled"
            ),
        )
        for number in range(0, 2000, 4)
    )
    assert told.suspect == ""


@pytest.mark.parametrize("unnamed", ["", "(others)"])
def test_only_a_sandbox_with_a_name_is_a_suspect(unnamed):
    bad = [attempt_at(START + number, 1.0, unnamed, 500, "sandbox_error") for number in range(30)]
    worse = [attempt_at(START + number, 1.0, "s", 500, "sandbox_error") for number in range(20)]
    good = [
        attempt_at(START + number, 1.0, sandbox, 200, "ok")
        for number in range(100)
        for sandbox in ("t", "u")
    ]
    assert found(call("client", one) for one in [*bad, *worse, *good]).suspect == "s"


DAY = 86_400.0


def timed(at: float, seconds: float = 1.0) -> Call:
    outcome = "ok" if at < START + 600 else "unreachable"
    return call_at(
        "c", at, seconds, "client", outcome, attempts=(attempt_at(at, seconds, "s", 200, outcome),)
    )


def untimed(line: int) -> Call:
    return call_at("", float(line), None, "access", "ok", timed=False)


GOOD = [timed(START + 2 * number) for number in range(500)]


@pytest.mark.parametrize(
    ("strays", "off"),
    [
        ([timed(0.0), timed(253_402_300_799.0), timed(START / 1000), timed(946_684_800.0)], 4),
        ([timed(START + 5, 1e11)], 1),
        ([untimed(number) for number in range(300)], 300),
        ([timed(float(number)) for number in range(400)], 400),
        ([timed(0.0), untimed(3)], 2),
    ],
)
@pytest.mark.parametrize("first", [True, False])
def test_calls_at_strange_times_are_left_out_of_the_axis_and_counted(strays, off, first):
    told = found([*strays, *GOOD] if first else [*GOOD, *strays])
    assert (told.calls, told.off_axis, told.unit) == (500 + len(strays), off, "unix")
    assert (told.start, told.end) == (START, START + 999)
    assert sum(row.calls for row in told.over_time) == told.calls - off
    (turn,) = [one for one in told.turns if one.what == "failed"]
    assert turn.at - START == pytest.approx(600, abs=10)
    assert any("Not on the time axis" in line for line in notes(told)) is bool(off)


def test_lines_are_the_axis_if_most_calls_have_no_time():
    told = found([*GOOD[:50], *(untimed(number) for number in range(600))])
    assert (told.timed, told.unit, told.start, told.end, told.off_axis) == (
        False,
        "line",
        0.0,
        599.0,
        50,
    )
    assert (
        notes(told)[0]
        == "Most calls have no time: lines stand for them, and durations are unknown."
    )


@pytest.mark.parametrize(
    "parts",
    [
        [GOOD, [timed(START - 30 * DAY + number) for number in range(200)]],
        [GOOD, [timed(START - 0.5 * DAY)]],
        [[timed(START)] * 20, [timed(START + 7200)]],
    ],
)
def test_two_trainings_in_one_log_and_a_call_of_its_own_stay_on_the_axis(parts):
    told = found([one for part in parts for one in part])
    assert told.off_axis == 0
    assert told.start == min(one.began for part in parts for one in part)


def test_durations_stand_in_the_row_in_which_their_calls_are_counted():
    """Calls of a minute, in batches that begin a hundred seconds apart: each begins in another
    stretch than it ends."""
    batches = [START + 100 * (number // 50) + number % 50 / 100 for number in range(200)]
    rows = found(timed(began, 60.0) for began in batches).over_time
    assert sum(row.calls for row in rows) == 200
    assert [row.p50 is not None for row in rows] == [row.calls > 0 for row in rows]
    assert all(row.p95 == pytest.approx(60, rel=0.03) for row in rows if row.calls)


@pytest.mark.parametrize("odd", [0, 60])
def test_a_single_odd_duration_is_not_a_change(odd):
    told = found(timed(START + number / 10, 0.0 if number == odd else 0.1) for number in range(200))
    assert told.turns == []


@pytest.mark.parametrize("until_recovery", [("unreachable", 0.01), ("ok", 0.3)], ids=lambda e: e[0])
def test_a_recovery_is_not_told_as_calls_that_took_longer(
    until_recovery: tuple[str, float],
) -> None:
    """Calls that fail at once end, and the others take as long as ever. Calls that succeed and
    take longer from then on are told."""

    def calls() -> Iterable[Call]:
        for number in range(1000):
            outcome, seconds = until_recovery if number < 500 else ("ok", 1.0)
            yield call_at("c", START + number, seconds, "client", outcome)

    turns = [(turn.what, turn.worse) for turn in found(calls()).turns]
    assert turns == [
        ("failed", False) if until_recovery[0] == "unreachable" else ("duration", True)
    ]


def test_one_sandbox_is_never_a_suspect():
    told = found(
        call("server", attempt_at(START + number, 1.0, "s", 500, "sandbox_error"))
        for number in range(100)
    )
    assert told.suspect == ""
    assert told.read == [], "a server does not know what the model read"


@pytest.mark.parametrize(
    ("record", "unit", "shown"),
    [
        (call_at("c", START, 1.0, "client", "ok"), "unix", "2025-11-15 09:46:40 UTC"),
        (call_at("c", 12.0, 1.0, "client", "ok"), "seconds", "12.0 s"),
        (call_at("c", 12.0, None, "dump", "ok", timed=False), "step", "step 12"),
        (call_at("", 12.0, None, "access", None, timed=False), "line", "line 12"),
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
    def records() -> Iterable[Call]:
        for number in range(600):
            at = START + number
            outcomes = ["unreachable", "ok"] if number >= 300 else ["ok"]
            attempts = tuple(
                attempt_at(at + place, 0.1, "s", 200, outcome)
                for place, outcome in enumerate(outcomes)
            )
            yield call_at("c", at, 0.1, "client", "ok", attempts=attempts)

    (turn,) = found(records()).turns
    assert (turn.what, turn.worse, turn.mostly) == ("attempts", True, "unreachable")
    assert turn.after == pytest.approx(0.5, abs=0.02)
    assert turn.at - START == pytest.approx(300, abs=5)


@pytest.mark.parametrize(
    ("kind", "what", "mostly", "said"),
    [
        (
            "program_error",
            "programs",
            "program_error",
            "more programs failed: 100.0% program_error instead of",
        ),
        (
            "program_timeout",
            "programs",
            "program_timeout",
            "more programs failed: 100.0% program_timeout instead of",
        ),
        ("cancelled", "cancelled", "", "more calls were cancelled: 100.0% instead of"),
    ],
)
def test_a_wave_of_any_outcome_is_told_without_counting_as_failed(kind, what, mostly, said):
    told = found(
        call("client", attempt_at(START + number, 1.0, "s", 200, kind if number >= 300 else "ok"))
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
        call("client", attempt_at(START + number, 1.0, "s", 200, outcome))
        for number, outcome in enumerate(outcomes)
    )
    assert [turn.what for turn in told.turns] == ["failed"]


def ended(at: float, *outcomes: str) -> Call:
    attempts = [attempt_at(START + at, 0.1, "s1", 200, outcome) for outcome in outcomes]
    return call_at("c", START + at, 1.0, "client", attempts[-1].outcome, attempts=attempts)


@pytest.mark.parametrize(
    ("attempts", "counted"),
    [
        (["unreachable", "transport_timeout", "sandbox_error"], 1),
        (["throttled", "unreachable", "unreachable", "unreachable"], 1),
        (["unreachable", "unreachable"], 0),
        (["throttled"] * 4, 0),
        (["throttled", "throttled", "unreachable"], 0),
    ],
)
def test_a_program_is_suspected_by_failures_that_it_can_cause(attempts, counted):
    healthy = [ended(number, "ok") for number in range(20)]
    told = found([*healthy, ended(10, *attempts)])
    assert told.losing == counted
    assert ("1 call lost every attempt" in " ".join(notes(told))) == bool(counted)
