"""What ``--vary`` says: which value of the scenario takes which values. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from sfusion.harness.errors import BadOption

MOST_VALUES = 1000
"""Of one axis."""
_NUMBER = r"-?\d+(?:\.\d+)?(?:e-?\d+)?"
_RANGE = re.compile(rf"({_NUMBER})\.\.({_NUMBER})(?:([/*])({_NUMBER}))?")
_MEANT = "PATH=VALUES, as in tools.rate_limit=4..64 or load.concurrency=32,64,128"


@dataclass(frozen=True, slots=True)
class Axis:
    """One value of the scenario, and the values that it takes."""

    path: str
    values: tuple[Any, ...]

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.path.rpartition(".")[2]


def are_numbers(values: Sequence[Any]) -> bool:
    return all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)


def read_axes(texts: Sequence[str]) -> list[Axis]:
    """Read the options; raise BadOption."""
    axes = [read_axis(text) for text in texts]
    if not axes:
        raise BadOption(f"nothing to sweep: give --vary {_MEANT}")
    paths = [axis.path for axis in axes]
    for path in paths:
        if paths.count(path) > 1:
            raise BadOption(f"--vary {path}: given twice; put all values into one option, separated by commas")
    return axes


def read_axis(text: str) -> Axis:
    """Read one option: a path, and values or ranges separated by commas."""
    path, equals, given = text.partition("=")
    path = path.strip()
    if not equals or not re.fullmatch(r"\w+(\.[\w-]+)*", path):
        raise BadOption(f"--vary {text}: expected {_MEANT}")
    if path == "seed":
        raise BadOption("--vary seed: every setting is played with several seeds already; use --seeds N")
    if path in ("about", "promises"):
        raise BadOption(f"--vary {path}: it does not change what happens in a run; expected {_MEANT}")
    try:
        listed = yaml.safe_load(f"[{given}]")
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        why = str(getattr(error, "problem", None) or error)
        raise BadOption(f"--vary {text}: the values are not YAML ({why}); expected {_MEANT}") from None
    values = list({label(value): value for one in listed for value in _expanded(one, text)}.values())
    if not values:
        raise BadOption(f"--vary {text}: no values; expected {_MEANT}")
    if len(values) > MOST_VALUES:
        raise BadOption(f"--vary {text}: {len(values):,} values; at most {MOST_VALUES:,} are possible")
    return Axis(path, tuple(sorted(values) if are_numbers(values) else values))


def label(value: Any) -> str:
    """The value as a table shows it."""
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, dict | list):
        return str(yaml.safe_dump(value, default_flow_style=True, width=math.inf, sort_keys=False)).strip()
    return str(value)


def _expanded(value: Any, text: str) -> list[Any]:
    found = _RANGE.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        if isinstance(value, str) and ".." in value:
            raise BadOption(f"--vary {text}: {value!r} is not a range; expected 4..64, 4..64/4 (steps) or 4..64*9")
        return [value]
    first, last, sign, third = found.groups()
    start, end = _number(first), _number(last)
    if not math.isfinite(start) or not math.isfinite(end):
        raise BadOption(f"--vary {text}: the numbers of a range are finite")
    if start > end:
        raise BadOption(f"--vary {text}: the range is empty, because {first} is above {last}; write {last}..{first}")
    if sign == "/":
        return _steps(start, end, _number(third), text)
    if start <= 0:
        raise BadOption(
            f"--vary {text}: a range that grows by factors starts above 0; write {first}..{last}/STEP for equal steps"
        )
    numbers = _spread(start, end, third, text) if sign == "*" else _doubling(start, end)
    if isinstance(start, int) and isinstance(end, int):
        return list(dict.fromkeys(round(one) for one in numbers))
    return [float(f"{one:.4g}") for one in numbers]


def _number(text: str) -> int | float:
    return int(text) if re.fullmatch(r"-?\d{1,15}", text) else float(text)


def _steps(start: float, end: float, step: float, text: str) -> list[Any]:
    if step <= 0:
        raise BadOption(f"--vary {text}: the step must be above 0")
    steps = (end - start) / step
    if steps >= MOST_VALUES:
        raise BadOption(
            f"--vary {text}: {steps + 1:,.0f} values; at most {MOST_VALUES:,} are possible, so take larger steps"
        )
    count = math.floor(steps + 1e-9) + 1
    values = [start + number * step for number in range(count)]
    return values if all(isinstance(one, int) for one in values) else [float(f"{one:.6g}") for one in values]


def _spread(start: float, end: float, number: str, text: str) -> list[float]:
    count = _number(number)
    if not isinstance(count, int) or not 2 <= count <= MOST_VALUES:
        raise BadOption(f"--vary {text}: *{number} is the number of values, from 2 to {MOST_VALUES:,}")
    return [start * (end / start) ** (place / (count - 1)) for place in range(count)]


def _doubling(start: float, end: float) -> list[float]:
    """The start doubled again and again, with the value halfway to each next one: 4, 6, 8, 12, 16, ..., and the end."""
    values: list[float] = []
    low = start
    while low < end and len(values) <= MOST_VALUES:
        values += [low, 1.5 * low]
        low *= 2
    return [*(one for one in values if one < end), end]
