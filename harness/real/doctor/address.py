"""Checks of the address: placeholders, wrong routes, proxies in between, hosts that other nodes
cannot reach."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from sfusion_tools.outcome import Outcome
from sfusion_tools.sandbox.answer import read_answer
from sfusion_tools.sandbox.endpoints import is_placeholder, is_usable, redact
from sfusion_tools.sandbox.program import Program

from .context import CheckContext, Finding, breaks, hurts, note, proxy_of_requests
from .http import HttpAnswer, NoAnswer, send
from .settings import Client

ROUTE = "/run_code"
_CONTAINER_FILES = {
    ".dockerenv": "/.dockerenv exists",
    "run/.containerenv": "/run/.containerenv exists",
}
_CONTAINER_CGROUP = re.compile(r"docker|kubepods|containerd|libpod|lxc")


async def check_address(context: CheckContext) -> Finding | None:
    settings = context.settings
    if is_placeholder(settings.url.strip()):
        context.stopped = "the URL is a placeholder, so nothing was sent"
        return breaks(
            "placeholder-url",
            seen=f"{settings.label} looks like the URL of an example, not of a sandbox",
            training="every call fails; training continues with nothing but failed tool messages",
            change=(
                "enter the address of your Sandbox Fusion server, such as "
                "http://10.0.0.5:8080/run_code"
            ),
        )
    if settings.host in ("0.0.0.0", "::"):
        return hurts(
            "unspecified-address",
            seen=f"{settings.label} uses {settings.host}, an address for servers to listen on",
            training="as a destination it means the local machine, on Linux only, and so a "
            "different machine on "
            "every node",
            change=(
                "use 127.0.0.1 if all of training runs on this machine, otherwise the "
                "machine's own address"
            ),
        )
    return None


def check_loopback(context: CheckContext, failure: str) -> Finding | None:
    """Report a loopback URL that is used from a container; ``failure`` says why nothing answers, if
    nothing does."""
    settings = context.settings
    container = in_container(context.root, context.environ)
    if (
        settings.started_here
        or not settings.is_local
        or not (container or context.plan.from_container)
    ):
        return None
    if container:
        how = f"this runs in a container ({container})"
    else:
        how = "training runs in a container (--from-container)"
    # If it answers, it runs in our own container, and perhaps all of training does.
    make = breaks if failure or context.plan.from_container else note
    return make(
        "loopback-in-container",
        seen=f"{settings.label} is loopback, and {how}"
        + (f"; nothing answers there: {failure}" if failure else ""),
        training=(
            "inside a container, loopback is the container itself: workers in other "
            "containers cannot reach it"
        ),
        change="use a name that the containers share (host.docker.internal, a compose "
        "service, a Kubernetes service), "
        "or start them with --network host"
        + ("; if the sandbox belongs in this one, start it" if failure else ""),
    )


def in_container(root: Path, environ: Mapping[str, str]) -> str | None:
    """Return the evidence that this process runs in a container, None without any. ``root`` is
    where ``/`` is."""
    for mark, reason in _CONTAINER_FILES.items():
        if (root / mark).exists():
            return reason
    if environ.get("KUBERNETES_SERVICE_HOST"):
        return "KUBERNETES_SERVICE_HOST is set"
    if environ.get("container"):
        return "the variable `container` is set"
    try:
        found = _CONTAINER_CGROUP.search(
            (root / "proc/1/cgroup").read_text(encoding="utf-8", errors="replace")
        )
    except OSError:
        return None
    return f"/proc/1/cgroup names {found[0]}" if found else None


async def check_route(context: CheckContext) -> Finding | None:
    """Does the URL work for a client that posts to it unchanged?"""
    settings = context.settings
    path = urlsplit(settings.url.strip()).path.rstrip("/")
    rest = path.removesuffix(ROUTE)
    if path.endswith(ROUTE) and not rest.endswith((ROUTE, "/run_jupyter")):
        return None
    if path.endswith(ROUTE):
        return breaks(
            "doubled-run-code",
            seen=f"the path of {settings.label} contains the route twice",
            training="every call gets a 404, and the model reads an error every time",
            change=f"use {redact(settings.at('run_code'))}",
        )
    body = Program("print(1)", timeout=5.0, memory_limit_mb=-1).body()
    answer = await context.send(settings.url.strip(), body)
    if isinstance(answer, HttpAnswer):
        if read_answer(answer.status, answer.content_type, answer.body).outcome is Outcome.OK:
            return None
        seen = f"POST {settings.label} returns {answer.status}"
        works = f"; POST {settings.label.rstrip('/')}{ROUTE} reaches the sandbox"
    else:
        seen = f"POST {settings.label} gets no answer ({answer.text})"
        works = ""
    notebook = path.endswith("/run_jupyter")
    make = {Client.VERL: breaks, Client.OTHER: hurts}.get(settings.client, note)
    ours = "" if settings.client is Client.VERL else "sfusion's tool appends /run_code itself, but "
    return make(
        "notebook-url" if notebook else "missing-run-code",
        seen=f"{seen}: that route runs notebooks, not programs" if notebook else seen + works,
        training=f"{ours}verl's tool posts to the URL unchanged, so every call fails",
        change="end the URL with /run_code",
    )


async def check_proxies(context: CheckContext) -> Finding | None:
    if context.proxy is not None:
        return await _check_through(context, context.proxy)
    of_requests = proxy_of_requests(context.settings.base, context.environ)
    if of_requests is None or not is_usable(of_requests) or context.settings.client is Client.VERL:
        return None
    make = note if context.settings.client is Client.SFUSION else hurts
    return make(
        "proxy-catches",
        seen=f"the environment sets the proxy {redact(of_requests)}; sfusion connects to "
        f"{context.settings.host} "
        "directly, but `requests` does not",
        training=(
            "verl's tool and reward use `requests`: their calls go to the proxy, "
            "which cannot reach this host"
        ),
        change=_change(context),
    )


async def _check_through(context: CheckContext, proxy: str) -> Finding | None:
    through = await context.get("v1/ping")
    direct = await send(context.http, context.settings.at("v1/ping"), within=context.plan.connect)
    caught = (
        f"calls to {context.settings.host} go through the proxy {redact(proxy)} of the environment"
    )
    if _is_pong(through):
        make = hurts if _is_pong(direct) else note
        return make(
            "proxy-catches",
            seen=f"{caught}; the sandbox answers through it"
            + (", and also without it" if _is_pong(direct) else ", and not without it"),
            training=(
                "every program and its output pass through the proxy, and wait for it under load"
            ),
            change=_change(context)
            if _is_pong(direct)
            else "nothing, if this is how the sandbox is reached",
        )
    context.stopped = "a proxy from the environment intercepts the requests"
    without = "the sandbox answers" if _is_pong(direct) else _describe(direct)
    return breaks(
        "proxy-catches",
        seen=f"{caught}: {_describe(through)}; without it: {without}",
        training=(
            "the proxy answers instead of the sandbox: every call fails and the "
            "sandbox gets the blame"
        ),
        change=_change(context),
    )


def _change(context: CheckContext) -> str:
    return (
        f"add {context.settings.host} to NO_PROXY on every training node, or unset the "
        "proxy variables there"
    )


def _is_pong(answer: HttpAnswer | NoAnswer) -> bool:
    return isinstance(answer, HttpAnswer) and answer.status == 200 and answer.body == b'"pong"'


def _describe(answer: HttpAnswer | NoAnswer) -> str:
    if isinstance(answer, HttpAnswer):
        return f"the ping returns {answer.status}"
    return f"no answer ({answer.text})"
