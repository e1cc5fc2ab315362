"""Reports: colours only on a terminal, and no text of a server can break out of its place."""

from __future__ import annotations

import io
import json

import pytest

from sfusion.harness.real.drift.command import as_data, print_report, probe_progress
from sfusion.harness.real.drift.judging import DriftReport, ServerAnswers, compare_answers
from sfusion.harness.real.probes.model import Probe, ProbeRequest
from sfusion.harness.real.probes.raw_http import ProbeAnswer

EVIL = "\x1b[31m| `` `x` <b> \n# heading \r [bold]y[/bold]"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def report(count: int = 1) -> DriftReport:
    probes = [
        Probe(
            id=f"evil/{n}",
            about="Any question will do.",
            request=ProbeRequest(),
            needs=("cc",) if n else (),
        )
        for n in range(count)
    ]
    left = {
        probe.id: ProbeAnswer(200, (), json.dumps({"run_result": {"stdout": EVIL}}).encode())
        for probe in probes
    }
    right = {
        probe.id: ProbeAnswer(200, (), json.dumps({"run_result": {"stdout": "other"}}).encode())
        for probe in probes
    }
    return compare_answers(
        probes, ServerAnswers("fake", left), ServerAnswers("real", right), notes=["a note"]
    )


def test_a_terminal_gets_colours_but_no_escape_codes_of_the_server() -> None:
    out = Terminal()
    print_report(report(), out)
    output = out.getvalue()
    assert "\x1b[1;31mbreaking\x1b[0m" in output
    assert "\x1b[31m|" not in output
    assert "[bold]y" in output.replace("\n", "") or "[bold" in output
    assert "1 breaking, 0 visible, 0 cosmetic" in output


def test_other_outputs_get_plain_lines() -> None:
    out = io.StringIO()
    print_report(report(), out)
    output = out.getvalue()
    assert "\x1b" not in output
    assert output.startswith("fake against real\na note\n\ngrade ")
    assert all(line.isprintable() for line in output.splitlines())


def test_characters_outside_the_encoding_are_replaced() -> None:
    raw = io.BytesIO()
    out = io.TextIOWrapper(raw, encoding="ascii")
    print_report(report(), out)
    assert raw.getvalue().isascii()
    out.close()


def test_long_tables_are_cut_with_a_note() -> None:
    out = io.StringIO()
    print_report(report(250), out)
    assert "... and 50 more; --json FILE has all of them" in out.getvalue()
    assert len(as_data(report(250))["differences"]) == 250


def test_progress_is_a_bar_on_a_terminal_and_a_few_lines_otherwise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    probe = Probe(id="a/b", about="Any question will do.", request=ProbeRequest())
    shown: list[str] = []
    for stream in (Terminal(), io.StringIO()):
        monkeypatch.setattr("sys.stderr", stream)
        with probe_progress("asking [x]", 23) as advance:
            for _ in range(23):
                advance(probe)
        shown.append(stream.getvalue())
    assert "\x1b" in shown[0]
    assert "23/23" in shown[0]
    assert shown[1].splitlines()[-1] == "asking [x]: 23 of 23 probes"
    assert len(shown[1].splitlines()) == 5


def test_probes_are_not_compared_if_only_one_side_lacks_what_they_need() -> None:
    probe = Probe(
        id="languages/c", about="A program in C is run.", request=ProbeRequest(), needs=("cc",)
    )
    with_cc, without = (
        ProbeAnswer(200, (), json.dumps({"run_result": {"stderr": text}}).encode())
        for text in ("", "sh: cc: not found")
    )

    def compared(left: ProbeAnswer, right: ProbeAnswer) -> DriftReport:
        sides = (ServerAnswers("a", {probe.id: left}), ServerAnswers("b", {probe.id: right}))
        return compare_answers([probe], *sides)

    assert compared(without, with_cc).not_comparable == ((probe.id, "a has no cc"),)
    assert compared(with_cc, without).not_comparable == ((probe.id, "b has no cc"),)
    both = compared(without, without)
    assert (both.compared, both.not_comparable) == (1, ())
