"""What one call leaves behind for the next: files in /tmp, processes."""

from __future__ import annotations

from uuid import uuid4

from sfusion.harness.errors import NotExamined
from sfusion.harness.real.doctor.context import CheckContext
from sfusion.harness.real.doctor.finding import Finding, hurts
from sfusion_tools.outcome import Outcome

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


async def check_leaks(context: CheckContext) -> list[Finding]:
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
        return []
    return [
        hurts(
            "leaks",
            seen=f"the next call finds {' and '.join(_NAMES[one] for one in found)} that a call has left behind",
            training="calls influence each other: a program can read what another one wrote, even the solution of the "
            "same task, and leftover processes slow down later calls",
            change="nothing in the config: every Sandbox Fusion server runs all calls in one container; let programs "
            "write to their work directory, and restart the container regularly",
        )
    ]
