"""Where answers come from: a live server, the fake in this process, or a recording."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from sfusion.fakes.sandbox import FakeSandbox, Profile
from sfusion.harness.real.drift.judging import ServerAnswers
from sfusion.harness.real.probes.cassette import Recording, probe_request_record
from sfusion.harness.real.probes.model import Probe
from sfusion.harness.real.probes.raw_http import ProbeAnswer, Server
from sfusion.harness.real.probes.sending import PATIENCE, OnAnswer, ask, scrubber_for

REVEALS_PROFILE = "memory/over-limit"
"""The probe that identifies the published image of June 2025, which ignores the limit."""
_HOST = re.compile(r"^host:[ \t]*([^\s:]+)", re.IGNORECASE | re.MULTILINE)
RAW = "raw bytes cannot carry the header, prefix or key of a gateway"


async def live_answers(
    url: str,
    probes: Sequence[Probe],
    *,
    name: str,
    headers: Mapping[str, str] | None = None,
    timeout: float = PATIENCE,
    on_answer: OnAnswer = lambda _: None,
) -> ServerAnswers:
    """Ask a server and scrub its answers; raises Unreachable."""
    server = Server.at(url, headers)
    sent = [probe for probe in probes if server.can_send(probe)]
    raw = await ask(url, sent, shown=name, headers=headers, timeout=timeout, on_answer=on_answer)
    scrubber = scrubber_for(url, headers, probes)
    answers = {probe.id: scrubber.answer(one) for probe, one in zip(sent, raw, strict=True)}
    return ServerAnswers(name, answers, {probe.id: RAW for probe in probes if not server.can_send(probe)})


async def fake_answers(
    probes: Sequence[Probe],
    *,
    executor: str = "python",
    profile: Profile = "2026-07",
    timeout: float = PATIENCE,
    on_answer: OnAnswer = lambda _: None,
) -> ServerAnswers:
    """Ask a fake that is started in this process."""
    # The fake refuses foreign names and web pages, which the real server serves: allow those that the probes imitate.
    hosts = {name for probe in probes for name in _HOST.findall(probe.raw or "")}
    asked = [probe.request.sent_headers for probe in probes if probe.request is not None]
    origins = {value for headers in asked for name, value in headers.items() if name.lower() == "origin"}
    async with FakeSandbox(executor=executor, profile=profile, allow_hosts=hosts, allow_origins=origins) as sandbox:
        fake = await live_answers(sandbox.url, probes, name=f"fake {profile}", timeout=timeout, on_answer=on_answer)
        runs_code = sandbox.executor.runs_code
    if runs_code:
        return fake
    why = f"the fake runs no code with executor {executor}"
    ran = {probe.id: why for probe in probes if probe.runs and fake.answers[probe.id].status == 200}
    return ServerAnswers(fake.name, fake.answers, ran)


def recorded_answers(recording: Recording, probes: Sequence[Probe], *, name: str) -> ServerAnswers:
    answers: dict[str, ProbeAnswer] = {}
    not_comparable: dict[str, str] = {}
    for probe in probes:
        if probe.id not in recording.answers:
            not_comparable[probe.id] = f"not in {name}"
        elif _sent(recording.requests[probe.id]) != _sent(probe_request_record(probe)):
            not_comparable[probe.id] = f"{name} has the answer to a different request"
        else:
            answers[probe.id] = recording.answers[probe.id]
    return ServerAnswers(name, answers, not_comparable)


def profile_of(answers: Mapping[str, ProbeAnswer]) -> Profile | None:
    """Return the profile that these answers show, or None if they do not show it."""
    answer = answers.get(REVEALS_PROFILE)
    body = answer.json() if answer is not None else None
    status = body.get("status") if isinstance(body, dict) else None
    return "2025-06" if status == "Success" else "2026-07" if status == "Failed" else None


def _sent(request: Mapping[str, Any]) -> Any:
    """Normalise a request so that equal ones compare equal."""
    headers = {str(name).lower(): value for name, value in (request.get("headers") or {}).items()}
    return {**request, "headers": headers} if "path" in request else dict(request)
