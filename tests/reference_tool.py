"""A right tool that somebody else could have written: verl's interface and plain aiohttp, nothing
of ``sfusion_tools``.

Every step is a method of its own, so that a mistake is a subclass of a few lines.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import math
import re
import time
import zlib
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from email.utils import parsedate_to_datetime
from typing import Any, ClassVar
from weakref import WeakValueDictionary, ref

import aiohttp

PROGRAMS = ("ok", "program_error", "program_timeout", "compile_error")
RETRIED = (429, 502, 503, 504)
COMPILED = ("cpp", "go", "java", "rust")
DEFAULTS: dict[str, Any] = {
    "rate_limit": 10,
    "enable_global_rate_limit": True,
    "requests_per_second": None,
    "requests_burst": 1,
    "default_timeout": 30.0,
    "max_timeout": 60.0,
    "transport_margin": 10.0,
    "compile_timeout": 10.0,
    "memory_limit_mb": 1024,
    "max_attempts": 6,
    "retry_may_have_run": True,
    "max_output_chars": 20_000,
    "headers": {},
    "states_outcomes": True,
    "call_deadline": None,
}
"""Its config. Scenarios replace the keys that they set too."""
_SPREAD = 0.01
"""Seconds by which the time limits of calls differ. If all were equal, a sandbox that turns to
the next request when a client gives up could answer in the very moment in which the next client
does, and nobody can judge such a tie."""

_ESCAPES = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b.?|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_SURROGATES = re.compile(r"[\ud800-\udfff]")


@dataclass
class PeerResponse:
    """What verl expects of ``execute``; only the text is used."""

    text: str
    image: None = None
    video: None = None


@dataclass(frozen=True)
class PeerRequest:
    """The arguments of a call, checked."""

    call: str
    code: str
    language: str
    timeout: float
    remark: str = ""
    left: float = math.inf
    """Seconds of the call's deadline that are left."""


@dataclass
class PeerResult:
    """How an attempt, and in the end the call, came out."""

    outcome: str
    message: str = ""
    stdout: str = ""
    stderr: str = ""
    code: int | None = None
    transient: bool = False
    """Another attempt may help."""
    may_have_run: bool = False
    retry_after: float = 0.0
    waited: float = 0.0
    """Seconds in the queue of the gate."""


class Shared:
    """What all tools of an event loop share: the connections, the gate and the load of each
    sandbox."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self.gate = asyncio.Semaphore(
            config["rate_limit"] if config["enable_global_rate_limit"] else 1_000_000
        )
        self.in_flight: dict[str, int] = {}
        self.next_start = float("-inf")
        self.idle_seconds = 4.0
        """Idle connections are dropped before the server, which keeps them for 5 s, does so."""
        self._session: aiohttp.ClientSession | None = None

    def session(self) -> aiohttp.ClientSession:
        if self._session is None or self._session.closed:
            connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=self.idle_seconds)
            self._session = aiohttp.ClientSession(connector=connector)
        return self._session

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()


class GoodTool:
    """Every call ends in time with a true text and the outcome in the metrics. The limit is that
    of the process."""

    _shared: ClassVar[WeakValueDictionary[Any, Shared]] = WeakValueDictionary()

    def __init__(self, config: dict[str, Any], tool_schema: Any = None) -> None:
        self.name = "code_interpreter"
        self.tool_schema = tool_schema
        self.config = {**DEFAULTS, **config}
        given = config["sandbox_fusion_url"]
        urls = [given] if isinstance(given, str) else given
        self.urls = [url if url.endswith("/run_code") else f"{url}/run_code" for url in urls]
        self.last: dict[str, PeerResult | None] = {}
        self.truths: dict[str, str] = {}
        self._mine: Shared | None = None

    # -- verl's interface --

    async def create(
        self, instance_id: str | None = None, **kwargs: Any
    ) -> tuple[str, PeerResponse]:
        given = {**(kwargs.get("create_kwargs") or {}), **kwargs}
        instance = instance_id or f"i{len(self.last)}"
        self.last[instance], self.truths[instance] = None, given.get("ground_truth") or ""
        return instance, PeerResponse("")

    async def execute(
        self, instance_id: str, parameters: Any, **kwargs: Any
    ) -> tuple[Any, Any, Any]:
        remark = ""
        try:
            request = self.arguments(instance_id, parameters)
        except ValueError as error:
            result = PeerResult("bad_arguments", str(error))
        else:
            result, remark = await self.run(request), request.remark
        met = self.last.get(instance_id)
        lost = met is not None and met.outcome not in (
            *PROGRAMS,
            "bad_arguments",
        )  # not made up for later
        if instance_id in self.last and not lost:
            self.last[instance_id] = result
        self.state_for_the_trainer(result, kwargs.get("agent_data"))
        return (
            PeerResponse(self.text(result) + remark),
            self.step_reward(result),
            self.metrics(result),
        )

    async def calc_reward(self, instance_id: str, **kwargs: Any) -> float | None:
        result = self.last.get(instance_id)
        if result is None or result.outcome not in (*PROGRAMS, "bad_arguments"):
            return None
        return float(
            result.outcome == "ok" and result.stdout.strip() == self.truths[instance_id].strip()
        )

    async def release(self, instance_id: str, **kwargs: Any) -> None:
        self.last.pop(instance_id, None)
        self.truths.pop(instance_id, None)

    async def aclose(self) -> None:
        await self.shared().close()

    # -- a call --

    def arguments(self, call: str, parameters: Any) -> PeerRequest:
        """Read the model's arguments; raise ValueError with what is wrong."""
        if not isinstance(parameters, dict):
            raise ValueError("the arguments must be an object with the key `code`")
        code, language = parameters.get("code"), parameters.get("language", "python")
        if not isinstance(code, str) or not code.strip():
            raise ValueError("`code` must be a text with the program")
        if language not in ("python", *COMPILED):
            raise ValueError(f"`language` {language!r} is unknown; leave it out for python")
        asked, longest = (
            parameters.get("timeout"),
            max(self.config["max_timeout"], self.config["default_timeout"]),
        )
        if asked is None:
            return PeerRequest(call, code, language, self.config["default_timeout"])
        if not isinstance(asked, int | float) or not asked > 0:
            raise ValueError("`timeout` must be a number of seconds above 0")
        lowered = f"\n[`timeout` was lowered to {longest:g} s.]" if asked > longest else ""
        return PeerRequest(call, code, language, min(asked, longest), lowered)

    async def run(self, request: PeerRequest) -> PeerResult:
        """Make attempts until one is final or the call's time is over."""
        loop, waited = asyncio.get_running_loop(), 0.0
        deadline = self.config["call_deadline"]
        left = 2 * self.seconds(request) + 10.0 if deadline is None else deadline
        failed = Counter[str]()
        for number in itertools.count(1):
            began = loop.time()
            result = await self.attempt(
                request if deadline is None else replace(request, left=left), failed
            )
            left -= loop.time() - began - result.waited
            waited = result.waited = waited + result.waited
            pause = self.pause(request, number, result)
            if not self.may_retry(result, number) or pause >= left:
                return result
            await asyncio.sleep(pause)
            left -= pause
        raise AssertionError

    async def attempt(self, request: PeerRequest, failed: Counter[str]) -> PeerResult:
        """Send one request, within the limit, to the sandbox with the least to do."""
        loop, shared = asyncio.get_running_loop(), self.shared()
        since = loop.time()
        async with self.permit(shared):
            await self.pace(shared)
            waited = loop.time() - since
            url = self.choose(shared, failed)
            shared.in_flight[url] = shared.in_flight.get(url, 0) + 1
            try:
                result = await self.send(shared.session(), url, request)
            finally:
                shared.in_flight[url] -= 1
        result.waited = waited
        if result.transient:
            failed[url] += 1
        return result

    @asynccontextmanager
    async def permit(self, shared: Shared) -> AsyncIterator[None]:
        """Hold one of the permits, which comes back whatever happens."""
        await shared.gate.acquire()
        try:
            yield
        finally:
            shared.gate.release()

    def choose(self, shared: Shared, failed: Counter[str]) -> str:
        """Return the sandbox that failed this call least often, and of several the one with the
        least to do."""
        return min(self.urls, key=lambda url: (failed[url], shared.in_flight.get(url, 0)))

    async def pace(self, shared: Shared) -> None:
        """Wait for the turn of this request if requests per second are limited."""
        rate = self.config["requests_per_second"]
        if rate:
            now = asyncio.get_running_loop().time()
            turn = max(shared.next_start, now - (self.config["requests_burst"] - 1) / rate)
            shared.next_start = turn + 1 / rate
            await asyncio.sleep(max(0.0, turn - now))

    def seconds(self, request: PeerRequest) -> float:
        """Return the time for one attempt."""
        compiling = self.config["compile_timeout"] if request.language in COMPILED else 0.0
        needed = (
            request.timeout
            + compiling
            + self.config["transport_margin"]
            + _SPREAD * _jitter(request)
        )
        return float(min(needed, request.left))

    def may_retry(self, result: PeerResult, number: int) -> bool:
        if not result.transient or number >= self.config["max_attempts"]:
            return False
        return bool(self.config["retry_may_have_run"]) or not result.may_have_run

    def pause(self, request: PeerRequest, number: int, result: PeerResult) -> float:
        """Return how long to wait before the next attempt: longer each time, and different for
        each call."""
        return result.retry_after + min(8.0, 2.0 ** (number - 1)) * (
            0.5 + 0.5 * _jitter(request, number)
        )

    # -- an attempt --

    def timeouts(self, request: PeerRequest) -> aiohttp.ClientTimeout:
        seconds = self.seconds(request)
        # aiohttp would round the ends of long ones up to whole seconds.
        return aiohttp.ClientTimeout(
            total=seconds, sock_connect=min(10.0, seconds / 2), ceil_threshold=math.inf
        )

    def body(self, request: PeerRequest) -> dict[str, Any]:
        return {
            "code": request.code,
            "language": request.language,
            "run_timeout": request.timeout,
            "compile_timeout": self.config["compile_timeout"],
            "memory_limit_MB": self.config["memory_limit_mb"],
        }

    async def send(
        self, session: aiohttp.ClientSession, url: str, request: PeerRequest
    ) -> PeerResult:
        try:
            async with session.post(
                url,
                json=self.body(request),
                headers=self.config["headers"],
                timeout=self.timeouts(request),
            ) as answer:
                return self.read(answer.status, answer.headers, await self.read_body(answer))
        except (aiohttp.ConnectionTimeoutError, aiohttp.ClientConnectorError):
            return PeerResult("unreachable", "it could not be reached", transient=True)
        except TimeoutError:
            return PeerResult(
                "transport_timeout", "it did not answer in time", transient=True, may_have_run=True
            )
        except aiohttp.ClientPayloadError:
            return PeerResult(
                "bad_response", "its answer broke off", transient=True, may_have_run=True
            )
        except (aiohttp.ClientConnectionError, OSError):
            return PeerResult(
                "unreachable", "the connection was lost", transient=True, may_have_run=True
            )
        except (aiohttp.ClientError, ValueError):
            return PeerResult("bad_response", "its answer is not HTTP")

    async def read_body(self, answer: aiohttp.ClientResponse) -> bytes:
        return await answer.read()

    def read(self, status: int, headers: Mapping[str, str], body: bytes) -> PeerResult:
        """Read an answer, whatever it is."""
        retry = status in RETRIED
        asked = self.retry_after(headers) if retry else 0.0
        if status == 429:
            return PeerResult("throttled", "it is too busy", transient=True, retry_after=asked)
        if status >= 500:
            ran = status != 503
            return PeerResult(
                "sandbox_error",
                f"it answered {status}",
                transient=retry,
                may_have_run=ran,
                retry_after=asked,
            )
        if status != 200:
            return PeerResult("bad_response", f"it answered {status}")
        try:
            data = json.loads(body)
            return self.result(data)
        except (ValueError, KeyError, TypeError, AttributeError):
            return PeerResult("bad_response", "its answer could not be read")

    def retry_after(self, headers: Mapping[str, str]) -> float:
        value = headers.get("Retry-After", "0")
        try:
            return max(0.0, float(value))
        except ValueError:
            with suppress(ValueError):  # neither a number nor a date
                return max(0.0, parsedate_to_datetime(value).timestamp() - time.time())
            return 0.0

    def result(self, data: dict[str, Any]) -> PeerResult:
        """Read the JSON of an answer; anything unexpected raises."""
        if data["status"] == "SandboxError":
            return PeerResult(
                "sandbox_error", f"it failed by itself: {str(data.get('message'))[-200:]}"
            )
        compiled, ran = data["compile_result"], data["run_result"]
        if compiled is not None and compiled["return_code"] != 0:
            if compiled["return_code"] == 127:
                return PeerResult("sandbox_error", "it has no compiler")
            return self.printed("compile_error", compiled)
        if ran["status"] == "TimeLimitExceeded":
            return self.printed("program_timeout", ran)
        if ran["status"] != "Finished":
            return PeerResult("sandbox_error", f"the run ended as {ran['status']}")
        return self.printed("program_error" if int(ran["return_code"]) else "ok", ran)

    def printed(self, outcome: str, part: dict[str, Any]) -> PeerResult:
        stdout, stderr = (
            _SURROGATES.sub("\ufffd", part[key] or "") for key in ("stdout", "stderr")
        )
        return PeerResult(outcome, "", stdout, stderr, part["return_code"])

    # -- what the model reads, and what it is worth --

    def text(self, result: PeerResult) -> str:
        if result.outcome == "bad_arguments":
            return f"[Error: the call was refused and nothing was run: {result.message}]"
        if result.outcome not in PROGRAMS:
            return (
                "[Error, not output of a program: the sandbox failed "
                f"({result.outcome}: {result.message}).]"
            )
        output = self.cut(self.output(result))
        remark = self.remark(result)
        return f"{output}{chr(10) if output and remark and output[-1] != chr(10) else ''}{remark}"

    def output(self, result: PeerResult) -> str:
        stdout, stderr = (_ESCAPES.sub("", part) for part in (result.stdout, result.stderr))
        return f"{stdout}{chr(10) if stdout and stderr and stdout[-1] != chr(10) else ''}{stderr}"

    def cut(self, text: str) -> str:
        """Keep the beginning and the end of a long text, and say how much is missing."""
        limit = self.config["max_output_chars"]
        if len(text) <= limit:
            return text
        head, tail = (limit - 40 + 1) // 2, (limit - 40) // 2
        return f"{text[:head]}\n[… {len(text) - head - tail} characters cut …]\n{text[-tail:]}"

    def remark(self, result: PeerResult) -> str:
        size = max(len(result.stdout.encode()), len(result.stderr.encode()))
        if result.outcome == "program_timeout":
            return "[The program timed out; what it had printed is above.]"
        if result.outcome == "compile_error":
            return "[The program did not compile.]"
        if result.outcome == "program_error":
            return f"[The program exited with code {result.code}.]"
        return f"[The sandbox may have cut the output at {size} bytes.]" if size == 219_264 else ""

    def step_reward(self, result: PeerResult) -> float | None:
        return None

    def metrics(self, result: PeerResult) -> dict[str, Any] | None:
        if not self.config["states_outcomes"]:
            return None
        infrastructure = result.outcome not in (*PROGRAMS, "bad_arguments")
        return {
            "outcome": result.outcome,
            "infrastructure": infrastructure,
            "permit_wait_s": result.waited,
        }

    def state_for_the_trainer(self, result: PeerResult, agent_data: Any) -> None:
        """Leave the outcome where verl's trainer finds it: verl drops the metrics of
        ``execute``."""
        if agent_data is not None and self.config["states_outcomes"]:
            agent_data.extra_fields.setdefault("extras", {})["outcome"] = result.outcome

    # -- what is shared --

    def shared(self) -> Shared:
        """Return what the tools of this loop share; a new loop gets its own."""
        key = (ref(asyncio.get_running_loop()), type(self), *self.urls)
        shared = self._shared.get(key)
        if shared is None:
            shared = self._shared[key] = Shared(self.config)
        self._mine = shared
        return shared


def _jitter(request: PeerRequest, number: int = 0) -> float:
    """Return a number from 0 to 1, another for each call and attempt."""
    return zlib.crc32(f"{request.call} {request.code} {number}".encode()) / 2**32


SCHEMA: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "code_interpreter",
        "description": "Runs code and returns what it prints.",
        "parameters": {
            "type": "object",
            "properties": {"code": {"type": "string", "description": "the program"}},
            "required": ["code"],
        },
    },
}


def tool_config(tool: type[GoodTool], *, states_outcomes: bool = True) -> list[dict[str, Any]]:
    """Return the entries of a tool config with one tool."""
    config = {
        **DEFAULTS,
        "sandbox_fusion_url": ["http://sandbox.invalid"],
        "states_outcomes": states_outcomes,
    }
    return [
        {
            "class_name": f"{tool.__module__}.{tool.__qualname__}",
            "config": config,
            "tool_schema": SCHEMA,
        }
    ]
