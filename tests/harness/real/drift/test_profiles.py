"""The fake in this process compared with fakes in other processes, of the same and of another
profile."""

from __future__ import annotations

import asyncio

import pytest

from sfusion.harness.real.drift.command import BASELINES
from sfusion.harness.real.drift.judging import (
    DriftReport,
    ServerAnswers,
    compare_answers,
    fake_answers,
    live_answers,
    profile_of,
    recorded_answers,
)
from sfusion.harness.real.probes.cassette import read_recording
from sfusion.harness.real.probes.model import Probe, bundled_probes, chosen
from tests.harness.real.drift.served import served
from tests.patience import PATIENCE

pytestmark = pytest.mark.xdist_group("drift between processes")

QUICK = chosen(bundled_probes(), quick=True)
LIGHT = chosen(
    QUICK,
    keyword="http/ or wire/ or validation/ or datasets/ or files/ or stdin/ or memory/ "
    "or languages/bash",
)
SAMPLE = [*LIGHT, *[probe for probe in QUICK if probe.id not in {one.id for one in LIGHT}][1::4]]
"""All that profiles are about, and every fourth probe of the rest."""

LIKE_THE_REAL_ONE = ("--allow-host", "probe", "--allow-origin", "http://browser.test")
RAN_ANYWAY = {
    "body.status",
    "body.run_result.return_code",
    "body.run_result.stdout",
    "body.run_result.stderr",
}
COULD_NOT_RUN = RAN_ANYWAY | {
    "body.message",
    "body.run_result.status",
    "body.run_result.execution_time",
}
DIFFERENT = {
    # The published image ignores memory limits ...
    "memory/over-limit": RAN_ANYWAY,
    "memory/over-limit-caught": {"body.run_result.stdout"},
    "memory/limit-seen": {"body.run_result.stdout"},
    "memory/limit-in-bash": {"body.run_result.stdout"},
    # ... because it does not know the field ...
    "validation/all-wrong": {"body.detail"},
    "validation/memory-fraction": {"status"},
    "validation/memory-null": {"status"},
    "validation/memory-word": {"status"},
    "wire/memory-enormous": COULD_NOT_RUN,
    "wire/memory-true": {"body.run_result.stderr"},
    # ... and fails on any error with standard input.
    "stdin/unread-burst": COULD_NOT_RUN,
    "stdin/surrogate": COULD_NOT_RUN,
}


@pytest.fixture(scope="module")
def here() -> ServerAnswers:
    """The whole quick suite, answered by the fake of 2026-07 in this process."""
    return asyncio.run(fake_answers(QUICK, timeout=PATIENCE))


@pytest.fixture(scope="module")
def before() -> ServerAnswers:
    """The sample, answered by the fake of 2025-06 in another process."""
    with served("--executor", "python", "--profile", "2025-06", *LIKE_THE_REAL_ONE) as url:
        return asyncio.run(live_answers(url, SAMPLE, name="2025-06", timeout=PATIENCE))


def test_the_fake_answers_as_servers_built_from_the_public_source(
    here: ServerAnswers, before: ServerAnswers
) -> None:
    newest = _against("source-2026-07-14", QUICK, here)
    assert [finding for finding in newest.findings if finding.grade != "variable"] == []
    assert newest.compared >= 350

    image = _against("source-2025-06-10", SAMPLE, before)
    assert [finding for finding in image.findings if finding.grade != "variable"] == []
    assert image.compared >= 200


def _against(baseline: str, probes: list[Probe], fake: ServerAnswers) -> DriftReport:
    recorded = recorded_answers(read_recording(BASELINES[baseline]), probes, name=baseline)
    return compare_answers(probes, fake, recorded)


def test_profiles_differ_exactly_where_documented(
    here: ServerAnswers, before: ServerAnswers
) -> None:
    report = compare_answers(SAMPLE, here, before)
    found: dict[str, set[str]] = {}
    for finding in report.findings:
        found.setdefault(finding.difference.probe, set()).add(finding.difference.place)
    assert found == DIFFERENT
    assert {finding.grade for finding in report.findings} == {"breaking"}
    # A server of ours refuses other host names than its own.
    refused = {"wire/host-twice", "wire/host-with-path"}
    assert {name for name, _ in report.not_comparable} == refused
    assert (profile_of(here.answers), profile_of(before.answers)) == ("2026-07", "2025-06")


def test_the_same_profile_in_another_process_does_not_differ(here: ServerAnswers) -> None:
    told_apart = [
        probe for probe in LIGHT if probe.id in DIFFERENT
    ]  # the others do not differ between profiles either
    with served("--executor", "python", *LIKE_THE_REAL_ONE) as url:
        there = asyncio.run(live_answers(url, told_apart, name="the same", timeout=PATIENCE))
    report = compare_answers(told_apart, here, there)
    assert report.findings == ()
    assert report.compared == len(DIFFERENT)


def test_every_probe_of_the_quick_suite_is_answered(here: ServerAnswers) -> None:
    assert [name for name, answer in here.answers.items() if answer.failure] == []


def test_with_a_fake_that_runs_no_code_programs_are_not_comparable() -> None:
    some = chosen(QUICK, keyword="http/ or datasets/")
    scripted = asyncio.run(fake_answers(some, executor="scripted", timeout=PATIENCE))
    ran = [probe.id for probe in some if probe.runs and scripted.answers[probe.id].status == 200]
    assert ran
    report = compare_answers(some, scripted, ServerAnswers("other", scripted.answers))
    assert report.not_comparable == tuple(
        (name, "the fake runs no code with executor scripted") for name in ran
    )


def test_no_profile_is_guessed_without_evidence() -> None:
    assert profile_of({}) is None
