"""Checks of what is behind the address: nothing, another protocol, another service, or a sandbox
that runs code."""

from __future__ import annotations

import asyncio
import time
from urllib.parse import urljoin, urlsplit, urlunsplit

from sfusion_tools.outcome import Outcome
from sfusion_tools.sandbox.answer import excerpt, read_answer
from sfusion_tools.sandbox.endpoints import redact
from sfusion_tools.sandbox.program import Program
from sfusion_tools.sandbox.retry import retry_after

from ...errors import NotExamined
from .address import check_loopback
from .context import TRIES, CheckContext, Finding, breaks, hurts, marked
from .http import HttpAnswer, NoAnswer, connects, speaks_plain_http, speaks_tls

_FAILS = "every call fails the same way; the model reads an error text each time and learns from it"


def finding_about(answer: HttpAnswer, *, url: str, expected: str) -> Finding | None:
    """Return None if a sandbox ran the program and it printed ``expected``, otherwise the
    finding."""
    status = answer.status
    seen = f"POST {redact(url)} returns {status}: {excerpt(answer.body, 100)}"
    if 300 <= status < 400:
        return _redirect(answer, url)
    if status in (401, 403, 407):
        who = "a proxy" if status == 407 else "the server, or a gateway in front of it,"
        return breaks(
            "authentication",
            seen=seen,
            training=f"{who} wants credentials: {_FAILS}",
            change="put the credentials into `headers:` of the tool config (sfusion), or "
            "into the URL "
            "(http://user:password@host); or let the gateway admit the training nodes without them",
        )
    if status in (429, 503):
        return breaks(
            "throttled-at-rest",
            seen=f"a single program gets {status}"
            + (
                f" with Retry-After {answer.headers['Retry-After']}"
                if "Retry-After" in answer.headers
                else ""
            ),
            training=(
                "there is no room for even one call: the quota is used up, or nothing "
                "runs behind the gateway"
            ),
            change=(
                "find out who else uses it, raise the quota, or start the instances "
                "behind the gateway"
            ),
        )
    if "html" in answer.content_type.lower() or answer.body.lstrip()[:1] == b"<":
        return breaks(
            "web-page",
            seen=f"POST {redact(url)} returns a web page ({status}): {excerpt(answer.body, 100)}",
            training=f"a login page, a gateway or another service answers: {_FAILS}",
            change="correct the URL; if a proxy or a login is in front of the sandbox, bypass it",
        )
    if status == 404:
        return breaks(
            "not-found",
            seen=seen,
            training=f"another service, or another path of the gateway: {_FAILS}",
            change="correct host, port and the path in front of /run_code",
        )
    if status == 405:
        return breaks(
            "method-not-allowed",
            seen=seen,
            training=f"whatever answers there does not accept POST: {_FAILS}",
            change="correct the URL: it must end with /run_code of a Sandbox Fusion server",
        )
    if status >= 500:
        return breaks(
            "server-error",
            seen=f"a program that prints one line gets {status}: {excerpt(answer.body, 100)}",
            training=(
                "every call fails in the sandbox and is repeated until its attempts are used up"
            ),
            change="look at the server's log, and at the gateway's for 502 and 504",
        )
    return _finding_about_content(answer, url, expected)


def _finding_about_content(answer: HttpAnswer, url: str, expected: str) -> Finding | None:
    reading = read_answer(answer.status, answer.content_type, answer.body)
    if reading.outcome is Outcome.BAD_RESPONSE:
        body = excerpt(answer.body, 100)
        return breaks(
            "other-service",
            seen=(
                f"POST {redact(url)} returns {answer.status}, but not in the format of "
                f"Sandbox Fusion: {body}"
            ),
            training=f"another service, or an incompatible version: {_FAILS}",
            change="correct the URL: it must be that of a Sandbox Fusion server",
        )
    if reading.outcome is not Outcome.OK:
        why = reading.message or reading.stderr.strip().rpartition("\n")[2] or reading.outcome.value
        return breaks(
            "program-fails",
            seen=f"a Python program that prints one line fails ({reading.outcome.value}): {why}",
            training="no Python call can succeed",
            change="look at the server's log and at its Python runtime",
        )
    if reading.stdout != expected:
        return breaks(
            "wrong-output",
            seen=(
                f"a program that prints {expected.strip()!r} is a Success with the output "
                f"{reading.stdout[:80]!r}"
            ),
            training=(
                "answers are accepted, but are not what the program printed: rewards "
                "and tool texts are noise"
            ),
            change="check that programs are really run there (a scripted fake runs "
            "nothing), and that output is not "
            "lost on the way",
        )
    return None


def _redirect(answer: HttpAnswer, url: str) -> Finding:
    location = answer.headers.get("Location", "")
    target = urljoin(url, location)
    loops = bool(location) and _without_login(target) == _without_login(url)
    if loops or not location:
        training = "no client gets past the redirect: every call fails"
        change = "correct the gateway: it redirects " + (
            (
                "this address to itself (often a rule from http to https behind a proxy that "
                "already terminates TLS)"
            )
            if loops
            else "without a Location header"
        )
    elif answer.status in (301, 302, 303):
        training = "clients repeat the request as a GET without the program: calls fail"
        change = f"put the final address into the URL: {_shown(target, url)}"
    else:
        training = (
            "sfusion follows no redirects, verl's tool does: calls fail, or take twice the time"
        )
        change = f"put the final address into the URL: {_shown(target, url)}"
    where = _shown(target, url) if location else "nowhere"
    return breaks(
        "redirect",
        seen=f"POST {redact(url)} returns {answer.status}, a redirect to {where}",
        training=training,
        change=change,
    )


def _shown(target: str, url: str) -> str:
    """Return where a server redirects to, with its path unless that is ours, which may contain a
    token."""
    parts = urlsplit(target)
    if parts.path == urlsplit(url).path:
        return redact(target)
    return redact(urlunsplit((parts.scheme, parts.netloc, "", "", ""))) + parts.path


def _without_login(url: str) -> tuple[object, ...]:
    parts = urlsplit(url)
    return parts.scheme, parts.netloc.rpartition("@")[2].lower(), parts.path, parts.query


HELLO = 'print("sfusion", 6 * 7)'
GREETING = "sfusion 42\n"


async def check_connection(context: CheckContext) -> Finding | None:
    """Does the port accept connections?"""
    settings = context.settings
    if context.proxy is not None:
        context.reached = True  # the proxy was checked before
        return None
    failure = await connects(settings.host, settings.port, within=context.plan.connect)
    loopback = check_loopback(context, failure.text if failure else "")
    if failure is None:
        context.reached = True
        return loopback
    context.stopped = "nothing accepts connections at the address"
    if loopback:
        return loopback
    change = {
        "dns": "correct the host name, or make it resolvable on this machine",
        "refused": "start the sandbox, and check host and port. A container needs its port "
        "published (-p), "
        "and images built after July 2026 listen on the container's loopback unless "
        "HOST=0.0.0.0 is set",
    }.get(failure.why, "check host and port, and open any firewall in between")
    return breaks(
        "unreachable",
        seen=f"no connection to {settings.host} port {settings.port}: {failure.text}",
        training="every call ends as unreachable, after all its attempts",
        change=change,
    )


async def check_ping(context: CheckContext) -> Finding | None:
    """Does it speak HTTP, with or without TLS as the URL says, and answer a ping?"""
    settings = context.settings
    ping = context.ping = await context.get("v1/ping")
    if isinstance(ping, NoAnswer):
        return await _finding_about_protocol(context, ping)
    context.measured["ping_seconds"] = round(ping.seconds, 4)
    if settings.scheme == "http" and ping.status == 400 and b"HTTPS port" in ping.body:
        return _http_to_tls(context)
    if ping.status != 200:
        raise NotExamined(f"it returns {ping.status}; run_code shows whether programs run anyway")
    return None


async def _finding_about_protocol(context: CheckContext, ping: NoAnswer) -> Finding | None:
    settings = context.settings
    plan = context.plan
    direct = context.proxy is None
    if ping.why == "certificate":
        context.stopped = "its certificate is not trusted"
        return breaks(
            "certificate",
            seen=f"the certificate of {settings.host} is rejected: {ping.text}",
            training="every call fails before it is sent",
            change="install the certificate authority that signed it (SSL_CERT_FILE for sfusion, "
            "REQUESTS_CA_BUNDLE for verl's tool), or renew it for this name",
        )
    if ping.why == "tls":
        context.stopped = "no TLS connection can be made"
        if direct and await speaks_plain_http(settings.host, settings.port, within=plan.connect):
            return breaks(
                "https-to-plain-port",
                seen=(
                    f"the URL says https, but port {settings.port} of {settings.host} "
                    "speaks plain HTTP"
                ),
                training="every call fails while connecting",
                change="write http:// in the URL, or use the port that serves TLS",
            )
        return breaks(
            "tls-fails",
            seen=f"the TLS handshake with {settings.host} fails: {ping.text}",
            training="every call fails while connecting",
            change="enable a TLS version that both ends support",
        )
    if (
        settings.scheme == "http"
        and direct
        and ping.why in ("lost", "garbled")
        and await speaks_tls(settings.host, settings.port, within=plan.connect)
    ):
        return _http_to_tls(context)
    raise NotExamined(f"no answer ({ping.text}); run_code shows whether programs run anyway")


def _http_to_tls(context: CheckContext) -> Finding:
    context.stopped = "the port expects TLS"
    settings = context.settings
    return breaks(
        "http-to-tls-port",
        seen=f"the URL says http, but port {settings.port} of {settings.host} expects TLS",
        training="every call is rejected or its connection is dropped",
        change="write https:// in the URL",
    )


async def check_run_code(context: CheckContext) -> Finding | None:
    """Does it run a program?"""
    answer = await _hello_answer(context)
    ping = context.ping
    if isinstance(answer, HttpAnswer):
        context.measured["hello_seconds"] = round(answer.seconds, 4)
        found = finding_about(answer, url=context.settings.at("run_code"), expected=GREETING)
        context.stopped = "no program can be run there" if found else ""
        return found or _check_dead_ping(context)
    context.stopped = "/run_code does not answer"
    waited = f"{answer.seconds:.1f} s"
    if answer.why == "timeout" and isinstance(ping, HttpAnswer):
        return breaks(
            "run-code-hangs",
            seen=f"/v1/ping answered in {ping.seconds * 1000:.0f} ms, but a program that "
            "prints one line got no "
            f"answer within {waited}",
            training="health checks stay green while every call runs into its timeout",
            change="restart the sandbox, and monitor it by running a program, not by its ping",
        )
    if answer.why == "timeout":
        return breaks(
            "no-answer",
            seen=(
                f"connections are accepted, but neither /v1/ping nor /run_code answered ({waited})"
            ),
            training="every call runs into its timeout",
            change="restart the sandbox; if it never worked here, check that this is its port",
        )
    if answer.why == "garbled" and isinstance(ping, NoAnswer) and ping.why == "garbled":
        return breaks(
            "other-service",
            seen=(
                f"port {context.settings.port} of {context.settings.host} does not speak "
                f"HTTP: {answer.text}"
            ),
            training="a service of another kind listens there: every call fails",
            change="correct host and port: they must be those of a Sandbox Fusion server",
        )
    never = isinstance(ping, NoAnswer)
    return breaks(
        "connection-lost",
        seen=f"the connection broke while a program was running: {answer.text}"
        + (f"; the ping got no answer either ({ping.text})" if isinstance(ping, NoAnswer) else ""),
        training="every call fails, and it is unknown whether its program ran",
        change=("check that this is the port of a Sandbox Fusion server; then " if never else "")
        + "look at the server's log: the server, or a gateway in front of it, drops the request",
    )


async def _hello_answer(context: CheckContext) -> HttpAnswer | NoAnswer:
    """Send the simplest program; after a refusal or a lost connection send it again, as training
    would."""
    plan = context.plan
    program = Program(marked("hello", HELLO), "python", plan.patience, memory_limit_mb=-1)
    failures: list[str] = []
    for turn in range(1, TRIES + 1):
        answer = await context.post(program)
        failure = _transient_failure(answer)
        if not failure or turn == TRIES:
            break
        failures.append(failure)
        asked = retry_after(answer.headers, time.time()) if isinstance(answer, HttpAnswer) else None
        await asyncio.sleep(min(plan.patience, max(plan.pause * turn, asked or 0.0)))
    if not failure:
        # They did not last, so they are no verdict on this check; the stability check reports them.
        context.programs += len(failures)
        context.failures.update(failures)
    return answer


def _transient_failure(answer: HttpAnswer | NoAnswer) -> str:
    """A failure that a retry may clear; a timeout is not retried, as that would take too long."""
    if isinstance(answer, NoAnswer):
        return "" if answer.why == "timeout" else "no answer"
    return f"status {answer.status}" if answer.status == 429 or answer.status >= 500 else ""


def _check_dead_ping(context: CheckContext) -> Finding | None:
    ping = context.ping
    if isinstance(ping, HttpAnswer) and ping.status == 200:
        return None
    if isinstance(ping, HttpAnswer):
        seen = f"returns {ping.status}"
    else:
        seen = f"gets no answer ({ping and ping.text})"
    path = urlsplit(context.settings.at("v1/ping")).path
    return hurts(
        "ping-dead",
        seen=f"programs run, but GET {path} {seen}",
        training="calls work, but whatever waits for the ping (health checks, `--sandbox "
        "docker`) thinks the "
        "sandbox is down",
        change="let the gateway forward /v1/ping too, or check health by running a program",
    )
