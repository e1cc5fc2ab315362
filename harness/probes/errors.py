"""What can go wrong with probes.

ProbeError
├── BadProbes       a probe file or a recording is wrong (also a ValueError); a command exits with 2
└── Unreachable     the server cannot be reached, stopped answering, or is no sandbox; a command exits with 3
"""

from __future__ import annotations

from collections.abc import Sequence


class ProbeError(Exception):
    """Base of the errors about probes; the message is for whoever gave the command."""


class BadProbes(ProbeError, ValueError):
    """Raised when probes or recordings cannot be read; a line for each problem, with its file and line."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = list(problems)


class Unreachable(ProbeError):
    """Raised when no whole set of answers can be had from a server."""
