"""Proxies of the environment: would one of them catch the calls, and what comes of it?"""

from __future__ import annotations

from sfusion.harness.doctor.finding import Finding, breaks, hurts, note
from sfusion.harness.doctor.http import Answer, Silence
from sfusion.harness.doctor.patient import Patient
from sfusion.harness.doctor.proxies import proxy_of_requests
from sfusion.harness.doctor.subject import Client
from sfusion_tools.sandbox.endpoints import redact
from sfusion_tools.sandbox.proxy import is_usable


async def take_detour(patient: Patient) -> list[Finding]:
    """See which proxy the calls would go through, and whether the sandbox answers through it."""
    ours = patient.proxy
    of_requests = proxy_of_requests(patient.subject.base, patient.environ)
    if ours is not None:
        return await _caught(patient, ours)
    if of_requests is None or not is_usable(of_requests) or patient.subject.client is Client.VERL:
        return []
    make = note if patient.subject.client is Client.SFUSION else hurts
    return [
        make(
            "proxy-catches",
            seen=f"the environment names the proxy {redact(of_requests)}; sfusion goes to {patient.subject.host} "
            "directly, but `requests` does not",
            training="verl's tool and reward use `requests`: their calls go to the proxy, which cannot reach this host",
            change=_change(patient),
        )
    ]


async def _caught(patient: Patient, proxy: str) -> list[Finding]:
    subject, plan = patient.subject, patient.plan
    url = subject.at("v1/ping")
    through = await patient.wire.get(url, within=plan.patience, proxy=proxy)
    direct = await patient.wire.get(url, within=plan.connect)
    name, host = redact(proxy), subject.host
    if _pongs(through):
        make = hurts if _pongs(direct) else note
        return [
            make(
                "proxy-catches",
                seen=f"calls to {host} go through the proxy {name} of the environment; it answers"
                + (", and so does the sandbox without it" if _pongs(direct) else ", and without it nothing does"),
                training="every program and its output passes the proxy, and waits for it under load",
                change=_change(patient) if _pongs(direct) else "nothing, if that is how the sandbox is reached",
            )
        ]
    patient.stopped = "a proxy of the environment catches the requests"
    without = "without it the sandbox answers" if _pongs(direct) else f"without it: {_said(direct)}"
    return [
        breaks(
            "proxy-catches",
            seen=f"calls to {host} go through the proxy {name} of the environment: {_said(through)}; {without}",
            training="the proxy answers in the sandbox's place: every call fails, and looks like the sandbox's doing",
            change=_change(patient),
        )
    ]


def _change(patient: Patient) -> str:
    return f"add {patient.subject.host} to NO_PROXY on every training node, or unset the proxy variables there"


def _pongs(answer: Answer | Silence) -> bool:
    return isinstance(answer, Answer) and answer.status == 200 and answer.body == b'"pong"'


def _said(answer: Answer | Silence) -> str:
    return f"the ping is answered {answer.status}" if isinstance(answer, Answer) else f"no answer ({answer.text})"
