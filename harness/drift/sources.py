"""The two sides of a comparison: the fake in this process, a live server, a recording."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from sfusion.fakes.sandbox import FakeSandbox, Profile
from sfusion.harness.drift.judging import ServerAnswers
from sfusion.harness.probes import Probe, ProbeAnswer, Recording, Server
from sfusion.harness.probes.cassette import request_record
from sfusion.harness.probes.recording import ask, scrubber_for
from sfusion.harness.probes.sending import PATIENCE, Told

TELLS_PROFILE = "memory/over-limit"
"""The probe by which the published image of June 2025 is told: it ignores the limit."""


RAW = "raw bytes cannot carry the header, prefix or key of a gateway"


async def live_answers(
    url: str,
    probes: Sequence[Probe],
    *,
    name: str,
    headers: Mapping[str, str] | None = None,
    timeout: float = PATIENCE,
    told: Told = lambda _: None,
) -> ServerAnswers:
    """What a server answers now, scrubbed; raises Unreachable."""
    server = Server.at(url, headers)
    sent = [probe for probe in probes if server.takes(probe)]
    heard = await ask(url, sent, shown=name, headers=headers, timeout=timeout, told=told)
    scrubber = scrubber_for(url, headers, probes)
    answers = {probe.id: scrubber.heard(one) for probe, one in zip(sent, heard, strict=True)}
    return ServerAnswers(name, answers, {probe.id: RAW for probe in probes if not server.takes(probe)})


async def fake_answers(
    probes: Sequence[Probe],
    *,
    executor: str = "python",
    profile: Profile = "2026-07",
    timeout: float = PATIENCE,
    told: Told = lambda _: None,
) -> ServerAnswers:
    """What the fake answers, in this process."""
    async with FakeSandbox(executor=executor, profile=profile) as sandbox:
        side = await live_answers(sandbox.url, probes, name=f"fake {profile}", timeout=timeout, told=told)
        runs_code = sandbox.executor.runs_code
    if runs_code:
        return side
    why = f"the fake runs no code with executor {executor}"
    ran = {probe.id: why for probe in probes if probe.runs and side.answers[probe.id].status == 200}
    return ServerAnswers(side.name, side.answers, ran)


def recorded_answers(recording: Recording, probes: Sequence[Probe], *, name: str) -> ServerAnswers:
    """What a server answered when it was recorded."""
    answers: dict[str, ProbeAnswer] = {}
    excuses: dict[str, str] = {}
    for probe in probes:
        if probe.id not in recording.answers:
            excuses[probe.id] = f"{name} does not hold it"
        elif _sent(recording.requests[probe.id]) != _sent(request_record(probe)):
            excuses[probe.id] = f"{name} holds the answer to another request"
        else:
            answers[probe.id] = recording.answers[probe.id]
    return ServerAnswers(name, answers, excuses)


def profile_of(answers: Mapping[str, ProbeAnswer]) -> Profile | None:
    """Which of the two servers these answers come from; None when they do not tell."""
    heard = answers.get(TELLS_PROFILE)
    try:
        body = json.loads(heard.body) if heard is not None else None
    except ValueError:
        return None
    status = body.get("status") if isinstance(body, dict) else None
    return "2025-06" if status == "Success" else "2026-07" if status == "Failed" else None


def _sent(request: Mapping[str, Any]) -> Any:
    """A request in a form that only differs when another one was sent."""
    headers = {str(name).lower(): value for name, value in (request.get("headers") or {}).items()}
    return {**request, "headers": headers} if "path" in request else dict(request)
