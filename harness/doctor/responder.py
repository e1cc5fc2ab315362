"""Who answered a program: a sandbox, or something else that happens to be at its address. Pure."""

from __future__ import annotations

from sfusion.harness.doctor.finding import Finding, breaks
from sfusion.harness.doctor.http import HttpAnswer
from sfusion_tools.outcome import Outcome
from sfusion_tools.sandbox.answer import excerpt, read_answer
from sfusion_tools.sandbox.endpoints import redact

_FAILS = "every call fails the same way; the model sees an error text each time and learns from that"


def judge(answer: HttpAnswer, *, where: str, expected: str) -> Finding | None:
    """The finding about an answer to the first program, None when a sandbox ran it and it printed as it should."""
    status, said = answer.status, excerpt(answer.body, 100)
    if 300 <= status < 400:
        return _redirect(answer, where)
    if status in (401, 403, 407):
        who = "a proxy" if status == 407 else "the server, or a gateway before it,"
        return breaks(
            "authentication",
            seen=f"POST {where} is answered {status}: {said}",
            training=f"{who} wants credentials: {_FAILS}",
            change="put the credentials into `headers:` of the tool config (sfusion), or into the URL "
            "(http://user:password@host); let the gateway pass the training nodes otherwise",
        )
    if status in (429, 503):
        return breaks(
            "throttled-at-rest",
            seen=f"a single program is answered {status}"
            + (f" with Retry-After {answer.headers['Retry-After']}" if "Retry-After" in answer.headers else ""),
            training="there is no room for even one call: its quota is used up, or nothing is behind the gateway",
            change="see who else uses it, raise the quota, or start the instances behind the gateway",
        )
    page = "html" in answer.content_type.lower() or answer.body.lstrip()[:1] == b"<"
    if page:
        return breaks(
            "web-page",
            seen=f"POST {where} is answered with a web page ({status}): {said}",
            training=f"a login page, a gateway or another service answers: {_FAILS}",
            change="correct the URL; if a proxy or a login stands before the sandbox, go around it",
        )
    if status == 404:
        return breaks(
            "not-found",
            seen=f"POST {where} is answered 404: {said}",
            training=f"another service, or another path of the gateway: {_FAILS}",
            change="correct host, port and the path before /run_code",
        )
    if status == 405:
        return breaks(
            "method-not-allowed",
            seen=f"POST {where} is answered 405: {said}",
            training=f"something that takes no POST answers there: {_FAILS}",
            change="correct the URL: it must end with /run_code of a Sandbox Fusion server",
        )
    if status >= 500:
        return breaks(
            "server-error",
            seen=f"a program that prints one line is answered {status}: {said}",
            training="every call is an error of the sandbox, and is repeated until its attempts are used up",
            change="look at the log of the server, and of the gateway when it is 502 or 504",
        )
    return _content(answer, where, expected, said)


def _content(answer: HttpAnswer, where: str, expected: str, said: str) -> Finding | None:
    reading = read_answer(answer.status, answer.content_type, answer.body)
    if reading.outcome is Outcome.BAD_RESPONSE:
        return breaks(
            "other-service",
            seen=f"POST {where} is answered {answer.status}, but not as Sandbox Fusion does: {said}",
            training=f"another service, or an incompatible version: {_FAILS}",
            change="correct the URL: it must be that of a Sandbox Fusion server",
        )
    if reading.outcome is not Outcome.OK:
        why = reading.message or reading.stderr.strip().rpartition("\n")[2] or reading.outcome.value
        return breaks(
            "program-fails",
            seen=f"a Python program that prints one line does not end well ({reading.outcome.value}): {why}",
            training="no Python call can succeed",
            change="look at the server's log and at its Python runtime",
        )
    if reading.stdout != expected:
        return breaks(
            "wrong-output",
            seen=f"a program that prints {expected.strip()!r} is a Success that printed {reading.stdout[:80]!r}",
            training="answers are accepted but are not what the program printed: rewards and tool texts are noise",
            change="see whether programs are really run there (a scripted fake runs nothing), and whether output is "
            "lost on the way",
        )
    return None


def _redirect(answer: HttpAnswer, where: str) -> Finding:
    target = redact(answer.headers.get("Location", "nowhere"))
    loses = answer.status in (301, 302, 303)
    what = (
        "clients repeat it as a GET without the program" if loses else "sfusion follows no redirect, verl's tool does"
    )
    return breaks(
        "redirect",
        seen=f"POST {where} is answered {answer.status}, to {target}",
        training=f"{what}: calls fail, or take twice the time",
        change=f"write the final address into the URL: {target}",
    )
