"""Rollout dumps as call records: the outcome of each call, from the requests or from what the model
read."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from sfusion.harness.core.dumps.tool_texts import outcome_of_text
from sfusion.harness.core.logs.reading import read_records
from sfusion_tools.outcome import Outcome
from sfusion_tools.sandbox.result import CallResult
from sfusion_tools.sandbox.text import model_text


@pytest.mark.parametrize("outcome", Outcome)
def test_the_text_of_our_tool_tells_the_outcome(outcome):
    result = CallResult("c", outcome, "why", stdout="42\n", return_code=1)
    if outcome is Outcome.COMPILE_ERROR:
        result.message = "missing ;"
    assert outcome_of_text(model_text(result, "code_interpreter", timeout=5, limit=1000)) == outcome


def test_the_texts_of_verl_tell_less():
    assert outcome_of_text("no stdout here") is None
    assert outcome_of_text("Error when executing tool: timeout") == "sandbox_error"
    assert outcome_of_text("Traceback (most recent call last):\n  ...") == "program_error"


def test_the_requests_beside_a_dump_are_counted(tmp_path):
    (tmp_path / "requests").mkdir()
    for step in (1, 2):
        (tmp_path / f"{step}.jsonl").write_text(
            json.dumps({"input": "q", "output": "a", "score": 1, "step": step}) + "\n"
        )
        request = {
            "request_id": f"r{step}",
            "outcomes": {"ok": 2, "throttled": step},
            "refused": {"not_json": 1},
        }
        (tmp_path / "requests" / f"{step}.jsonl").write_text(json.dumps(request) + "\n")
    records = list(read_records([tmp_path]))
    assert Counter((one.began, one.outcome, one.problem) for one in records) == {
        (1.0, "ok", None): 2,
        (1.0, "throttled", None): 1,
        (1.0, "bad_arguments", "not_json"): 1,
        (2.0, "ok", None): 2,
        (2.0, "throttled", None): 2,
        (2.0, "bad_arguments", "not_json"): 1,
    }
    assert {(one.source, one.timed, one.seconds) for one in records} == {("dump", False, None)}


@pytest.mark.parametrize(
    "output",
    [
        (
            "user\n<tool_response>\n42\n</tool_response>\n<tool_response>\nno stdout "
            "here\n</tool_response>\n"
        ),
        "assistant\ncall\ntool\n42\ntool\nno stdout here\nassistant\nfine",
        (
            "call<|im_end|>\n<|im_start|>tool\n42<|im_end|>\n<|im_start|>tool\nno stdout "
            "here<|im_end|>\n"
        ),
    ],
)
def test_without_requests_the_texts_have_to_do(tmp_path, output):
    path = tmp_path / "step-17.jsonl"
    path.write_text(json.dumps({"input": "q", "output": output, "score": 0}) + "\n")
    assert [(one.began, one.outcome) for one in read_records([path])] == [
        (17.0, "ok"),
        (17.0, None),
    ]


def test_hostile_counts_are_bounded(tmp_path):
    path = tmp_path / "1.jsonl"
    outcomes = {"ok": 10**12, "fine": 1, "throttled": -5, "bad_response": True, "unreachable": "7"}
    path.write_text(json.dumps({"request_id": "r", "outcomes": outcomes}) + "\n")
    assert Counter(one.outcome for one in read_records([path])) == {"ok": 10_000, None: 1}


def test_a_dump_without_calls_is_a_log_without_calls(tmp_path):
    path = tmp_path / "1.jsonl"
    path.write_text(json.dumps({"input": "q", "output": "the answer is 42", "score": 1}) + "\n")
    assert list(read_records([path])) == []
