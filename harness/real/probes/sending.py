"""Send a suite to a server, a few probes at a time; the answers keep the order of the probes."""

from __future__ import annotations

import asyncio
import getpass
import os
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ...errors import Unreachable
from .model import Probe, ProbeRequest
from .raw_http import NotConnected, ProbeAnswer, Server, exchange, request_bytes
from .scrubbing import Scrubber, probe_secrets

AT_ONCE = 4
PATIENCE = 60.0
"""Seconds that one probe may take; the longest bundled one takes a little over ten."""
MAX_TIMEOUTS = 3
"""Probes without an answer in time after which a server counts as gone (chosen)."""

OnAnswer = Callable[[Probe], None]


@dataclass(frozen=True)
class Sender:
    server: Server
    shown: str
    """The server's name in errors; nothing secret."""
    timeout: float = PATIENCE

    async def check(self) -> None:
        """Raise Unreachable unless a sandbox answers."""
        try:
            ping = await self._ask(_probe("GET", "/v1/ping"))
            if ping.json() == "pong":
                return
            posted = await self._ask(_probe("POST", "/run_code"))
        except NotConnected as error:
            raise Unreachable(f"{self.shown} cannot be reached: {error}") from None
        if isinstance(posted.json(), dict):
            return
        raise Unreachable(
            f"{self.shown} answers, but not like Sandbox Fusion: GET /v1/ping returns "
            f"{_shape(ping)} "
            f"and POST /run_code returns {_shape(posted)}; is it the right address?"
        )

    async def send(
        self, probes: Sequence[Probe], on_answer: OnAnswer = lambda _: None
    ) -> list[ProbeAnswer]:
        """Return the answers in the order of the probes; raises Unreachable if the server goes
        away."""
        answers: dict[int, ProbeAnswer] = {}
        timeouts = 0
        total = len(probes)

        async def one(number: int) -> None:
            nonlocal timeouts
            probe = probes[number]
            done = len(answers)
            try:
                # The answer; of a burst, the first of the worst answers.
                answers[number] = max(
                    await asyncio.gather(*map(self._ask, [probe] * probe.burst)), key=_badness
                )
            except NotConnected as error:
                raise Unreachable(
                    f"{self.shown} cannot be reached after {done} of {total} probes: {error}"
                ) from None
            if answers[number].failure.startswith("no answer within"):
                timeouts += 1
                if timeouts >= MAX_TIMEOUTS:
                    raise Unreachable(
                        f"{self.shown} stopped answering: {timeouts} probes got no answer "
                        f"within {self.timeout:g} s, "
                        f"the last one {probe.id}, after {len(answers)} of {total} probes"
                    )
            on_answer(probe)

        together = iter(
            [number for number, probe in enumerate(probes) if not probe.alone and probe.burst == 1]
        )

        async def worker() -> None:
            for number in together:
                await one(number)

        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(AT_ONCE):
                    group.create_task(worker())
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None
        for number, probe in enumerate(probes):
            if probe.alone or probe.burst > 1:
                await one(number)
        return [answers[number] for number in range(total)]

    async def ask(self, probes: Sequence[Probe], on_answer: OnAnswer) -> list[ProbeAnswer]:
        """Return the answers of a sandbox, unscrubbed; raises Unreachable."""
        await self.check()
        return await self.send(probes, on_answer)

    async def _ask(self, probe: Probe) -> ProbeAnswer:
        data = request_bytes(probe, self.server)
        return await exchange(
            self.server, data, head_only=probe.method == "HEAD", timeout=self.timeout
        )


def _probe(method: str, path: str) -> Probe:
    request = ProbeRequest(method=method, path=path)
    return Probe(id="check/first", about="Check that this is a sandbox.", request=request)


def _badness(answer: ProbeAnswer) -> int:
    """Rank an answer, the worst highest: no answer, rejected, the sandbox failed, the program
    failed, success."""
    if answer.failure:
        return 4
    if answer.status != 200:
        return 3
    body = answer.json()
    status = body.get("status") if isinstance(body, dict) else None
    return {"SandboxError": 2, "Failed": 1}.get(str(status), 0)


def _shape(answer: ProbeAnswer) -> str:
    if answer.failure:
        return answer.failure
    return f"{answer.status} with {answer.header('content-type') or 'no content type'}"


def scrubber_for(
    url: str, headers: Mapping[str, str] | None = None, probes: Sequence[Probe] = ()
) -> Scrubber:
    """Scrub what is sent to the server, and the names of this machine and its user: the server may
    run on it."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = ""  # in a container, the user id may have no name
    host = socket.gethostname()
    return Scrubber.of(
        url=url,
        headers=headers,
        hosts=[host, host.partition(".")[0]],
        users=[user],
        paths=[str(Path.home()), os.getcwd()],
        environ=os.environ,
        also_secret=probe_secrets(probes),
    )
