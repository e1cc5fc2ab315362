"""The output of ``sfusion run`` on a terminal and in a build log."""

from __future__ import annotations

import io
import re

import pytest

from sfusion.harness.core.journal import Event
from sfusion.harness.core.verdict import Verdict
from sfusion.harness.reports import RunReport, RunReporter
from sfusion.harness.reports.files import github_annotations
from tests.harness.reports.synthetic import broken_run, held_run

RUNS = [broken_run(60), held_run(10)]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def shown(out: io.StringIO, runs: list[RunReport], *, verbose: bool = True) -> str:
    with RunReporter(out, len(runs), verbose=verbose) as reporter:
        for run in runs:
            reporter.run_ended(run)
        reporter.finish(runs, " 2 skipped (not written for world sim).")
    return out.getvalue()


def test_a_build_log_gets_plain_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("CLICOLOR_FORCE", "1")
    text = shown(io.StringIO(), RUNS)
    assert text.isprintable() or set(re.findall(r"[^ -~…]", text)) == {"\n"}
    first, second, empty, head, *_ = text.splitlines()
    assert first == "[1/2] broken  throttled-gateway[nodes=2,limit=10]"
    assert second == "[2/2] held    single-node"
    assert (empty, head.split()) == ("", ["scenario", "promises", "calls", "time", "took"])
    assert text.endswith(
        "2 runs: 1 broke a promise, 1 held. 2 skipped (not written for world sim).\n"
    )


def test_runs_that_held_are_only_counted_unless_asked_for() -> None:
    text = shown(io.StringIO(), RUNS, verbose=False)
    assert "[1/2] broken  throttled-gateway" in text
    assert "single-node" not in text
    assert shown(io.StringIO(), RUNS[1:], verbose=False).startswith("1 run: every promise held.")


def test_github_gets_an_annotation_for_each_promise_that_did_not_hold() -> None:
    verdicts = [
        Verdict("p", "broken", "50%: a,\nb"),
        Verdict("q", "unknown", "why"),
        Verdict("r", "held", ""),
    ]
    assert github_annotations([RunReport("s", verdicts, cell="x=1,y=2")]) == (
        "::error title=s[x=1%2Cy=2] p::50%25: a,%0Ab\n::warning title=s[x=1%2Cy=2] q::why\n"
    )


def test_broken_and_unknown_promises_follow_the_table_with_the_replay_command() -> None:
    text = shown(io.StringIO(), RUNS)
    below = text[text.index("held ") :]
    assert "  broken: every_call_ends_once: 12 of 60 calls never ended" in below
    assert "  unknown: no_duplicate_execution: " in below
    assert "  sfusion replay runs/throttled-gateway" in below
    assert "no_permit_leaked" not in below


def test_a_death_of_the_limiter_that_nobody_asked_for_is_named_before_what_it_caused() -> None:
    died: Event = {"at": 3.5, "source": "world", "event": "limiter_died", "life": 1}
    killed: Event = {"at": 3.4, "source": "world", "event": "killed", "target": "limiter"}
    verdict = Verdict("no_permit_leaked", "broken", "one was lost")
    text = shown(io.StringIO(), [RunReport("s", [verdict], events=[died])])
    assert "the limiter died at 3.5 s, which no event of the scenario asked for" in text
    assert text.index("the limiter died") < text.index("one was lost")
    assert "limiter died" not in shown(
        io.StringIO(), [RunReport("s", [verdict], events=[killed, died])]
    )


def test_a_terminal_gets_a_bar_and_colours() -> None:
    text = shown(Terminal(), RUNS)
    assert "running scenarios" in text
    assert "\x1b[" in text
    assert "broken: every_call_ends_once: 12 of 60" in re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)


@pytest.mark.parametrize("out", [io.StringIO(), Terminal()])
def test_printed_text_cannot_control_the_terminal(out: io.StringIO) -> None:
    evil = "\x1b]0;owned\x07 [bold]x[/bold] \r\nnext"
    text = shown(out, [RunReport("s", [Verdict("p", "broken", evil)])])
    assert "\x07" not in text
    assert "]0;owned" in text
    assert "\x1b]" not in text
    assert "[bold]x[/bold]" in text


def test_characters_that_the_stream_cannot_encode_are_replaced() -> None:
    raw = io.BytesIO()
    out = io.TextIOWrapper(raw, encoding="ascii")
    RunReporter(out, 1).finish([RunReport("s", [Verdict("p", "broken", "half \ud83d and ü")])])
    assert rb"half \ud83d and ?" in raw.getvalue()


def test_a_run_of_many_events_says_how_many_it_played_per_second() -> None:
    event = {"at": 0.0, "source": "world", "event": "called"}
    runs = [RunReport("s", [Verdict("p", "held", "")], events=[event] * 6000)] * 2
    clock = iter([100.0, 104.0])
    out = io.StringIO()
    RunReporter(out, 2, lambda: next(clock)).finish(runs)
    assert "12,000 events in 4 s, 3,000 events per second\n" in out.getvalue()
    assert "per second" not in shown(io.StringIO(), RUNS)
