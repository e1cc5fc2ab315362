"""Checks of memory and time limits: are they enforced, are they too small?"""

from __future__ import annotations

from sfusion.harness.errors import NotExamined
from sfusion.harness.real.doctor.context import CheckContext
from sfusion.harness.real.doctor.endpoint import GREETING, HELLO
from sfusion.harness.real.doctor.finding import Finding, breaks, hurts
from sfusion_tools.outcome import Outcome
from sfusion_tools.sandbox.result import CallResult

SMALL_MB, LARGE_MB = 512, 2048
"""A limit that is enough for Python to start, and a block that does not fit into it."""
# The block is never written to, so it costs the sandbox's machine nothing. (A bytearray would be zero-filled.)
_GREEDY = f"import mmap\nblock = mmap.mmap(-1, {LARGE_MB} * 2**20, mmap.MAP_PRIVATE)\nprint(len(block))"
_THREAD = "import threading\nthread = threading.Thread(target=print)\nthread.start()\nthread.join()"
_NUMPY = "import importlib.util as util\nif util.find_spec('numpy'):\n    import numpy\nprint('imported')"


async def check_memory_limit(context: CheckContext) -> list[Finding | None]:
    """Do programs run under the config's limit, and is a limit enforced?"""
    limit = context.settings.memory_limit_mb
    if limit <= 0:
        return [await _check_enforced(context)]
    hello = await context.run("memory-hello", HELLO, memory_limit_mb=limit)
    if not _printed(hello, GREETING):
        hello = await context.run("memory-hello-again", HELLO, memory_limit_mb=limit)
    if not _printed(hello, GREETING):
        return [_breaks(limit, hello)]
    enforced = await _check_enforced(context)
    threaded = await context.run("memory-thread", _THREAD, memory_limit_mb=limit)
    imported = await context.run("memory-numpy", _NUMPY, memory_limit_mb=limit)
    if threaded.outcome is Outcome.PROGRAM_ERROR:
        return [enforced, _no_threads(limit, threaded, imported)]
    if imported.outcome is Outcome.PROGRAM_ERROR:
        too_small = hurts(
            "memory-limit-too-small",
            seen=f"with memory_limit_mb {limit} `import numpy` fails: {_last_line(imported)}",
            training="the limit applies to address space, not to memory used: correct programs fail, and are "
            "scored as wrong",
            change=f"raise memory_limit_mb well above {limit}, or set it to -1 and limit the container instead",
        )
        return [enforced, too_small]
    context.memory_limit_mb = limit
    return [enforced]


def _no_threads(limit: int, threaded: CallResult, imported: CallResult) -> Finding:
    seen = f"with memory_limit_mb {limit} a program cannot start a thread: {_last_line(threaded)}"
    if imported.outcome is Outcome.PROGRAM_ERROR:
        seen += f"; `import numpy` fails: {_last_line(imported)}"
    return hurts(
        "no-threads-under-limit",
        seen=seen,
        training="the server sets the stack limit to the same value, and each new thread reserves a stack of that "
        "size: anything that uses threads (numpy's OpenBLAS, torch) fails under any limit, and is scored as wrong",
        change="set memory_limit_mb: -1 and limit the container's memory instead (a higher limit does not help), or "
        "set OPENBLAS_NUM_THREADS=1 in the sandbox",
    )


def _breaks(limit: int, hello: CallResult) -> Finding:
    """The very first program, which had no limit, ran; the same program fails with it."""
    error = _last_line(hello)
    if "preexec_fn" in error:
        cause = "the machine's hard stack limit is lower, so setting any limit fails (SandboxFusion issue 70)"
        change = "set memory_limit_mb: -1 and limit the container's memory instead, or start it with --ulimit stack=-1"
    else:
        cause = "Python needs more than that just to start"
        change = f"raise memory_limit_mb well above {limit}, or set it to -1 and limit the container's memory instead"
    return breaks(
        "memory-limit-breaks",
        seen=f"a program runs without a memory limit; with memory_limit_MB {limit} the same one fails: {error}",
        training=f"{cause}: every call with that limit fails, and verl sends 1024 by default",
        change=change,
    )


async def _check_enforced(context: CheckContext) -> Finding | None:
    greedy = await context.run("memory-greedy", _GREEDY, memory_limit_mb=SMALL_MB)
    kept = greedy.outcome is Outcome.PROGRAM_ERROR
    if kept or greedy.outcome is Outcome.OK:
        context.measured["memory_limit_kept"] = kept
    if greedy.outcome is not Outcome.OK:
        return None
    return hurts(
        "memory-limit-ignored",
        seen=f"with memory_limit_MB {SMALL_MB} a program could allocate {LARGE_MB} MB",
        training="one greedy program can take the memory of all the others; the server may be killed",
        change="limit the container's memory; images built after June 2025 enforce the limit themselves",
    )


def _printed(result: CallResult, expected: str) -> bool:
    return result.outcome is Outcome.OK and result.stdout == expected


def _last_line(result: CallResult) -> str:
    lines = result.stderr.strip().splitlines()
    # OpenBLAS prints what failed and then interrupts itself: the last line would be KeyboardInterrupt.
    line = next((line for line in lines if "pthread_create failed" in line), lines[-1] if lines else "")
    return (result.message or line or result.outcome.value)[-200:]


_OVERRUN = 3
"""How many times its limit the program sleeps."""


async def check_run_timeout(context: CheckContext) -> Finding | None:
    """Is a program stopped at its time limit?"""
    limit = context.plan.timed_out_after
    sleeps = limit * _OVERRUN
    result = await context.run("clock", f"import time\ntime.sleep({sleeps})\nprint('over')", seconds=limit, once=True)
    if result.outcome is Outcome.PROGRAM_TIMEOUT:
        return None
    if result.outcome is Outcome.OK:
        seen = f"a program that sleeps {sleeps:g} s with run_timeout {limit:g} ran to its end ({result.seconds:.1f} s)"
    elif result.outcome is Outcome.TRANSPORT_TIMEOUT:
        seen = f"a program with run_timeout {limit:g} had no answer after {result.seconds:.1f} s"
    else:
        raise NotExamined(f"the program that sleeps ended as {result.outcome.value}: {result.message[:160]}")
    return breaks(
        "run-timeout-ignored",
        seen=seen,
        training="an endless loop written by the model holds its permit until the client gives up: a few of them "
        "stop the whole rollout",
        change="use a server that enforces run_timeout, or let its gateway end requests",
    )
