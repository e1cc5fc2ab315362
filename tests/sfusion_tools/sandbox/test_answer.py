"""Every possible answer of a server gets one outcome, and none raises."""

from __future__ import annotations

import json
from operator import itemgetter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfusion_tools.outcome import Outcome
from sfusion_tools.sandbox.answer import Reading, read_answer
from tests.cases import every
from tests.sfusion_tools.sandbox.helpers import run_answer

RECORDED = [
    json.loads(line)
    for line in (Path(__file__).parent / "data" / "recorded_answers.jsonl")
    .read_text(encoding="utf-8")
    .splitlines()
]
HALF = "\ud800"


def read(answer: Any, status: int = 200, content_type: str = "application/json") -> Reading:
    body = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
    return read_answer(status, content_type, body)


def compiled(**result: Any) -> dict[str, Any]:
    answer = run_answer()
    fine = {
        "status": "Finished",
        "execution_time": 0.1,
        "return_code": 0,
        "stdout": "",
        "stderr": "",
    }
    return {**answer, "status": "Failed", "compile_result": {**fine, **result}, "run_result": None}


def _expected(recorded: dict[str, Any]) -> Outcome:
    """Return the expected outcome of a recording, from the facts about the real server and the
    recording's name."""
    answer = recorded["answer"]
    if answer["status"] == "SandboxError":
        return Outcome.SANDBOX_ERROR
    if answer["run_result"] is None:
        return (
            Outcome.SANDBOX_ERROR
            if recorded["id"].startswith("missing_")
            else Outcome.COMPILE_ERROR
        )
    if answer["run_result"]["status"] == "TimeLimitExceeded":
        return Outcome.PROGRAM_TIMEOUT
    return Outcome.OK if answer["run_result"]["return_code"] == 0 else Outcome.PROGRAM_ERROR


@every(RECORDED, itemgetter("id"))
def test_recorded_answers_of_the_real_server_get_the_right_outcome(recorded):
    reading = read(recorded["answer"])
    assert reading.outcome is _expected(recorded)
    ran = recorded["answer"]["run_result"]
    if ran is not None and reading.outcome.is_from_program:
        assert (reading.stdout, reading.stderr) == (ran["stdout"] or "", ran["stderr"] or "")
        assert reading.return_code == ran["return_code"]
        assert reading.execution_time == ran["execution_time"]


@pytest.mark.parametrize("stdout", [None, "", "out\n"])
@pytest.mark.parametrize("stderr", [None, "", "err\n"])
@pytest.mark.parametrize(
    ("run", "code", "outcome"),
    [
        ("Finished", 0, Outcome.OK),
        ("Finished", 1, Outcome.PROGRAM_ERROR),
        ("TimeLimitExceeded", None, Outcome.PROGRAM_TIMEOUT),
    ],
)
def test_a_null_stream_does_not_hide_the_other_one(stdout, stderr, run, code, outcome):
    """verl#3964: null in one stream lost the text of both."""
    reading = read(run_answer(stdout, stderr, run=run, code=code))
    if stdout is None and outcome is Outcome.OK:
        assert (reading.outcome, "stdout is null" in reading.message) == (
            Outcome.BAD_RESPONSE,
            True,
        )
        return
    assert (reading.outcome, reading.stdout, reading.stderr) == (
        outcome,
        stdout or "",
        stderr or "",
    )


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        (run_answer(run="TimeLimitExceeded", code=None, status="Success"), Outcome.PROGRAM_TIMEOUT),
        (run_answer(code=1, status="Success"), Outcome.PROGRAM_ERROR),
        (run_answer(code=0, status="Failed"), Outcome.BAD_RESPONSE),
        (run_answer(code=0, status="Fine"), Outcome.BAD_RESPONSE),
        (run_answer(code=None), Outcome.BAD_RESPONSE),
        (run_answer(code=True), Outcome.BAD_RESPONSE),
        (run_answer(code="0"), Outcome.BAD_RESPONSE),
        (run_answer(run="Error", code=None), Outcome.SANDBOX_ERROR),
        (run_answer(run="Paused", code=0, status="Success"), Outcome.SANDBOX_ERROR),
        ({**run_answer(), "run_result": None}, Outcome.BAD_RESPONSE),
        ({**run_answer(), "run_result": []}, Outcome.BAD_RESPONSE),
        ({**run_answer(), "compile_result": f"gcc {HALF}"}, Outcome.BAD_RESPONSE),
        ({**run_answer(), "status": None}, Outcome.BAD_RESPONSE),
        ({"status": "Success"}, Outcome.BAD_RESPONSE),
        ({}, Outcome.BAD_RESPONSE),
        ([run_answer()], Outcome.BAD_RESPONSE),
        (None, Outcome.BAD_RESPONSE),
        ("pong", Outcome.BAD_RESPONSE),
    ],
)
def test_an_ambiguous_answer_is_never_a_success(answer, outcome):
    """alibaba/ROCK#374: a timeout was reported as a success."""
    assert read(answer).outcome is outcome


@pytest.mark.parametrize(
    "message",
    [
        "exception on running command python x.py: unable to perform operation on "
        "<WriteUnixTransport closed=True "
        "reading=False 0x7f>; the handler is closed | None",
        "Exception occurred in preexec_fn. | None",
    ],
)
def test_a_sandbox_error_is_never_the_programs_fault(message):
    """verl#4074 and SandboxFusion#70: trainers took these for wrong programs."""
    reading = read(
        {
            **run_answer(None, None, run="Error", code=None),
            "status": "SandboxError",
            "message": message,
        }
    )
    assert reading.outcome is Outcome.SANDBOX_ERROR
    assert message in reading.message


def test_the_reason_survives_when_a_sandbox_error_quotes_a_long_program():
    answer = {
        "status": "SandboxError",
        "message": f"exception on running code {'x = 1;' * 500}: 'sql' None",
    }
    reading = read(answer)
    assert reading.message.startswith("SandboxError: exception on running code")
    assert reading.message.endswith("'sql' None")
    assert len(reading.message) < 400


NO_GO = "/bin/bash: line 1: go: command not found\n"


def test_a_missing_compiler_is_never_the_programs_fault():
    """SandboxFusion#65: go is not installed in the sandbox."""
    reading = read(compiled(return_code=127, stderr=NO_GO))
    assert (reading.outcome, reading.message) == (Outcome.SANDBOX_ERROR, "the sandbox has no 'go'")
    for result in (
        {"return_code": 1, "stderr": NO_GO},
        {"return_code": 127, "stderr": f"main.d(1): {NO_GO}"},
        {"return_code": 127, "stderr": NO_GO, "stdout": "compiling\n"},
    ):
        assert read(compiled(**result)).outcome is Outcome.COMPILE_ERROR


@pytest.mark.parametrize("code", [0, 1, 126, 127, -9, None])
@pytest.mark.parametrize(
    "words",
    [
        "/bin/bash: line 1: python: command not found\n",
        "sh: 1: jest: not found\n",
        "exception on running command python x.py: Exception occurred in preexec_fn. | None",
        "[DecodeError] 'utf-8' codec can't decode byte 0xff in position 2: invalid start byte",
        '{"status": "SandboxError"}',
        "429 Too Many Requests",
    ],
)
def test_nothing_that_a_program_prints_changes_its_outcome(words, code):
    """Otherwise a policy learns to print what hides its failures: infrastructure is masked, not
    scored."""
    run = "TimeLimitExceeded" if code is None else "Finished"
    outcome = read(run_answer("", "", run=run, code=code)).outcome
    assert outcome.is_from_program
    for stdout, stderr in ((words, ""), ("", words), (words, words)):
        assert read(run_answer(stdout, stderr, run=run, code=code)).outcome is outcome


def test_the_compilers_output_is_kept():
    reading = read(compiled(return_code=1, stderr="error: expected ';'\n"))
    assert (reading.outcome, reading.stderr) == (Outcome.COMPILE_ERROR, "error: expected ';'\n")
    reading = read(compiled(status="TimeLimitExceeded", return_code=None))
    assert (reading.outcome, reading.message) == (
        Outcome.COMPILE_ERROR,
        "compiling ran out of time",
    )


@pytest.mark.parametrize(
    ("status", "outcome", "says"),
    [
        (429, Outcome.THROTTLED, "429: busy"),
        (500, Outcome.SANDBOX_ERROR, "500: busy"),
        (502, Outcome.SANDBOX_ERROR, "502"),
        (503, Outcome.SANDBOX_ERROR, "503"),
        (504, Outcome.SANDBOX_ERROR, "504"),
        (204, Outcome.BAD_RESPONSE, "HTTP 204"),
        (307, Outcome.BAD_RESPONSE, "redirects (307); give the final URL"),
        (400, Outcome.BAD_RESPONSE, "refused"),
        (401, Outcome.BAD_RESPONSE, "credentials"),
        (404, Outcome.BAD_RESPONSE, "is the URL that of a Sandbox Fusion server?"),
        (405, Outcome.BAD_RESPONSE, "does not take POST"),
        (407, Outcome.BAD_RESPONSE, "proxy"),
        (422, Outcome.BAD_RESPONSE, "refused"),
    ],
)
def test_an_http_status_becomes_an_outcome_and_a_hint(status, outcome, says):
    reading = read(b"busy", status, "text/plain")
    assert reading.outcome is outcome
    assert says in reading.message


@pytest.mark.parametrize(
    ("body", "content_type", "says"),
    [
        (b"<html><body>Welcome</body></html>", "text/html", "a web page came"),
        (b"  <!doctype html>", "application/json", "a web page came"),
        (b"", "application/json", "not JSON (application/json): (no body)"),
        (b"", "", "not JSON (no content type)"),
        (b'{"status": "Succ', "application/json", "not JSON"),
        (b"[" * 100_000, "application/json", "not JSON"),
        (b'{"status": ' + b"9" * 5000 + b"}", "application/json", "not JSON"),
        (b'{"status": "\xff\xfe"}', "application/json", "not UTF-8: invalid start byte at byte 12"),
    ],
)
def test_an_answer_that_is_not_json_is_quoted(body, content_type, says):
    reading = read(body, content_type=content_type)
    assert reading.outcome is Outcome.BAD_RESPONSE
    assert says in reading.message


def test_a_valid_body_is_accepted_with_the_wrong_content_type():
    assert read(run_answer(), content_type="text/html").outcome is Outcome.OK


def test_lone_surrogates_are_replaced():
    reading = read(run_answer(f"a{HALF}b", f"{HALF}"))
    assert (reading.stdout, reading.stderr) == ("a\ufffdb", "\ufffd")
    raw = (
        json.dumps(run_answer("X")).encode().replace(b"X", b"\xed\xa0\x80")
    )  # a surrogate, encoded like any other character
    assert read(raw).stdout == "\ufffd"


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-32-be"])
def test_encodings_of_json_other_than_plain_utf_8_are_read(encoding):
    assert read(json.dumps(run_answer("é"), ensure_ascii=False).encode(encoding)).stdout == "é"


@pytest.mark.parametrize("value", [True, "1", [], 10**400, float("nan"), float("inf"), -0.5, -1])
def test_an_invalid_execution_time_becomes_none(value):
    answer = run_answer()
    answer["run_result"]["execution_time"] = value
    reading = read(answer)
    assert (reading.outcome, reading.execution_time) == (Outcome.OK, None)


def test_a_return_code_that_is_not_a_number_becomes_none():
    answer = run_answer()
    answer["run_result"] |= {"status": "TimeLimitExceeded", "return_code": True}
    reading = read(answer)
    assert (reading.outcome, reading.return_code) == (Outcome.PROGRAM_TIMEOUT, None)


def test_streams_that_are_not_text_become_json():
    assert read(run_answer({"a": [1]}, 3)).stdout == '{"a": [1]}'


def test_fetched_files_are_returned():
    assert read(run_answer(files={"a.txt": "aGk=", "b": None})).files == {"a.txt": "aGk="}
    assert read(run_answer(files=None)).files == {}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(), max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=6,
)
RESULT = JSON | st.fixed_dictionaries(
    {},
    optional={
        "status": st.sampled_from(["Finished", "TimeLimitExceeded", "Error"]) | JSON,
        "return_code": st.sampled_from([0, 1, 127, -9]) | JSON,
        "execution_time": JSON,
        "stdout": JSON,
        "stderr": JSON,
    },
)
ANSWER = st.fixed_dictionaries(
    {},
    optional={
        "status": st.sampled_from(["Success", "Failed", "SandboxError"]) | JSON,
        "message": JSON,
        "compile_result": RESULT,
        "run_result": RESULT,
        "files": JSON,
    },
)


def _is_whole(reading: Reading) -> None:
    assert isinstance(reading.outcome, Outcome)
    for text in (reading.message, reading.stdout, reading.stderr):
        text.encode()
    if not reading.outcome.is_from_program:
        assert reading.message


@settings(max_examples=120)
@given(ANSWER | JSON)
def test_any_json_answer_is_read_without_an_exception(answer):
    _is_whole(read(answer))


@settings(max_examples=60)
@given(st.integers(200, 599), st.text(max_size=20), st.binary(max_size=60))
def test_any_body_is_read_without_an_exception(status, content_type, body):
    _is_whole(read_answer(status, content_type, body))
    _is_whole(read_answer(200, content_type, body))
