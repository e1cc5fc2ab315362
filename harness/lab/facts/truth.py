"""What one execution of a program really did: the truth that a text, an exit code and a reward are
compared with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Ending = Literal["exited", "stopped", "not_compiled", "compiler_stopped"]


@dataclass(frozen=True)
class ProgramTruth:
    """One execution. What a program wrote before its time limit stopped it is in ``stdout`` too."""

    stdout: str = ""
    stderr: str = ""
    exit: int = 0
    """The exit code; negative for a signal."""
    ending: Ending = "exited"
    """How it ended: by itself, at its time limit, or in the compiler, whose messages are then in
    ``stderr``."""
    seconds: float = 0.0
    """How long it runs if nothing stops it."""
    compile_seconds: float = 0.0
    warnings: str = ""
    """What the compiler says although it succeeds."""

    def due(self, run_timeout: float, compile_timeout: float, *, compiled: bool) -> float:
        """Return after how many seconds a sandbox with these time limits has its result."""
        endless = float("inf")
        compiling = min(
            endless if self.ending == "compiler_stopped" else self.compile_seconds, compile_timeout
        )
        running = min(endless if self.ending == "stopped" else self.seconds, run_timeout)
        started = self.ending not in ("not_compiled", "compiler_stopped")
        return (compiling if compiled else 0.0) + (running if started else 0.0)

    @property
    def failed(self) -> bool:
        return self.ending != "exited" or self.exit != 0
