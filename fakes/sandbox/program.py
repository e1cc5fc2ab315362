"""What a program would do, declared instead of run.

A script declares it, or hints beside the mark inside the code.

A hint is ``key=value`` on the line of the mark, in any language's comment:

    # sfusion:call=c17 seconds=0.2 prints="ok\\n" exit=0

Values are bare words or JSON strings in double quotes. Words without ``=`` are left alone. In what
a program prints, ``{fill:N}`` stands for N characters, so that code of one line can print
megabytes.
"""

from __future__ import annotations

import json
import re
from functools import lru_cache
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, field_validator

from sfusion_tools.errors import near
from sfusion_tools.output_sizes import PIPE_BYTES

from ..call_mark import CALL_MARK
from ..faults import Seconds, seconds
from ..faults.pattern import Pattern, PatternSearches

_HINT = re.compile(r'(?<![A-Za-z_])([A-Za-z_]+)=("(?:[^"\\]|\\.)*"|[^\s"]*)')

_FILLED = ("prints", "early", "errors")
_FILL = re.compile(r"\{fill:([^}]*)\}?")
_MOST = 20_000_000
"""Characters to fill in one text (chosen: ten times the longest output of a bundled scenario)."""
_MOST_DIGITS = 19
"""Of a number of characters: longer ones are not even read."""


def fill(text: str) -> str:
    """Replace each ``{fill:N}`` by N characters."""
    if "{fill:" not in text:
        return text
    return _FILL.sub(lambda found: _filling(_size(found)), text)


def filling(size: int) -> str:
    """Return numbers in letters: every piece of it is found only once.

    Programs that really run have this function.
    """
    numbers = "".join(map("{:07x}-".format, range(size // 8 + 1)))
    return numbers.translate(str.maketrans("0123456789abcdef", "bcdfghjklmnpqrst"))[:size]


_filling = lru_cache(maxsize=8)(filling)


def passed_on(text: str) -> str:
    """Return what the real server passes on of one long write."""
    if len(text) * 4 <= PIPE_BYTES:
        return text
    return text.encode()[:PIPE_BYTES].decode(errors="ignore")


def check_fill(text: str) -> str:
    """Return the text.

    Raise ValueError if some ``{fill:N}`` has no such N, or if they are too long together.
    """
    if "{fill:" in text:
        filled_length(text)
    return text


def filled_length(text: str) -> int:
    """Return how long the text is once every ``{fill:N}`` is written out."""
    fills = list(_FILL.finditer(text))
    total = sum(map(_size, fills))
    if total > _MOST:
        raise ValueError(
            f"{total:,} characters to fill; at most {_MOST:,} are possible in one text"
        )
    written = sum(len(found[0]) for found in fills)
    return len(text) - written + total


def _size(found: re.Match[str]) -> int:
    """Return the N of a ``{fill:N}``; raise ValueError if it has none."""
    size = found[1]
    is_number = size.isascii() and size.isdigit() and len(size) <= _MOST_DIGITS
    if is_number and found[0].endswith("}") and int(size) <= _MOST:
        return int(size)
    raise ValueError(
        f"{found[0]} needs a whole number of characters up to {_MOST:,}, as in {{fill:1000}}"
    )


class ScriptedProgram(BaseModel):
    """What one program does."""

    model_config = ConfigDict(defer_build=True, frozen=True, extra="forbid")

    seconds: Seconds = 0.0
    """How long it runs."""
    prints: str = ""
    """What it prints; lost when it is stopped for time."""
    early: str = ""
    """What it prints and flushes first; kept when it is stopped for time."""
    errors: str = ""
    """What it writes to stderr."""
    exit: int = 0
    """Its return code; negative for a signal."""
    raises: str = ""
    """An uncaught exception such as ``ValueError: bad``: its text on stderr and exit 1."""
    memory: int = 0
    """MB it needs; above the request's limit it dies of MemoryError."""
    reads_stdin: bool = False
    """Only for profile 2025-06, where a program that does not read its stdin loses a race."""
    compile_seconds: Seconds = 0.0
    compile_exit: int = 0
    compile_errors: str = ""
    sandbox_error: str = ""
    """The server itself fails with this message."""
    files: dict[str, str] = Field(default_factory=dict)
    """Text files it writes, for fetch_files."""
    whole: bool = False
    """Its output gets through in any size; the real server cuts or blocks a large write."""

    _fillable = field_validator(*_FILLED)(check_fill)

    @property
    def printed(self) -> str:
        """All of its output, if it comes to its end."""
        return self.early + self.prints

    @property
    def filled(self) -> ScriptedProgram:
        """The same with every ``{fill:N}`` written out."""
        texts = {}
        for key in _FILLED:
            text = getattr(self, key)
            if "{fill:" in text:
                texts[key] = fill(text)
        return self.model_copy(update=texts) if texts else self


NOTHING = ScriptedProgram()


class ProgramScript(ScriptedProgram):
    """What a program does, for the requests that fit: by code pattern, by call, by language."""

    pattern: Pattern | None = None
    """A regular expression searched for in the code."""
    exact: str | None = None
    """The code itself, without the line of a mark. However many scripts have one, finding theirs
    takes one step."""
    call: str | None = None
    """The id in the mark."""
    language: str | None = None

    def fits(self, code: str, language: str, call: str | None, searches: PatternSearches) -> bool:
        """True when this script is for the request."""
        if self.exact is not None and self.exact != without_mark(code):
            return False
        if self.call is not None and self.call != call:
            return False
        if self.language is not None and self.language != language:
            return False
        return self.pattern is None or searches.matches(self.pattern, code)


def mark_of(code: str) -> str | None:
    """The id of the call, when the code carries a mark."""
    found = CALL_MARK.search(code)
    return found.group(1) if found else None


def without_mark(code: str) -> str:
    """The code without the line of its mark."""
    found = CALL_MARK.search(code)
    if found is None:
        return code
    before = code[: code.rfind("\n", 0, found.start()) + 1]
    _rest_of_line, _, after = code[found.end() :].partition("\n")
    return before + after


def hinted(code: str, base: ScriptedProgram = NOTHING) -> ScriptedProgram:
    """Apply the hints on the line of the mark to a program, and write every ``{fill:N}`` out."""
    found = CALL_MARK.search(code)
    if found is None:
        return base.filled
    end = code.find("\n", found.end())
    rest_of_line = code[found.end() :] if end < 0 else code[found.end() : end]
    if base is NOTHING:
        return _alone(rest_of_line)
    return _with_hints(rest_of_line, base)


@lru_cache(maxsize=1024)  # chosen: more than workloads have different hints
def _alone(rest: str) -> ScriptedProgram:
    """Read hints once: the calls of one workload mostly carry the same ones."""
    return _with_hints(rest, NOTHING)


def _with_hints(rest: str, base: ScriptedProgram) -> ScriptedProgram:
    """Apply hints, which are the rest of the line of a mark."""
    changes: dict[str, Any] = {}
    for key, raw in _HINT.findall(rest):
        try:
            changes[key] = _READERS[key](_text(raw))
            if key in _FILLED:
                check_fill(changes[key])
        except KeyError:
            return _mistake(f"unknown hint {key!r}; {near(key, _READERS)}")
        except ValueError as error:
            return _mistake(f"hint {key}={raw}: {error}")
    if changes:
        base = base.model_copy(update=changes)
    return base.filled


def _text(raw: str) -> str:
    return str(json.loads(raw)) if raw.startswith('"') else raw


def _flag(text: str) -> bool:
    if text not in ("yes", "no"):
        raise ValueError("must be yes or no")
    return text == "yes"


_BY_TYPE: dict[Any, Any] = {float: seconds, str: str, int: int, bool: _flag}
_READERS = {
    name: _BY_TYPE[field.annotation]
    for name, field in ScriptedProgram.model_fields.items()
    if name != "files"
}


def _mistake(text: str) -> ScriptedProgram:
    """A program that fails: a mistake in a hint must not go unnoticed."""
    return ScriptedProgram(sandbox_error=f"sfusion: {text}")
