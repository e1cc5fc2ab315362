"""Proxies of the environment: would one of them catch the calls, and what comes of it?"""

from __future__ import annotations

from sfusion.harness.doctor.context import CheckContext
from sfusion.harness.doctor.finding import Finding, breaks, hurts, note
from sfusion.harness.doctor.http import HttpAnswer, NoAnswer
from sfusion.harness.doctor.proxy_env import proxy_of_requests
from sfusion.harness.doctor.settings import Client
from sfusion_tools.sandbox.endpoints import redact
from sfusion_tools.sandbox.proxy import is_usable


async def check_proxies(context: CheckContext) -> list[Finding]:
    """See which proxy the calls would go through, and whether the sandbox answers through it."""
    ours = context.proxy
    of_requests = proxy_of_requests(context.settings.base, context.environ)
    if ours is not None:
        return await _caught(context, ours)
    if of_requests is None or not is_usable(of_requests) or context.settings.client is Client.VERL:
        return []
    make = note if context.settings.client is Client.SFUSION else hurts
    return [
        make(
            "proxy-catches",
            seen=f"the environment names the proxy {redact(of_requests)}; sfusion goes to {context.settings.host} "
            "directly, but `requests` does not",
            training="verl's tool and reward use `requests`: their calls go to the proxy, which cannot reach this host",
            change=_change(context),
        )
    ]


async def _caught(context: CheckContext, proxy: str) -> list[Finding]:
    settings, plan = context.settings, context.plan
    url = settings.at("v1/ping")
    through = await context.http.get(url, within=plan.patience, proxy=proxy)
    direct = await context.http.get(url, within=plan.connect)
    name, host = redact(proxy), settings.host
    if _pongs(through):
        make = hurts if _pongs(direct) else note
        return [
            make(
                "proxy-catches",
                seen=f"calls to {host} go through the proxy {name} of the environment; it answers"
                + (", and so does the sandbox without it" if _pongs(direct) else ", and without it nothing does"),
                training="every program and its output passes the proxy, and waits for it under load",
                change=_change(context) if _pongs(direct) else "nothing, if that is how the sandbox is reached",
            )
        ]
    context.stopped = "a proxy of the environment catches the requests"
    without = "without it the sandbox answers" if _pongs(direct) else f"without it: {_said(direct)}"
    return [
        breaks(
            "proxy-catches",
            seen=f"calls to {host} go through the proxy {name} of the environment: {_said(through)}; {without}",
            training="the proxy answers in the sandbox's place: every call fails, and looks like the sandbox's doing",
            change=_change(context),
        )
    ]


def _change(context: CheckContext) -> str:
    return f"add {context.settings.host} to NO_PROXY on every training node, or unset the proxy variables there"


def _pongs(answer: HttpAnswer | NoAnswer) -> bool:
    return isinstance(answer, HttpAnswer) and answer.status == 200 and answer.body == b'"pong"'


def _said(answer: HttpAnswer | NoAnswer) -> str:
    return f"the ping is answered {answer.status}" if isinstance(answer, HttpAnswer) else f"no answer ({answer.text})"
