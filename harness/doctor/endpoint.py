"""What is behind the address: nobody, something that speaks otherwise, something else, or a sandbox that runs code."""

from __future__ import annotations

import asyncio
from urllib.parse import urlsplit

from sfusion.harness.doctor.address import loopback
from sfusion.harness.doctor.finding import Finding, breaks, hurts
from sfusion.harness.doctor.http import Answer, Silence, connects, speaks_plain_http, speaks_tls
from sfusion.harness.doctor.patient import TRIES, Patient, marked
from sfusion.harness.doctor.responder import judge
from sfusion_tools.sandbox.endpoints import redact
from sfusion_tools.sandbox.program import Program

HELLO = 'print("sfusion", 6 * 7)'
GREETING = "sfusion 42\n"


async def reach(patient: Patient) -> list[Finding]:
    """Does anything take connections there?"""
    subject = patient.subject
    if patient.proxy is not None:
        patient.reached = True  # what the proxy does was judged before
        return []
    silence = await connects(subject.host, subject.port, within=patient.plan.connect)
    in_container = loopback(patient, silence.text if silence else "")
    if silence is None:
        patient.reached = True
        return [in_container] if in_container else []
    patient.stopped = "nothing takes connections at the address"
    if in_container:
        return [in_container]
    change = {
        "dns": "correct the host's name, or make it known to this machine",
        "refused": "start the sandbox, and correct host and port. A container needs its port published (-p), "
        "and images built after July 2026 listen only inside unless HOST=0.0.0.0 is set",
    }.get(silence.why, "correct host and port, and let a firewall between here and there pass it")
    return [
        breaks(
            "unreachable",
            seen=f"no connection to {subject.host} port {subject.port}: {silence.text}",
            training="every call fails as unreachable, after all its attempts",
            change=change,
        )
    ]


async def greet(patient: Patient) -> list[Finding]:
    """Does it speak HTTP, with or without TLS as the URL says, and answer a ping?"""
    subject, plan = patient.subject, patient.plan
    ping = patient.ping = await patient.wire.get(subject.at("v1/ping"), within=plan.patience, proxy=patient.proxy)
    if isinstance(ping, Silence):
        return await _no_greeting(patient, ping)
    patient.measured["ping_seconds"] = round(ping.seconds, 4)
    if subject.scheme == "http" and ping.status == 400 and b"HTTPS port" in ping.body:
        return [_http_to_tls(patient)]
    if ping.seconds >= plan.slow_ping:
        return [
            hurts(
                "slow-ping",
                seen=f"GET /v1/ping took {ping.seconds:.1f} s on a server that should be idle",
                training="the server's loop is busy or its machine is: calls wait as long before they begin",
                change="look for other load on it; give it more cores, or more instances",
            )
        ]
    return []


async def _no_greeting(patient: Patient, ping: Silence) -> list[Finding]:
    subject, plan = patient.subject, patient.plan
    direct = patient.proxy is None
    if ping.why == "certificate":
        patient.stopped = "its certificate is not trusted"
        return [
            breaks(
                "certificate",
                seen=f"the certificate of {subject.host} is refused: {ping.text}",
                training="every call fails before it is sent",
                change="install the certificate authority that signed it (SSL_CERT_FILE for sfusion, "
                "REQUESTS_CA_BUNDLE for verl's tool), or renew it for this name",
            )
        ]
    if ping.why == "tls":
        patient.stopped = "no TLS connection can be made"
        if direct and await speaks_plain_http(subject.host, subject.port, within=plan.connect):
            return [
                breaks(
                    "https-to-plain-port",
                    seen=f"the URL says https, but port {subject.port} of {subject.host} speaks plain HTTP",
                    training="every call fails while the connection is made",
                    change="write http:// in the URL, or give the port that serves TLS",
                )
            ]
        return [
            breaks(
                "tls-fails",
                seen=f"the TLS handshake with {subject.host} fails: {ping.text}",
                training="every call fails while the connection is made",
                change="let both ends speak a common version of TLS",
            )
        ]
    if (
        subject.scheme == "http"
        and direct
        and ping.why in ("lost", "garbled")
        and await speaks_tls(subject.host, subject.port, within=plan.connect)
    ):
        return [_http_to_tls(patient)]
    return []  # whether that matters is seen when a program is sent


def _http_to_tls(patient: Patient) -> Finding:
    patient.stopped = "the port wants TLS"
    subject = patient.subject
    return breaks(
        "http-to-tls-port",
        seen=f"the URL says http, but port {subject.port} of {subject.host} wants TLS",
        training="every call is refused or its connection is dropped",
        change="write https:// in the URL",
    )


async def say_hello(patient: Patient) -> list[Finding]:
    """Does it run a program?"""
    subject, ping = patient.subject, patient.ping
    answer = await _hello_answered(patient)
    if isinstance(answer, Answer):
        patient.measured["hello_seconds"] = round(answer.seconds, 4)
        found = judge(answer, where=redact(subject.at("run_code")), expected=GREETING)
        if found is not None:
            patient.stopped = "no program can be run there"
            return [found]
        return _ping_beside_work(patient)
    patient.stopped = "/run_code does not answer"
    waited = f"{answer.seconds:.1f} s"
    if answer.why == "timeout" and isinstance(ping, Answer):
        return [
            breaks(
                "run-code-hangs",
                seen=f"/v1/ping answered in {ping.seconds * 1000:.0f} ms, but a program that prints one line had no "
                f"answer after {waited}",
                training="health checks stay green while every call waits out its time and fails",
                change="restart the sandbox, and check it by running a program, not by its ping",
            )
        ]
    if answer.why == "timeout":
        return [
            breaks(
                "no-answer",
                seen=f"connections are taken, but neither /v1/ping nor /run_code answered ({waited})",
                training="every call waits out its time and fails",
                change="restart the sandbox; if it is new there, check that this is its port",
            )
        ]
    return [
        breaks(
            "connection-lost",
            seen=f"the connection broke while a program was run: {answer.text}",
            training="every call fails, and nobody can tell whether its program ran",
            change="look at the server's log: it, or the gateway before it, drops the request",
        )
    ]


async def _hello_answered(patient: Patient) -> Answer | Silence:
    """The answer to the simplest program; one that was refused or lost is sent again, as training would."""
    subject, plan = patient.subject, patient.plan
    body = Program(marked("hello", HELLO), "python", plan.patience, memory_limit_mb=-1).body()
    stumbles: list[str] = []
    for turn in range(1, TRIES + 1):
        answer = await patient.wire.post(subject.at("run_code"), body, within=plan.patience, proxy=patient.proxy)
        stumble = _stumble(answer)
        if not stumble or turn == TRIES:
            break
        stumbles.append(stumble)
        await asyncio.sleep(min(plan.patience, max(plan.pause * turn, _asked_to_wait(answer))))
    if not stumble:
        # It was not the sandbox's way, only a stumble: the last check tells of those.
        patient.programs += len(stumbles)
        patient.stumbles.update(stumbles)
    return answer


def _stumble(answer: Answer | Silence) -> str:
    """What came instead of a sandbox's answer and may be gone the next time; silence costs too long to try again."""
    if isinstance(answer, Silence):
        return "" if answer.why == "timeout" else "no answer"
    return f"status {answer.status}" if answer.status == 429 or answer.status >= 500 else ""


def _asked_to_wait(answer: Answer | Silence) -> float:
    try:
        return float(answer.headers.get("Retry-After", 0)) if isinstance(answer, Answer) else 0.0
    except ValueError:
        return 0.0  # a date


def _ping_beside_work(patient: Patient) -> list[Finding]:
    """A sandbox that runs programs but does not answer pings."""
    ping = patient.ping
    if isinstance(ping, Answer) and ping.status == 200:
        return []
    seen = f"is answered {ping.status}" if isinstance(ping, Answer) else f"is not answered ({ping and ping.text})"
    path = urlsplit(patient.subject.at("v1/ping")).path
    return [
        hurts(
            "ping-dead",
            seen=f"programs run, but GET {path} {seen}",
            training="calls work; what waits for the ping (health checks, `--sandbox docker`) thinks it is down",
            change="let the gateway pass /v1/ping too, or check health by running a program",
        )
    ]
