"""The scope of an examination: what is required, how long things may take, how much load is allowed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

PACKAGES = ("numpy", "scipy", "sympy", "pandas", "matplotlib", "sklearn", "networkx", "requests", "tqdm")
"""Packages that code written by a model commonly imports."""
LANGUAGES = ("python", "bash", "cpp", "nodejs", "java", "go")
"""Languages that tool configs commonly offer."""
LEVELS_LOCAL, LEVELS_REMOTE, LEVELS_ASKED = 32, 8, 64
"""Highest concurrency of the sweep: on this machine, on another one, and with --sweep."""
BURST_LOCAL, BURST_REMOTE = 64, 16


@dataclass(frozen=True, slots=True)
class Plan:
    """What an examination may do. Every request has a deadline, and the load is a bounded number of requests."""

    patience: float = 8.0
    """Seconds that an answer may take beyond the program's own limit."""
    connect: float = 5.0
    """Seconds that connecting may take."""
    seconds: float = 10.0
    """Time limit of an ordinary program."""
    pause: float = 0.2
    """Seconds before a program without an answer is sent again; twice that before the third attempt."""
    per_check: float = 40.0
    """Seconds after which a check is abandoned."""
    quick: bool = False
    """Skip the burst and the sweep."""
    sweep: bool | None = None
    """True: the full sweep, also on other machines; False: none; None: short on other machines."""
    long: bool = False
    """Also run one program as long as default_timeout."""
    longest: float = 5.0
    """A default_timeout up to this many seconds is tested even without ``long``."""
    from_container: bool = False
    """Training runs in a container, even if this process does not."""
    packages: Sequence[str] | None = None
    """Packages that training requires; None: look for the usual ones, none of them required."""
    languages: Sequence[str] | None = None
    """Languages that training requires besides the config's; None: try the usual ones, none of them required."""
    burst: int | None = None
    """Programs sent at once; None: fewer on other machines."""
    levels: int | None = None
    """Highest concurrency of the sweep; None: lower on other machines."""
    sweep_sleep: float = 0.1
    """Seconds that each program of the sweep sleeps."""
    sweep_seconds: float = 5.0
    """Seconds after which the sweep starts no further level."""
    program: str | None = None
    """The Python program of the sweep; None: one that sleeps ``sweep_sleep`` seconds."""
    slow_ping: float = 1.0
    """A ping that takes this many seconds is slow; an idle server answers within milliseconds."""
    timed_out_after: float = 1.0
    """The run_timeout of programs that exceed it on purpose."""

    def burst_for(self, *, local: bool) -> int:
        return self.burst if self.burst is not None else (BURST_LOCAL if local else BURST_REMOTE)

    def levels_for(self, *, local: bool, rate_limit: int | None) -> int:
        if self.levels is not None:
            return self.levels
        if self.sweep:
            return max(LEVELS_ASKED, min(rate_limit or 0, 4 * LEVELS_ASKED))
        return LEVELS_LOCAL if local else LEVELS_REMOTE
