"""Where a probe asks what the real server was once asked, the fake answers what it answered."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from sfusion.harness.drift import ServerAnswers, fake_answers, judge
from sfusion.harness.probes import Probe, ProbeAnswer, bundled_probes
from sfusion.harness.probes.cassette import read_response, request_record
from tests.fakes.sandbox.recordings import Recording, recordings

FILES = ("http", "run_code_languages", "run_code_python", "run_jupyter", "validation")


def key(request: dict[str, Any]) -> str:
    """What was asked, however it is written down."""
    headers = {name.lower(): value for name, value in (request.get("headers") or {}).items()}
    return json.dumps({**request, "headers": headers}, sort_keys=True)


def same() -> list[tuple[Probe, Recording]]:
    """Probes with the recording of the same request; of long answers only digests were kept."""
    recorded = {key(one.request): one for one in recordings(*FILES) if "$elided" not in str(one.response)}
    pairs = [(probe, recorded.get(key(request_record(probe)))) for probe in bundled_probes() if not probe.slow]
    return [(probe, recording) for probe, recording in pairs if recording is not None]


SAME = same()


def test_enough_probes_ask_what_the_real_server_was_asked() -> None:
    assert len(SAME) >= 40


def test_the_fake_answers_them_as_the_real_server_did() -> None:
    probes = [probe for probe, _ in SAME]
    golden: dict[str, ProbeAnswer] = {probe.id: read_response(recording.response) for probe, recording in SAME}
    report = judge(probes, asyncio.run(fake_answers(probes)), ServerAnswers("recorded", golden))
    assert [finding.difference for finding in report.findings] == []
    assert report.compared + len(report.not_comparable) == len(SAME)


@pytest.mark.parametrize("file", FILES)
def test_recordings_of_the_real_server_are_read_and_written_without_loss(file: str) -> None:
    from sfusion.harness.probes.cassette import response_record

    for recording in recordings(file):
        if "json" in recording.response:
            assert response_record(read_response(recording.response))["json"] == recording.response["json"]
