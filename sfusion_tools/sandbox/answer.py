"""What a transport returns or raises, and how an answer is read.

Any body becomes an outcome and a message.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pydantic_core import from_json

from sfusion_tools.outcome import Outcome

_NO_COMPILER = re.compile(
    r"^/bin/(?:ba)?sh: (?:line \d+: )?(?P<what>[^:\n]+): command not found\s*$"
)
_RESULT = dict, type(None)
_LONE_SURROGATE = re.compile(r"[\ud800-\udfff]")


class TransportError(Exception):
    """Raised instead of an answer."""

    def __init__(
        self, outcome: Outcome, text: str, *, may_have_run: bool = True, transient: bool = True
    ) -> None:
        super().__init__(text)
        self.outcome = outcome
        self.may_have_run = may_have_run
        """False if nothing was sent."""
        self.transient = transient
        """True if another attempt may help."""


class Response(NamedTuple):
    """An answer of HTTP."""

    status: int
    headers: Mapping[str, str]
    """Their names in any case."""
    body: bytes
    whole: bool
    """False if the body broke off, or is longer than was wanted."""


@dataclass(slots=True)
class Reading:
    """The meaning of an answer."""

    outcome: Outcome
    message: str = ""
    stdout: str = ""
    stderr: str = ""
    return_code: int | None = None
    execution_time: float | None = None
    files: dict[str, str] = field(default_factory=dict)


def read_answer(status: int, content_type: str, body: bytes) -> Reading:
    """Read a complete HTTP answer to ``/run_code``."""
    if status != 200:
        outcome = Outcome.of_status(status)
        if outcome in (Outcome.THROTTLED, Outcome.SANDBOX_ERROR):
            return Reading(outcome, f"the sandbox answered {status}: {excerpt(body)}")
        # Also 499: a client that reads an answer has not left.
        return Reading(Outcome.BAD_RESPONSE, _refusal(status, content_type, body))
    try:
        try:
            answer = from_json(body)  # takes a third of the time of json.loads
        except ValueError:
            answer = _decode(body)
    except UnicodeDecodeError as error:
        return Reading(
            Outcome.BAD_RESPONSE, f"the answer is not UTF-8: {error.reason} at byte {error.start}"
        )
    except (ValueError, RecursionError):
        return Reading(Outcome.BAD_RESPONSE, _not_json(content_type, body))
    if not isinstance(answer, dict) or not isinstance(answer.get("status"), str):
        return Reading(
            Outcome.BAD_RESPONSE, f"the answer is JSON but not Sandbox Fusion's: {excerpt(body)}"
        )
    return _read_run(answer)


def _decode(body: bytes) -> Any:
    """Decode what only ``json.loads`` takes: other encodings and lone surrogates."""
    return json.loads(body.decode("utf-8", "surrogatepass") if body.startswith(b'{"') else body)


def _read_run(answer: dict[str, Any]) -> Reading:
    """Return what the answer to one program says."""
    status = answer["status"]
    compiled = answer.get("compile_result")
    ran = answer.get("run_result")
    if not isinstance(compiled, _RESULT):
        return _bad(f"compile_result is neither an object nor null: {_text(compiled)[:80]}")
    if not isinstance(ran, _RESULT):
        return _bad(f"run_result is neither an object nor null: {_text(ran)[:80]}")
    if status == "SandboxError":
        return _reading(Outcome.SANDBOX_ERROR, answer, ran, f"SandboxError: {_message(answer)}")
    if compiled is not None and not (
        compiled.get("status") == "Finished" and compiled.get("return_code") == 0
    ):
        return _read_compilation(answer, compiled)
    if ran is None:
        return _bad(f"status is {status!r} but there is no run_result: {_message(answer)}")

    ended = ran.get("status")
    if ended == "TimeLimitExceeded":
        return _reading(Outcome.PROGRAM_TIMEOUT, answer, ran)
    if ended != "Finished":
        message = f"run_result is {ended!r}: {_message(answer)}"
        return _reading(Outcome.SANDBOX_ERROR, answer, ran, message)
    code = ran.get("return_code")
    if type(code) is not int:
        found = _text(code) or "null"
        return _bad(f"run_result is Finished but return_code is {found[:80]}")
    if code != 0:
        return _reading(Outcome.PROGRAM_ERROR, answer, ran)
    if status != "Success" or ran.get("stdout") is None:
        return _bad(_contradiction(status, ran))
    return _reading(Outcome.OK, answer, ran)


def _bad(message: str) -> Reading:
    return Reading(Outcome.BAD_RESPONSE, message)


def _read_compilation(answer: dict[str, Any], compiled: dict[str, Any]) -> Reading:
    """Return what the answer says about a program that was not compiled."""
    missing = _missing_compiler(compiled)
    if missing:
        return _reading(Outcome.SANDBOX_ERROR, answer, None, missing)
    message = ""
    if compiled.get("status") == "TimeLimitExceeded":
        message = "compiling ran out of time"
    return _reading(Outcome.COMPILE_ERROR, answer, compiled, message)


def _contradiction(status: str, ran: dict[str, Any]) -> str:
    """Return what is wrong with an answer although the program ended with code 0.

    Believing either half of a contradiction would turn a failure into a pass, or a pass into a
    failure of the program.
    """
    if status != "Success":
        return f"the answer contradicts itself: return_code is 0, status {status!r}"
    return "the program ended well, but its stdout is null: the output is lost"


def _reading(
    outcome: Outcome, answer: dict[str, Any], result: dict[str, Any] | None, message: str = ""
) -> Reading:
    result = result or {}
    stdout = result.get("stdout")
    stderr = result.get("stderr")
    code = result.get("return_code")
    seconds = result.get("execution_time")
    files = answer.get("files")
    # Usual values are taken as they are: every call comes through here.
    return Reading(
        outcome=outcome,
        message=message,
        stdout=stdout if type(stdout) is str and stdout.isascii() else _text(stdout),
        stderr=stderr if type(stderr) is str and stderr.isascii() else _text(stderr),
        return_code=code if type(code) is int else None,
        execution_time=(
            seconds if type(seconds) is float and 0.0 <= seconds < math.inf else _seconds(seconds)
        ),
        files=_texts(files) if files else {},
    )


def _texts(files: object) -> dict[str, str]:
    """Return the files whose contents are texts."""
    if not isinstance(files, dict):
        return {}
    return {str(name): content for name, content in files.items() if isinstance(content, str)}


def _missing_compiler(result: dict[str, Any]) -> str:
    """Return a message if the shell could not find the compiler.

    No program can cause this: it has not run yet, and a compiler does not exit with 127. A missing
    interpreter is not recognised, because any program can print the shell's message and exit with
    127; ``sfusion doctor`` finds it.
    """
    if result.get("return_code") != 127 or result.get("stdout"):
        return ""
    found = _NO_COMPILER.match(_text(result.get("stderr")))
    return f"the sandbox has no {found['what']!r}" if found else ""


def _seconds(value: object) -> float | None:
    """Return a duration; a negative one, of a clock that was set back, says nothing."""
    try:
        return float(value) if type(value) is int and value >= 0 else None
    except OverflowError:
        return None


def _text(value: object) -> str:
    if value is None:
        return ""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    # A lone surrogate cannot be encoded by a tokenizer or a log; the sandbox meant one odd
    # character.
    return _LONE_SURROGATE.sub("\ufffd", text)


def _message(answer: dict[str, Any], limit: int = 300) -> str:
    # SandboxError quotes the whole program before the reason, so keep both ends.
    text = " ".join(_text(answer.get("message")).split())
    if len(text) <= limit:
        return text
    head = limit // 3
    return f"{text[:head]} … {text[-(limit - head) :]}"


def excerpt(body: bytes, limit: int = 200) -> str:
    """Return the beginning of a body as one line."""
    text = " ".join(body[: 4 * limit].decode("utf-8", "replace").split())
    if not text:
        return "(no body)"
    return text if len(text) <= limit else f"{text[:limit]}…"


def _not_json(content_type: str, body: bytes) -> str:
    if "html" in content_type.lower() or body.lstrip()[:1] == b"<":
        return (
            "a web page came instead of a sandbox's answer; is the URL right, did a proxy answer? "
            f"{excerpt(body, 80)}"
        )
    return f"the answer is not JSON ({content_type or 'no content type'}): {excerpt(body)}"


def _refusal(status: int, content_type: str, body: bytes) -> str:
    hints = {
        404: "nothing is there; is the URL that of a Sandbox Fusion server?",
        405: "the server does not take POST there; is the URL right?",
        407: "a proxy wants authentication",
        401: "the gateway wants credentials",
        403: "the gateway refused the credentials",
    }
    if 300 <= status < 400:
        return f"the server redirects ({status}); give the final URL"
    usual = "the server refused the request" if status >= 400 else "no answer of a sandbox"
    hint = hints.get(status, usual)
    return f"{hint} (HTTP {status}, {content_type or 'no content type'}): {excerpt(body)}"
