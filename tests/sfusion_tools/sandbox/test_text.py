"""What the model reads: the program's output, or a message that cannot be mistaken for it."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfusion_tools.outcome import Outcome
from sfusion_tools.output_sizes import PIPE_BYTES
from sfusion_tools.record import Attempt
from sfusion_tools.sandbox.result import CallResult
from sfusion_tools.sandbox.text import cut_middle, model_text, plain


def attempt(status: int | None = 200, *, ran: bool = True) -> Attempt:
    return Attempt(1, "http://10.0.0.5:8080", Outcome.OK, status, "", ran, 0.0, 0.1)


def text_of(
    outcome: Outcome, message: str = "", *, limit: int = 20_000, note: str = "", **result: Any
) -> str:
    return model_text(
        CallResult("c", outcome, message, **result),
        "code_interpreter",
        timeout=30.0,
        limit=limit,
        note=note,
    )


@pytest.mark.parametrize(
    ("stdout", "stderr", "text"),
    [
        ("3\n", "", "3\n"),
        ("", "warning\n", "warning\n"),
        ("3\n", "warning\n", "3\nwarning\n"),
        ("3", "warning", "3\nwarning"),
        ("", "", ""),
    ],
)
def test_the_model_reads_stdout_and_stderr(stdout, stderr, text):
    assert text_of(Outcome.OK, stdout=stdout, stderr=stderr) == text


def test_the_model_reads_the_output_of_a_failing_program():
    trace = 'Traceback (most recent call last):\n  File "x.py", line 1\nValueError: bad\n'
    text = text_of(Outcome.PROGRAM_ERROR, stdout="so far\n", stderr=trace, return_code=1)
    # Also beside a traceback: a program that succeeded may have logged one.
    assert text == f"so far\n{trace}[The program exited with code 1.]"


@pytest.mark.parametrize(
    ("code", "says"),
    [
        (3, "[The program exited with code 3.]"),
        (-9, "[The program was ended by signal 9.]"),
        (None, "[The program exited with code 1.]"),
    ],
)
def test_a_failure_without_output_shows_the_exit_code_or_signal(code, says):
    assert text_of(Outcome.PROGRAM_ERROR, stdout="out", return_code=code) == f"out\n{says}"
    assert text_of(Outcome.PROGRAM_ERROR, stderr="\x1b[31m\x1b[0m", return_code=code) == says


def test_a_timeout_keeps_the_partial_output_and_names_the_limit():
    text = text_of(Outcome.PROGRAM_TIMEOUT, stdout="step 1\nstep 2\n")
    assert text == (
        "step 1\nstep 2\n[The program timed out after 30 s; the output above is what it "
        "printed until then.]"
    )
    assert (
        text_of(Outcome.PROGRAM_TIMEOUT)
        == "[The program timed out after 30 s; it had printed nothing.]"
    )


def test_a_timeout_for_printing_too_much_is_not_blamed_on_slow_code():
    """SandboxFusion#62: the pipe is not drained, so a large print blocks until the time limit."""
    text = text_of(Outcome.PROGRAM_TIMEOUT, stdout="x" * PIPE_BYTES)
    assert "219,264 bytes" in text
    assert "probably blocked on its output, not slow" in text


def test_output_as_long_as_the_sandboxs_cut_is_marked():
    """SandboxFusion#62: output is cut silently, also in the middle of text that is not ASCII."""
    for letter in ("x", "世"):
        full = letter * (PIPE_BYTES // len(letter.encode()))
        for stream in ("stdout", "stderr"):
            marked = text_of(Outcome.OK, **{stream: full})
            assert marked.endswith("[The sandbox may have cut the output at 219,264 bytes.]")
            assert "may have cut" not in text_of(Outcome.OK, **{stream: full[:-1]})


def test_the_model_reads_the_compilers_output():
    text = text_of(Outcome.COMPILE_ERROR, stderr="main.cpp:1: error\n")
    assert text == "main.cpp:1: error\n[The program did not compile.]"
    text = text_of(Outcome.COMPILE_ERROR, "compiling ran out of time")
    assert text == "[The program did not compile: compiling ran out of time.]"


@pytest.mark.parametrize("outcome", [o for o in Outcome if o.is_infrastructure])
def test_an_infrastructure_failure_cannot_be_mistaken_for_output(outcome):
    text = text_of(
        outcome, "no connection to http://10.0.0.5:8080: refused <html>", stdout="", attempts=[]
    )
    assert text.startswith(
        "[code_interpreter] This is not output of a program: the sandbox failed, not your code"
    )
    assert outcome.value in text
    assert text.endswith("The code did not run.")
    assert len(text) < 200
    assert "\n" not in text
    assert "10.0.0.5" not in text
    assert "html" not in text


def test_the_message_says_when_the_code_may_have_run():
    text = text_of(
        Outcome.TRANSPORT_TIMEOUT, "no complete answer within 40 s", attempts=[attempt(None)]
    )
    assert text.endswith("The code may have run, but its output is lost.")


def test_the_message_of_a_sandbox_error_reaches_the_model():
    text = text_of(Outcome.SANDBOX_ERROR, "the sandbox has no 'go'", attempts=[attempt()])
    assert "(sandbox_error: it failed by itself, the sandbox has no 'go')" in text
    text = text_of(
        Outcome.SANDBOX_ERROR,
        "the sandbox answered 502: <html>nginx</html>",
        attempts=[attempt(502)],
    )
    assert "nginx" not in text
    text = text_of(Outcome.SANDBOX_ERROR, "x" * 5000 + "\n\x1b[31m", attempts=[attempt()])
    assert len(text) < 500
    assert "\x1b" not in text


def test_refused_arguments_are_reported_as_such():
    text = text_of(Outcome.BAD_ARGUMENTS, "`code` is missing")
    assert text == "[code_interpreter] The call was refused and nothing was run: `code` is missing"


def test_a_remark_is_on_its_own_line():
    assert text_of(Outcome.OK, stdout="3", note="\n[lowered]") == "3\n[lowered]"
    assert text_of(Outcome.OK, stdout="3\n", note="\n[lowered]") == "3\n[lowered]"
    assert text_of(Outcome.OK, note="\n[lowered]") == "[lowered]"


@pytest.mark.parametrize(
    ("printed", "read"),
    [
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b[1;38;5;196mred\x1b[m!", "red!"),
        ("a\x1b[2K\x1b[1Gb", "ab"),
        ("\x1b]0;title\x07text", "text"),
        ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1b(Btext\x1b7\x1b8", "text"),
        ("\x9b31mred", "red"),
        ("cut off \x1b[3", "cut off "),
        ("cut off \x1b", "cut off "),
        ("bell\x07 null\x00 back\x08", "bell null back"),
        ("tab\tline\r\nkept", "tab\tline\r\nkept"),
        ("[31m is text", "[31m is text"),
    ],
)
def test_terminal_codes_are_stripped(printed, read):
    """cline/cline#13346: coloured tracebacks, cursor moves, an escape cut by truncation."""
    assert plain(printed) == read
    assert text_of(Outcome.OK, stdout=printed) == read


def test_an_unclosed_terminal_string_does_not_swallow_the_output():
    assert plain("\x1b]0;title\nthe answer is 42\n") == "\nthe answer is 42\n"
    assert plain("\x1bP" * 3 + "\nthe answer") == "\nthe answer"


@settings(max_examples=80)
@given(st.text(st.sampled_from("ab\n\x1b[]0;31mP\x07\\\x9b \t")))
def test_no_escape_is_left_and_no_line_is_lost(text):
    assert not re.search(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]", plain(text))
    assert plain(text).count("\n") == text.count("\n")


def test_long_output_is_cut_in_the_middle_with_a_marker():
    text = text_of(Outcome.OK, stdout="begin " + "x" * 100_000 + " end\n", limit=1000)
    assert text.startswith("begin xxx")
    assert text.endswith("xxx end\n")
    assert "characters cut …]" in text
    assert len(text) <= 1000


def test_the_end_of_a_traceback_survives_long_output():
    text = text_of(
        Outcome.PROGRAM_ERROR,
        stdout="x" * 50_000,
        stderr="ValueError: bad\n",
        return_code=1,
        limit=500,
    )
    assert text.endswith("ValueError: bad\n[The program exited with code 1.]")


@settings(max_examples=80)
@given(st.integers(0, 30_000), st.integers(1, 3000))
def test_the_marker_counts_the_missing_characters_exactly(length, limit):
    text = "".join(chr(0x4E00 + n % 5000) for n in range(length))
    cut = cut_middle(text, limit)
    if length <= limit:
        assert cut == text
        return
    head, marker, tail = re.split(r"(\n\[… [0-9,]+ characters cut …\]\n)", cut)
    gone = int(re.sub(r"\D", "", marker))
    assert len(head) + len(tail) + gone == length
    assert text.startswith(head)
    assert text.endswith(tail)
    assert 0 <= len(head) - len(tail) <= 1
    assert len(cut) <= max(limit, len(marker))
