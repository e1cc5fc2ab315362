"""Output of long-running commands, on a terminal and in a build log."""

from __future__ import annotations

import io
import re

import pytest

from sfusion.harness.terminal import ProgressReporter, printable


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_build_log_has_no_escape_codes_even_if_colours_are_forced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    out = io.StringIO()
    with ProgressReporter(out, 2, "working") as reporter:
        reporter.progress(1, "beside the bar", line="one of two")
        reporter.progress(2, "beside the bar")
        reporter.print("done", "bold red")
    assert out.getvalue() == "one of two\ndone\n"


def test_a_bar_never_says_more_than_all() -> None:
    out = Terminal()
    with ProgressReporter(out, 6, "hunting (seconds)") as reporter:
        reporter.progress(15, "0 findings")
    assert "6/6" in out.getvalue()
    assert "15/6" not in out.getvalue()


def test_a_terminal_has_a_bar_that_disappears_at_the_end() -> None:
    out = Terminal()
    with ProgressReporter(out, 2, "working") as reporter:
        reporter.progress(1, "[note]", line="only in a build log")
        reporter.print("done", "bold red")
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", out.getvalue())
    assert "working" in text
    assert "1/2" in text
    assert "[note]" in text
    assert "only in a build log" not in text
    assert "\x1b[1;31mdone" in out.getvalue()
    assert out.getvalue().endswith("\x1b[2K")


def test_tables_in_a_build_log_are_aligned_and_never_wrapped() -> None:
    out = io.StringIO()
    ProgressReporter(out, 0, "").table(
        [("held", "x" * 300, "7"), ("broken", "y", "11")], ("", "name", "calls")
    )
    head, first, second = out.getvalue().splitlines()
    assert first == f"held    {'x' * 300}      7"
    assert second == f"broken  {'y':<300}     11"
    assert head == f"        {'name':<300}  calls"


def test_a_table_that_is_wider_than_columns_is_wrapped_to_fit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    out = io.StringIO()
    ProgressReporter(out, 0, "").table([("held", "x" * 60, "7")], ("", "name", "calls"))
    assert max(map(len, out.getvalue().splitlines())) <= 40
    assert out.getvalue().count("x") == 60


@pytest.mark.parametrize(("columns", "widest"), [("36", 36), ("20", 33)])
def test_numbers_of_a_narrow_table_are_never_cut(
    monkeypatch: pytest.MonkeyPatch, columns: str, widest: int
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    out = io.StringIO()
    row = ("0.2 s", "throttled", "100.0%", "0.203 s")
    ProgressReporter(out, 0, "").table([row], ("from", "mostly", "attempts failed", "p50"), texts=1)
    *_, last = out.getvalue().splitlines()
    assert last.split() == " ".join(row).split()
    assert max(map(len, out.getvalue().splitlines())) <= widest


def test_wide_characters_take_two_columns_of_a_table() -> None:
    out = io.StringIO()
    ProgressReporter(out, 0, "").table([("运行了", "7"), ("held", "8")])
    assert out.getvalue() == "运行了  7\nheld    8\n"


@pytest.mark.parametrize("out", [io.StringIO(), Terminal()], ids=["build log", "terminal"])
def test_control_characters_are_spelled_out(out: io.StringIO) -> None:
    reporter = ProgressReporter(out, 1, "")
    reporter.print("\x1b]0;owned\x07 [bold]x[/bold]\r\n")
    reporter.table([("\x1b[2J", "\x07")])
    assert r"\x1b]0;owned\x07 [bold]x[/bold]\r\n" in out.getvalue()
    assert "\x07" not in out.getvalue()
    assert "\x1b]" not in out.getvalue()
    assert "\x1b[2J" not in out.getvalue()


def test_characters_that_the_stream_cannot_encode_are_replaced() -> None:
    raw = io.BytesIO()
    out = io.TextIOWrapper(raw, encoding="ascii")
    ProgressReporter(out, 1, "").print("ü \ud83d")
    out.flush()
    assert raw.getvalue() == b"? \\ud83d\n"


def test_printable_keeps_letters_of_any_language() -> None:
    assert printable("Grüße 你好\tx") == "Grüße 你好\\tx"
