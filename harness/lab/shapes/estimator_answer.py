"""The advantages of samples, in whatever an estimator returns."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any


def advantages_in(answer: Any, in_loss: Sequence[bool]) -> list[float]:
    """Return the advantage of each sample, in whatever an estimator returned."""
    found = []
    for place, cell in enumerate(_cells_of(answer, len(in_loss))):
        is_in_loss = place >= len(in_loss) or in_loss[place]
        found.append(_advantage_of(cell, is_in_loss=is_in_loss))
    return found


def _cells_of(answer: Any, samples: int) -> list[Any]:
    """Return what an estimator says of each sample: a number, or a list with one for each token."""
    if isinstance(answer, Mapping) and "advantages" in answer:
        answer = answer["advantages"]
    if isinstance(answer, tuple) and not all(isinstance(value, int | float) for value in answer):
        answer = answer[0]  # with returns, or with details
    rows = answer.tolist() if hasattr(answer, "tolist") else list(answer)
    cells = [row.tolist() if hasattr(row, "tolist") else row for row in rows]
    if len(cells) != samples and all(isinstance(cell, list) for cell in cells):
        return [cell for row in cells for cell in row]  # a row for each group
    return list(cells)


def _advantage_of(cell: Any, *, is_in_loss: bool) -> float:
    """Return the mean over the tokens of a sample.

    Without a token in the loss the advantage is 0, unless a token is not finite: 0 times NaN is
    NaN.
    """
    tokens = cell if isinstance(cell, list) else [cell]
    values = [_number(token) for token in tokens]
    mean = sum(values) / len(values) if values else 0.0
    return mean if is_in_loss or not math.isfinite(mean) else 0.0


def _number(value: Any) -> float:
    return math.nan if value is None else float(value)
