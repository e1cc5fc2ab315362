"""Changes a case a little: a pure function of the case and a random stream."""

from __future__ import annotations

import copy
import random
from typing import Any

from sfusion.harness.lab.scenarios.base import Data
from sfusion.harness.search.hunt.generate import generate, valid

_TRIES = 20
_LOADS = ("load", "rollouts")


def mutate(data: Data, draw: random.Random, keys: frozenset[str] | None = None) -> Data:
    """Return another case near this one; a new one where no change is possible."""
    for _ in range(_TRIES):
        changed = copy.deepcopy(data)
        for _ in range(draw.choice((1, 1, 2, 3))):
            draw.choice(_CHANGES)(changed, generate(draw, keys), draw)
        if changed != data and valid(changed):
            return changed
    return generate(draw, keys)


def _take_a_part(data: Data, other: Data, draw: random.Random) -> None:
    """Replace one part by that of a new case, or leave it out if that has none."""
    name = draw.choice(sorted({*data, *other}))
    if name in _LOADS:
        name = next(one for one in _LOADS if one in other)
        for one in _LOADS:
            data.pop(one, None)
    if name in other:
        data[name] = other[name]
    else:
        data.pop(name)


def _take_a_key(data: Data, other: Data, draw: random.Random) -> None:
    """Set one key somewhere within a part as a new case has it."""
    mine, theirs = data, other
    while True:
        names = [name for name in theirs if name not in _LOADS or name in mine]
        if not names:
            return
        name = draw.choice(sorted(names))
        below, new = mine.get(name), theirs[name]
        if below and new and isinstance(below, list) and isinstance(new, list) and isinstance(below[0], dict):
            below, new = draw.choice(below), draw.choice(new)
        if not isinstance(below, dict) or not isinstance(new, dict):
            mine[name] = theirs[name]
            return
        mine, theirs = below, new


def _add_items(data: Data, other: Data, draw: random.Random) -> None:
    """Add the events, or the rules, of a new case."""
    if draw.random() < 0.5:
        data.setdefault("events", []).extend(other.get("events", []))
        return
    mine = data.setdefault("sandbox", {}).setdefault("faults", [])
    rules = other.get("sandbox", {}).get("faults", [])
    mine += [{**rule, "name": f"rule-{len(mine) + place}"} for place, rule in enumerate(rules)]


def _drop(data: Data, _: Data, draw: random.Random) -> None:
    """Leave out one key or one item, anywhere."""
    places: list[tuple[Any, Any]] = []

    def walk(part: Any) -> None:
        for key, value in part.items() if isinstance(part, dict) else enumerate(part):
            places.append((part, key))
            if isinstance(value, dict | list):
                walk(value)

    walk(data)
    if places:
        part, key = draw.choice(places)
        del part[key]


_CHANGES = (_take_a_part, _take_a_part, _take_a_key, _take_a_key, _take_a_key, _add_items, _drop)
