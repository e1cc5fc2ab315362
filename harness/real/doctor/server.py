"""Checks of the server itself: its limits of memory, time and output, the stdin race, version,
languages, packages."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence

from sfusion_tools.bounded_input import parse_json
from sfusion_tools.outcome import Outcome
from sfusion_tools.output_sizes import FULL_PIPE_BYTES
from sfusion_tools.sandbox.result import CallResult

from ...errors import NotExamined
from ..probes.model import bundled_probes
from .context import CheckContext, Finding, breaks, hurts, note
from .endpoint import GREETING, HELLO
from .settings import LANGUAGES, PACKAGES

SMALL_MB = 512
LARGE_MB = 2048
"""A limit that is enough for Python to start, and a block that does not fit into it."""
# The block is never written to, so it costs the sandbox's machine nothing. (A bytearray would be
# zero-filled.)
_GREEDY = (
    f"import mmap\nblock = mmap.mmap(-1, {LARGE_MB} * 2**20, mmap.MAP_PRIVATE)\nprint(len(block))"
)
_THREAD = "import threading\nthread = threading.Thread(target=print)\nthread.start()\nthread.join()"
_NUMPY = (
    "import importlib.util as util\nif util.find_spec('numpy'):\n    import "
    "numpy\nprint('imported')"
)


async def check_memory_limit(context: CheckContext) -> list[Finding | None]:
    """Do programs run under the config's limit, and is a limit enforced?"""
    limit = context.settings.config.memory_limit_mb
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
            training="the limit applies to address space, not to memory used: correct "
            "programs fail, and are "
            "scored as wrong",
            change=(
                f"raise memory_limit_mb well above {limit}, or set it to -1 and limit "
                "the container instead"
            ),
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
        training="the server sets the stack limit to the same value, and each new thread "
        "reserves a stack of that "
        "size: anything that uses threads (numpy's OpenBLAS, torch) fails under any limit, "
        "and is scored as wrong",
        change="set memory_limit_mb: -1 and limit the container's memory instead (a higher "
        "limit does not help), or "
        "set OPENBLAS_NUM_THREADS=1 in the sandbox",
    )


def _breaks(limit: int, hello: CallResult) -> Finding:
    """The very first program, which had no limit, ran; the same program fails with it."""
    error = _last_line(hello)
    if "preexec_fn" in error:
        cause = (
            "the machine's hard stack limit is lower, so setting any limit fails "
            "(SandboxFusion issue 70)"
        )
        change = (
            "set memory_limit_mb: -1 and limit the container's memory instead, or "
            "start it with --ulimit stack=-1"
        )
    else:
        cause = "Python needs more than that just to start"
        change = (
            f"raise memory_limit_mb well above {limit}, or set it to -1 and limit the "
            "container's memory instead"
        )
    return breaks(
        "memory-limit-breaks",
        seen=(
            f"a program runs without a memory limit; with memory_limit_MB {limit} the "
            f"same one fails: {error}"
        ),
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
        training=(
            "one greedy program can take the memory of all the others; the server may be killed"
        ),
        change=(
            "limit the container's memory; images built after June 2025 enforce the "
            "limit themselves"
        ),
    )


def _printed(result: CallResult, expected: str) -> bool:
    return result.outcome is Outcome.OK and result.stdout == expected


def _last_line(result: CallResult) -> str:
    lines = result.stderr.strip().splitlines()
    # OpenBLAS prints what failed and then interrupts itself: the last line would be
    # KeyboardInterrupt.
    line = next(
        (line for line in lines if "pthread_create failed" in line), lines[-1] if lines else ""
    )
    return (result.message or line or result.outcome.value)[-200:]


_OVERRUN = 3
"""How many times its limit the program sleeps (chosen)."""


async def check_run_timeout(context: CheckContext) -> Finding | None:
    """Is a program stopped at its time limit?"""
    limit = context.plan.timed_out_after
    sleeps = limit * _OVERRUN
    result = await context.run(
        "clock", f"import time\ntime.sleep({sleeps})\nprint('over')", seconds=limit, once=True
    )
    if result.outcome is Outcome.PROGRAM_TIMEOUT:
        return None
    if result.outcome is Outcome.OK:
        seen = (
            f"a program that sleeps {sleeps:g} s with run_timeout {limit:g} ran to its "
            f"end ({result.seconds:.1f} s)"
        )
    elif result.outcome is Outcome.TRANSPORT_TIMEOUT:
        seen = f"a program with run_timeout {limit:g} had no answer after {result.seconds:.1f} s"
    else:
        raise NotExamined(
            f"the program that sleeps ended as {result.outcome.value}: {result.message[:160]}"
        )
    return breaks(
        "run-timeout-ignored",
        seen=seen,
        training="an endless loop written by the model holds its permit until the client "
        "gives up: a few of them "
        "stop the whole rollout",
        change="use a server that enforces run_timeout, or let its gateway end requests",
    )


ORDINARY = 20_000
"""Bytes that any program may print: the most that sfusion's tool shows the model."""
SIZES = (ORDINARY, 200_000, 400_000, 1_000_000)
STUCK = 400_000
"""Size from which a program is expected to block while printing, so that it gets little time
(chosen)."""
LOOP = 200_000
"""Bytes of many short prints, of which Sandbox Fusion loses those above 131,072."""
_LOOPS = f"for _ in range({LOOP // 80}): print('x' * 79, flush=True)"
_PRINTS = "import sys\nsys.stdout.write('x' * {size})\nsys.stdout.flush()"


async def check_long_output(context: CheckContext) -> Finding | None:
    whole = 0
    bound = 0
    endings = dict[int, str]()
    short = context.plan.timed_out_after + 2 * context.measured["hello_seconds"]
    for size in SIZES:
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
            endings[size] = (
                f"a TimeLimitExceeded with {arrived:,} bytes of output, blocked while printing"
            )
        else:
            endings[size] = f"{result.outcome.value} ({result.message[:120]})"
    context.measured["output_bytes"] = max(whole, bound)
    looped = await context.run("output-loop", _LOOPS, seconds=short)
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
            change=(
                "look at whatever is between here and the sandbox, and at the server's own limits"
            ),
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
        training="long output is cut silently, or blocks the program until it times out "
        "and gets the blame; "
        "answers that are compared as text never match",
        change=f"let programs print less than {safe:,} bytes (every Sandbox Fusion server "
        "has such a limit, lower "
        "for many short prints, and it may vary from run to run); write long results to a "
        "file and fetch it",
    )


_NOTHING = ":"
"""A shell that does nothing exits sooner than Python does, and costs the sandbox less."""
_LOST = ("WriteUnixTransport", "the handler is closed")


async def check_stdin_race(context: CheckContext) -> Finding | None:
    """Send many programs at once, each with input that it does not read."""
    count = context.plan.burst_for(local=context.settings.is_local)
    context.announce(
        f"load: {count} short programs at once, to test for the stdin race of the 2025-06 image"
    )
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
            seen=f"{raced} of {count} programs sent at once with stdin that they do not "
            "read ended as "
            "SandboxError `unable to perform operation on <WriteUnixTransport …>`",
            training="rewards that feed test cases through stdin lose most of them under "
            "load: correct programs "
            "score 0. Calls of the tool, which send no stdin, are not affected",
            change="use a Sandbox Fusion server built after 2025-06-26 (the image "
            "server-20250609 has this race), "
            "or judge one case at a time",
        )
    if not any(result.outcome.is_from_program for result in results):
        most, times = Counter(result.outcome.value for result in results).most_common(1)[0]
        raise NotExamined(f"none of {count} programs sent at once was run: {times} x {most}")
    return None


async def detect_version(context: CheckContext) -> Finding | None:
    kept = context.measured.get("memory_limit_kept")
    raced = context.measured.get("stdin_race", "")
    looks = ""
    why = ""
    if raced and not raced.startswith("0 "):
        looks = "2025-06"
        why = f"{raced} programs lost the stdin race"
    elif kept is False:
        looks = "2025-06"
        why = "memory limits are ignored"
    elif kept:
        looks = "2026-07"
        why = "memory limits are enforced"
    context.measured["looks_like"] = looks or None
    if not looks:
        return None
    if looks == "2025-06":
        image = "the published image server-20250609"
    else:
        image = "a server built after June 2025"
    return note(
        "server-version",
        seen=f"it behaves like the source of {looks} ({image}): {why}",
        training="the fake's profile of that name behaves the same",
        change=f"test with `--profile {looks}`, or `profile: '{looks}'` in scenarios",
    )


_FINDS = """import importlib.util, json
missing = []
for name in {names!r}:
    try:
        found = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        found = None
    if found is None:
        missing.append(name)
print(json.dumps(missing))"""


async def check_languages(context: CheckContext) -> list[Finding | None]:
    """Are the languages installed that the config or ``--languages`` asks for, or else the usual
    ones?"""
    asked = context.plan.languages
    config = context.settings.config
    must = list(dict.fromkeys([config.default_language, *(config.languages or ()), *(asked or ())]))
    usual = LANGUAGES if asked is None else ()
    tried = must + [name for name in usual if name not in must]
    lacking = await _lacking_languages(context, tried)
    there = [name for name in tried if name not in lacking]
    context.measured["languages"] = there

    needed = [name for name in must if name in lacking]
    others = [name for name in lacking if name not in needed]
    broken = breaks(
        "missing-language",
        seen="; ".join(f"{name}: {lacking[name]}" for name in needed),
        training="every call in that language fails, whatever the model writes",
        change="use an image that includes it, or change default_language",
    )
    missing = note(
        "languages",
        seen=f"missing: {', '.join(others)}; available: {', '.join(there)}",
        training="only programs in those languages fail",
        change=(
            "nothing, unless the tool offers them to the model (--languages a,b makes "
            "languages required)"
        ),
    )
    return [broken if needed else None, missing if others else None]


async def _lacking_languages(context: CheckContext, tried: Sequence[str]) -> dict[str, str]:
    """Run a small program in each language; return why it did not run, for those that lack."""
    programs = {"scala": "object Main extends App { println(1) }"}
    for probe in bundled_probes():
        if probe.group == "languages" and probe.request:
            programs.setdefault(probe.request.body["language"], probe.request.body["code"])
    runs = [
        context.run(
            f"language-{language}",
            programs.get(language, "1"),
            language=language,
            memory_limit_mb=-1,
        )
        for language in tried
    ]
    results = await asyncio.gather(*runs)
    return {
        language: _why(result)
        for language, result in zip(tried, results, strict=True)
        if _is_lacking(result)
    }


def _is_lacking(result: CallResult) -> bool:
    # The tool cannot tell a missing interpreter from a program that exits with 127; our own
    # programs never do.
    return (
        result.outcome in (Outcome.SANDBOX_ERROR, Outcome.BAD_RESPONSE) or result.return_code == 127
    )


def _why(result: CallResult) -> str:
    last_line = result.stderr.strip().rpartition("\n")[2]
    why = result.message or last_line or result.outcome.value
    return why[-160:]


async def check_packages(context: CheckContext) -> Finding | None:
    asked = context.plan.packages
    names = list(dict.fromkeys(PACKAGES if asked is None else asked))
    if not names:
        return None
    result = await context.run("packages", _FINDS.format(names=names))
    try:
        missing = parse_json(result.stdout, "stdout") if result.outcome is Outcome.OK else None
    except ValueError:
        missing = None
    if not isinstance(missing, list):
        raise NotExamined(
            f"the program that looks for packages ended as {result.outcome.value}: {_why(result)}"
        )
    there = [name for name in names if name not in missing]
    context.measured["packages"] = there
    if not missing:
        return None
    make = hurts if asked is None else breaks
    return make(
        "missing-packages",
        seen=f"cannot be imported: {', '.join(map(str, missing))}"
        + (f"; available: {', '.join(there)}" if there else ""),
        training="programs that import them fail with ModuleNotFoundError; the model "
        "learns to avoid them, or is "
        "scored as wrong where it was right",
        change=(
            "install them in the sandbox's Python runtime, or list the available ones "
            "in the model's prompt"
        ),
    )
