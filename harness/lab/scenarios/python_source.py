"""Generates Python code that does what a program of a scenario describes, for sandboxes that run code."""

from __future__ import annotations

import re

_LONG_RUN = re.compile(r"(.)\1{63,}", re.DOTALL)


def python_source(*, seconds: float, early: str, prints: str, errors: str, exit: int, raises: str, memory: int) -> str:
    """Return the code: early output, memory, time, output, then how it ends."""
    lines = ["import builtins, os, sys, time"]
    if early:
        lines += [f"sys.stdout.write({_literal(early)})", "sys.stdout.flush()"]
    if memory:
        lines.append(f"needed = bytearray({memory} << 20)")
    if seconds:
        lines.append(f"time.sleep({seconds!r})")
    if errors:
        lines += [f"sys.stderr.write({_literal(errors)})", "sys.stderr.flush()"]
    if prints:
        lines += [f"sys.stdout.write({_literal(prints)})", "sys.stdout.flush()"]
    if raises:
        name, _, words = raises.partition(": ")
        # An unknown exception is defined on the spot: what counts is the last line of the traceback.
        lines.append(f"known = getattr(builtins, {name!r}, None) or type({name!r}, (Exception,), {{}})")
        lines.append(f"raise known({words!r})" if words else "raise known")
    elif exit < 0:
        lines.append(f"os.kill(os.getpid(), {-exit})")
    elif exit:
        lines.append(f"sys.exit({exit})")
    return "\n".join(lines) + "\n"


def _literal(text: str) -> str:
    """Return a Python expression for a text, with long runs of one character kept short."""
    parts: list[str] = []
    at = 0
    for run in _LONG_RUN.finditer(text):
        if run.start() > at:
            parts.append(repr(text[at : run.start()]))
        parts.append(f"{run[1]!r} * {len(run[0])}")
        at = run.end()
    if at < len(text):
        parts.append(repr(text[at:]))
    return " + ".join(parts) or "''"
