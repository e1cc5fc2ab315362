"""Check of the proxy variables: which proxy would receive the calls, and does the sandbox answer through it?"""

from __future__ import annotations

from sfusion.harness.doctor.context import CheckContext
from sfusion.harness.doctor.finding import Finding, breaks, hurts, note
from sfusion.harness.doctor.http import HttpAnswer, NoAnswer
from sfusion.harness.doctor.proxy_env import proxy_of_requests
from sfusion.harness.doctor.settings import Client
from sfusion_tools.sandbox.endpoints import is_usable, redact


async def check_proxies(context: CheckContext) -> list[Finding]:
    if context.proxy is not None:
        return await _check_through(context, context.proxy)
    of_requests = proxy_of_requests(context.settings.base, context.environ)
    if of_requests is None or not is_usable(of_requests) or context.settings.client is Client.VERL:
        return []
    make = note if context.settings.client is Client.SFUSION else hurts
    return [
        make(
            "proxy-catches",
            seen=f"the environment sets the proxy {redact(of_requests)}; sfusion connects to {context.settings.host} "
            "directly, but `requests` does not",
            training="verl's tool and reward use `requests`: their calls go to the proxy, which cannot reach this host",
            change=_change(context),
        )
    ]


async def _check_through(context: CheckContext, proxy: str) -> list[Finding]:
    url = context.settings.at("v1/ping")
    through = await context.http.get(url, within=context.plan.patience, proxy=proxy)
    direct = await context.http.get(url, within=context.plan.connect)
    caught = f"calls to {context.settings.host} go through the proxy {redact(proxy)} of the environment"
    if _is_pong(through):
        make = hurts if _is_pong(direct) else note
        return [
            make(
                "proxy-catches",
                seen=f"{caught}; the sandbox answers through it"
                + (", and also without it" if _is_pong(direct) else ", and not without it"),
                training="every program and its output pass through the proxy, and wait for it under load",
                change=_change(context) if _is_pong(direct) else "nothing, if this is how the sandbox is reached",
            )
        ]
    context.stopped = "a proxy from the environment intercepts the requests"
    without = "the sandbox answers" if _is_pong(direct) else _describe(direct)
    return [
        breaks(
            "proxy-catches",
            seen=f"{caught}: {_describe(through)}; without it: {without}",
            training="the proxy answers instead of the sandbox: every call fails and the sandbox gets the blame",
            change=_change(context),
        )
    ]


def _change(context: CheckContext) -> str:
    return f"add {context.settings.host} to NO_PROXY on every training node, or unset the proxy variables there"


def _is_pong(answer: HttpAnswer | NoAnswer) -> bool:
    return isinstance(answer, HttpAnswer) and answer.status == 200 and answer.body == b'"pong"'


def _describe(answer: HttpAnswer | NoAnswer) -> str:
    return f"the ping returns {answer.status}" if isinstance(answer, HttpAnswer) else f"no answer ({answer.text})"
