"""What a single call plays, sends and gets, in words: for a person who has not read the
scenario."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from sfusion_tools.wording import counted

from .calls import CallFacts
from .planned import FaultPart

_MOST = 2000
"""Characters of a text that a case keeps. Chosen: a page shows it, the journal has all of it."""
_LONGEST = 60
"""Characters of a text that a sentence shows. Chosen: the rest is in the case."""
_ANSWERS = {
    "reset": "the sandbox resets the connection",
    "close": "the sandbox closes the connection without an answer",
    "hang": "the sandbox never answers",
    "sandbox_error": "the sandbox answers SandboxError",
}
_SERVER_DOWN = "the sandbox is down"
_OK = 200
_LANGUAGES = {"python": "", "cpp": "C++ ", "go": "Go "}
_SHORT = 24
"""Characters of an output that is shown as it is. Chosen: a line with one word."""


@dataclass(frozen=True)
class PlayedCase:
    """A call as an example: what was played, what was sent, what came back."""

    call: str
    played: str
    sent: str
    returned: str
    """As a clause: ``returned 'x'``, ``raised KeyError: 'y'``, ``did not end``."""

    def as_dict(self) -> dict[str, str]:
        return asdict(self)

    @property
    def short(self) -> str:
        """Return it for the end of a sentence."""
        return f"played: {self.played}; {self.sent}; {shortened(self.returned)}"


def case_of(call: CallFacts) -> PlayedCase:
    return PlayedCase(call.name, played_in_words(call), _sent(call), _came_back(call))


def shortened(text: str, most: int = _LONGEST + 10) -> str:
    """Return the beginning of a text, and its end if it is long."""
    if len(text) <= most:
        return text
    return f"{text[: most * 2 // 3]} … {text[-most // 3 :]}"


# -- what was played --


_NO_COMPILER = 127
"""The exit code of a shell for a command that there is not."""


def played_in_words(call: CallFacts) -> str:
    """Say which program ran and what went wrong with its requests."""
    part = call.planned.part
    faults = [fault_in_words(fault) for fault in part.fault]
    faults += [fault_in_words(test.fault) for test in part.tests if test.fault is not None]
    if call.end == "not_run" and not faults:
        faults.append(_SERVER_DOWN)
    clauses = [_program(call), *dict.fromkeys(faults)]
    if part.cancel is not None:
        clauses.append("the call is cancelled")
    return ", ".join(clauses)


def way_of(call: CallFacts) -> str:
    """Return in which way the sandbox fails a call, whatever the call and however often."""
    ways = [_way(fault.what) for fault in call.planned.part.fault]
    return " and ".join(ways) or _SERVER_DOWN


def _way(what: Any) -> str:
    """Return what a fault does, whatever else its answer says."""
    if isinstance(what, Mapping) and "status" in what and what["status"] != _OK:
        return f"the sandbox answers {what['status']}"
    return _fault(what)


def fault_in_words(fault: FaultPart) -> str:
    """Say what a fault does, when, and how often."""
    words = _fault(fault.what)
    if fault.phase == "after":
        words += " after the program ran"
    if fault.first_attempts is not None:
        often = fault.first_attempts
        words += " once" if often == 1 else f" to the first {often} attempts"
    return words


def _fault(what: Any) -> str:
    if isinstance(what, str):
        return _ANSWERS.get(what, f"the sandbox has the fault {what}")
    if not isinstance(what, Mapping):
        return f"the sandbox has the fault {what!r:.60}"
    if "status" in what:
        return f"the sandbox answers {_answer(what)}"
    if "truncate" in what:
        return "the sandbox cuts its answer off"
    if "malformed" in what:
        return "the sandbox answers malformed JSON"
    if "sandbox_error" in what:
        return _ANSWERS["sandbox_error"]
    if "content_type" in what:
        return f"the sandbox answers with the content type {what['content_type']}"
    if "drip" in what:
        return "the answer arrives a few bytes at a time"
    return f"the sandbox has the fault {what!r:.60}"


def _answer(what: Mapping[str, Any]) -> str:
    body = what.get("body")
    if isinstance(body, Mapping) and "status" in body:
        compiled = body.get("compile_result") or {}
        is_missing = compiled.get("return_code") == _NO_COMPILER
        result = "a compiler that is missing" if is_missing else "a contradictory result"
        return f"{what['status']} with {result}"
    if isinstance(body, str) and body.startswith("<"):
        return f"{what['status']} with a page of HTML"
    if isinstance(body, str) and body.startswith("{") and '"' in body:
        return f"{what['status']} with an empty result"
    if "retry_after" in what:
        return f"{what['status']} with Retry-After {what['retry_after']:g}"
    if "retry_at" in what:
        return f"{what['status']} with a date as Retry-After"
    return str(what["status"])


_TESTS = {
    "pass": "passes",
    "fail": "fails",
    "more": "prints more than asked",
    "exits": "exits with an error",
    "stopped": "runs too long",
}


def _program(call: CallFacts) -> str:
    part = call.planned.part
    if part.groups:
        return "a batch of rewards"
    if part.tests:
        does = ", ".join(_TESTS[test.does] if test.fault is None else "lost" for test in part.tests)
        return f"a solution with {counted(len(part.tests), 'test')} ({does})"
    if part.arguments is not None:
        return f"arguments {part.arguments!r:.60}"
    language = _LANGUAGES.get(part.language, f"{part.language} ")
    if part.ending == "not_compiled":
        return f"a {language}program that does not compile"
    if part.ending == "compiler_stopped":
        return f"a {language}program whose compiler runs into its time limit"
    return f"a {language}program that {' and '.join(_does(call))}"


def _does(call: CallFacts) -> list[str]:
    """Return what a program does, a verb for each thing."""
    part = call.planned.part
    truth = call.first_truth
    streams = (("stdout", truth.stdout), ("stderr", truth.stderr))
    printed = [f"{_amount(text)} to {name}" for name, text in streams if text]
    verbs = [f"prints {' and '.join(printed)}" if printed else "prints nothing"]
    if part.seconds:
        verbs.append(f"takes {part.seconds:g} s")
    if part.ending == "stopped":
        verbs.append("runs into its time limit")
    elif part.exit < 0:
        verbs.append(f"is killed by signal {-part.exit}")
    elif part.exit:
        verbs.append(f"exits with {part.exit}")
    return verbs


def _amount(text: str) -> str:
    """Return a short text as it is, of a long one how much it is."""
    if len(text) <= _SHORT:
        return repr(text)
    lines = len(text.splitlines())
    return counted(lines, "line") if lines > 1 else f"{len(text):,} characters"


# -- what was sent and what came back --


def _sent(call: CallFacts) -> str:
    if not call.requests:
        return "nothing was sent"
    statuses = [str(request.status or "no answer") for request in call.requests]
    often = "once" if len(statuses) == 1 else f"{len(statuses)} requests"
    return f"sent {often}, answered {', '.join(statuses)}"


def _came_back(call: CallFacts) -> str:
    returned = call.returned
    if returned is None:
        return "was cancelled" if call.cancelled else "did not end"
    if returned.raised is not None:
        return f"raised {returned.raised:.{_MOST}}"
    if returned.reward is not None and not returned.text:
        return f"returned the reward {returned.reward:g}"
    words = f"returned {shortened(repr(returned.text), _MOST)}"
    if returned.reward is not None:
        words += f", reward {returned.reward:g}"
    return words
