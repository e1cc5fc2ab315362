"""What the model and the trainer get for every outcome of a call."""

from __future__ import annotations

import pytest

from sfusion.fakes.sandbox import FakeSandbox
from tests.ports import closed_port
from tests.sfusion_tools.sandbox.helpers import in_virtual_time
from tests.sfusion_tools.sandbox.tools import ask, make, printing


async def test_the_model_reads_what_its_program_printed():
    async with FakeSandbox() as sandbox:
        text, metrics = await ask(make(sandbox), printing("3\n"))
    assert text == "3\n"
    assert (metrics["outcome"], metrics["infrastructure"], metrics["message"]) == ("ok", False, "")
    assert (metrics["attempts"], metrics["possible_executions"], metrics["attempt_outcomes"]) == (
        1,
        1,
        ["ok"],
    )
    assert (metrics["return_code"], metrics["http_status"], metrics["backoff_s"]) == (0, 200, 0.0)
    assert metrics["total_s"] >= metrics["request_s"] > 0


TABLE = {
    "429": ({"what": {"status": 429}}, "throttled", 6, "too busy"),
    "500": ({"what": {"status": 500}}, "sandbox_error", 6, "failed by itself"),
    "503": ({"what": {"status": 503}}, "sandbox_error", 6, "failed by itself"),
    "504": ({"what": {"status": 504}}, "sandbox_error", 6, "failed by itself"),
    "reset": ({"what": "reset"}, "unreachable", 6, "could not be reached"),
    "malformed body": (
        {"what": {"malformed": "json"}},
        "bad_response",
        6,
        "could not be understood",
    ),
    "SandboxError": ({"what": {"sandbox_error": "no memory"}}, "sandbox_error", 6, "no memory"),
}


@pytest.mark.parametrize("name", TABLE)
async def test_no_failure_of_the_sandbox_looks_like_output(name):
    """verl defect (b): the model read ``no stdout here`` for all of these, and the trainer learned
    nothing."""
    fault, outcome, attempts, says = TABLE[name]
    async with FakeSandbox(faults=[fault]) as sandbox:
        text, metrics = await ask(make(sandbox), printing("3\n"))
    assert text.startswith(
        "[code_interpreter] This is not output of a program: the sandbox failed, not your code ("
    )
    assert says in text
    assert "no stdout here" not in text
    assert (metrics["outcome"], metrics["infrastructure"], metrics["attempts"]) == (
        outcome,
        True,
        attempts,
    )
    assert metrics["message"]


async def test_the_model_reads_that_the_sandbox_could_not_be_reached():
    """verl showed ``no stdout here``."""
    text, metrics = await ask(make(f"http://127.0.0.1:{closed_port()}"), printing("3\n"))
    assert "could not be reached" in text
    assert text.endswith("The code did not run.")
    assert (metrics["outcome"], metrics["possible_executions"], metrics["http_status"]) == (
        "unreachable",
        0,
        None,
    )


def test_the_model_reads_that_the_sandbox_did_not_answer_in_time():
    """SandboxFusion#67; verl waited 70.8 s and showed ``no stdout here``."""

    async def go() -> None:
        async with FakeSandbox(faults=[{"what": "hang"}]) as sandbox:
            text, metrics = await ask(make(sandbox, call_deadline=50), printing("3\n"))
        assert "did not answer in time" in text
        assert text.endswith("The code may have run, but its output is lost.")
        assert metrics["outcome"] == "transport_timeout"
        assert metrics["total_s"] == pytest.approx(50.0, abs=0.01)
        assert metrics["total_s"] == pytest.approx(
            metrics["request_s"] + metrics["backoff_s"], abs=0.01
        )

    in_virtual_time(go)


def test_a_program_that_runs_too_long_keeps_its_partial_output():
    """verl dropped the output of a program that timed out."""

    async def go() -> None:
        async with FakeSandbox() as sandbox:
            arguments = {**printing("never", seconds="100", early="step 1\n"), "timeout": 5}
            text, metrics = await ask(make(sandbox), arguments)
        assert text == (
            "step 1\n[The program timed out after 5 s; the output above is what it printed "
            "until then.]"
        )
        assert (metrics["outcome"], metrics["infrastructure"], metrics["attempts"]) == (
            "program_timeout",
            False,
            1,
        )

    in_virtual_time(go)


@pytest.mark.parametrize(("stream", "exit"), [("stdout", 1), ("stderr", 0)])
async def test_a_null_stream_does_not_empty_the_message(stream, exit):
    """In verl, a null stdout or stderr gave an empty message."""
    async with FakeSandbox(
        faults=[{"what": {"output": {"what": "null", "stream": stream}}}]
    ) as sandbox:
        text, metrics = await ask(make(sandbox), printing("out\n", errors="err\n", exit=exit))
    left = "err\n" if stream == "stdout" else "out\n"
    assert text == left + "[The program exited with code 1.]" * bool(exit)
    assert metrics["outcome"] == ("program_error" if exit else "ok")


async def test_lost_stdout_of_a_program_that_ended_well_is_fetched_again_or_reported():
    lost = {"what": {"output": {"what": "null", "stream": "stdout"}}}
    async with FakeSandbox(faults=[{**lost, "first_attempts": 1}]) as sandbox:
        text, metrics = await ask(make(sandbox), printing("out\n"))
    assert (text, metrics["attempt_outcomes"]) == ("out\n", ["bad_response", "ok"])
    async with FakeSandbox(faults=[lost]) as sandbox:
        text, metrics = await ask(make(sandbox), printing("out\n"))
    assert text.endswith("could not be understood). The code may have run, but its output is lost.")
    assert (metrics["infrastructure"], metrics["attempts"]) == (True, 6)


async def test_the_model_reads_the_traceback_of_its_program():
    async with FakeSandbox() as sandbox:
        text, metrics = await ask(make(sandbox), printing("so far\n", raises="ValueError: bad"))
    assert text.startswith("so far\n")
    assert "ValueError: bad" in text
    assert (metrics["outcome"], metrics["infrastructure"], metrics["return_code"]) == (
        "program_error",
        False,
        1,
    )


async def test_transient_failures_are_invisible_to_the_model():
    """verl defect (g): a 503 was final."""
    async with FakeSandbox(faults=[{"first_attempts": 2, "what": {"status": 503}}]) as sandbox:
        text, metrics = await ask(make(sandbox), printing("3\n"))
    assert text == "3\n"
    assert metrics["attempt_outcomes"] == ["sandbox_error", "sandbox_error", "ok"]
    assert metrics["backoff_s"] > 0


@pytest.mark.parametrize("allowed", [True, False])
async def test_retry_may_have_run_decides_whether_code_may_run_twice(allowed):
    fault = {"first": 1, "phase": "after", "what": {"status": 504}}
    async with FakeSandbox(faults=[fault]) as sandbox:
        _, metrics = await ask(make(sandbox, retry_may_have_run=allowed), printing("3\n"))
        ran = sandbox.ledger.started
    assert ran == metrics["possible_executions"] == (2 if allowed else 1)
    assert metrics["outcome"] == ("ok" if allowed else "sandbox_error")


@pytest.mark.parametrize(
    "arguments",
    [
        None,
        [],
        [{"code": "1"}],
        "print(1)",
        '{"code": "print(1)"}',
        3,
        {},
        {"cmd": "1"},
        {"code": None},
        {"code": 5},
        {"code": ["1"]},
        {"code": ""},
        {"code": "\ud800"},
        {"code": "1", "timeout": "abc"},
        {"code": "1", "timeout": -1},
        {"code": "1", "timeout": []},
        {"code": "1", "language": "python3"},
        {"code": "1", "language": "scala"},
        {"code": "1", "language": ["python"]},
    ],
)
async def test_bad_arguments_get_a_message_and_send_nothing(arguments):
    async with FakeSandbox() as sandbox:
        text, metrics = await ask(make(sandbox), arguments)
        assert sandbox.ledger.arrived == 0
    assert text.startswith("[code_interpreter] The call was refused and nothing was run: ")
    assert (metrics["outcome"], metrics["infrastructure"], metrics["attempts"]) == (
        "bad_arguments",
        False,
        0,
    )


async def test_the_models_timeout_is_capped():
    async with FakeSandbox() as sandbox:
        tool = make(sandbox, max_timeout=45, on_event=None)
        text, metrics = await ask(tool, {**printing("3\n"), "timeout": 10**9})
    assert text == "3\n[`timeout` 1000000000 was lowered to 45 s, the most allowed here.]"
    assert metrics["outcome"] == "ok"


async def test_long_output_is_cut_at_max_output_chars():
    async with FakeSandbox() as sandbox:
        text, _ = await ask(make(sandbox, max_output_chars=100), printing("x" * 5000))
    assert len(text) <= 100
    assert "characters cut" in text


async def test_terminal_colours_are_stripped():
    async with FakeSandbox() as sandbox:
        text, _ = await ask(make(sandbox), printing("\x1b[31mred\x1b[0m\n"))
    assert text == "red\n"
