"""Validation as in FastAPI 0.103 with pydantic 2.6, on bodies whose results were recorded with
these versions."""

from __future__ import annotations

import json
from http.client import HTTPConnection
from operator import itemgetter
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from hypothesis import given, settings
from hypothesis import strategies as st

from sfusion.fakes.sandbox import FakeSandbox
from sfusion.fakes.sandbox import protocol as known
from sfusion.fakes.sandbox.body import check_body, deeper_than
from sfusion.fakes.sandbox.fake import no_dataset
from sfusion.fakes.wire import Answer
from sfusion.fakes.wire.app import Refused
from tests.cases import every
from tests.patience import PATIENCE

JUDGED = [
    json.loads(line)
    for line in (Path(__file__).parent / "data" / "fastapi_validation.jsonl")
    .read_text()
    .splitlines()
]
MODELS = {
    "/run_code": known.RunCodeRequest,
    "/run_jupyter": known.RunJupyterRequest,
    "/get_prompts": known.GetPromptsRequest,
    "/list_ids": known.GetPromptsRequest,
    "/get_prompt_by_id": known.GetPromptByIdRequest,
    "/submit": known.SubmitRequest,
    "/get_metrics_function": known.GetMetricsFunctionRequest,
}


def judge(path: str, body: bytes, content_type: str | None) -> dict[str, Any] | Answer:
    """The fields, or the answer that refuses the body."""
    try:
        fields = check_body(body, content_type, MODELS[path])
    except Refused as unusable:
        return unusable.answer
    return fields if path.startswith("/run") else no_dataset(fields)


@every(JUDGED, itemgetter("body"))
def test_validation_matches_fastapi_and_pydantic(case: dict[str, Any]) -> None:
    got = judge(case["path"], case["body"].encode("latin-1"), case["content_type"])
    if case["status"] == 200:
        assert isinstance(got, dict)
        # Defaults are written as ints there, and mean the same.
        assert {name: _same(repr(value)) for name, value in got.items()} == {
            name: _same(value) for name, value in case["fields"].items()
        }
        return
    assert isinstance(got, Answer)
    assert got.status == case["status"]
    if case["status"] == 500:
        assert json.loads(got.body)["detail"] == case["detail"]
    else:
        assert got.body.decode() == case["answer"]


def test_a_comma_before_a_bracket_is_refused_as_on_the_python_of_the_real_server() -> None:
    # 3.13 points at the comma and calls it illegal; the real server runs on 3.10 or 3.11.
    refused = {
        b'{"code": 1,}': [11, "Expecting property name enclosed in double quotes"],
        b'{"code": {"a": "\xc3\xa9", \r\n\t } }': [
            24,
            "Expecting property name enclosed in double quotes",
        ],
        b"[1,\n ]": [5, "Expecting value"],
        b"[[1, ], ]": [5, "Expecting value"],
        b"[1, \xc2\xa0]": [4, "Expecting value"],
        b"[,]": [1, "Expecting value"],
    }
    for body, found in refused.items():
        got = judge("/run_code", body, None)
        assert isinstance(got, Answer)
        (problem,) = json.loads(got.body)["detail"]
        assert [problem["loc"][1], problem["ctx"]["error"]] == found, body


def _same(text: str) -> str:
    return text.removesuffix(".0")


def test_every_language_of_the_real_server_is_accepted() -> None:
    for language in known.LANGUAGES:
        assert known.RunCodeRequest.model_validate({"code": "", "language": language})


def test_defaults_are_not_shared_between_requests() -> None:
    body = b'{"code": "", "language": "python"}'
    check_body(body, None, known.RunCodeRequest)["files"]["a"] = "b"
    assert check_body(body, None, known.RunCodeRequest)["files"] == {}


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=8,
)


@settings(max_examples=25)
@given(st.dictionaries(st.sampled_from([*known.RunCodeRequest.model_fields, "other"]), json_values))
def test_validation_never_crashes_on_json(fields: dict[str, Any]) -> None:
    got = judge("/run_code", json.dumps(fields).encode(), "application/json")
    assert isinstance(got, dict) or got.status in (400, 422, 500)


@settings(max_examples=25)
@given(st.binary(max_size=60), st.none() | st.text(st.characters(codec="latin-1"), max_size=30))
def test_validation_never_crashes_on_bytes(body: bytes, content_type: str | None) -> None:
    got = judge(
        "/run_code",
        body,
        content_type.replace("\n", "").replace("\r", "") if content_type else None,
    )
    assert isinstance(got, Answer)
    assert got.status in (400, 422, 500)


def test_depth_ignores_brackets_in_strings() -> None:
    assert not deeper_than(b'{"a": "' + b"[" * 500 + b'\\""}', 400)
    assert deeper_than(b"[" * 401, 400)


def test_the_published_image_does_not_know_the_memory_limit() -> None:
    """The field came some days after it: any value was accepted, and none was used."""
    for profile, status in (("2025-06", 200), ("2026-07", 422)):
        with FakeSandbox(profile=profile, executor="scripted") as sandbox:
            connection = HTTPConnection(urlsplit(sandbox.url).netloc, timeout=PATIENCE)
            for path, fields in (
                ("/run_code", {"code": "", "language": "python"}),
                ("/run_jupyter", {"cells": []}),
            ):
                connection.request("POST", path, json.dumps({**fields, "memory_limit_MB": ["any"]}))
                answer = connection.getresponse()
                assert (answer.status, bool(answer.read())) == (status, True)
            connection.request("GET", "/openapi.json")
            assert (b"memory_limit_MB" in connection.getresponse().read()) == (status == 422)
            connection.close()
