"""What a field of a model declares beside its type, bounds, default and description.

A hunt draws a field as ``Drawn`` says, a shrinker reduces it as ``Reduced`` says; both walk over
the models. What a declaration leaves open follows from the type. Plain data and pure functions: the
random stream is an argument.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any


class Drawn:
    """How a hunt draws a field.

    It takes one of ``values`` (or of a range), or what ``how`` returns, or else a value of the
    field's type. ``how`` gets the case that is being drawn, and what it has beside the field. Only
    cases with one of the features ``when`` have the field, and of those this ``share``. None leaves
    it out.
    """

    def __init__(
        self,
        *values: Any,
        how: Callable[[Any, Any], Any] | None = None,
        when: str | tuple[str, ...] = (),
        share: float | None = None,
    ) -> None:
        only_a_range = len(values) == 1 and isinstance(values[0], range)
        self.values = values[0] if only_a_range else values
        self.how = how
        self.when = (when,) if isinstance(when, str) else when
        self.share = share


@dataclass(frozen=True)
class NotHunted:
    """Why no hunt draws a field."""

    why: str


@dataclass(frozen=True)
class Reduced:
    """What a shrinker tries beside leaving a field out, which gives it its default.

    Without a declaration that follows from the type: fewer items, smaller numbers, simpler
    durations, shorter texts.
    """

    how: Callable[[Any], Iterable[Any]] | None = None
    """Returns simpler values in place of a written one, boldest first."""
    instead: tuple[dict[str, Any], ...] = ()
    """Keys beside it that may take its place."""
    kept: bool = False
    """It is never left out: what it would be then is not simpler."""
    scales: bool = False
    """The number, or the time, goes with the number of calls."""


@dataclass(frozen=True)
class LearnedFrom:
    """What a scenario that is learned from a log has for a field."""

    of: str
    """The dotted attribute of what was learned that holds the value.

    None, or the default, leaves the field out.
    """


@dataclass(frozen=True)
class NotShrunk:
    """Why no shrinker changes a field."""

    why: str
