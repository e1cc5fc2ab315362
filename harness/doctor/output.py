"""What arrives of what programs print: how much of it, and which bytes."""

from __future__ import annotations

from sfusion.harness.doctor.finding import Finding, breaks, hurts, note
from sfusion.harness.doctor.patient import Patient
from sfusion_tools.outcome import Outcome

ORDINARY = 20_000
"""Bytes that any program may print: what sfusion's tool shows the model at most."""
SIZES = (ORDINARY, 200_000, 400_000, 1_000_000)
STUCK = 400_000
"""Bytes from which a program is expected to be stuck printing, and is given little time."""
_PRINTS = "import sys\nsys.stdout.write('x' * {size})\nsys.stdout.flush()"
_NOT_UTF8 = "import sys\nsys.stdout.buffer.write(b'ab\\xff\\n')"


async def measure_output(patient: Patient) -> list[Finding]:
    """How much of one long print arrives?"""
    whole, bound, endings = 0, 0, dict[int, str]()
    for size in SIZES:
        short = patient.plan.timed_out_after + 2 * patient.measured["hello_seconds"]
        seconds = patient.plan.seconds if size < STUCK else short
        result = await patient.run(f"output-{size}", _PRINTS.format(size=size), seconds=seconds)
        arrived = len(result.stdout)
        if result.outcome is Outcome.OK and arrived == size:
            if not endings:
                whole = size
            continue
        if result.outcome is Outcome.OK:
            bound = bound or arrived
            endings[size] = f"a Success of which {arrived:,} bytes arrived"
        elif result.outcome is Outcome.PROGRAM_TIMEOUT:
            bound = bound or arrived
            endings[size] = f"a TimeLimitExceeded of which {arrived:,} bytes arrived, stuck printing"
        else:
            endings[size] = f"{result.outcome.value} ({result.message[:120]})"
    patient.measured["output_bytes"] = max(whole, bound)
    if not endings:
        return []
    told = "; ".join(f"{size:,} bytes are {ending}" for size, ending in endings.items())
    if ORDINARY in endings:
        return [
            breaks(
                "stdout-cut",
                seen=f"printed at once, {told}",
                training="ordinary outputs are cut or lost: right programs are scored as wrong",
                change="look at what stands between here and the sandbox, and at the server's own limits",
            )
        ]
    return [
        hurts(
            "stdout-cut",
            seen=f"printed at once, {whole:,} bytes arrive whole; {told}",
            training="a program that prints much is cut silently, or stuck until its time is over and then blamed for "
            "it; answers that are compared as text never match",
            change=f"let programs print less than {max(whole, bound):,} bytes (every Sandbox Fusion server has such a "
            "bound), write long results to a file and fetch that",
        )
    ]


async def print_bytes(patient: Patient) -> list[Finding]:
    """What becomes of output that is not UTF-8?"""
    result = await patient.run("not-utf8", _NOT_UTF8)
    if result.outcome is Outcome.OK and result.stdout.startswith("[DecodeError]"):
        return [
            note(
                "not-utf8",
                seen=f"one byte that is not UTF-8 replaces the whole output: {result.stdout.strip()[:90]}",
                training="such a program is a Success, but the model sees nothing of what else it printed",
                change="nothing in the config; every Sandbox Fusion server does this",
            )
        ]
    if result.outcome.is_from_program:
        return []
    return [
        hurts(
            "not-utf8",
            seen=f"a program that prints a byte that is not UTF-8 ends as {result.outcome.value}: "
            f"{result.message[:120]}",
            training="such a call is taken for a failure of the sandbox and repeated until its attempts are used up",
            change="let the server replace what it cannot decode",
        )
    ]
