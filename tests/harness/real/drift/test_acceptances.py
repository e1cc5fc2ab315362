"""Known differences: accepted with a reason, reported when they are gone, refused without a reason."""

from __future__ import annotations

from pathlib import Path

import pytest

from sfusion.harness.errors import BadProbes
from sfusion.harness.real.drift.comparing import Difference
from sfusion.harness.real.drift.judging import Acceptance, ServerAnswers, compare_answers, read_acceptances
from sfusion.harness.real.drift.reporting import drift_headline
from sfusion.harness.real.probes.model import Probe, ProbeRequest
from sfusion.harness.real.probes.raw_http import ProbeAnswer

PROBE = Probe(id="memory/limit", about="Any question will do.", request=ProbeRequest())
LEFT = ServerAnswers("fake", {PROBE.id: ProbeAnswer(200, (), b'{"status":"Failed","cells":[{"stdout":"a"}]}')})
RIGHT = ServerAnswers("real", {PROBE.id: ProbeAnswer(200, (), b'{"status":"Success","cells":[{"stdout":"b"}]}')})


def test_an_accepted_difference_does_not_count() -> None:
    accepted = [Acceptance(probe="memory/*", place="body.status", reason="the image ignores limits")]
    report = compare_answers([PROBE], LEFT, RIGHT, accepted)
    assert [finding.accepted for finding in report.findings] == ["the image ignores limits", None]
    assert [finding.difference.place for finding in report.open] == ["body.cells[0].stdout"]
    assert drift_headline(report).startswith(
        "1 breaking, 0 visible, 0 cosmetic, 1 accepted: differences in 1 of 1 probes"
    )
    everything = compare_answers([PROBE], LEFT, RIGHT, [Acceptance(probe="*", place="*", reason="looked at")])
    assert not everything.breaking


def test_an_acceptance_that_matches_nothing_is_reported() -> None:
    gone = Acceptance(probe="stdin/*", place="*", reason="it was once so")
    assert compare_answers([PROBE], LEFT, RIGHT, [gone]).unused == (gone,)


def test_square_brackets_in_a_place_are_indexes() -> None:
    difference = Difference("a/b", "body.cells[0].stdout", "text", "a", "b")
    assert Acceptance(probe="a/b", place="body.cells[0].*", reason="why not").covers(difference)
    assert Acceptance(probe="a/b", place="body.cells[*].stdout", reason="why not").covers(difference)
    assert not Acceptance(probe="a/b", place="body.cells[1].*", reason="why not").covers(difference)


def test_a_file_of_known_differences_is_read(tmp_path: Path) -> None:
    path = tmp_path / "known.yaml"
    path.write_text("- {probe: memory/*, place: body.status, reason: ignores limits}\n- {probe: a, reason: not ours}\n")
    first, second = read_acceptances(path)
    assert (first.probe, first.place, first.reason) == ("memory/*", "body.status", "ignores limits")
    assert (second.place, second.where) == ("*", f"{path}:2")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("probe: x\n", r"known\.yaml:1: expected a list such as"),
        ("- 5\n", r"known\.yaml:1: an entry must be a mapping"),
        ("- {probe: a, place: b}\n", r"known\.yaml:1: reason: Field required"),
        ("- {probe: a, reason: ''}\n", r"known\.yaml:1: reason: say in a few words"),
        ("\n- {probe: a, reason: not ours, palce: b}\n", r"known\.yaml:2: palce: did you mean 'place'"),
        ("[", r"not YAML"),
    ],
)
def test_errors_name_file_and_line(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "known.yaml"
    path.write_text(text)
    with pytest.raises(BadProbes, match=message):
        read_acceptances(path)
