"""The result of one run."""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from sfusion.harness.lab.journal import Journal
from sfusion.harness.lab.promises.verdict import How, Verdict
from sfusion.harness.lab.runs.tasks import Task

ERROR = "error"
"""In place of a promise: the run itself failed."""


@dataclass(frozen=True)
class RunResult:
    """One cell that was run and judged."""

    task: Task
    journal: Journal
    verdicts: list[Verdict]
    wall_seconds: float
    repeated: str | None = None
    """With --twice: the digest of the second run."""
    difference: str = ""
    """With --twice: where the two runs differ."""
    error: str = ""
    """Why it could not be run."""
    error_how: How | None = None
    """The error as data."""
    error_code: int = 0
    """The exit code that the error stands for: it is not a broken promise."""
    implied: Sequence[Verdict] = ()
    """On implied promises that are not broken."""

    @cached_property
    def digest(self) -> str:
        """The digest of the journal; computed when it is asked for, which takes as long as judging the run."""
        return self.journal.digest()

    @property
    def exit_code(self) -> int:
        """Return 0 if every promise held, 1 if not, and the code of the error if it could not be run."""
        return self.error_code or (0 if self.ok else 1)

    @property
    def ok(self) -> bool:
        """Did every promise hold, and did a second run write the same journal? Unknown is not a pass."""
        return self.state == "held"

    @property
    def state(self) -> str:
        """Return the worst of the verdicts: broken, unknown or held. Unknown if no promise applies."""
        states = {verdict.state for verdict in self.verdicts}
        if self.error or self.difference or "broken" in states:
            return "broken"
        return "unknown" if "unknown" in states or "held" not in states else "held"


def place_of(error: BaseException, key: str = "lineno") -> str:
    """Return where an error was raised: file and line, or with ``name`` file and function."""
    frames = traceback.extract_tb(error.__traceback__)
    return f"{Path(frames[-1].filename).name}:{getattr(frames[-1], key)}" if frames else ""


def how_raised(promise: str, error: BaseException | None, **more: str) -> How:
    """Return what was raised, by type and function; ``promise`` is what stands in place of one."""
    facts = {"raised": type(error).__name__, "function": place_of(error, "name")} if error is not None else {}
    return How(promise, "raised", (*facts.items(), *more.items()))
