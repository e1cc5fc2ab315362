"""Mistakes in what the model reads."""

from __future__ import annotations

from typing import Any

from tests.proof.mistake import NOTHING_SHOWN, TAKEN_FOR_OUTPUT, mistake
from tests.reference_tool import PROGRAMS, GoodTool, PeerRequest, PeerResult


@mistake("text_is_truthful")  # words that lie are seen by the trial only, which compares more ends
class NoStdoutHere(GoodTool):
    """Every failure is the same placeholder, which looks like output (verl 0.7.1)."""

    def text(self, result: PeerResult) -> str:
        return super().text(result) if result.outcome in PROGRAMS else "no stdout here"


@mistake("text_is_truthful", "proxy-in-between")
class SwallowsExceptions(GoodTool):
    """What goes wrong is swallowed, and the model reads nothing (verl, b)."""

    def text(self, result: PeerResult) -> str:
        return super().text(result) if result.outcome in PROGRAMS else ""


@mistake("text_is_truthful", "bound-to-loopback", also=(*TAKEN_FOR_OUTPUT, "answers_are_own"))
class ExceptionIsOutput(GoodTool):
    """The text of an exception is returned as the output of a program that succeeded."""

    async def run(self, request: PeerRequest) -> PeerResult:
        result = await super().run(request)
        if result.outcome in ("unreachable", "transport_timeout"):
            return PeerResult("ok", stdout="Server disconnected")
        return result


@mistake("text_is_truthful", "bad-arguments")
class RefusalIsNotTold(GoodTool):
    """A call with bad arguments gets an empty text."""

    def text(self, result: PeerResult) -> str:
        return "" if result.outcome == "bad_arguments" else super().text(result)


@mistake("text_is_truthful", "bad-arguments", also=("outcomes",))
class SendsAnything(GoodTool):
    """Whatever the model sends is turned into code."""

    def arguments(self, call: str, parameters: Any) -> PeerRequest:
        code = parameters.get("code", "") if isinstance(parameters, dict) else parameters
        return PeerRequest(call, str(code), "python", self.config["default_timeout"])


@mistake("tool_never_raises", "bad-arguments", also=("outcomes",))
class RaisesOnBadArguments(GoodTool):
    """Arguments that are not an object end in an exception of Python."""

    def arguments(self, call: str, parameters: Any) -> PeerRequest:
        assert isinstance(parameters, dict), "arguments"
        return super().arguments(call, parameters)


@mistake("tool_never_raises", "proxy-in-between", also=("infra_never_scored", "outcomes"))
class RaisesOnFailure(GoodTool):
    """A failure of the sandbox is raised, and verl scores it 0."""

    async def run(self, request: PeerRequest) -> PeerResult:
        result = await super().run(request)
        if result.outcome not in PROGRAMS:
            raise RuntimeError(result.message)
        return result


@mistake("tool_never_raises", "lost-streams[faults=stderr]", also=("outcomes", *NOTHING_SHOWN))
class RaisesOnNull(GoodTool):
    """A stream that is null ends in an exception."""

    def printed(self, outcome: str, part: dict[str, Any]) -> PeerResult:
        return PeerResult(
            outcome, stdout=part["stdout"], stderr=part["stderr"], code=part["return_code"]
        )

    def output(self, result: PeerResult) -> str:
        return result.stdout + result.stderr


@mistake("text_is_truthful", "lost-streams[faults=stderr]")
class BothStreamsOrNothing(GoodTool):
    """A stream that is null empties the message."""

    def printed(self, outcome: str, part: dict[str, Any]) -> PeerResult:
        missing = part["stdout"] is None or part["stderr"] is None
        return super().printed(outcome, {**part, "stdout": "", "stderr": ""} if missing else part)


@mistake("stderr_shown", "null-stdout")
class DropsStderr(GoodTool):
    """The model reads stdout and nothing else, also after a traceback."""

    def output(self, result: PeerResult) -> str:
        return result.stdout

    def remark(self, result: PeerResult) -> str:
        return "" if result.outcome == "program_error" else super().remark(result)


@mistake("text_is_truthful", "rotten-exit")
class SilentAboutExitCodes(GoodTool):
    """A program that fails without a word looks like one that printed nothing."""

    def remark(self, result: PeerResult) -> str:
        return "" if result.outcome == "program_error" else super().remark(result)


@mistake("partial_output_kept", "rotten-hang")
class DropsPartialOutput(GoodTool):
    """What a program printed before its timeout is thrown away (verl 0.7.1)."""

    def output(self, result: PeerResult) -> str:
        return "" if result.outcome == "program_timeout" else super().output(result)


@mistake("cuts_marked", "silent-truncation")
class ClipsSilently(GoodTool):
    """Long output is cut, and nothing says so."""

    def cut(self, text: str) -> str:
        return text[: self.config["max_output_chars"]]


@mistake("cuts_marked", "silent-truncation")
class CutsWithoutANumber(GoodTool):
    """A cut is marked, but not how much is missing."""

    def cut(self, text: str) -> str:
        limit = self.config["max_output_chars"]
        return text if len(text) <= limit else f"{text[: limit - 20]}\n(truncated)"


@mistake("text_is_truthful", "silent-truncation", also=("cuts_marked",))
class CutsACharacterInTwo(GoodTool):
    """Long output is cut by bytes, in the middle of a character."""

    def cut(self, text: str) -> str:
        limit, data = self.config["max_output_chars"] - 40, text.encode()
        if len(data) <= limit:
            return text
        kept = data[: limit // 2].decode(errors="replace")
        return f"{kept}\n[… {len(text) - len(kept)} characters cut …]"


@mistake("output_bounded", "large-output", also=("cuts_marked",))
class UnboundedOutput(GoodTool):
    """Output of any size is passed on to the model."""

    def cut(self, text: str) -> str:
        return text


@mistake("rollout_ends", "coloured-tracebacks")
class KeepsEscapeCodes(GoodTool):
    """Colours and cursor moves are passed on, and the model pays for each token."""

    def output(self, result: PeerResult) -> str:
        return result.stdout + result.stderr


@mistake("no_secret_leaked", "kept-secrets")
class ShowsItsHeaders(GoodTool):
    """The headers of a request that failed are shown to the model."""

    def text(self, result: PeerResult) -> str:
        shown = "" if result.outcome in PROGRAMS else f" (sent with {self.config['headers']})"
        return super().text(result) + shown


@mistake("outcomes", "two-kinds-of-timeout", also=TAKEN_FOR_OUTPUT)
class OneKindOfTimeout(GoodTool):
    """A sandbox that does not answer is reported as a program that was too slow."""

    async def run(self, request: PeerRequest) -> PeerResult:
        result = await super().run(request)
        return PeerResult("program_timeout") if result.outcome == "transport_timeout" else result


@mistake("outcomes", "rotten-exit", also=("text_is_truthful",))
class ExitCodeIgnored(GoodTool):
    """A program that failed counts as success."""

    def printed(self, outcome: str, part: dict[str, Any]) -> PeerResult:
        return super().printed("ok" if outcome == "program_error" else outcome, part)


@mistake("outcomes", "rotten-raise", also=("stderr_shown",))
class BlamesTheSandbox(GoodTool):
    """A program that failed counts as a failure of the sandbox, and is never scored."""

    def printed(self, outcome: str, part: dict[str, Any]) -> PeerResult:
        made = super().printed(outcome, part)
        return PeerResult("sandbox_error", made.stderr) if outcome == "program_error" else made


@mistake("text_is_truthful", "rotten-hang")
class SilentAboutTimeouts(GoodTool):
    """The output so far is shown as if the program had ended."""

    def remark(self, result: PeerResult) -> str:
        return "" if result.outcome == "program_timeout" else super().remark(result)


@mistake("text_is_truthful", "rotten-killed")
class OutputHidesTheExitCode(GoodTool):
    """The exit code is told only if the program printed nothing, so a crash after some output looks
    like success."""

    def remark(self, result: PeerResult) -> str:
        return "" if result.outcome == "program_error" and result.stdout else super().remark(result)


@mistake("metrics_are_true", "rotten-exit")
class ReportsExitCodeOne(GoodTool):
    """Every program that fails is reported with the exit code 1."""

    def metrics(self, result: PeerResult) -> Any:
        found = super().metrics(result)
        return {**found, "return_code": 1} if found and result.outcome == "program_error" else found
