"""The user's own programs, with which throughput is measured: files, or those of an event log."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sfusion_tools.bounded_input import bounded_lines, decoded, parse_json, read_bounded
from sfusion_tools.errors import InputError

_LARGEST = 1_000_000
"""Bytes of a program (chosen: models write less)."""
_MOST_READ = 200_000
"""Lines of a log that are read (chosen: some seconds)."""
_MOST_KEPT = 2000
"""Programs of a log that are kept, evenly from all of it (chosen)."""


@dataclass(frozen=True, slots=True)
class Mix:
    """Programs in the order of how long they ran, where that is known."""

    programs: tuple[str, ...]
    says: str
    """What they are, for the report."""

    def pick(self, count: int) -> list[str]:
        """Return as many programs, long and short ones in the shares that they have in the mix.

        Those of a log are in the order of how long they ran, and the longest come first. A long one
        that began last would run alone at the end, and hide how many the server runs per second.
        """
        size = len(self.programs)
        places = [int((number + 0.5) / count * size) for number in reversed(range(count))]
        return [self.programs[place] for place in places]


def mix_of_files(files: Sequence[Path]) -> Mix:
    """Read programs; raise InputError."""
    programs = tuple(decoded(read_bounded(file, _LARGEST), file) for file in files)
    return Mix(programs, "the given program" if len(files) == 1 else "the given programs")


def mix_of_log(log: Path) -> Mix:
    """Read the Python programs of an event log that has ``code``; raise InputError."""
    from ...core.logs.reading import (  # reads every kind of log, which takes its time
        is_gzip,
        log_files,
    )

    found: list[tuple[float, str]] = []
    for file in log_files(log):
        with file.open("rb") as lines:
            if is_gzip(lines):
                raise InputError(f"{file}: it is packed; unpack it to measure with its programs")
            for number, line in bounded_lines(lines, str(file)):
                if number > _MOST_READ:
                    break
                if line.startswith(b'{"event_log"') and line.endswith(b"\n"):
                    found += _program_of(parse_json(line, f"{file}:{number}"))
    if not found:
        raise InputError(
            f"{log}: no line of it has the code of a Python program; let the tool write it, with "
            "event_log: {path: ..., include: [code]}"
        )
    every = -(-len(found) // _MOST_KEPT)
    kept = sorted(found[::every])
    return Mix(tuple(code for _, code in kept), f"{len(kept):,} programs of {log.name}")


def _program_of(record: dict[str, Any]) -> list[tuple[float, str]]:
    """Return how long the program of a call ran, and the program; nothing without one."""
    code = record.get("code")
    if not isinstance(code, str) or record.get("language", "python") != "python":
        return []
    ran = 0.0
    for attempt in record.get("attempts") or ():
        ran = attempt.get("run_seconds") or ran
    return [(float(ran), code)]
