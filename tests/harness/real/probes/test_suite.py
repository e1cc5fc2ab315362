"""The bundled suite is complete and readable, and errors in probe files name their place."""

from __future__ import annotations

import pytest

from sfusion.harness.errors import BadProbes
from sfusion.harness.real.probes.model import bundled_probes, chosen
from sfusion.harness.real.probes.raw_http import Server, request_bytes

PROBES = bundled_probes()
GROUPS = {
    *("bodies", "datasets", "files", "http", "jupyter", "languages"),
    *("memory", "output", "results", "stdin", "timeouts", "validation", "wire"),
}


def test_there_are_at_least_150_probes_in_all_groups() -> None:
    assert len(PROBES) >= 150
    assert {probe.group for probe in PROBES} == GROUPS


def test_ids_and_requests_are_unique() -> None:
    assert len({probe.id for probe in PROBES}) == len(PROBES)
    asked = [(request_bytes(probe, Server("http", "server", 80)), probe.burst) for probe in PROBES]
    twice = [
        probe.id for number, probe in enumerate(PROBES) if asked.index(asked[number]) != number
    ]
    assert twice == []


def test_every_probe_has_its_own_sentence() -> None:
    sentences = [probe.about for probe in PROBES]
    assert len(set(sentences)) == len(sentences)
    assert all(len(sentence.split()) >= 4 for sentence in sentences), [
        sentence for sentence in sentences if len(sentence.split()) < 4
    ]


def test_probes_are_bounded_in_time_and_size() -> None:
    for probe in PROBES:
        fields = probe.request.body if probe.request is not None else None
        if isinstance(fields, dict) and isinstance(
            limit := fields.get("run_timeout", 0), float | int
        ):
            assert limit <= 10 or fields["code"] == "print(1)", probe.id
        if probe.request is not None:
            assert len(probe.request.content) <= 5_001_000, probe.id


def test_quick_skips_slow_probes() -> None:
    quick = chosen(PROBES, quick=True)
    assert 150 <= len(quick) < len(PROBES)
    assert not any(probe.slow for probe in quick)


def test_probes_are_chosen_by_part_of_their_id() -> None:
    assert {probe.group for probe in chosen(PROBES, keyword="stdin/ or memory/")} == {
        "stdin",
        "memory",
    }
    with pytest.raises(
        BadProbes, match=r"-k 'stdim' matches no probe; groups: bodies, .*validation"
    ):
        chosen(PROBES, keyword="stdim")
    with pytest.raises(BadProbes, match="no probe is left"):
        chosen(PROBES, keyword="jupyter/value", quick=True)
