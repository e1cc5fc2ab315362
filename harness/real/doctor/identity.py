"""Which version of Sandbox Fusion it behaves like, and whether it is one of our own fakes."""

from __future__ import annotations

from typing import Any

from sfusion.harness.real.doctor.context import CheckContext
from sfusion.harness.real.doctor.finding import Finding, note
from sfusion.harness.real.doctor.http import HttpAnswer
from sfusion_tools.bounded_input import parse_json
from sfusion_tools.wording import counted


async def detect_version(context: CheckContext) -> list[Finding]:
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
        return []
    image = "the published image server-20250609" if looks == "2025-06" else "a server built after June 2025"
    return [
        note(
            "server-version",
            seen=f"it behaves like the source of {looks} ({image}): {why}",
            training="the fake's profile of that name behaves the same",
            change=f"test with `--profile {looks}`, or `profile: '{looks}'` in scenarios",
        )
    ]


async def detect_fake(context: CheckContext) -> list[Finding]:
    answer = await context.get("__sfusion/state")
    state = _json(answer.body) if isinstance(answer, HttpAnswer) else None
    if not isinstance(answer, HttpAnswer) or not isinstance(state, dict):
        return []
    realm = str(answer.headers.get("WWW-Authenticate", ""))
    if answer.status == 401 and "sfusion" in realm:
        return [_fake("it answers /__sfusion/state, and asks for its token", proxy="sfusion proxy" in realm)]
    if answer.status != 200 or "faults" not in state:
        return []
    facts = [f"{key} {state[key]}" for key in ("profile", "executor") if key in state]
    rules = len(state["faults"])
    facts.append(counted(rules, "fault rule") if rules else "no faults")
    return [_fake(", ".join(facts), proxy="upstream" in state)]


def _fake(seen: str, *, proxy: bool = False) -> Finding:
    what = "sfusion's fault proxy, in front of a sandbox" if proxy else "sfusion's fake, not a Sandbox Fusion server"
    return note(
        "fake",
        seen=f"this is {what}: {seen}",
        training="fine for tests; the other findings show how it is configured"
        + (", and how the sandbox behind it behaves" if proxy else ""),
        change="nothing, unless training should use a real sandbox",
    )


def _json(body: bytes) -> Any:
    try:
        return parse_json(body, "answer")
    except ValueError:
        return None
