"""Checks of input and output: how much output arrives, and the stdin race."""

from __future__ import annotations

import asyncio
from collections import Counter

from sfusion.harness.errors import NotExamined
from sfusion.harness.real.doctor.context import CheckContext
from sfusion.harness.real.doctor.finding import Finding, breaks, hurts
from sfusion_tools.outcome import Outcome
from sfusion_tools.output_sizes import FULL_PIPE_BYTES

ORDINARY = 20_000
"""Bytes that any program may print: the most that sfusion's tool shows the model."""
SIZES = (ORDINARY, 200_000, 400_000, 1_000_000)
STUCK = 400_000
"""Size from which a program is expected to block while printing, so that it gets little time."""
LOOP = 200_000
"""Bytes of many short prints, of which Sandbox Fusion loses those above 131,072."""
_LOOPS = f"for _ in range({LOOP // 80}): print('x' * 79, flush=True)"
_PRINTS = "import sys\nsys.stdout.write('x' * {size})\nsys.stdout.flush()"


async def check_long_output(context: CheckContext) -> Finding | None:
    whole, bound, endings = 0, 0, dict[int, str]()
    for size in SIZES:
        short = context.plan.timed_out_after + 2 * context.measured["hello_seconds"]
        seconds = context.plan.seconds if size < STUCK else short
        result = await context.run(f"output-{size}", _PRINTS.format(size=size), seconds=seconds)
        arrived = len(result.stdout)
        if result.outcome is Outcome.OK and arrived == size:
            if not endings:
                whole = size
            continue
        if result.outcome is Outcome.OK:
            bound = bound or arrived
            endings[size] = f"a Success with {arrived:,} bytes of output"
        elif result.outcome is Outcome.PROGRAM_TIMEOUT:
            bound = bound or arrived
            endings[size] = f"a TimeLimitExceeded with {arrived:,} bytes of output, blocked while printing"
        else:
            endings[size] = f"{result.outcome.value} ({result.message[:120]})"
    context.measured["output_bytes"] = max(whole, bound)
    looped = await context.run(
        "output-loop", _LOOPS, seconds=context.plan.timed_out_after + 2 * context.measured["hello_seconds"]
    )
    context.measured["output_bytes_of_short_prints"] = short_prints = len(looped.stdout)
    if not endings and short_prints >= LOOP:
        return None
    safe = min(max(whole, bound), short_prints) if short_prints >= ORDINARY else max(whole, bound)
    # What arrives beyond this differs from run to run; up to it, everything always does.
    safe = min(safe, FULL_PIPE_BYTES)
    cut = "; ".join(f"{size:,} bytes end as {ending}" for size, ending in endings.items())
    if ORDINARY in endings:
        return breaks(
            "stdout-cut",
            seen=f"printed at once, {cut}",
            training="ordinary outputs are cut or lost: correct programs are scored as wrong",
            change="look at whatever is between here and the sandbox, and at the server's own limits",
        )
    return hurts(
        "stdout-cut",
        seen="; ".join(
            [
                f"printed at once, {whole:,} bytes arrive complete",
                *([cut] if cut else []),
                f"of {LOOP:,} bytes in short prints, {short_prints:,} arrive",
            ]
        ),
        training="long output is cut silently, or blocks the program until it times out and gets the blame; "
        "answers that are compared as text never match",
        change=f"let programs print less than {safe:,} bytes (every Sandbox Fusion server has such a limit, lower "
        "for many short prints, and it may vary from run to run); write long results to a file and fetch it",
    )


_NOTHING = ":"
"""A shell that does nothing exits sooner than Python does, and costs the sandbox less."""
_LOST = ("WriteUnixTransport", "the handler is closed")


async def check_stdin_race(context: CheckContext) -> Finding | None:
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
    failed = [result.message for result in results if result.outcome is Outcome.SANDBOX_ERROR]
    raced = sum(any(word in message for word in _LOST) for message in failed)
    context.measured["stdin_race"] = f"{raced} of {count}"
    if raced:
        return breaks(
            "stdin-race",
            seen=f"{raced} of {count} programs sent at once with stdin that they do not read ended as "
            "SandboxError `unable to perform operation on <WriteUnixTransport …>`",
            training="rewards that feed test cases through stdin lose most of them under load: correct programs "
            "score 0. Calls of the tool, which send no stdin, are not affected",
            change="use a Sandbox Fusion server built after 2025-06-26 (the image server-20250609 has this race), "
            "or judge one case at a time",
        )
    if not any(result.outcome.is_from_program for result in results):
        most, times = Counter(result.outcome.value for result in results).most_common(1)[0]
        raise NotExamined(f"none of {count} programs sent at once was run: {times} x {most}")
    return None
