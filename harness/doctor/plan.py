"""How much an examination does: what is asked for, how long anything may take, how much load it may make."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

PACKAGES = ("numpy", "scipy", "sympy", "pandas", "matplotlib", "sklearn", "networkx", "requests", "tqdm")
"""What code written by a model commonly imports."""
LANGUAGES = ("python", "bash", "cpp", "nodejs", "java", "go")
"""What tool configs commonly offer."""
LEVELS_LOCAL, LEVELS_REMOTE, LEVELS_ASKED = 32, 8, 64
"""How far the sweep goes: on this machine, elsewhere, and when asked for."""
BURST_LOCAL, BURST_REMOTE = 64, 16


@dataclass(frozen=True, slots=True)
class Plan:
    """What an examination may do. Every request has a deadline, and the load a number of requests."""

    patience: float = 8.0
    """Seconds that any answer may take beyond what the program was allowed."""
    connect: float = 5.0
    """Seconds that connecting may take."""
    seconds: float = 10.0
    """Seconds that an ordinary program of a check may run."""
    pause: float = 0.2
    """Seconds before a program that found no answer is sent again; twice that before the third time."""
    per_check: float = 40.0
    """Seconds after which a check is given up, whatever it waits for."""
    quick: bool = False
    """Leave out the burst and the sweep."""
    sweep: bool | None = None
    """True: the whole sweep, also elsewhere; False: none; None: as the address allows."""
    long: bool = False
    """Also run one program as long as default_timeout."""
    longest: float = 5.0
    """A program of default_timeout seconds up to this is run without being asked for."""
    from_container: bool = False
    """Training runs in a container, whatever we run in."""
    packages: Sequence[str] | None = None
    """Packages that training needs; None: the usual ones, and none of them is a must."""
    languages: Sequence[str] | None = None
    """Languages that training needs beside the config's; None: the usual ones, and none of them is a must."""
    burst: int | None = None
    """Programs sent at once; None: as the address allows."""
    levels: int | None = None
    """The highest concurrency of the sweep; None: as the address allows."""
    sweep_sleep: float = 0.1
    """Seconds that a program of the sweep sleeps."""
    sweep_seconds: float = 5.0
    """Seconds after which the sweep begins no further level."""
    slow_ping: float = 1.0
    """Seconds from which a ping is slow; an idle server answers within a few milliseconds."""
    timed_out_after: float = 1.0
    """The run_timeout that programs which never end are given."""

    def burst_for(self, *, local: bool) -> int:
        """How many programs the burst sends."""
        return self.burst if self.burst is not None else (BURST_LOCAL if local else BURST_REMOTE)

    def levels_for(self, *, local: bool, rate_limit: int | None) -> int:
        """How far the sweep goes."""
        if self.levels is not None:
            return self.levels
        if self.sweep:
            return max(LEVELS_ASKED, min(rate_limit or 0, 4 * LEVELS_ASKED))
        return LEVELS_LOCAL if local else LEVELS_REMOTE
