"""What the checks share: what a finding is, access to the sandbox, and what is known about it so
far."""

from __future__ import annotations

import asyncio
import ipaddress
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import proxy_bypass_environment  # type: ignore[attr-defined] # not in typeshed

import aiohttp

from sfusion_tools.outcome import Outcome
from sfusion_tools.sandbox import Bounds, CallResult, Program, RetryPolicy, SandboxClient
from sfusion_tools.sandbox.endpoints import SHORTEST_PASSWORD, is_usable, proxy_for, proxy_variable

from ....fakes.call_mark import mark_for
from ...errors import NotExamined, Vanished
from .http import HttpAnswer, NoAnswer, open_http, send
from .settings import Client, Plan, SandboxSettings


class Severity(StrEnum):
    """How bad a finding is for a training run."""

    BREAKS = "breaks"
    """Calls fail or return wrong results: training continues and learns from garbage."""
    HURTS = "hurts"
    """Training works, but more slowly than it could, or with wrong results in some cases."""
    NOTE = "note"
    """Worth knowing."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One result of a check. The three texts are shown under the labels seen, training and
    change."""

    id: str
    severity: Severity
    seen: str
    """What was observed, with numbers."""
    training: str
    """The effect on training."""
    change: str
    """What to do about it."""

    @property
    def breaks(self) -> bool:
        return self.severity is Severity.BREAKS


breaks = partial(Finding, severity=Severity.BREAKS)
hurts = partial(Finding, severity=Severity.HURTS)
note = partial(Finding, severity=Severity.NOTE)


def proxy_of_requests(url: str, environ: Mapping[str, str]) -> str | None:
    """Return the proxy that the library `requests` would use."""
    parts = urlsplit(url)
    host = (parts.hostname or "").lower()
    exempt = proxy_variable(environ, "no_proxy").replace(" ", "")
    if proxy_bypass_environment(f"{host}:{parts.port}" if parts.port else host, {"no": exempt}):
        return None
    if any(_holds(entry, host) for entry in exempt.split(",") if "/" in entry):
        return None
    proxy = proxy_variable(environ, f"{parts.scheme}_proxy") or proxy_variable(environ, "all_proxy")
    if not proxy:
        return None
    return proxy if "://" in proxy else f"http://{proxy}"


def secrets_of_proxies(environ: Mapping[str, str]) -> list[str]:
    proxies = [value for name, value in environ.items() if name.lower().endswith("_proxy")]
    return [password for value in proxies if len(password := _password(value)) >= SHORTEST_PASSWORD]


def _password(proxy: str) -> str:
    try:
        return urlsplit(proxy).password or ""
    except ValueError:
        return ""


def _holds(network: str, host: str) -> bool:
    try:
        return ipaddress.IPv4Address(host) in ipaddress.IPv4Network(network, strict=False)
    except ValueError:
        return False


TRIES = 3
"""Attempts for a program that gets no answer (chosen)."""

_SLASHES = frozenset({"cpp", "nodejs", "java", "go", "typescript", "rust", "php"})
_HASH = frozenset({"python", "bash", "ruby", "perl", "R", "julia", "pytest"})


@dataclass(slots=True)
class CheckContext:
    """One sandbox under examination."""

    settings: SandboxSettings
    plan: Plan
    http: aiohttp.ClientSession
    environ: Mapping[str, str]
    root: Path
    announce: Callable[[str], None]
    """Tells the user what is about to happen, before it happens."""
    reached: bool = False
    """The address accepted a connection."""
    ping: HttpAnswer | NoAnswer | None = None
    stopped: str = ""
    """Why no further check is possible; empty as long as they are."""
    memory_limit_mb: int = -1
    """The limit that programs are sent with: the config's, once it is known to work."""
    measured: dict[str, Any] = field(default_factory=dict)
    """Figures for the report."""
    programs: int = 0
    """Programs sent with retries allowed."""
    failures: Counter[str] = field(default_factory=Counter)
    """Attempts of these that got no answer from the sandbox, by what came instead."""
    _client: SandboxClient | None = None

    @property
    def proxy(self) -> str | None:
        """The proxy that training's requests go through; for an unknown client, the one sfusion
        would use."""
        settings = self.settings
        if settings.client is Client.VERL:
            proxy = proxy_of_requests(settings.base, self.environ)
        else:
            proxy = (
                proxy_for(settings.base, self.environ) if settings.config.trust_proxy_env else None
            )
        return proxy if proxy is not None and is_usable(proxy) else None

    async def get(self, route: str) -> HttpAnswer | NoAnswer:
        return await self.send(self.settings.at(route))

    async def post(self, program: Program, *, within: float | None = None) -> HttpAnswer | NoAnswer:
        """Post a program to /run_code once and return the answer uninterpreted."""
        return await self.send(self.settings.at("run_code"), program.body(), within=within)

    async def send(
        self, url: str, body: bytes | None = None, *, within: float | None = None
    ) -> HttpAnswer | NoAnswer:
        """Wait for an answer for so many seconds; without them, as long as for an ordinary one."""
        seconds = self.plan.patience if within is None else within
        return await send(self.http, url, body, within=seconds, proxy=self.proxy)

    async def run(
        self,
        name: str,
        code: str,
        *,
        language: str = "python",
        seconds: float | None = None,
        stdin: str | None = None,
        memory_limit_mb: int | None = None,
        once: bool = False,
    ) -> CallResult:
        """Run a program with the client that training uses.

        Without an answer from the sandbox it is sent again, as training would, unless ``once``.
        Raises Vanished when the sandbox is gone, and NotExamined when only this program gets no
        answer.
        """
        limit = self.memory_limit_mb if memory_limit_mb is None else memory_limit_mb
        program = Program(
            marked(name, code, language),
            language,
            self.plan.seconds if seconds is None else seconds,
            memory_limit_mb=limit,
            stdin=stdin,
            compile_timeout=10.0,
        )
        failure = ""
        for turn in range(TRIES):
            await asyncio.sleep(self.plan.pause * turn)
            result = await self._sandbox_client().run(program, call_id=f"doctor-{name}")
            if once:
                return result
            self.programs += 1
            failure = _failure(result)
            if not failure:
                return result
            self.failures[failure] += 1
            if result.outcome in (Outcome.UNREACHABLE, Outcome.TRANSPORT_TIMEOUT):
                await self.must_answer(result.message)
        raise NotExamined(f"no answer in {TRIES} attempts: {failure}")

    async def must_answer(self, why: str) -> None:
        """Raise Vanished unless the sandbox still runs the simplest program."""
        program = Program(
            marked("alive", "print(1)"), timeout=self.plan.patience, memory_limit_mb=-1
        )
        answer = await self.post(program)
        if isinstance(answer, NoAnswer):
            raise Vanished(
                f"{why}; a program that prints one line gets no answer either: {answer.text}"
            )

    async def reconnect(self) -> None:
        """Close all connections: a front server that admits only so many counts idle ones too."""
        await self.aclose()
        self.http = open_http(self.settings.config.headers, self.plan.connect)

    async def aclose(self) -> None:
        await self.http.close()
        if self._client is not None:
            await self._client.aclose()
            self._client = None

    def _sandbox_client(self) -> SandboxClient:
        if self._client is None:
            self._client = SandboxClient(
                self.settings.base,
                retry=RetryPolicy(max_attempts=1),
                bounds=Bounds(margin=self.plan.patience),
                headers=self.settings.config.headers,
                trust_proxy_env=self.settings.config.trust_proxy_env,
            )
        return self._client


def _failure(result: CallResult) -> str:
    """What came instead of the sandbox's answer; empty if it answered at all."""
    status = result.attempts[-1].status if result.attempts else None
    if status is None:
        return result.outcome.value
    return f"status {status}" if status == 429 or status >= 500 else ""


def marked(name: str, code: str, language: str = "python", hints: str = "") -> str:
    """Append the call mark as a comment, so that a fake's ledger shows which calls were the
    doctor's."""
    if language in _SLASHES:
        sign = "//"
    elif language in _HASH:
        sign = "#"
    else:
        return code
    return f"{code}\n{sign} {mark_for(f'doctor-{name}')}{hints}\n"
