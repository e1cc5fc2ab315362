"""What the server is and has: its version, languages and packages."""

from __future__ import annotations

import asyncio

from sfusion.harness.errors import NotExamined
from sfusion.harness.real.doctor.context import CheckContext
from sfusion.harness.real.doctor.finding import Finding, breaks, hurts, note
from sfusion.harness.real.doctor.settings import LANGUAGES, PACKAGES
from sfusion.harness.real.probes.suite import bundled_probes
from sfusion_tools.bounded_input import parse_json
from sfusion_tools.outcome import Outcome
from sfusion_tools.sandbox.result import CallResult


async def detect_version(context: CheckContext) -> Finding | None:
    kept = context.measured.get("memory_limit_kept")
    raced = context.measured.get("stdin_race", "")
    looks, why = "", ""
    if raced and not raced.startswith("0 "):
        looks, why = "2025-06", f"{raced} programs lost the stdin race"
    elif kept is False:
        looks, why = "2025-06", "memory limits are ignored"
    elif kept:
        looks, why = "2026-07", "memory limits are enforced"
    context.measured["looks_like"] = looks or None
    if not looks:
        return None
    image = "the published image server-20250609" if looks == "2025-06" else "a server built after June 2025"
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
    """Are the languages installed that the config or ``--languages`` asks for, or else the usual ones?"""
    asked = context.plan.languages
    settings = context.settings
    must = list(dict.fromkeys([settings.default_language, *settings.languages, *(asked or ())]))
    tried = must + [name for name in (LANGUAGES if asked is None else ()) if name not in must]
    sent = [one.request.body for one in reversed(bundled_probes()) if one.group == "languages" and one.request]
    programs = {body["language"]: body["code"] for body in sent} | {"scala": "object Main extends App { println(1) }"}
    results = await asyncio.gather(
        *(context.run(f"language-{one}", programs.get(one, "1"), language=one, memory_limit_mb=-1) for one in tried)
    )
    lacking = {name: _why(result) for name, result in zip(tried, results, strict=True) if _is_lacking(result)}
    context.measured["languages"] = [name for name in tried if name not in lacking]
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
        seen=f"missing: {', '.join(others)}; available: {', '.join(context.measured['languages'])}",
        training="only programs in those languages fail",
        change="nothing, unless the tool offers them to the model (--languages a,b makes languages required)",
    )
    return [broken if needed else None, missing if others else None]


def _is_lacking(result: CallResult) -> bool:
    # The tool cannot tell a missing interpreter from a program that exits with 127; our own programs never do.
    return result.outcome in (Outcome.SANDBOX_ERROR, Outcome.BAD_RESPONSE) or result.return_code == 127


def _why(result: CallResult) -> str:
    return (result.message or result.stderr.strip().rpartition("\n")[2] or result.outcome.value)[-160:]


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
        raise NotExamined(f"the program that looks for packages ended as {result.outcome.value}: {_why(result)}")
    there = [name for name in names if name not in missing]
    context.measured["packages"] = there
    if not missing:
        return None
    make = hurts if asked is None else breaks
    return make(
        "missing-packages",
        seen=f"cannot be imported: {', '.join(map(str, missing))}"
        + (f"; available: {', '.join(there)}" if there else ""),
        training="programs that import them fail with ModuleNotFoundError; the model learns to avoid them, or is "
        "scored as wrong where it was right",
        change="install them in the sandbox's Python runtime, or list the available ones in the model's prompt",
    )
