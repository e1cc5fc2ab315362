"""The stdin race: many programs at once that end before their input comes."""

from __future__ import annotations

import asyncio
from collections import Counter

from sfusion.harness.doctor.finding import Finding, breaks
from sfusion.harness.doctor.patient import Patient
from sfusion.harness.errors import NotExamined
from sfusion_tools.outcome import Outcome
from sfusion_tools.sandbox.result import CallResult

_NOTHING = ":"
"""A shell that does nothing is gone sooner than a Python, and costs the sandbox less."""
_LOST = ("WriteUnixTransport", "the handler is closed")


async def race_stdin(patient: Patient) -> list[Finding]:
    """Send programs with input that they do not read, all at once."""
    count = patient.plan.burst_for(local=patient.subject.is_local)
    patient.announce(f"load: {count} short programs at once, to see the stdin race of the 2025-06 image")
    results = await asyncio.gather(
        *(
            patient.run(f"stdin-{number}", _NOTHING, language="bash", stdin="unread\n", once=True)
            for number in range(count)
        )
    )
    await patient.must_answer(f"after {count} programs at once it stopped answering")
    raced = [result for result in results if _is_raced(result)]
    patient.measured["stdin_race"] = f"{len(raced)} of {count}"
    if raced:
        return [
            breaks(
                "stdin-race",
                seen=f"{len(raced)} of {count} programs sent at once with stdin that they do not read ended as "
                "SandboxError `unable to perform operation on <WriteUnixTransport …>`",
                training="rewards that feed test cases by stdin lose most of them under load: right programs score 0. "
                "Calls of the tool, which send no stdin, are not affected",
                change="use a Sandbox Fusion server after 2025-06-26 (the image server-20250609 has this race), or "
                "judge one case at a time",
            )
        ]
    ended = sum(result.outcome.is_from_program for result in results)
    if not ended:
        most, times = Counter(result.outcome.value for result in results).most_common(1)[0]
        raise NotExamined(f"none of {count} programs sent at once was run: {times} x {most}")
    return []


def _is_raced(result: CallResult) -> bool:
    return result.outcome is Outcome.SANDBOX_ERROR and any(word in result.message for word in _LOST)
