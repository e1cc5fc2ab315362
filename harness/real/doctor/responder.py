"""Judge the answer to the first program: is it a sandbox's, or of something else at that address? Pure."""

from __future__ import annotations

from urllib.parse import urljoin, urlsplit, urlunsplit

from sfusion.harness.real.doctor.finding import Finding, breaks
from sfusion.harness.real.doctor.http import HttpAnswer
from sfusion_tools.outcome import Outcome
from sfusion_tools.sandbox.answer import excerpt, read_answer
from sfusion_tools.sandbox.endpoints import redact

_FAILS = "every call fails the same way; the model reads an error text each time and learns from it"


def judge_answer(answer: HttpAnswer, *, url: str, expected: str) -> Finding | None:
    """Return None if a sandbox ran the program and it printed ``expected``, otherwise the finding."""
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
            change="put the credentials into `headers:` of the tool config (sfusion), or into the URL "
            "(http://user:password@host); or let the gateway admit the training nodes without them",
        )
    if status in (429, 503):
        return breaks(
            "throttled-at-rest",
            seen=f"a single program gets {status}"
            + (f" with Retry-After {answer.headers['Retry-After']}" if "Retry-After" in answer.headers else ""),
            training="there is no room for even one call: the quota is used up, or nothing runs behind the gateway",
            change="find out who else uses it, raise the quota, or start the instances behind the gateway",
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
            training="every call fails in the sandbox and is repeated until its attempts are used up",
            change="look at the server's log, and at the gateway's for 502 and 504",
        )
    return _judge_content(answer, url, expected)


def _judge_content(answer: HttpAnswer, url: str, expected: str) -> Finding | None:
    reading = read_answer(answer.status, answer.content_type, answer.body)
    if reading.outcome is Outcome.BAD_RESPONSE:
        body = excerpt(answer.body, 100)
        return breaks(
            "other-service",
            seen=f"POST {redact(url)} returns {answer.status}, but not in the format of Sandbox Fusion: {body}",
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
            seen=f"a program that prints {expected.strip()!r} is a Success with the output {reading.stdout[:80]!r}",
            training="answers are accepted, but are not what the program printed: rewards and tool texts are noise",
            change="check that programs are really run there (a scripted fake runs nothing), and that output is not "
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
            "this address to itself (often a rule from http to https behind a proxy that already terminates TLS)"
            if loops
            else "without a Location header"
        )
    elif answer.status in (301, 302, 303):
        training = "clients repeat the request as a GET without the program: calls fail"
        change = f"put the final address into the URL: {_shown(target, url)}"
    else:
        training = "sfusion follows no redirects, verl's tool does: calls fail, or take twice the time"
        change = f"put the final address into the URL: {_shown(target, url)}"
    where = _shown(target, url) if location else "nowhere"
    return breaks(
        "redirect",
        seen=f"POST {redact(url)} returns {answer.status}, a redirect to {where}",
        training=training,
        change=change,
    )


def _shown(target: str, url: str) -> str:
    """Return where a server redirects to, with its path unless that is ours, which may contain a token."""
    parts = urlsplit(target)
    if parts.path == urlsplit(url).path:
        return redact(target)
    return redact(urlunsplit((parts.scheme, parts.netloc, "", "", ""))) + parts.path


def _without_login(url: str) -> tuple[object, ...]:
    parts = urlsplit(url)
    return parts.scheme, parts.netloc.rpartition("@")[2].lower(), parts.path, parts.query
