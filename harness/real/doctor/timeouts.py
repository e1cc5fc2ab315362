"""Checks of time limits: is a program's own limit enforced, and does anything give up before it?"""

from __future__ import annotations

from sfusion.harness.errors import NotExamined
from sfusion.harness.real.doctor.context import CheckContext
from sfusion.harness.real.doctor.finding import Finding, breaks
from sfusion_tools.outcome import Outcome

_OVERRUN = 3
"""How many times its limit the program sleeps."""


async def check_run_timeout(context: CheckContext) -> list[Finding]:
    """Is a program stopped at its time limit?"""
    limit = context.plan.timed_out_after
    sleeps = limit * _OVERRUN
    result = await context.run("clock", f"import time\ntime.sleep({sleeps})\nprint('over')", seconds=limit, once=True)
    if result.outcome is Outcome.PROGRAM_TIMEOUT:
        return []
    if result.outcome is Outcome.OK:
        seen = f"a program that sleeps {sleeps:g} s with run_timeout {limit:g} ran to its end ({result.seconds:.1f} s)"
    elif result.outcome is Outcome.TRANSPORT_TIMEOUT:
        seen = f"a program with run_timeout {limit:g} had no answer after {result.seconds:.1f} s"
    else:
        raise NotExamined(f"the program that sleeps ended as {result.outcome.value}: {result.message[:160]}")
    return [
        breaks(
            "run-timeout-ignored",
            seen=seen,
            training="an endless loop written by the model holds its permit until the client gives up: a few of them "
            "stop the whole rollout",
            change="use a server that enforces run_timeout, or let its gateway end requests",
        )
    ]


async def check_default_timeout(context: CheckContext) -> list[Finding]:
    """Can a program run as long as the config allows?"""
    wanted = context.settings.default_timeout
    if wanted > context.plan.longest and not context.plan.long:
        raise NotExamined(f"it takes default_timeout ({wanted:g} s): use --long")
    sleeps = max(0.0, wanted - min(1.0, wanted / 2))
    result = await context.run("long", f"import time\ntime.sleep({sleeps})\nprint('over')", seconds=wanted, once=True)
    if result.outcome is Outcome.OK:
        return []
    last = result.attempts[-1] if result.attempts else None
    if result.outcome is Outcome.PROGRAM_TIMEOUT:
        seen = f"a program of {sleeps:g} s with run_timeout {wanted:g} was stopped for running too long"
    elif last is not None and last.status in (408, 502, 503, 504, 524):
        seen = f"a program of {sleeps:g} s got {last.status} from a gateway after {result.seconds:.1f} s"
    else:
        seen = (
            f"a program of {sleeps:g} s ended as {result.outcome.value} after {result.seconds:.1f} s: {result.message}"
        )
    return [
        breaks(
            "gateway-timeout",
            seen=seen[:300],
            training=f"default_timeout is {wanted:g}, but long programs never get that far: they are repeated, and "
            "run again each time",
            change=f"set default_timeout below {result.seconds:.0f} s, or raise the gateway's read timeout above "
            f"{wanted:g} s",
        )
    ]
