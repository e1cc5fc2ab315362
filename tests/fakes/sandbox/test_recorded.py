"""The recorded executor: it replays a cassette of real answers."""

from __future__ import annotations

from pathlib import Path

import pytest

from sfusion.fakes.sandbox import Cassette, CassetteError, FakeSandbox
from sfusion.fakes.wire.message import json_line
from tests.fakes.sandbox.recordings import HERE, Recording, differences, recordings, replay
from tests.fakes.wire.raw import one, run_code

SERVED = [
    recording
    for recording in recordings("run_code_python", "run_code_languages", "run_jupyter")
    if "$elided" not in str(recording.response)
]


def test_cassette_replays_the_recorded_answers() -> None:
    unlike = []
    for file in ("run_code_python", "run_code_languages", "run_jupyter"):
        cassette = Cassette.load(HERE / f"{file}.jsonl")
        with FakeSandbox(executor="recorded", cassette=cassette) as sandbox:
            unlike += [one.name for one in _of(file) if differences(one, replay(sandbox.url, one))]
    assert unlike == []


def _of(file: str) -> list[Recording]:
    """The records that a cassette can hold, without requests that got different answers."""
    seen: dict[str, int] = {}
    records = [
        one
        for one in recordings(file)
        if "json" in one.request and "$elided" not in str(one.response)
    ]
    for record in records:
        seen[str(record.request)] = seen.get(str(record.request), 0) + 1
    return [one for one in records if seen[str(one.request)] == 1 and one.response["status"] == 200]


def _record(stdout: str) -> dict[str, object]:
    result = {
        "status": "Finished",
        "execution_time": 0.1,
        "return_code": 0,
        "stdout": stdout,
        "stderr": "",
    }
    body = {
        "status": "Success",
        "message": "",
        "compile_result": None,
        "run_result": result,
        "executor_pod_name": None,
        "files": {},
    }
    request = {
        "method": "POST",
        "path": "/run_code",
        "json": {"code": "roll()", "language": "python"},
    }
    return {"request": request, "response": {"status": 200, "json": body}}


async def test_repeated_request_is_answered_in_the_recorded_order(tmp_path: Path) -> None:
    (tmp_path / "dice.jsonl").write_text(
        json_line(_record("1")) + json_line(_record("2")), encoding="utf-8"
    )
    async with FakeSandbox(executor="recorded", cassette=tmp_path / "dice.jsonl") as sandbox:
        # Defaults may be written out or left out: the request is the same.
        requests = [
            run_code("roll()"),
            run_code("roll()", run_timeout=10, files={}),
            run_code("roll()"),
        ]
        outputs = [
            (await one(sandbox.port, request)).json["run_result"]["stdout"] for request in requests
        ]
    assert outputs == ["1", "2", "2"]


async def test_unrecorded_request_gets_an_error_that_names_the_nearest_recording(
    tmp_path: Path,
) -> None:
    (tmp_path / "dice.jsonl").write_text(json_line(_record("1")), encoding="utf-8")
    async with FakeSandbox(executor="recorded", cassette=tmp_path / "dice.jsonl") as sandbox:
        answer = await one(sandbox.port, run_code("roll()", run_timeout=3))
    assert answer.json["status"] == "SandboxError"
    assert answer.json["message"].endswith("the closest recording differs in run_timeout")


def test_invalid_cassette_is_refused_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "bad.jsonl").write_text('\n{"request": 1}\n')
    with pytest.raises(
        CassetteError, match=r"bad\.jsonl, line 2: expected an object with request and response"
    ):
        Cassette.load(tmp_path / "bad.jsonl")
    with pytest.raises(CassetteError, match="cannot be read"):
        Cassette.load(tmp_path / "none.jsonl")
