"""Sending a suite to a server: a few at a time, always in the same order of answers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sfusion.harness.errors import Unreachable
from sfusion.harness.probes.model import Probe, ProbeRequest
from sfusion.harness.probes.raw_http import NotConnected, ProbeAnswer, Server, exchange, request_bytes

AT_ONCE = 4
PATIENCE = 60.0
"""Seconds that one probe may take; the longest bundled one takes a good ten."""
MAX_SILENT = 3
"""Probes without any answer in time after which a server counts as gone."""

Told = Callable[[Probe], None]


@dataclass(frozen=True)
class Sender:
    """Sends probes to one server."""

    server: Server
    shown: str
    """How the server is called in errors; nothing secret."""
    timeout: float = PATIENCE
    at_once: int = AT_ONCE

    async def check(self) -> None:
        """Raise Unreachable unless a sandbox answers there."""
        ping = await self._ask(_probe("GET", "/v1/ping"), 0, 0)
        if _json(ping) == "pong":
            return
        posted = await self._ask(_probe("POST", "/run_code"), 0, 0)
        if isinstance(_json(posted), dict):
            return
        raise Unreachable(
            f"{self.shown} answers, but not as a Sandbox Fusion: GET /v1/ping gave {_shape(ping)} "
            f"and POST /run_code gave {_shape(posted)}; is it the right address?"
        )

    async def send(self, probes: Sequence[Probe], told: Told = lambda _: None) -> list[ProbeAnswer]:
        """The answers in the order of the probes; raises Unreachable when the server goes away."""
        answers: dict[int, ProbeAnswer] = {}
        silent = 0
        total = len(probes)

        async def one(number: int) -> None:
            nonlocal silent
            probe = probes[number]
            heard = await self._burst(probe, len(answers), total)
            answers[number] = heard
            if heard.failure.startswith("no answer within"):
                silent += 1
                if silent >= MAX_SILENT:
                    raise Unreachable(
                        f"{self.shown} does not answer any more: {silent} probes got nothing within "
                        f"{self.timeout:g} s, the last of them {probe.id}, after {len(answers)} of {total} probes"
                    )
            told(probe)

        together = iter([number for number, probe in enumerate(probes) if not probe.alone and probe.burst == 1])

        async def worker() -> None:
            for number in together:
                await one(number)

        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(self.at_once):
                    group.create_task(worker())
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None
        for number, probe in enumerate(probes):
            if probe.alone or probe.burst > 1:
                await one(number)
        return [answers[number] for number in range(total)]

    async def _burst(self, probe: Probe, done: int, total: int) -> ProbeAnswer:
        """The answer; of several the worst, and of these the first."""
        if probe.burst == 1:
            return await self._ask(probe, done, total)
        return max(await asyncio.gather(*(self._ask(probe, done, total) for _ in range(probe.burst))), key=_badness)

    async def _ask(self, probe: Probe, done: int, total: int) -> ProbeAnswer:
        data = request_bytes(probe, self.server)
        try:
            return await exchange(self.server, data, head_only=probe.method == "HEAD", timeout=self.timeout)
        except NotConnected as error:
            when = f" after {done} of {total} probes" if total else ""
            raise Unreachable(f"{self.shown} cannot be reached{when}: {error}") from None


def _probe(method: str, path: str) -> Probe:
    request = ProbeRequest(method=method, path=path)
    return Probe(id="check/first", about="Is this a sandbox at all.", request=request)


def _json(heard: ProbeAnswer) -> object:
    try:
        return json.loads(heard.body)
    except ValueError:
        return None


def _badness(heard: ProbeAnswer) -> int:
    """How far an answer is from a success: no answer, refused, the sandbox failed, the program failed."""
    if heard.failure:
        return 4
    if heard.status != 200:
        return 3
    body = _json(heard)
    status = body.get("status") if isinstance(body, dict) else None
    return {"SandboxError": 2, "Failed": 1}.get(str(status), 0)


def _shape(heard: ProbeAnswer) -> str:
    if heard.failure:
        return heard.failure
    return f"{heard.status} with {heard.header('content-type') or 'no content type'}"
