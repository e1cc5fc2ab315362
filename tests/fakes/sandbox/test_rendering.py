"""Answers have every field, as the json module writes it."""

from __future__ import annotations

import json
from dataclasses import asdict

from hypothesis import given, settings
from hypothesis import strategies as st

from sfusion.fakes.sandbox.body import render
from sfusion.fakes.sandbox.protocol import CommandResult, RunCodeAnswer

texts = st.none() | st.text()
results = st.none() | st.builds(
    CommandResult,
    status=st.sampled_from(["Finished", "Error", "TimeLimitExceeded"]),
    execution_time=st.none() | st.floats(allow_nan=False, allow_infinity=False),
    return_code=st.none() | st.integers(-(2**40), 2**40),
    stdout=texts,
    stderr=texts,
)
answers = st.builds(
    RunCodeAnswer,
    status=st.sampled_from(["Success", "Failed", "SandboxError"]),
    message=st.text(),
    compile_result=results,
    run_result=results,
    executor_pod_name=texts,
    files=st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=3),
)


@settings(max_examples=25)
@given(answers)
def test_bytes_equal_those_of_the_json_module(answer: RunCodeAnswer) -> None:
    wanted = json.dumps(
        asdict(answer), ensure_ascii=False, allow_nan=False, separators=(",", ":")
    ).encode()
    assert render(answer).body == wanted


def test_unencodable_answer_gives_the_500_of_the_real_server() -> None:
    surrogate = render(RunCodeAnswer("SandboxError", "code \ud800"))
    endless = render(RunCodeAnswer("Success", "", None, CommandResult("Finished", float("inf"))))
    assert (surrogate.status, endless.status) == (500, 500)
    detail = "'utf-8' codec can't encode character '\\ud800' in position 41: surrogates not allowed"
    assert json.loads(surrogate.body)["detail"] == detail
    assert json.loads(endless.body)["detail"] == "Out of range float values are not JSON compliant"
