"""What an address says before anything is sent to it: a placeholder, a wrong route, nobody's address."""

from __future__ import annotations

from urllib.parse import urlsplit

from sfusion.harness.doctor.container import in_container
from sfusion.harness.doctor.context import CheckContext
from sfusion.harness.doctor.finding import Finding, breaks, hurts, note
from sfusion.harness.doctor.http import HttpAnswer
from sfusion.harness.doctor.settings import Client
from sfusion_tools.outcome import Outcome
from sfusion_tools.sandbox.answer import read_answer
from sfusion_tools.sandbox.endpoints import is_placeholder
from sfusion_tools.sandbox.program import Program

ROUTE = "/run_code"


async def check_address(context: CheckContext) -> list[Finding]:
    """Is it an address that somebody filled in, and of a machine that training can mean?"""
    settings = context.settings
    if is_placeholder(settings.url.strip()):
        context.stopped = "the URL is a placeholder, nothing was sent to it"
        return [
            breaks(
                "placeholder-url",
                seen=f"{settings.label} looks like the URL of an example, not like that of a sandbox",
                training="every call fails; training goes on with nothing but failed tool messages",
                change="put the address of your Sandbox Fusion server there, such as http://10.0.0.5:8080/run_code",
            )
        ]
    found: list[Finding] = []
    if settings.host in ("0.0.0.0", "::"):
        found.append(
            hurts(
                "unspecified-address",
                seen=f"{settings.label} names {settings.host}, the address that servers listen on",
                training="as a destination it means this machine on Linux only, and on other nodes another machine",
                change="use 127.0.0.1 when all of training runs on this machine, else the machine's own address",
            )
        )
    return found


def loopback(context: CheckContext, silence: str) -> Finding | None:
    """The finding that loopback is not the machine one thinks; ``silence`` says why nothing answers there, if so."""
    settings = context.settings
    container = in_container(context.root, context.environ)
    if settings.started_here or not settings.is_local or not (container or context.plan.from_container):
        return None
    how = f"this runs in a container ({container})" if container else "training runs in a container (--from-container)"
    # Where it answers, it runs in the same container as we do; and perhaps as all of training does.
    make = breaks if silence or context.plan.from_container else note
    return make(
        "loopback-in-container",
        seen=f"{settings.label} is loopback, and {how}" + (f"; nothing answers there: {silence}" if silence else ""),
        training="in a container loopback is the container itself: workers in other containers reach nothing there",
        change="use a name that the containers share (host.docker.internal, a compose service, a Kubernetes service), "
        "or start them with --network host" + ("; if it is to run in this one, start it" if silence else ""),
    )


async def check_route(context: CheckContext) -> list[Finding]:
    """Does the URL lead to /run_code for a client that posts to it as it stands?"""
    settings = context.settings
    path = urlsplit(settings.url.strip()).path.rstrip("/")
    rest = path.removesuffix(ROUTE)
    if path.endswith(ROUTE) and not rest.endswith((ROUTE, "/run_jupyter")):
        return []
    if path.endswith(ROUTE):
        return [
            breaks(
                "doubled-run-code",
                seen=f"the path of {settings.label} has a route twice",
                training="every call is answered 404, the tool's text is an error each time",
                change=f"use {settings.label.removesuffix(path)}{urlsplit(settings.base).path}{ROUTE}",
            )
        ]
    body = Program("print(1)", timeout=5.0, memory_limit_mb=-1).body()
    answer = await context.http.post(settings.url.strip(), body, within=context.plan.patience, proxy=context.proxy)
    if isinstance(answer, HttpAnswer):
        if read_answer(answer.status, answer.content_type, answer.body).outcome is Outcome.OK:
            return []
        routed = f"{settings.label.rstrip('/')}{ROUTE}"
        seen = f"POST {settings.label} is answered {answer.status}, POST {routed} by the sandbox"
    else:
        seen = f"POST {settings.label} is not answered ({answer.text})"
    notebook = path.endswith("/run_jupyter")
    if notebook:
        seen = f"{seen.partition(', POST')[0]}: that route runs notebooks, not programs"
    make = {Client.VERL: breaks, Client.OTHER: hurts}.get(settings.client, note)
    whose = "sfusion's tool puts /run_code there by itself, but "
    if settings.client is Client.VERL:
        whose = ""
    return [
        make(
            "notebook-url" if notebook else "missing-run-code",
            seen=seen,
            training=f"{whose}verl's tool posts to the URL as it stands: there every call fails",
            change="end the URL with /run_code",
        )
    ]
