"""Durations and distributions of durations, as people write them."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from sfusion_tools.errors import near

from .chance import Draw, normal

_UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
_WRITTEN = re.compile(r"\s*([0-9]*\.?[0-9]+(?:e[+-]?[0-9]+)?)\s*([a-z]*)\s*", re.IGNORECASE)
_LONGEST = 1e9
"""Thirty years. Far beyond, the clock of a run no longer tells milliseconds apart."""
_LONGEST_TEXT = 50
"""Characters that are read (chosen: the pattern backtracks, and 90,000 digits froze a server)."""
_MEANT = "a duration is a number of seconds (0.25) or a text such as '250ms', '5s', '2m', '1h'"


def seconds(value: object) -> float:
    """Read a duration; raise ValueError with an example of what is accepted."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError(f"{value!r} is not a duration; {_MEANT}")
    if isinstance(value, str):
        value = _read_text(value)
    number = float(value)
    if not math.isfinite(number) or number < 0:
        raise ValueError(f"{value!r} is not a duration; it must be finite and not negative")
    if number > _LONGEST:
        raise ValueError(f"{value!r} is too long; at most {_LONGEST:,.0f} seconds are possible")
    return number


def _read_text(text: str) -> float:
    """Read a number with or without a unit; without one it means seconds."""
    match = _WRITTEN.fullmatch(text) if len(text) <= _LONGEST_TEXT else None
    if match is not None:
        number, unit = match.groups()
        factor = _UNITS.get(unit.lower() or "s")
        if factor is not None:
            return float(number) * factor
    raise ValueError(f"{text[:_LONGEST_TEXT]!r} is not a duration; {_MEANT}")


Seconds = Annotated[float, BeforeValidator(seconds)]
"""A pydantic field type: a duration in seconds, in any of the accepted spellings."""

Shape = Literal["constant", "uniform", "normal", "lognormal", "exponential", "choice"]
_COUNTS = {"constant": 1, "uniform": 2, "normal": 2, "lognormal": 2, "exponential": 1, "choice": 0}
"""How many numbers each takes, 0 for any."""
_STEEPEST = 10.0
"""Largest sigma of a lognormal (chosen: one draw in six is then above 22,000 medians)."""
_FAR = 6
"""Standard deviations beyond which nothing is expected (one draw in a billion lies there)."""
_FAR_EXPONENTIAL = 20
"""Means beyond which nothing is expected (one draw in 485 million lies there)."""


class Distribution(BaseModel):
    """How long something takes: fixed, or drawn at random.

    Written ``0.2``, ``'200ms'``, ``{uniform: [0.1, 0.3]}``, ``{lognormal: [median, sigma]}``,
    ``{normal: [mean, deviation]}``, ``{exponential: mean}`` or ``{choice: [0.1, 5s]}``.
    """

    model_config = ConfigDict(defer_build=True, frozen=True, extra="forbid")

    shape: Shape = "constant"
    numbers: tuple[float, ...] = Field(min_length=1)

    @model_validator(mode="before")
    @classmethod
    def _read(cls, value: Any) -> Any:
        if isinstance(value, Distribution) or (isinstance(value, dict) and "numbers" in value):
            return value
        if not isinstance(value, dict):
            return {"shape": "constant", "numbers": (seconds(value),)}
        if len(value) != 1:
            raise ValueError(
                f"a distribution has exactly one key, one of {', '.join(_COUNTS)}; got "
                f"{sorted(value)}"
            )
        ((shape, raw),) = value.items()
        if shape not in _COUNTS:
            raise ValueError(f"unknown distribution {shape!r}; {near(str(shape), _COUNTS)}")
        given = raw if isinstance(raw, list | tuple) else [raw]
        return {"shape": shape, "numbers": cls._read_numbers(shape, given)}

    @staticmethod
    def _read_numbers(shape: str, given: Sequence[Any]) -> tuple[float, ...]:
        """Read the numbers of a shape; raise ValueError if it cannot have these."""
        wanted = _COUNTS[shape]
        if wanted and len(given) != wanted:
            numbers_wanted = "1 number" if wanted == 1 else f"{wanted} numbers"
            raise ValueError(f"{shape} takes {numbers_wanted}, got {len(given)}")
        numbers = tuple(seconds(number) for number in given)
        if shape == "lognormal" and numbers[1] > _STEEPEST:
            raise ValueError(
                f"lognormal takes a median and a sigma of at most {_STEEPEST:g}, found {given[1]!r}"
            )
        return numbers

    @property
    def longest(self) -> float:
        """The longest duration that it gives, nearly."""
        match self.shape:
            case "normal":
                return self.numbers[0] + _FAR * self.numbers[1]
            case "lognormal":
                return self.numbers[0] * math.exp(_FAR * self.numbers[1])
            case "exponential":
                return _FAR_EXPONENTIAL * self.numbers[0]
        return max(self.numbers)

    def scaled(self, factor: float) -> Distribution:
        """Return what takes this many times as long."""
        first, *others = self.numbers
        if self.shape != "lognormal":  # whose second number is the spread of a logarithm
            others = [number * factor for number in others]
        return Distribution(shape=self.shape, numbers=(first * factor, *others))

    def sample(self, draw: Draw, name: str = "duration") -> float:
        """Draw a number of seconds; never negative."""
        numbers = self.numbers
        match self.shape:
            case "constant":
                return numbers[0]
            case "uniform":
                return numbers[0] + (numbers[1] - numbers[0]) * draw(name)
            case "normal":
                return max(0.0, numbers[0] + numbers[1] * normal(draw, name))
            case "lognormal":
                return numbers[0] * math.exp(numbers[1] * normal(draw, name))
            case "exponential":
                return -numbers[0] * math.log(1.0 - draw(name))
            case "choice":
                return numbers[int(draw(name) * len(numbers))]
