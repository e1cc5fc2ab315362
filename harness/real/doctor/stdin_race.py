"""The stdin race of the 2025-06 image: programs that end before their input is written fail."""

from __future__ import annotations

import asyncio
from collections import Counter

from sfusion.harness.errors import NotExamined
from sfusion.harness.real.doctor.context import CheckContext
from sfusion.harness.real.doctor.finding import Finding, breaks
from sfusion_tools.outcome import Outcome
from sfusion_tools.sandbox.result import CallResult

_NOTHING = ":"
"""A shell that does nothing exits sooner than Python does, and costs the sandbox less."""
_LOST = ("WriteUnixTransport", "the handler is closed")


async def check_stdin_race(context: CheckContext) -> list[Finding]:
    """Send many programs at once, each with input that it does not read."""
    count = context.plan.burst_for(local=context.settings.is_local)
    context.announce(f"load: {count} short programs at once, to test for the stdin race of the 2025-06 image")
    results = await asyncio.gather(
        *(
            context.run(f"stdin-{number}", _NOTHING, language="bash", stdin="unread\n", once=True)
            for number in range(count)
        )
    )
    await context.must_answer(f"it stopped answering after {count} programs at once")
    raced = sum(map(_lost_race, results))
    context.measured["stdin_race"] = f"{raced} of {count}"
    if raced:
        return [
            breaks(
                "stdin-race",
                seen=f"{raced} of {count} programs sent at once with stdin that they do not read ended as "
                "SandboxError `unable to perform operation on <WriteUnixTransport …>`",
                training="rewards that feed test cases through stdin lose most of them under load: correct programs "
                "score 0. Calls of the tool, which send no stdin, are not affected",
                change="use a Sandbox Fusion server built after 2025-06-26 (the image server-20250609 has this race), "
                "or judge one case at a time",
            )
        ]
    if not any(result.outcome.is_from_program for result in results):
        most, times = Counter(result.outcome.value for result in results).most_common(1)[0]
        raise NotExamined(f"none of {count} programs sent at once was run: {times} x {most}")
    return []


def _lost_race(result: CallResult) -> bool:
    return result.outcome is Outcome.SANDBOX_ERROR and any(word in result.message for word in _LOST)
