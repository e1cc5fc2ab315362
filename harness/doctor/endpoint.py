"""What is behind the address: nobody, something that speaks otherwise, something else, or a sandbox that runs code."""

from __future__ import annotations

import asyncio
from urllib.parse import urlsplit

from sfusion.harness.doctor.address import loopback
from sfusion.harness.doctor.context import TRIES, CheckContext, marked
from sfusion.harness.doctor.finding import Finding, breaks, hurts
from sfusion.harness.doctor.http import HttpAnswer, NoAnswer, connects, speaks_plain_http, speaks_tls
from sfusion.harness.doctor.responder import judge
from sfusion_tools.sandbox.endpoints import redact
from sfusion_tools.sandbox.program import Program

HELLO = 'print("sfusion", 6 * 7)'
GREETING = "sfusion 42\n"


async def check_connection(context: CheckContext) -> list[Finding]:
    """Does anything take connections there?"""
    settings = context.settings
    if context.proxy is not None:
        context.reached = True  # what the proxy does was judged before
        return []
    silence = await connects(settings.host, settings.port, within=context.plan.connect)
    in_container = loopback(context, silence.text if silence else "")
    if silence is None:
        context.reached = True
        return [in_container] if in_container else []
    context.stopped = "nothing takes connections at the address"
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
            seen=f"no connection to {settings.host} port {settings.port}: {silence.text}",
            training="every call fails as unreachable, after all its attempts",
            change=change,
        )
    ]


async def check_ping(context: CheckContext) -> list[Finding]:
    """Does it speak HTTP, with or without TLS as the URL says, and answer a ping?"""
    settings, plan = context.settings, context.plan
    ping = context.ping = await context.http.get(settings.at("v1/ping"), within=plan.patience, proxy=context.proxy)
    if isinstance(ping, NoAnswer):
        return await _no_greeting(context, ping)
    context.measured["ping_seconds"] = round(ping.seconds, 4)
    if settings.scheme == "http" and ping.status == 400 and b"HTTPS port" in ping.body:
        return [_http_to_tls(context)]
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


async def _no_greeting(context: CheckContext, ping: NoAnswer) -> list[Finding]:
    settings, plan = context.settings, context.plan
    direct = context.proxy is None
    if ping.why == "certificate":
        context.stopped = "its certificate is not trusted"
        return [
            breaks(
                "certificate",
                seen=f"the certificate of {settings.host} is refused: {ping.text}",
                training="every call fails before it is sent",
                change="install the certificate authority that signed it (SSL_CERT_FILE for sfusion, "
                "REQUESTS_CA_BUNDLE for verl's tool), or renew it for this name",
            )
        ]
    if ping.why == "tls":
        context.stopped = "no TLS connection can be made"
        if direct and await speaks_plain_http(settings.host, settings.port, within=plan.connect):
            return [
                breaks(
                    "https-to-plain-port",
                    seen=f"the URL says https, but port {settings.port} of {settings.host} speaks plain HTTP",
                    training="every call fails while the connection is made",
                    change="write http:// in the URL, or give the port that serves TLS",
                )
            ]
        return [
            breaks(
                "tls-fails",
                seen=f"the TLS handshake with {settings.host} fails: {ping.text}",
                training="every call fails while the connection is made",
                change="let both ends speak a common version of TLS",
            )
        ]
    if (
        settings.scheme == "http"
        and direct
        and ping.why in ("lost", "garbled")
        and await speaks_tls(settings.host, settings.port, within=plan.connect)
    ):
        return [_http_to_tls(context)]
    return []  # whether that matters is seen when a program is sent


def _http_to_tls(context: CheckContext) -> Finding:
    context.stopped = "the port wants TLS"
    settings = context.settings
    return breaks(
        "http-to-tls-port",
        seen=f"the URL says http, but port {settings.port} of {settings.host} wants TLS",
        training="every call is refused or its connection is dropped",
        change="write https:// in the URL",
    )


async def check_run_code(context: CheckContext) -> list[Finding]:
    """Does it run a program?"""
    settings, ping = context.settings, context.ping
    answer = await _hello_answered(context)
    if isinstance(answer, HttpAnswer):
        context.measured["hello_seconds"] = round(answer.seconds, 4)
        found = judge(answer, where=redact(settings.at("run_code")), expected=GREETING)
        if found is not None:
            context.stopped = "no program can be run there"
            return [found]
        return _ping_beside_work(context)
    context.stopped = "/run_code does not answer"
    waited = f"{answer.seconds:.1f} s"
    if answer.why == "timeout" and isinstance(ping, HttpAnswer):
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


async def _hello_answered(context: CheckContext) -> HttpAnswer | NoAnswer:
    """The answer to the simplest program; one that was refused or lost is sent again, as training would."""
    settings, plan = context.settings, context.plan
    body = Program(marked("hello", HELLO), "python", plan.patience, memory_limit_mb=-1).body()
    failures: list[str] = []
    for turn in range(1, TRIES + 1):
        answer = await context.http.post(settings.at("run_code"), body, within=plan.patience, proxy=context.proxy)
        failure = _failure(answer)
        if not failure or turn == TRIES:
            break
        failures.append(failure)
        await asyncio.sleep(min(plan.patience, max(plan.pause * turn, _asked_to_wait(answer))))
    if not failure:
        # It was not the sandbox's way, only a failure: the last check tells of those.
        context.programs += len(failures)
        context.failures.update(failures)
    return answer


def _failure(answer: HttpAnswer | NoAnswer) -> str:
    """What came instead of a sandbox's answer and may be gone the next time; silence costs too long to try again."""
    if isinstance(answer, NoAnswer):
        return "" if answer.why == "timeout" else "no answer"
    return f"status {answer.status}" if answer.status == 429 or answer.status >= 500 else ""


def _asked_to_wait(answer: HttpAnswer | NoAnswer) -> float:
    try:
        return float(answer.headers.get("Retry-After", 0)) if isinstance(answer, HttpAnswer) else 0.0
    except ValueError:
        return 0.0  # a date


def _ping_beside_work(context: CheckContext) -> list[Finding]:
    """A sandbox that runs programs but does not answer pings."""
    ping = context.ping
    if isinstance(ping, HttpAnswer) and ping.status == 200:
        return []
    seen = f"is answered {ping.status}" if isinstance(ping, HttpAnswer) else f"is not answered ({ping and ping.text})"
    path = urlsplit(context.settings.at("v1/ping")).path
    return [
        hurts(
            "ping-dead",
            seen=f"programs run, but GET {path} {seen}",
            training="calls work; what waits for the ping (health checks, `--sandbox docker`) thinks it is down",
            change="let the gateway pass /v1/ping too, or check health by running a program",
        )
    ]
