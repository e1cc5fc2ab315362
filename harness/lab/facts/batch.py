"""A planted batch: the rewards of a few prompts' samples, of which some are lost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

LostBy = Literal["mask", "nan", "none", "dropped"]
"""How a lost sample is declared: a mask, a reward of NaN or None, or by leaving its row out."""
LOST = "lost"
"""How a scenario writes a lost sample among the rewards of a group."""


class Row(NamedTuple):
    """A sample as an estimator gets it."""

    group: int
    reward: float | None
    """None if it is lost and its reward says so."""
    masked: bool
    """It is lost, and the mask says so."""


@dataclass(frozen=True)
class PlantedBatch:
    """The samples of a step by prompt."""

    groups: tuple[tuple[float | None, ...], ...]
    """The rewards of each prompt's samples; None for a lost one."""
    lost_by: LostBy | None = None
    lost_reward: float = 0.0
    """What a lost sample has as its reward, if that is not how the loss is declared."""

    @property
    def size(self) -> int:
        """Return how many samples a prompt has if no row was dropped."""
        return max(map(len, self.groups))

    @property
    def rows(self) -> list[Row]:
        """Return the rows in order; dropped ones are not there."""
        found = []
        for group, rewards in enumerate(self.groups):
            for reward in rewards:
                if reward is not None:
                    found.append(Row(group, reward, masked=False))
                elif self.lost_by != "dropped":
                    found.append(Row(group, self._stated, masked=self.lost_by == "mask"))
        return found

    @property
    def _stated(self) -> float | None:
        """Return the reward of a lost sample as an estimator gets it."""
        if self.lost_by == "none":
            return None
        return float("nan") if self.lost_by == "nan" else self.lost_reward

    def survivors(self, group: int) -> tuple[float | None, ...]:
        """Return the rewards of a prompt's samples that are not lost."""
        return tuple(reward for reward in self.groups[group] if reward is not None)

    def by_group(self, values: Sequence[float]) -> list[list[float | None]]:
        """Return one value for each row as lists for each group; None stands for dropped rows."""
        left = iter(values)
        gone = self.lost_by == "dropped"
        return [
            [None if reward is None and gone else next(left) for reward in rewards]
            for rewards in self.groups
        ]
