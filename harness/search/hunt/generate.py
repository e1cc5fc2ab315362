"""Draws scenarios: a pure function of a random stream. Each case leaves some features out (swarm testing).

What is drawn for a field is declared with the field. Here is only what goes across the parts of a scenario.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Mapping
from typing import Any

from sfusion.fakes.fields import Drawn
from sfusion.harness.lab.scenarios.base import Data, declared, parts_below
from sfusion.harness.lab.scenarios.drawing import Drawing
from sfusion.harness.lab.scenarios.model import Scenario
from sfusion.harness.lab.scenarios.program import PROGRAM_FEATURES
from sfusion.harness.lab.scenarios.rollouts import RolloutPart
from sfusion.harness.lab.scenarios.tools import TOOL_KEYS
from sfusion.harness.search.hunt.expectations import is_clear, response_room

SCENES: dict[str, Data] = {
    "burst": {  # a gateway that a paced tool never exceeds
        "tools": {"rate_limit": 16, "requests_per_second": 10.0},
        "sandbox": {"model": {"kind": "quota", "per_second": 12.0, "burst": 8, "retry_after": 1.5}},
        "load": {"calls": 32, "concurrency": 32},
    },
    "uneven": {  # one of several sandboxes is slow
        "tools": {"rate_limit": 8},
        "sandbox": {
            "instances": Drawn(2, 3),
            "each": {"sandbox-1": {"faults": [{"name": "slow", "what": {"delay": 3.037}}]}},
        },
        "load": {"calls": 96, "concurrency": 16},
    },
    "once": {  # the program has run, and only a gateway says that it failed
        "tools": {"retry_may_have_run": False},
        "sandbox": {
            "faults": [{"name": "late", "every": Drawn(1, 2, 3), "phase": "after", "what": {"status": Drawn(502, 504)}}]
        },
    },
    "coloured": {  # escape codes that the model must not pay for
        "rollouts": {
            "turns": [
                {
                    "say": "Compute.",
                    "programs": [
                        {"prints": "4\n", "errors": "\x1b[0;31m\x1b[1m" * 200 + "Traceback\x1b[0m\n", "exit": 1}
                    ],
                },
                {"say": "It is 4."},
            ],
            "repeat": False,
            "limits": Drawn(how=lambda _, rollouts: {"max_response_len": _room(rollouts)}),
        },
    },
}
"""Settings of several parts that matter together, which chance would hardly draw."""
_BESIDE = ("gentle_faults", "plain_fault", "faults", "two_faults", "events", "two_events", "kills", "instances")
"""Features that several declarations share, or that a function asks for."""


def _room(rollouts: Data) -> int:
    return response_room(rollouts["turns"], rollouts.get("format", RolloutPart.model_fields["format"].default))


def _features() -> tuple[str, ...]:
    fields = [*Scenario.model_fields.values()]
    fields += [field for _, _, part in parts_below(Scenario) for field in part.model_fields.values()]
    stated = [*(declared(field.metadata, Drawn) for field in fields), *TOOL_KEYS.values()]
    named = [name for drawn in stated if isinstance(drawn, Drawn) for name in drawn.when]
    return tuple(dict.fromkeys([*named, *PROGRAM_FEATURES, *_BESIDE, *SCENES]))


FEATURES = _features()
"""What a case may have; each case has a part of them."""
_ALONE = (*FEATURES, *(*SCENES,) * 3)
"""What may be the only feature; scenes hardly show where much else happens."""


def generate(draw: random.Random, keys: frozenset[str] | None = None) -> Data:
    """Return a scenario without name and promises. ``keys`` are those of the tool's config; None for our own tool."""
    while True:
        data = _generate(draw, keys)
        if valid(data):
            return copy.deepcopy(data)  # what was drawn belongs to the declarations, and a mutation changes it


def _generate(draw: random.Random, keys: frozenset[str] | None) -> Data:
    # How many features a case has differs as well: some have hardly any, some nearly all.
    density = draw.choice((0.1, 0.25, 0.25, 0.4, 0.6))
    features = {name for name in FEATURES if draw.random() < density}
    if not draw.randrange(4):
        features = {draw.choice(_ALONE)}
    drawing = Drawing(draw, features, keys)
    drawing.part(Scenario, drawing.data)
    for name, scene in SCENES.items():
        if name in features and draw.random() < 0.8:
            _set(drawing, drawing.data, scene)
    return drawing.data


def _set(drawing: Drawing, into: Data, scene: Data) -> None:
    """Put a scene into a case: mappings are merged, faults added."""
    for key, value in scene.items():
        if isinstance(value, Drawn):
            into[key] = value.how(drawing, into) if value.how is not None else drawing.random.choice(value.values)
        elif key in ("load", "rollouts") and key not in into and len(drawing.features) > 1:
            continue  # it has the other one
        elif key == "model" and key in into:
            continue
        elif isinstance(value, dict):
            if key in ("load", "rollouts"):
                into.pop("rollouts" if key == "load" else "load", None)
            _set(drawing, into.setdefault(key, {}), value)
        elif isinstance(value, list):
            made: list[Data] = [{} for _ in value]
            for one, given in zip(made, value, strict=True):
                _set(drawing, one, given)
            into[key] = [*(into.get(key, []) if into is drawing.data.get("sandbox") else ()), *made]
        elif drawing.tool_keys is None or into is not drawing.data.get("tools") or key in drawing.tool_keys:
            into[key] = value


def valid(data: Mapping[str, Any]) -> bool:
    """Can this be a scenario whose runs can be judged?"""
    try:
        return is_clear(named(data))
    except ValueError:
        return False


def named(data: Mapping[str, Any], **more: Any) -> Scenario:
    """Return the scenario that these data are; raise ValueError if they are none."""
    whole = {"scenario": "hunted", "about": "a hunted case", "promises": ["every_call_ends_once"], **data, **more}
    return Scenario.from_data(whole)
