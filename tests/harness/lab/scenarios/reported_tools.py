"""Tools, parsers and limiters that behave as people reported: each makes one mistake of the
incident library."""

from __future__ import annotations

import asyncio
import itertools
import json
import re
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import aiohttp

from sfusion_tools.limiter import LimiterCore
from sfusion_tools.rollout import format_parser
from sfusion_tools.rollout.turns import FoundCall, ParsedTurn, TurnParser, UnreadableCall
from sfusion_tools.schemas import ToolResponse

# -- tools
# --------------------------------------------------------------------------------------------------


class Simple:
    """One request for each call, a timeout, an honest text, and the outcome in the metrics. No
    retries."""

    seconds: ClassVar[float | None] = 60.0
    """Time for a request."""

    def __init__(self, config: dict[str, Any], tool_schema: Any) -> None:
        self.name = "code_interpreter"
        self.tool_schema = tool_schema
        self.config = config
        given = config["sandbox_fusion_url"]
        self._urls = (
            itertools.cycle(f"{url}/run_code" for url in given) if isinstance(given, list) else None
        )
        self._url = "" if isinstance(given, list) else given
        self._gate = asyncio.Semaphore(config.get("rate_limit", 10))
        self._failed: dict[str, bool] = {}

    async def create(
        self, instance_id: str | None = None, **kwargs: Any
    ) -> tuple[str, ToolResponse]:
        return instance_id or "x", ToolResponse()

    async def execute(
        self, instance_id: str, parameters: Any, **kwargs: Any
    ) -> tuple[ToolResponse, None, dict[str, Any]]:
        async with self._gate:
            outcome, text = await self.outcome_and_text(parameters)
        self._failed[instance_id] = infrastructure = outcome not in PROGRAMS
        return ToolResponse(text=text), None, {"outcome": outcome, "infrastructure": infrastructure}

    async def calc_reward(self, instance_id: str, **kwargs: Any) -> float | None:
        return None if self._failed.get(instance_id) else 1.0

    async def release(self, instance_id: str, **kwargs: Any) -> None:
        self._failed.pop(instance_id, None)

    async def outcome_and_text(self, parameters: Any) -> tuple[str, str]:
        try:
            status, body = await self.post(parameters)
        except TimeoutError:
            return "transport_timeout", "error: the sandbox did not answer"
        except aiohttp.ClientError as error:
            return "unreachable", f"error: {type(error).__name__}"
        if status != 200:
            return (
                "throttled"
                if status == 429
                else "sandbox_error"
                if status >= 500
                else "bad_response"
            ), "error"
        return self.read(body)

    def body(self, parameters: Any) -> dict[str, Any]:
        keys = {"code": parameters["code"], "language": parameters.get("language", "python")}
        return {
            **keys,
            "run_timeout": parameters.get("timeout", self.config.get("default_timeout", 30)),
        }

    async def post(self, parameters: Any) -> tuple[int, bytes]:
        url, limit = (
            next(self._urls) if self._urls else self._url,
            aiohttp.ClientTimeout(total=self.seconds),
        )
        async with (
            aiohttp.ClientSession(timeout=limit) as session,
            session.post(url, json=self.body(parameters)) as got,
        ):
            return got.status, await got.read()

    def read(self, body: bytes) -> tuple[str, str]:
        try:
            data = json.loads(body)
        except ValueError:
            return "bad_response", "error: not JSON"
        ran, compiled = data["run_result"], data["compile_result"]
        if data["status"] == "SandboxError":
            return "sandbox_error", "error: the sandbox failed"
        if compiled is not None and compiled["return_code"] != 0:
            return "compile_error", compiled["stderr"]
        if ran is None:
            return "bad_response", "error: no result"
        outcome = "program_timeout" if ran["status"] == "TimeLimitExceeded" else "program_error"
        return "ok" if ran["return_code"] == 0 else outcome, self.shown(
            ran["stdout"], ran["stderr"]
        )

    def shown(self, stdout: str | None, stderr: str | None) -> str:
        return (stdout or "") + (stderr or "")


PROGRAMS = ("ok", "program_error", "program_timeout", "compile_error")


class BlamesTheCode(Simple):
    """States every failure of the sandbox as one of the program."""

    async def outcome_and_text(self, parameters: Any) -> tuple[str, str]:
        outcome, text = await super().outcome_and_text(parameters)
        return (outcome, text) if outcome in PROGRAMS else ("program_error", "")


class NoStdoutHere(Simple):
    """Every failure, the program's own timeout included, is the same text."""

    async def outcome_and_text(self, parameters: Any) -> tuple[str, str]:
        outcome, text = await super().outcome_and_text(parameters)
        return outcome, text if outcome in ("ok", "program_error") else "no stdout here"


class ScoresZero(Simple):
    """A failure of the infrastructure gets the reward of a wrong answer."""

    async def calc_reward(self, instance_id: str, **kwargs: Any) -> float:
        return 0.0


class Patient(Simple):
    """Waits for ever."""

    seconds = None


class Stubborn(Simple):
    """Tries again at once, whatever the answer was, ten times."""

    async def post(self, parameters: Any) -> tuple[int, bytes]:
        for _ in range(9):
            try:
                status, body = await super().post(parameters)
            except aiohttp.ClientError:
                continue
            if status == 200:
                return status, body
        return await super().post(parameters)


class TrustsStatus(Simple):
    """HTTP 200 is success, whatever the body says."""

    def read(self, body: bytes) -> tuple[str, str]:
        data = json.loads(body.decode(errors="replace"))
        return "ok", str((data["run_result"] or {}).get("stdout") or "")


class ShowsAnything(Simple):
    """The body of any answer is output."""

    async def outcome_and_text(self, parameters: Any) -> tuple[str, str]:
        try:
            return self.read((await self.post(parameters))[1])
        except aiohttp.ClientError as error:
            return "ok", str(error)

    def read(self, body: bytes) -> tuple[str, str]:
        found = super().read(body)
        return ("ok", body.decode()) if found[0] == "bad_response" else found


class OnlyStdout(Simple):
    """The model reads stdout and nothing else."""

    def shown(self, stdout: str | None, stderr: str | None) -> str:
        return stdout or ""


class BothOrNothing(Simple):
    """A stream that is null empties the message."""

    def shown(self, stdout: str | None, stderr: str | None) -> str:
        return "" if stdout is None or stderr is None else stdout + stderr


class Clips(Simple):
    """Long output is cut without a word."""

    def shown(self, stdout: str | None, stderr: str | None) -> str:
        return super().shown(stdout, stderr)[:100]


class OneAtATime(Simple):
    """Runs one call after the other."""

    def __init__(self, config: dict[str, Any], tool_schema: Any) -> None:
        super().__init__({**config, "rate_limit": 1}, tool_schema)


class RoundRobin(Simple):
    """Takes the sandboxes in turn, whatever they can do; its config has a list of addresses."""


class SendsStdin(Simple):
    """Sends the text None as stdin."""

    def body(self, parameters: Any) -> dict[str, Any]:
        return {**super().body(parameters), "stdin": "None"}


class SendsAnything(Simple):
    """Makes code of whatever it is given."""

    def body(self, parameters: Any) -> dict[str, Any]:
        code = parameters.get("code", "") if isinstance(parameters, dict) else parameters
        return {"code": str(code), "language": "python"}


class NeedsItsLimiter(Simple):
    """Returns a permit to the limiter that it did not make, and tells the model about it."""

    async def outcome_and_text(self, parameters: Any) -> tuple[str, str]:
        await super().outcome_and_text(parameters)
        return (
            "sandbox_error",
            "Error when executing tool: 'NoneType' object has no attribute 'release'",
        )


class TalksOfHeaders(Simple):
    """Shows the headers of a request that failed."""

    async def outcome_and_text(self, parameters: Any) -> tuple[str, str]:
        outcome, text = await super().outcome_and_text(parameters)
        return (
            outcome,
            text if outcome in PROGRAMS else f"{text}, sent with {self.config['headers']}",
        )


class IgnoresCancellation(Simple):
    """Makes a result of a cancellation."""

    async def outcome_and_text(self, parameters: Any) -> tuple[str, str]:
        try:
            return await super().outcome_and_text(parameters)
        except asyncio.CancelledError:
            return "ok", "error: interrupted"


# -- parsers
# --------------------------------------------------------------------------------------------------

Parse = Callable[[str, TurnParser, Sequence[Any]], ParsedTurn]


def _drops_what_it_cannot_read(text: str, good: TurnParser, tools: Sequence[Any]) -> ParsedTurn:
    turn = good(text, tools)
    return ParsedTurn(
        turn.content, tuple(call for call in turn.calls if not isinstance(call, UnreadableCall))
    )


def _strict(text: str, good: TurnParser, tools: Sequence[Any]) -> ParsedTurn:
    """One JSON object in each pair of tags, or nothing."""
    calls = []
    for block in re.findall(r"<tool_call>\s*(.*?)\s*</tool_call>", text, re.DOTALL):
        try:
            found = json.loads(block)
            calls.append(FoundCall(found["name"], found["arguments"]))
        except (ValueError, KeyError):
            continue
    return ParsedTurn(text, tuple(calls))


def _all_or_nothing(text: str, good: TurnParser, tools: Sequence[Any]) -> ParsedTurn:
    turn = good(text, tools)
    return (
        ParsedTurn(turn.content)
        if any(isinstance(call, UnreadableCall) for call in turn.calls)
        else turn
    )


def _first_only(text: str, good: TurnParser, tools: Sequence[Any]) -> ParsedTurn:
    turn = good(text, tools)
    return ParsedTurn(turn.content, turn.calls[:1])


def _whatever_looks_like_one(text: str, good: TurnParser, tools: Sequence[Any]) -> ParsedTurn:
    """Every object with a name, drafts and copies included."""
    calls, at = [], 0
    while (at := text.find('{"name"', at)) >= 0:
        found, at = json.JSONDecoder().raw_decode(text, at)
        calls.append(FoundCall(found["name"], found["arguments"]))
    return ParsedTurn(text, tuple(calls))


def _needs_line_breaks(text: str, good: TurnParser, tools: Sequence[Any]) -> ParsedTurn:
    return good(text, tools) if "<tool_call>\n" in text else ParsedTurn(text)


def _flat_braces(text: str, good: TurnParser, tools: Sequence[Any]) -> ParsedTurn:
    """An expression that allows two levels of braces, wherever they are."""
    blocks = re.findall(r"<tool_call>\s*(\{[^{}]*\{[^{}]*\}[^{}]*\})\s*</tool_call>", text)
    return ParsedTurn(
        text, tuple(FoundCall(one["name"], one["arguments"]) for one in map(json.loads, blocks))
    )


def _believes_invented_replies(text: str, good: TurnParser, tools: Sequence[Any]) -> ParsedTurn:
    return ParsedTurn(text) if "<tool_response>" in text else good(text, tools)


PARSERS: dict[str, Parse] = {
    "drops what it cannot read": _drops_what_it_cannot_read,
    "strict": _strict,
    "all or nothing": _all_or_nothing,
    "first only": _first_only,
    "whatever looks like one": _whatever_looks_like_one,
    "needs line breaks": _needs_line_breaks,
    "flat braces": _flat_braces,
    "believes invented replies": _believes_invented_replies,
}


def bad_parser(mistake: str) -> Callable[[str], TurnParser]:
    """Return what stands in for ``format_parser``."""
    return lambda form: lambda text, tools: PARSERS[mistake](text, format_parser(form), tools)


# -- limiters
# --------------------------------------------------------------------------------------------------


class DiesWithItsOwner(LimiterCore):
    """Grants nothing once its first client is gone."""

    owner = ""

    def exchange(self, now: float, batch: Any) -> Any:
        self.owner = self.owner or batch.client
        return super().exchange(now, batch)

    def _grant(self, now: float) -> None:
        if self.owner in self.clients():
            super()._grant(now)


class Clogged(LimiterCore):
    """Nothing gets through while more than 30 are waiting, releases included."""

    def _grant(self, now: float) -> None:
        if self._shares.waiting <= 30:
            super()._grant(now)


class CountsCancelledAsReturned(LimiterCore):
    """A waiter that gives up returns a permit it never had."""

    extra = 0

    def _cancel(self, client: Any, number: int) -> None:
        super()._cancel(client, number)
        self.extra += 1

    def _free(self) -> int:
        return super()._free() + self.extra


class ForgetsEverything(LimiterCore):
    """Starts with all permits after a restart."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **{**options, "learn_from": ()})


class NeverExpires(LimiterCore):
    """Permits have no lease."""

    def _expire(self, now: float) -> None:
        return

    def next_deadline(self, now: float) -> float:
        return max(super().next_deadline(now), now + 1.0)
