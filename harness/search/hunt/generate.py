"""Draws scenarios, and changes them a little: a pure function of a random stream. Each leaves some
features out.

Leaving features out is called swarm testing. What is drawn for a field is declared with the field.
Here is only what goes across the parts of a scenario.
"""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Mapping
from typing import Any

from ....fakes.fields import Drawn
from ...lab.scenarios.base import Data, declared, parts_below
from ...lab.scenarios.drawing import Drawing
from ...lab.scenarios.model import Scenario
from ...lab.scenarios.program import PROGRAM_FEATURES
from ...lab.scenarios.tools import TOOL_KEYS
from .expectations import is_clear

_BESIDE = (
    "gentle_faults",
    "plain_fault",
    "faults",
    "two_faults",
    "events",
    "two_events",
    "kills",
    "instances",
)
"""Features that several declarations share, or that a function asks for."""


def _features() -> tuple[str, ...]:
    fields = list(Scenario.model_fields.values())
    for _, _, part in parts_below(Scenario):
        fields += part.model_fields.values()
    stated = [*(declared(field.metadata, Drawn) for field in fields), *TOOL_KEYS.values()]
    named: list[str] = []
    for drawn in stated:
        if isinstance(drawn, Drawn):
            named += drawn.when
    return tuple(dict.fromkeys([*named, *PROGRAM_FEATURES, *_BESIDE]))


FEATURES = _features()
"""What a case may have; each case has a part of them."""

_SHORT_PROGRAM = {"seconds": 0.013, "prints": "{call}\n"}
SCENES: dict[str, Data] = {
    "one of several sandboxes is slow": {
        "tools": {"rate_limit": 8},
        "sandbox": {
            "instances": 2,
            "each": {"sandbox-1": {"faults": [{"name": "slow", "what": {"delay": 0.49}}]}},
        },
        "load": {"calls": 144, "concurrency": 16, "program": _SHORT_PROGRAM},
    },
    "calls wait for permits for longer than programs may run": {
        "tools": {"rate_limit": 2, "default_timeout": 5.0},
        "load": {
            "calls": 24,
            "concurrency": 24,
            "program": {"seconds": 2.03, "prints": "{call}\n"},
        },
    },
}
"""Settings of several parts that matter together, which chance hardly draws."""
_SCENE_EVERY = 40
"""One of so many cases is a scene (chosen: 60 s are some 1,200 cases)."""


def generate(draw: random.Random, keys: frozenset[str] | None = None) -> Data:
    """Return a scenario without name and promises. ``keys`` are those of the tool's config; None
    for our own tool."""
    while True:
        data = _generate(draw, keys)
        if valid(data):
            # What was drawn belongs to the declarations, and a mutation changes it; a corpus gives
            # it back like this.
            return json.loads(json.dumps(data))  # type: ignore[no-any-return]


def _generate(draw: random.Random, keys: frozenset[str] | None) -> Data:
    # How many features a case has differs as well: some have hardly any, some nearly all.
    density = draw.choice((0.1, 0.25, 0.25, 0.4, 0.6))
    features = {name for name in FEATURES if draw.random() < density}
    if not draw.randrange(4):
        features = {draw.choice(FEATURES)}
    drawing = Drawing(draw, features, keys)
    drawing.part(Scenario, drawing.data)
    if not draw.randrange(_SCENE_EVERY):
        return _with_keys(draw.choice(list(SCENES.values())), keys)
    return drawing.data


def _with_keys(scene: Data, keys: frozenset[str] | None) -> Data:
    """Return a scene for a tool with these keys."""
    tools = {key: value for key, value in scene["tools"].items() if keys is None or key in keys}
    return {**scene, "tools": tools}


def valid(data: Mapping[str, Any]) -> bool:
    """Can this be a scenario whose runs can be judged?"""
    try:
        return is_clear(named(data))
    except ValueError:
        return False


def named(data: Mapping[str, Any], **more: Any) -> Scenario:
    """Return the scenario that these data are; raise ValueError if they are none."""
    whole = {
        "scenario": "hunted",
        "about": "a hunted case",
        "promises": ["every_call_ends_once"],
        **data,
        **more,
    }
    return Scenario.from_data(whole)


_TRIES = 20
"""Changes that are tried before a new case is drawn instead (chosen)."""
_LOADS = ("load", "rollouts")
_WHOLE = ("program", "programs")
"""What a change takes or leaves as a whole: the fields of a program go together."""


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
        name = next(load for load in _LOADS if load in other)
        for load in _LOADS:
            data.pop(load, None)
    if name in other:
        data[name] = other[name]
    else:
        data.pop(name)


def _take_a_key(data: Data, other: Data, draw: random.Random) -> None:
    """Set one key somewhere within a part as a new case has it."""
    mine = data
    theirs = other
    while True:
        names = [name for name in theirs if name not in _LOADS or name in mine]
        if not names:
            return
        name = draw.choice(sorted(names))
        below = mine.get(name)
        new = theirs[name]
        if (
            below
            and new
            and isinstance(below, list)
            and isinstance(new, list)
            and isinstance(below[0], dict)
        ):
            below = draw.choice(below)
            new = draw.choice(new)
        if name in _WHOLE or not isinstance(below, dict) or not isinstance(new, dict):
            mine[name] = theirs[name]
            return
        mine = below
        theirs = new


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
            if isinstance(value, dict | list) and key not in _WHOLE:
                walk(value)

    walk(data)
    if places:
        part, key = draw.choice(places)
        del part[key]


_CHANGES = (_take_a_part, _take_a_part, _take_a_key, _take_a_key, _take_a_key, _add_items, _drop)
