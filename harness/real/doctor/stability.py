"""Did the sandbox keep answering while it was examined?"""

from __future__ import annotations

from sfusion.harness.real.doctor.context import CheckContext
from sfusion.harness.real.doctor.finding import Finding, breaks, hurts


async def check_stability(context: CheckContext) -> list[Finding]:
    """Report programs that had to be sent again."""
    lost = context.failures.total()
    if not lost:
        return []
    reasons = ", ".join(f"{count} x {what}" for what, count in context.failures.most_common())
    return [
        hurts(
            "unsteady",
            seen=f"{lost} of {context.programs} programs, sent a few at a time, got no answer from the sandbox: "
            f"{reasons}",
            training="sfusion's tool sends such calls again, and their programs may run twice; verl's tool repeats "
            "only after 504 and loses the others",
            change="look for what cuts requests off: restarts, a gateway, a worker that dies; see the server's log",
        )
    ]


def stopped_answering(check: str, how: str) -> Finding:
    return breaks(
        "stops-answering",
        seen=f"it ran programs, then stopped answering during the check `{check}`: {how}",
        training="it works for a while and then fails every call, without reporting an error",
        change="check whether it was killed (memory) or is stuck, restart it, and run fewer programs at a time",
    )
