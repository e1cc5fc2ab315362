"""Steadiness: answers that did not come while the sandbox was examined."""

from __future__ import annotations

from sfusion.harness.doctor.context import CheckContext
from sfusion.harness.doctor.finding import Finding, breaks, hurts


async def check_stability(context: CheckContext) -> list[Finding]:
    """Did programs have to be sent again?"""
    lost = context.failures.total()
    if not lost:
        return []
    told = ", ".join(f"{count} x {what}" for what, count in context.failures.most_common())
    return [
        hurts(
            "unsteady",
            seen=f"{lost} of {context.programs} programs, sent a few at a time, had no answer of the sandbox: {told}",
            training="sfusion's tool sends such calls again, and their programs may run twice; verl's tool repeats "
            "after 504 only and loses the others",
            change="look for what breaks off requests: restarts, a gateway, a worker that dies; see the server's log",
        )
    ]


def stopped_answering(check: str, how: str) -> Finding:
    """The finding that the sandbox was there and is not any more."""
    return breaks(
        "stops-answering",
        seen=f"it ran programs, and stopped answering during the check `{check}`: {how}",
        training="it works for a while and then fails every call, without any error of its own",
        change="see whether it was killed (memory) or is stuck, restart it, and give it fewer programs at a time",
    )
