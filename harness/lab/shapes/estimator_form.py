"""In which containers an advantage estimator takes a batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ..facts.batch import Row

Library = Literal["list", "numpy", "torch"]
Keys = Literal["names", "numbers", "tokens"]
"""What says which prompt a row belongs to; `tokens` are the rows of a matrix of token ids."""
_TOKENS = 3
"""Tokens of each sample where values are per token. Chosen: more than one, so that a sum over
tokens and a mean differ."""


@dataclass(frozen=True)
class Form:
    """In which containers an estimator takes its arguments."""

    library: Library
    rewards_per_token: bool
    mask_per_token: bool
    keys: Keys
    flipped: bool = False
    """Its mask is true for lost samples, whatever its name says."""
    listed_groups: bool = False
    """Groups are a list, whatever the rewards are."""
    by_prompt: bool = False
    """Rewards and mask have a row for each prompt, with a value for each of its samples."""

    @property
    def words(self) -> str:
        what = "lists" if self.library == "list" else self.library
        words = f"{what}, a reward for each {'token' if self.rewards_per_token else 'row'}"
        if self.by_prompt:
            words = f"{what}, a row for each prompt"
        return f"{words}; its mask is true for lost samples" if self.flipped else words

    def rewards(self, rows: Sequence[Row]) -> Any:
        """Return the rewards; of tokens the last one has it."""
        values = [row.reward for row in rows]
        if self.by_prompt:
            return self._by_prompt(rows, values, "float")
        if not self.rewards_per_token:
            return _contained(values, self.library, "float")
        before = [0.0] * (_TOKENS - 1)
        return _contained([[*before, value] for value in values], self.library, "float")

    def groups(self, rows: Sequence[Row]) -> Any:
        library: Library = "list" if self.listed_groups else self.library
        if self.keys == "tokens":
            return _contained([[row.group] * _TOKENS for row in rows], library, "int")
        if self.keys == "numbers":
            return _contained([row.group for row in rows], library, "int")
        # No tensor holds names: trainers that compute with torch keep them in numpy.
        library = "numpy" if library == "torch" else library
        return _contained([f"prompt-{row.group}" for row in rows], library, "object")

    def mask(self, rows: Sequence[Row], *, of_lost: bool) -> Any:
        """Return what is true for samples that count, or for lost ones."""
        flags = [row.masked == (of_lost != self.flipped) for row in rows]
        if self.by_prompt:
            return self._by_prompt(rows, flags, "bool")
        if not self.mask_per_token:
            return _contained(flags, self.library, "bool")
        numbers = [[int(flag)] * _TOKENS for flag in flags]
        return _contained(numbers, self.library, "int" if self.library == "list" else "float")

    def _by_prompt(self, rows: Sequence[Row], values: list[Any], kind: str) -> Any:
        """Return a list of lists or arrays, or a matrix of torch."""
        prompts: dict[int, list[Any]] = {}
        for row, value in zip(rows, values, strict=True):
            prompts.setdefault(row.group, []).append(value)
        if self.library == "torch":
            return _contained(list(prompts.values()), "torch", kind)
        return [_contained(prompt, self.library, kind) for prompt in prompts.values()]


def _contained(values: list[Any], library: Library, kind: str) -> Any:
    """Return a list in a container of a library."""
    if library == "list":
        return values
    if library == "numpy":
        import numpy

        return numpy.array(values, dtype=kind)
    import torch

    kinds = {"float": torch.float32, "int": torch.int64, "bool": torch.bool}
    return torch.tensor(values, dtype=kinds[kind])
