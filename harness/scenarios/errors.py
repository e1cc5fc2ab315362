"""The errors of scenario files.

ScenarioError     one or more problems; its text has a line for each: FILE:LINE: what was found; what is meant
"""

from __future__ import annotations

from collections.abc import Sequence


class ScenarioError(Exception):
    """Raised when a scenario cannot be read; every problem names its file and line."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = list(problems)
