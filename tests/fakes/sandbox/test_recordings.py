"""Replay of the real server's recorded answers about HTTP and invalid requests: the fake gives the
same ones."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sfusion.fakes.sandbox import FakeSandbox
from tests.cases import every
from tests.fakes.sandbox.recordings import Recording, differences, recordings, replay

KNOWN_DIFFERENCES: dict[str, str] = {}
"""Records of these groups that the fake answers differently, with the reason. There are none."""

# What the programs in these recordings print; the wire is tested here, not the running of programs.
PROGRAMS = [
    {"pattern": r"print\(1\)", "prints": "1\n"},
    {"pattern": r"print\(2\)", "prints": "2\n"},
]


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    # Refusing web pages is a deliberate difference; what follows is compared.
    with FakeSandbox(scripts=PROGRAMS, allow_origins=["*"]) as sandbox:
        yield sandbox.url


@every(recordings("http", "validation"), lambda one: one.name)
def test_answers_match_the_recordings_of_the_real_server(recording: Recording, url: str) -> None:
    found = differences(recording, replay(url, recording))
    if recording.name in KNOWN_DIFFERENCES:
        assert found, f"{recording.name} is the same now: take it off the list of known differences"
    else:
        assert not found


def test_comparison_notices_a_changed_key_order() -> None:
    recording = next(one for one in recordings("http") if one.id == "run_code_query")
    response = recording.response
    body = dict(reversed(response["json"].items()))
    assert differences(recording, response) == []
    assert differences(recording, {**response, "json": body})


def test_comparison_distinguishes_true_from_1() -> None:
    recording = next(one for one in recordings("validation") if one.id == "json_true")
    answer = {
        **recording.response,
        "json": {"detail": [{**recording.response["json"]["detail"][0], "input": 1}]},
    }
    assert differences(recording, answer) == ["body.detail[0].input: True became 1"]
