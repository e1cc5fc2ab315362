"""Durations and distributions of durations, as people write them."""

from __future__ import annotations

import math
import re
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from sfusion_tools.errors import near

from .chance import Draw, normal

_UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
_WRITTEN = re.compile(r"\s*([0-9]*\.?[0-9]+(?:e[+-]?[0-9]+)?)\s*([a-z]*)\s*", re.IGNORECASE)
_LONGEST = 1e9
"""Thirty years. Far beyond, the clock of a run no longer tells milliseconds apart."""
_LONGEST_TEXT = 50
_STEEPEST = 10.0
_MEANT = "a duration is a number of seconds (0.25) or a text such as '250ms', '5s', '2m', '1h'"


def seconds(value: object) -> float:
    """Read a duration; raise ValueError with an example of what is accepted."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError(f"{value!r} is not a duration; {_MEANT}")
    if isinstance(value, str):
        match = _WRITTEN.fullmatch(value) if len(value) <= _LONGEST_TEXT else None
        unit = match.group(2).lower() or "s" if match else ""
        if not match or unit not in _UNITS:
            raise ValueError(f"{value[:_LONGEST_TEXT]!r} is not a duration; {_MEANT}")
        value = float(match.group(1)) * _UNITS[unit]
    number = float(value)
    if not math.isfinite(number) or number < 0:
        raise ValueError(f"{value!r} is not a duration; it must be finite and not negative")
    if number > _LONGEST:
        raise ValueError(f"{value!r} is too long; at most {_LONGEST:,.0f} seconds are possible")
    return number


Seconds = Annotated[float, BeforeValidator(seconds)]
"""A pydantic field type: a duration in seconds, in any of the accepted spellings."""

Shape = Literal["constant", "uniform", "normal", "lognormal", "exponential", "choice"]
_COUNTS = {"constant": 1, "uniform": 2, "normal": 2, "lognormal": 2, "exponential": 1, "choice": 0}
"""How many numbers each takes, 0 for any."""


class Distribution(BaseModel):
    """How long something takes: fixed, or drawn at random.

    Written ``0.2``, ``'200ms'``, ``{uniform: [0.1, 0.3]}``, ``{lognormal: [median, sigma]}``,
    ``{normal: [mean, deviation]}``, ``{exponential: mean}`` or ``{choice: [0.1, 5s]}``.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

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
        wanted = _COUNTS[shape]
        if wanted and len(given) != wanted:
            raise ValueError(f"{shape} takes {wanted} number{'s' * (wanted > 1)}, got {len(given)}")
        numbers = tuple(seconds(one) for one in given)
        if shape == "lognormal" and numbers[1] > _STEEPEST:
            raise ValueError(
                f"lognormal takes a median and a sigma of at most {_STEEPEST:g}, found {given[1]!r}"
            )
        return {"shape": shape, "numbers": numbers}

    @property
    def longest(self) -> float:
        """The longest duration that it gives, nearly."""
        match self.shape:
            case "normal":
                return self.numbers[0] + 6 * self.numbers[1]
            case "lognormal":
                return self.numbers[0] * math.exp(6 * self.numbers[1])
            case "exponential":
                return 20 * self.numbers[0]
        return max(self.numbers)

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
