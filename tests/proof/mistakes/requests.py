"""Mistakes with HTTP: what is sent, how long it may take, what is sent again, and how an answer
is read."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Mapping
from typing import Any

import aiohttp

from tests.proof.mistake import TAKEN_FOR_OUTPUT, UNFINISHED, mistake
from tests.reference_tool import GoodTool, PeerRequest, PeerResult

NEVER_RUN = ("attempts_per_call", "no_duplicate_execution", "retries_spread")
"""What breaks, or cannot be judged, where a program that needs a second attempt gets none."""

# -- time --


@mistake("deadline_honoured", "hang-at-the-end", also=(*UNFINISHED, "no_stall"))
class NoTimeout(GoodTool):
    """No timeout at all: a sandbox that does not answer is waited for."""

    def timeouts(self, request: PeerRequest) -> aiohttp.ClientTimeout:
        return aiohttp.ClientTimeout(total=None)


@mistake("outcomes", "sixty-four-threads", also=("no_duplicate_execution",))
class TimeoutTooShort(GoodTool):
    """A fixed timeout of five seconds, although programs may run longer."""

    def timeouts(self, request: PeerRequest) -> aiohttp.ClientTimeout:
        return aiohttp.ClientTimeout(total=5.0)


@mistake("outcomes", "blocked-rollouts")
class TimeoutIncludesTheQueue(GoodTool):
    """The time in the queue for a permit counts against the timeout of the request."""

    async def attempt(self, request: PeerRequest, failed: Counter[str]) -> PeerResult:
        try:
            async with asyncio.timeout(self.seconds(request)):
                return await super().attempt(request, failed)
        except TimeoutError:
            return PeerResult("transport_timeout", "no answer in time")


@mistake("deadline_honoured", "hidden-default-timeout", also=("no_stall",))
class ModelSetsTheTimeout(GoodTool):
    """Any timeout that the model asks for is granted."""

    def arguments(self, call: str, parameters: Any) -> PeerRequest:
        self.config["max_timeout"] = float("inf")
        return super().arguments(call, parameters)


# -- retries --


@mistake("outcomes", "gateway-504-then-fine[first_attempts=1,status=503]", also=NEVER_RUN)
class NeverRetries(GoodTool):
    """One attempt, and a short outage fails the call."""

    def may_retry(self, result: PeerResult, number: int) -> bool:
        return False


@mistake("outcomes", "gateway-504-then-fine[first_attempts=1,status=503]", also=NEVER_RUN)
class RetriesOnly504(GoodTool):
    """Only 504 is retried, not 429, 502 or 503 (verl, g)."""

    def may_retry(self, result: PeerResult, number: int) -> bool:
        return "504" in result.message and super().may_retry(result, number)


@mistake("attempts_per_call", "proxy-in-between")
class RetriesWithoutBound(GoodTool):
    """Nothing limits the number of attempts."""

    def may_retry(self, result: PeerResult, number: int) -> bool:
        return result.transient


@mistake("retry_after_honoured", "patient-429", also=("retries_spread",))
class IgnoresRetryAfter(GoodTool):
    """A gateway's Retry-After is not read."""

    def retry_after(self, headers: Mapping[str, str]) -> float:
        return 0.0


@mistake("only_transient_retried", "wrong-path", also=("attempts_per_call",))
class RetriesRefusals(GoodTool):
    """A 4xx is sent again, although it will be refused again."""

    def read(self, status: int, headers: Mapping[str, str], body: bytes) -> PeerResult:
        result = super().read(status, headers, body)
        result.transient = result.transient or 400 <= status < 500
        return result


@mistake("attempts_per_call", "broken-memory-limit")
class RetriesSandboxErrors(GoodTool):
    """A SandboxError is sent again, although the program may have run and that is forbidden."""

    def result(self, data: dict[str, Any]) -> PeerResult:
        result = super().result(data)
        result.transient = result.outcome == "sandbox_error"
        return result


@mistake(
    "only_transient_retried", "rotten-hang", also=("attempts_per_call", "no_duplicate_execution")
)
class RetriesSlowPrograms(GoodTool):
    """A program that timed out is run again."""

    def result(self, data: dict[str, Any]) -> PeerResult:
        result = super().result(data)
        result.transient = result.outcome == "program_timeout"
        return result


@mistake("no_duplicate_execution", "executed-then-504", also=("attempts_per_call",))
class RetriesWhatMayHaveRun(GoodTool):
    """A call is sent again although its program may have run, and the config forbids that."""

    def may_retry(self, result: PeerResult, number: int) -> bool:
        result.may_have_run = False
        return super().may_retry(result, number)


@mistake(
    "no_duplicate_execution", "single-node", also=("attempts_per_call", "in_flight_within_limit")
)
class Hedges(GoodTool):
    """Each request is sent twice, and the first answer counts."""

    async def send(
        self, session: aiohttp.ClientSession, url: str, request: PeerRequest
    ) -> PeerResult:
        first, _ = await asyncio.gather(
            super().send(session, url, request), super().send(session, url, request)
        )
        return first


@mistake(
    "only_transient_retried", "rotten-raise", also=("attempts_per_call", "no_duplicate_execution")
)
class RetriesFailedPrograms(GoodTool):
    """A program that raised is run again."""

    def result(self, data: dict[str, Any]) -> PeerResult:
        result = super().result(data)
        result.transient = result.outcome == "program_error"
        return result


@mistake("retries_spread", "gateway-504-then-fine[first_attempts=1,status=503]")
class RetriesInStep(GoodTool):
    """The pause has no jitter: calls that were refused together come back together."""

    def pause(self, request: PeerRequest, number: int, result: PeerResult) -> float:
        return result.retry_after + 0.5 * 2.0 ** (number - 1)


# -- connections --


@mistake("connections_reused", "single-node")
class ConnectionPerCall(GoodTool):
    """Each request opens a session, and a connection, of its own."""

    async def send(
        self, session: aiohttp.ClientSession, url: str, request: PeerRequest
    ) -> PeerResult:
        async with aiohttp.ClientSession() as own:
            return await super().send(own, url, request)


@mistake("no_dead_connection_used", "idle-keep-alive")
class ReusesDeadConnections(GoodTool):
    """Idle connections are kept for longer than the server keeps them."""

    def shared(self) -> Any:
        shared = super().shared()
        shared.idle_seconds = 3600.0
        return shared


# -- what is sent --


@mistake("sent_as_asked", "old-image", also=("outcomes",))
class SendsStdin(GoodTool):
    """Sends the text None as stdin."""

    def body(self, request: PeerRequest) -> dict[str, Any]:
        return {**super().body(request), "stdin": "None"}


@mistake("text_is_truthful", "rotten-compile", also=(*TAKEN_FOR_OUTPUT, "stderr_shown"))
class ForgetsTheLanguage(GoodTool):
    """Whatever the model writes is run as Python."""

    def body(self, request: PeerRequest) -> dict[str, Any]:
        return {**super().body(request), "language": "python"}


# -- how an answer is read --


@mistake(
    "text_is_truthful",
    "patient-429",
    also=("infra_never_scored", "retry_after_honoured", "retries_spread"),
)
class ThrottledIsSuccess(GoodTool):
    """A 429 is taken for the answer, and its body for the output."""

    def read(self, status: int, headers: Mapping[str, str], body: bytes) -> PeerResult:
        return (
            PeerResult("ok", stdout=body.decode())
            if status == 429
            else super().read(status, headers, body)
        )


@mistake("text_is_truthful", "poisoned-call", also=TAKEN_FOR_OUTPUT)
class TrustsTheStatus(GoodTool):
    """HTTP 200 is success, whatever the body says."""

    def result(self, data: dict[str, Any]) -> PeerResult:
        return PeerResult("ok", stdout=str((data["run_result"] or {}).get("stdout") or ""))


@mistake("text_is_truthful", "html-instead-of-json", also=TAKEN_FOR_OUTPUT)
class BrokenJsonIsEmptyOutput(GoodTool):
    """A body that is not JSON is taken for a program that printed nothing."""

    def read(self, status: int, headers: Mapping[str, str], body: bytes) -> PeerResult:
        result = super().read(status, headers, body)
        return PeerResult("ok") if status == 200 and result.outcome == "bad_response" else result


@mistake("text_is_truthful", "html-instead-of-json", also=TAKEN_FOR_OUTPUT)
class AnyBodyIsOutput(GoodTool):
    """A body that is not JSON is shown as the output of the program."""

    def read(self, status: int, headers: Mapping[str, str], body: bytes) -> PeerResult:
        result = super().read(status, headers, body)
        return (
            PeerResult("ok", stdout=body.decode()) if result.outcome == "bad_response" else result
        )


@mistake("outcomes", "mended-answers[faults=content-type]")
class NeedsTheContentType(GoodTool):
    """Only application/json is read; a gateway that sends another content type breaks every
    call."""

    def read(self, status: int, headers: Mapping[str, str], body: bytes) -> PeerResult:
        if status == 200 and "json" not in headers.get("Content-Type", ""):
            return PeerResult("bad_response", "unexpected mimetype")
        return super().read(status, headers, body)


@mistake("text_is_truthful", "tokens-that-do-not-match")
class WrongEncoding(GoodTool):
    """The answer is decoded as Latin-1."""

    def read(self, status: int, headers: Mapping[str, str], body: bytes) -> PeerResult:
        return super().read(
            status, headers, json.dumps(json.loads(body.decode("latin-1"))).encode()
        )


@mistake("text_is_truthful", "bytes-that-are-not-text", also=TAKEN_FOR_OUTPUT)
class IgnoresUndecodableBytes(GoodTool):
    """Bytes that cannot be decoded are dropped from the answer."""

    def read(self, status: int, headers: Mapping[str, str], body: bytes) -> PeerResult:
        return super().read(status, headers, body.decode(errors="ignore").encode())


@mistake("deadline_honoured", "dripping-answers", also=("no_stall",))
class TimeoutPerRead(GoodTool):
    """Only the pause between two bytes is limited, so an answer that drips is read to its end."""

    def timeouts(self, request: PeerRequest) -> aiohttp.ClientTimeout:
        return aiohttp.ClientTimeout(total=None, sock_read=self.seconds(request))


@mistake("retries_spread", "gateway-504-then-fine[first_attempts=1,status=503]")
class RetriesAtOnce(GoodTool):
    """A refused request is sent again without a pause."""

    def pause(self, request: PeerRequest, number: int, result: PeerResult) -> float:
        return result.retry_after


@mistake(
    "only_transient_retried", "rotten-hang", also=("attempts_per_call", "no_duplicate_execution")
)
class RetriesEmptyOutput(GoodTool):
    """A program that printed nothing is run again."""

    def printed(self, outcome: str, part: dict[str, Any]) -> PeerResult:
        result = super().printed(outcome, part)
        result.transient = outcome == "ok" and not result.stdout
        return result


@mistake("text_is_truthful", "success-without-result", also=("outcomes",))
class AnyStatusBelow300(GoodTool):
    """202 Accepted is taken for a result, and its body for the output."""

    def read(self, status: int, headers: Mapping[str, str], body: bytes) -> PeerResult:
        if 200 < status < 300:
            return PeerResult("ok", stdout=body.decode())
        return super().read(status, headers, body)
