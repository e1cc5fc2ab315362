"""Programs that lose every attempt while others of their step succeed: perhaps they cause it.

A sample may be left out only if the policy cannot cause the loss. A program that kills its sandbox,
or never ends where the client's time is short, would be learned if it were left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

_FEWEST = 3
"""Attempts of a program that must all be lost (chosen: with a tenth of calls lost, three in a row
happen once in a thousand)."""
_HEALTHY = 0.5
"""The least share of other calls in its steps that must have got a result (chosen)."""
_MOST = 20_000
"""Programs that are kept (chosen: bounds the memory; those that once succeeded go first)."""
_SHOWN = 160
"""Characters of a program that are shown (chosen: two lines of a terminal)."""


@dataclass(slots=True)
class LosingProgram:
    """A program, how often it was tried and lost, and in which steps."""

    text: str
    tried: int = 0
    lost: int = 0
    first_step: int = 0
    last_step: int = 0

    def as_data(self) -> dict[str, Any]:
        return {
            "program": self.text,
            "attempts": self.tried,
            "first_step": self.first_step,
            "last_step": self.last_step,
        }


class ProgramLosses:
    """Counts the programs of a dump, as far as it has them."""

    def __init__(self) -> None:
        self._found: dict[int, LosingProgram] = {}
        self._fine: set[int] = set()
        """Programs that got a result before they lost anything."""
        self._steps: dict[int, list[int]] = {}
        """Calls of each step, and how many of them were lost."""

    def add(self, programs: Sequence[str], lost: Sequence[bool], step: int) -> None:
        """Count the programs of a sample; only those that have an answer each."""
        if len(programs) != len(lost):
            return
        totals = self._steps.setdefault(step, [0, 0])
        for text, is_lost in zip(programs, lost, strict=True):
            totals[0] += 1
            totals[1] += is_lost
            key = hash(text)
            program = self._found.get(key)
            if program is None:
                if not is_lost and len(self._fine) < _MOST:
                    self._fine.add(key)
                if not is_lost or key in self._fine:
                    continue
                program = self._keep(key, LosingProgram(text[:_SHOWN], first_step=step))
            program.tried += 1
            program.lost += is_lost
            program.last_step = step

    def _keep(self, key: int, program: LosingProgram) -> LosingProgram:
        if len(self._found) >= _MOST:
            worst = sorted(self._found.items(), key=lambda pair: pair[1].tried == 1)
            self._found = dict(worst[: _MOST // 2])
        self._found[key] = program
        return program

    def losing(self) -> list[LosingProgram]:
        """Return the programs that lose every attempt while others succeed, the most tried
        first."""
        found = []
        for program in self._found.values():
            if program.tried < _FEWEST or program.lost < program.tried:
                continue
            others = 0
            fine = 0
            for step in range(program.first_step, program.last_step + 1):
                calls, lost = self._steps.get(step, (0, 0))
                others += calls
                fine += calls - lost
            if fine >= _HEALTHY * max(1, others - program.tried):
                found.append(program)
        return sorted(found, key=lambda program: -program.tried)
