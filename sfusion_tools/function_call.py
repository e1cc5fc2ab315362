"""A program that calls a function of a solution with arguments from stdin, and how its result is read."""

from __future__ import annotations

import json
from hashlib import sha256
from typing import Any

from sfusion_tools.errors import JudgeError

_PROGRAM = """\
import json, linecache, os, sys, traceback, types

source = {source!a}
# The solution may close or replace stdout, patch modules, and leave tracebacks that should quote it.
out = os.fdopen(os.dup(1), "w", encoding="ascii")
encode = json.JSONEncoder().encode
arguments = json.loads(sys.stdin.read())
sys.excepthook = traceback.print_exception
linecache.cache["solution.py"] = len(source), None, source.splitlines(True), "solution.py"
# It is imported, not run: `__name__` is not "__main__".
solution = sys.modules["solution"] = types.ModuleType("solution")
solution.__file__ = "solution.py"
try:
    exec(compile(source, "solution.py", "exec", dont_inherit=True), solution.__dict__)
except SystemExit as stop:
    if stop.code:
        raise
owner = getattr(solution, "Solution", None)
function = getattr(owner() if hasattr(owner, {name!r}) else solution, {name!r})
# Called from here, so that no frame of ours takes away from the depth of recursion.
result = encode(function(*arguments))
try:
    sys.stdout.flush()
except Exception:
    pass
out.write({mark!a} + result + "\\n")
out.close()
"""

NO_RESULT = object()
"""Equals nothing that a function can return."""


def calling_program(source: str, name: str) -> str:
    """Return the program that calls the function; an exception ends it with an error."""
    if not name.isidentifier():
        raise JudgeError(f"fn_name must be the name of a function, found {name!r}")
    return _PROGRAM.format(source=source, name=name, mark=mark_of(source))


def mark_of(source: str) -> str:
    """Return what precedes the result in stdout. No text contains its own hash, so no solution can spell it out."""
    return f"\x1fsfusion {sha256(source.encode()).hexdigest()[:16]}\x1f"


def comparable(text: str) -> Any:
    """Parse JSON so that equal values, and no others, are ``==``: NaN equals itself, and 1 is 1.0 but not true."""
    return json.loads(text, parse_int=_integer, parse_float=_float, parse_constant=_CONSTANTS.__getitem__)


def _integer(digits: str) -> tuple[int]:
    return (int(digits),)


def _float(digits: str) -> tuple[float]:
    return (float(digits),)


_CONSTANTS = {name: _float(name) for name in ("NaN", "Infinity", "-Infinity")}
"""One object for every NaN: containers compare by identity first."""


def read_result(stdout: str, mark: str) -> Any:
    """Return what the function returned, NO_RESULT if it returned nothing or somebody else used the mark too."""
    parts = stdout.split(mark)
    if len(parts) != 2:
        return NO_RESULT
    try:
        return comparable(parts[1].partition("\n")[0])
    except (ValueError, RecursionError):
        return NO_RESULT
