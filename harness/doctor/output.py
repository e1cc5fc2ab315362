"""What arrives of what programs print: how much of it, and which bytes."""

from __future__ import annotations

from harness.doctor.finding import Finding, breaks, hurts, note
from harness.doctor.patient import Patient
from sfusion_tools.outcome import Outcome

ORDINARY = 20_000
"""Bytes that any program may print: what sfusion's tool shows the model at most."""
SIZES = (ORDINARY, 200_000, 400_000, 1_000_000)
_PRINTS = "import sys\nsys.stdout.write('x' * {size})\nsys.stdout.flush()"
_NOT_UTF8 = "import sys\nsys.stdout.buffer.write(b'ab\\xff\\n')"


async def measure_output(patient: Patient) -> list[Finding]:
    """How much of one long print arrives?"""
    whole = 0
    for size in SIZES:
        seconds = patient.plan.timed_out_after
        result = await patient.run(f"output-{size}", _PRINTS.format(size=size), seconds=seconds)
        arrived = len(result.stdout)
        if result.outcome is Outcome.OK and arrived == size:
            whole = size
            continue
        bound = patient.measured["output_bytes"] = arrived
        if result.outcome is Outcome.OK:
            ending = f"a Success of which {arrived:,} bytes arrived, without a word"
        elif result.outcome is Outcome.PROGRAM_TIMEOUT:
            ending = f"a TimeLimitExceeded of which {arrived:,} bytes arrived: the program was stuck printing"
        else:
            ending = f"{result.outcome.value}: {result.message[:120]}"
            bound = whole
        return [_cut(size, whole, bound, ending)]
    patient.measured["output_bytes"] = whole
    return []


def _cut(size: int, whole: int, bound: int, ending: str) -> Finding:
    before = f"{whole:,} bytes printed at once arrive whole" if whole else "no longer output arrives whole"
    if size <= ORDINARY:
        return breaks(
            "stdout-cut",
            seen=f"{size:,} bytes printed at once are {ending}",
            training="ordinary outputs are cut or lost: right programs are scored as wrong",
            change="look at what stands between here and the sandbox, and at the server's own limits",
        )
    return hurts(
        "stdout-cut",
        seen=f"{before}; {size:,} bytes are {ending}",
        training="a program that prints much is cut silently, or stuck until its time is over, and is then blamed for "
        "it; answers that are compared as text never match",
        change=f"let programs print less than {max(bound, whole):,} bytes (this is what every Sandbox Fusion server "
        "does), write long results to a file and fetch that",
    )


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
    if result.outcome.is_programs:
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
