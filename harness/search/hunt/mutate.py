"""Changes a case a little: a pure function of the case and a random stream."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable

from sfusion.harness.lab.scenarios.model import Scenario
from sfusion.harness.search.hunt.generate import Data, generate, valid

_SECTIONS = ("cluster", "tools", "sandbox", "events", "load", "rollouts")
_TRIES = 20


def mutate(data: Data, draw: random.Random, keys: frozenset[str] | None = None) -> Data:
    """Return another case near this one; a new one where no change is possible."""
    for _ in range(_TRIES):
        changed = copy.deepcopy(data)
        for _ in range(draw.choice((1, 1, 2, 3))):
            draw.choice(_CHANGES)(changed, draw, keys)
        if changed != data and valid(changed):
            return changed
    return generate(draw, keys)


def _take_a_section(data: Data, draw: random.Random, keys: frozenset[str] | None) -> None:
    """Replace one part by that of a new case."""
    other, section = generate(draw, keys), draw.choice(_SECTIONS)
    if section in ("load", "rollouts"):
        if section in other:
            data.pop("load", None)
            data.pop("rollouts", None)
            data[section] = other[section]
    elif section in other:
        data[section] = other[section]
    else:
        data.pop(section, None)


def _merge_tools(data: Data, draw: random.Random, keys: frozenset[str] | None) -> None:
    if isinstance(data.get("tools"), dict):
        data["tools"] |= generate(draw, keys)["tools"]


def _new_seed(data: Data, draw: random.Random, keys: frozenset[str] | None) -> None:
    data["seed"] = draw.randrange(1_000_000)


def _new_schedule(data: Data, draw: random.Random, keys: frozenset[str] | None) -> None:
    if "schedule" in Scenario.model_fields:
        seed = draw.randrange(1_000_000)
        data["schedule"] = draw.choice(({"random": seed}, {"priority": seed, "changes": draw.randint(1, 4)}))


def _add_a_rule(data: Data, draw: random.Random, keys: frozenset[str] | None) -> None:
    rules = generate(draw, keys).get("sandbox", {}).get("faults", [])
    mine = data.setdefault("sandbox", {}).setdefault("faults", [])
    mine += [{**rule, "name": f"rule-{len(mine) + place}"} for place, rule in enumerate(rules)]


def _drop_a_rule(data: Data, draw: random.Random, keys: frozenset[str] | None) -> None:
    if rules := data.get("sandbox", {}).get("faults"):
        rules.pop(draw.randrange(len(rules)))


def _change_conditions(data: Data, draw: random.Random, keys: frozenset[str] | None) -> None:
    if rules := data.get("sandbox", {}).get("faults"):
        rule = draw.choice(rules)
        conditions = [key for key in rule if key not in ("name", "what")]
        if conditions and draw.random() < 0.5:
            del rule[draw.choice(conditions)]
        else:
            key, value = draw.choice((("every", 2), ("first", 3), ("first_attempts", 1), ("probability", 0.5)))
            rule[key] = value


def _add_an_event(data: Data, draw: random.Random, keys: frozenset[str] | None) -> None:
    data.setdefault("events", []).extend(generate(draw, keys).get("events", []))


def _move_an_event(data: Data, draw: random.Random, keys: frozenset[str] | None) -> None:
    if events := data.get("events"):
        event = draw.choice(events)
        event["at"] = draw.choice((0, 0.011, 0.207, 0.511, 1.303, 3.017))


def _change_the_load(data: Data, draw: random.Random, keys: frozenset[str] | None) -> None:
    if load := data.get("load"):
        load["calls"] = draw.choice((2, 4, 8, 16, 32))
        load["concurrency"] = min(load["calls"], draw.choice((1, 2, 4, 16)))


_CHANGES: tuple[Callable[[Data, random.Random, frozenset[str] | None], None], ...] = (
    _take_a_section, _take_a_section, _merge_tools, _new_seed, _new_schedule, _add_a_rule, _drop_a_rule,
    _change_conditions, _add_an_event, _move_an_event, _change_the_load,
)  # fmt: skip
