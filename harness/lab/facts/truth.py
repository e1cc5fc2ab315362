"""What one execution of a program really did.

This is the truth with which a text, an exit code and a reward are compared.
"""

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
    """How it ended: by itself, at its time limit, or in the compiler.

    What the compiler said is then in ``stderr``.
    """
    seconds: float = 0.0
    """How long it runs if nothing stops it."""
    compile_seconds: float = 0.0
    warnings: str = ""
    """What the compiler says although it succeeds."""

    def due(self, run_timeout: float, compile_timeout: float, *, compiled: bool) -> float:
        """Return after how many seconds a sandbox with these time limits has its result."""
        compiling = 0.0
        if compiled:
            endless = self.ending == "compiler_stopped"
            compiling = compile_timeout if endless else min(self.compile_seconds, compile_timeout)

        running = 0.0
        if self.ending not in ("not_compiled", "compiler_stopped"):
            endless = self.ending == "stopped"
            running = run_timeout if endless else min(self.seconds, run_timeout)
        return compiling + running

    @property
    def failed(self) -> bool:
        """True unless the program ended by itself with exit code 0."""
        return self.ending != "exited" or self.exit != 0
