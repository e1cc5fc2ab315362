"""The real server's recorded answers, replayed: what it said about HTTP and about wrong requests, the fake says too."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sfusion.fakes.sandbox import FakeSandbox
from tests.fakes.sandbox.recordings import Recording, differences, recordings, replay

KNOWN_DIFFERENCES: dict[str, str] = {}
"""Records of these groups that the fake answers otherwise, with the reason. There are none."""

# What the programs in these recordings print; the wire is tested here, not the running of programs.
PROGRAMS = [
    {"pattern": r"print\(1\)", "prints": "1\n"},
    {"pattern": r"print\(2\)", "prints": "2\n"},
]


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with FakeSandbox(scripts=PROGRAMS) as sandbox:
        yield sandbox.url


@pytest.mark.parametrize("recording", list(recordings("http", "validation")), ids=lambda one: one.name)
def test_answers_what_the_real_server_answered(recording: Recording, url: str) -> None:
    found = differences(recording, replay(url, recording))
    if recording.name in KNOWN_DIFFERENCES:
        assert found, f"{recording.name} is the same now: take it off the list of known differences"
    else:
        assert not found


def test_the_comparer_sees_a_changed_key_order() -> None:
    recording = next(one for one in recordings("http") if one.id == "run_code_query")
    response = recording.response
    body = dict(reversed(response["json"].items()))
    assert differences(recording, response) == []
    assert differences(recording, {**response, "json": body})


def test_the_comparer_tells_true_from_one() -> None:
    recording = next(one for one in recordings("validation") if one.id == "json_true")
    answer = {**recording.response, "json": {"detail": [{**recording.response["json"]["detail"][0], "input": 1}]}}
    assert differences(recording, answer) == ["body.detail[0].input: True became 1"]
