"""For probes whose request was once recorded from the real server, the fake gives the same
answer."""

from __future__ import annotations

import asyncio
import json
from functools import cache
from typing import Any

import pytest

from sfusion.harness.real.drift.judging import ServerAnswers, compare_answers, fake_answers
from sfusion.harness.real.probes.cassette import probe_request_record, read_response
from sfusion.harness.real.probes.model import Probe, bundled_probes
from sfusion.harness.real.probes.raw_http import ProbeAnswer
from tests.fakes.sandbox.recordings import Recording, recordings
from tests.patience import PATIENCE

FILES = ("http", "run_code_languages", "run_code_python", "run_jupyter", "validation")


def key(request: dict[str, Any]) -> str:
    """Normalise a request for comparison."""
    headers = {name.lower(): value for name, value in (request.get("headers") or {}).items()}
    return json.dumps({**request, "headers": headers}, sort_keys=True)


@cache
def same() -> list[tuple[Probe, Recording]]:
    """Pair probes with recordings of the same request, except long answers, of which only
    digests were kept."""
    recorded = {
        key(one.request): one for one in recordings(*FILES) if "$elided" not in str(one.response)
    }
    pairs = [
        (probe, recorded.get(key(probe_request_record(probe))))
        for probe in bundled_probes()
        if not probe.slow
    ]
    return [(probe, recording) for probe, recording in pairs if recording is not None]


def test_enough_probes_have_a_recording() -> None:
    assert len(same()) >= 40


def test_the_fake_answers_like_the_recorded_server() -> None:
    probes = [probe for probe, _ in same()]
    golden: dict[str, ProbeAnswer] = {
        probe.id: read_response(recording.response) for probe, recording in same()
    }
    report = compare_answers(
        probes,
        asyncio.run(fake_answers(probes, timeout=PATIENCE)),
        ServerAnswers("recorded", golden),
    )
    assert [finding.difference for finding in report.findings] == []
    assert report.compared + len(report.not_comparable) == len(same())


@pytest.mark.parametrize("file", FILES)
def test_recordings_survive_a_round_trip(file: str) -> None:
    from sfusion.harness.real.probes.cassette import response_record

    for recording in recordings(file):
        if "json" in recording.response:
            assert (
                response_record(read_response(recording.response))["json"]
                == recording.response["json"]
            )
