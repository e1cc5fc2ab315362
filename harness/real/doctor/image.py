"""Which version of Sandbox Fusion it behaves like, is it one of our fakes, and what does a call leave for the next?"""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from sfusion.harness.errors import NotExamined
from sfusion.harness.real.doctor.context import CheckContext
from sfusion.harness.real.doctor.finding import Finding, hurts, note
from sfusion.harness.real.doctor.http import HttpAnswer
from sfusion_tools.bounded_input import parse_json
from sfusion_tools.outcome import Outcome
from sfusion_tools.wording import counted


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


async def detect_fake(context: CheckContext) -> Finding | None:
    answer = await context.get("__sfusion/state")
    state = _json(answer.body) if isinstance(answer, HttpAnswer) else None
    if not isinstance(answer, HttpAnswer) or not isinstance(state, dict):
        return None
    realm = str(answer.headers.get("WWW-Authenticate", ""))
    if answer.status == 401 and "sfusion" in realm:
        return _fake("it answers /__sfusion/state, and asks for its token", proxy="sfusion proxy" in realm)
    if answer.status != 200 or "faults" not in state:
        return None
    facts = [f"{key} {state[key]}" for key in ("profile", "executor") if key in state]
    rules = len(state["faults"])
    facts.append(counted(rules, "fault rule") if rules else "no faults")
    return _fake(", ".join(facts), proxy="upstream" in state)


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


_LEAVES = """import subprocess
try:
    open({path!r}, "w").close()
except OSError:
    pass
quiet = subprocess.DEVNULL
print("left", subprocess.Popen({sleep}, stdin=quiet, stdout=quiet, stderr=quiet, start_new_session=True).pid)
"""
_LOOKS = """import os
found = []
if os.path.exists({path!r}):
    found.append("file")
    os.remove({path!r})
try:
    command = open("/proc/{pid}/cmdline", "rb").read()
except OSError:
    command = b""
if {seconds!r}.encode() in command:
    found.append("process")
    os.kill({pid}, 9)
print("found", *found)
"""
_NAMES = {"file": "a file in /tmp", "process": "a running process"}


async def check_leaks(context: CheckContext) -> Finding | None:
    """Let one program leave a file and a process; the next looks for them, and removes them."""
    token = uuid4()
    path, seconds = f"/tmp/sfusion-doctor-{token.hex}", f"20.{token.int % 10**6:06}"
    first = await context.run("leaves", _LEAVES.format(path=path, sleep=["sleep", seconds]))
    word, _, pid = first.stdout.strip().partition(" ")
    if first.outcome is not Outcome.OK or word != "left" or not pid.isdigit():
        raise NotExamined(f"the program that should leave something behind ended as {first.outcome.value}")
    second = await context.run("looks", _LOOKS.format(path=path, seconds=seconds, pid=pid))
    word, *found = second.stdout.split() or [""]
    if second.outcome is not Outcome.OK or word != "found":
        raise NotExamined(f"the program that should look for leftovers ended as {second.outcome.value}")
    context.measured["leaks"] = found
    if not found:
        return None
    return hurts(
        "leaks",
        seen=f"the next call finds {' and '.join(_NAMES[one] for one in found)} that a call has left behind",
        training="calls influence each other: a program can read what another one wrote, even the solution of the "
        "same task, and leftover processes slow down later calls",
        change="nothing in the config: every Sandbox Fusion server runs all calls in one container; let programs "
        "write to their work directory, and restart the container regularly",
    )
