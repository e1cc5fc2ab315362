"""The text that the model reads after a call.

It is the program's output, or a message that cannot be mistaken for it.
"""

from __future__ import annotations

import re

from sfusion_tools.outcome import Outcome
from sfusion_tools.output_sizes import FULL_PIPE_BYTES, PIPE_BYTES
from sfusion_tools.sandbox.result import CallResult

_ESCAPES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # colours, cursor moves
    # titles, links, other strings; an unclosed one ends with its line
    r"|\x1b[\]PX^_][^\x07\x1b\n]*(?:\x07|\x1b\\)?"
    r"|\x1b\[[0-?]*[ -/]*$"  # a sequence cut off at the end
    r"|\x1b[ -/]*[0-~]?"
    r"|\x9b[0-?]*[ -/]*[@-~]?"
)
_LONG = FULL_PIPE_BYTES // 4
"""A text of fewer characters is far from any limit in bytes."""

# How messages begin; rollout dumps hold nothing else about a call, so ``sfusion look`` finds it by
# these.
REFUSED = "The call was refused and nothing was run: "
FAILED = "This is not output of a program: the sandbox failed, not your code ("
STOPPED = "[The program was stopped after "
TIMED_OUT = "[The program timed out after "
NOT_COMPILED = "[The program did not compile"
SIGNALLED = "[The program was ended by signal "
EXITED = "[The program exited with code "

_LONGEST_MESSAGE = 300
"""Characters of a message of the sandbox that the model reads. Chosen: a sentence or two."""

_CONTROLS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")


def plain(text: str) -> str:
    """Remove terminal escapes and control characters, which only cost tokens."""
    if "\x1b" in text or "\x9b" in text:
        text = _ESCAPES.sub("", text)
    return text if text.isprintable() else _CONTROLS.sub("", text)


def cut_middle(text: str, limit: int) -> str:
    """Cut to at most ``limit`` characters: head and tail, with a marker that counts the rest."""
    if len(text) <= limit:
        return text
    # The marker takes room too; assume its longest form.
    keep = max(0, limit - len(_marker(len(text))))
    head = (keep + 1) // 2
    return text[:head] + _marker(len(text) - keep) + text[len(text) - (keep - head) :]


def _marker(gone: int) -> str:
    return f"\n[… {gone:,} characters cut …]\n"


def model_text(result: CallResult, tool: str, *, timeout: float, limit: int, note: str = "") -> str:
    """Return the text for one call, with at most about ``limit`` characters of program output."""
    if not result.outcome.is_from_program:
        return f"{_failure(result, tool)}{note}"
    stdout = plain(result.stdout)
    stderr = plain(result.stderr) if result.stderr else ""
    separator = "\n" if stdout and stderr and not stdout.endswith("\n") else ""
    output = stdout + separator + stderr
    if len(output) > limit:
        output = cut_middle(output, limit)
    remark = note
    if (
        result.outcome is not Outcome.OK
        or len(result.stdout) >= _LONG
        or len(result.stderr) >= _LONG
    ):
        remark = _remark(result, timeout, printed=bool(output)) + note
    if not remark:
        return output
    if output and not output.endswith("\n"):
        output += "\n"
    return output + remark.lstrip()


def _remark(result: CallResult, timeout: float, *, printed: bool) -> str:
    size = max(len(result.stdout), len(result.stderr))
    if size >= _LONG:
        size = max(len(text.encode("utf-8", "replace")) for text in (result.stdout, result.stderr))
    if result.outcome is Outcome.PROGRAM_TIMEOUT:
        if size >= FULL_PIPE_BYTES:
            return (
                f"{STOPPED}{timeout:g} s. It had printed {size:,} bytes, more than the sandbox "
                "reads while a program runs: it was probably blocked on its output, not slow.]"
            )
        kept = "it had printed nothing"
        if printed:
            kept = "the output above is what it printed until then"
        return f"{TIMED_OUT}{timeout:g} s; {kept}.]"
    if result.outcome is Outcome.COMPILE_ERROR:
        reason = f": {result.message}" if result.message else ""
        return f"{NOT_COMPILED}{reason}.]"
    if result.outcome is Outcome.PROGRAM_ERROR:
        code = result.return_code if result.return_code is not None else 1
        return f"{SIGNALLED}{-code}.]" if code < 0 else f"{EXITED}{code}.]"
    if size == PIPE_BYTES:
        return f"[The sandbox may have cut the output at {PIPE_BYTES:,} bytes.]"
    return ""


_FAILURES = {
    Outcome.THROTTLED: "it is too busy",
    Outcome.SANDBOX_ERROR: "it failed by itself",
    Outcome.UNREACHABLE: "it could not be reached",
    Outcome.TRANSPORT_TIMEOUT: "it did not answer in time",
    Outcome.BAD_RESPONSE: "its answer could not be understood",
    Outcome.CANCELLED: "the call was broken off",
}


def _failure(result: CallResult, tool: str) -> str:
    if result.outcome is Outcome.BAD_ARGUMENTS:
        return f"[{tool}] {REFUSED}{_short(result.message)}"
    ran = "The code did not run."
    if result.possible_executions:
        ran = "The code may have run, but its output is lost."
    why = f"{result.outcome.value}: {_FAILURES[result.outcome]}"
    # Addresses and gateway messages belong in the log. A sandbox's own message may help the model
    # change its call.
    last = result.attempts[-1] if result.attempts else None
    if result.outcome is Outcome.SANDBOX_ERROR and last is not None and last.status == 200:
        why = f"{why}, {_short(result.message)}"
    if result.out_of_time is not None:
        why = f"{why}; a call may take {result.out_of_time:g} s"
    return f"[{tool}] {FAILED}{why}). {ran}"


def _short(message: str) -> str:
    text = plain(" ".join(message.split()))
    if len(text) <= _LONGEST_MESSAGE:
        return text
    return f"{text[: _LONGEST_MESSAGE - 1]}…"
