"""Simpler scenarios: each function yields variants of a scenario's data that are smaller in one respect, boldest first.

Whatever is yielded is simpler by construction (fewer, smaller, rounder, or absent), so a search that accepts only these
comes to an end. A variant that is not a valid scenario is skipped by the search.
"""

from __future__ import annotations

import copy
import math
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

from sfusion.fakes.faults.duration import seconds

Data = dict[str, Any]
Path = tuple[str | int, ...]
Reduction = Callable[[Data], Iterator[Data]]

_DEFAULT_LIMIT, _DEFAULT_CALLS, _DEFAULT_CONCURRENCY = 10, 100, 16
_SIMPLE = (0.0, 0.1, 0.2, 0.5, 1.0, 2.0, 3.0, 5.0, 10.0, 20.0, 30.0, 60.0)
_CONDITIONS = ("path", "method", "language", "code", "call", "first", "first_attempts", "every", "after", "between",
               "above_in_flight", "probability", "times", "may_not_strike")  # fmt: skip
_INSTEAD_OF_CHANCE: tuple[Data, ...] = (
    {},
    {"first_attempts": 1},
    {"times": 1},
    {"first": 1},
    {"every": 2},
    {"every": 3},
)
_SEEDED = ("random", "priority")


def smaller(number: int, least: int = 1) -> Iterator[int]:
    """Yield smaller numbers, the smallest first, in steps that get closer and closer to the number."""
    number = int(number)  # a scenario may write 10.0
    steps = {least, least + 1, least + 2, least + 4, number // 10, number // 4}
    steps.update(number - (number >> half) for half in range(1, number.bit_length()))
    yield from sorted(one for one in steps if least <= one < number)


def simpler_seconds(value: Any) -> Iterator[float]:
    """Yield simple durations in place of a duration or a distribution: smaller, or a rounder one of about that size."""
    if isinstance(value, dict):
        yield from _SIMPLE
        return
    with suppress(ValueError):
        number = seconds(value)
        yield from (one for one in _SIMPLE if one < number)
        rounded = round(number, 1 - math.ceil(math.log10(number))) if number > 0 else 0.0
        if number not in _SIMPLE and len(f"{rounded:g}") < len(f"{number:g}"):
            yield rounded


# -- data by path --


def at(data: Any, path: Path, default: Any = None) -> Any:
    """Return the value at a path."""
    for key in path:
        known = range(len(data)) if isinstance(data, list) else data if isinstance(data, dict) else ()
        if key not in known:
            return default
        data = data[key]
    return data


def put(data: Data, *changes: tuple[Path, Any]) -> Data:
    """Return a copy with other values at these paths."""
    made = copy.deepcopy(data)
    for path, value in changes:
        into: Any = made
        for key in path[:-1]:
            into = into.setdefault(key, {}) if isinstance(into, dict) else into[key]
        into[path[-1]] = copy.deepcopy(value)
    return made


def without(data: Data, *paths: Path) -> Data:
    """Return a copy without these keys or items; a list or mapping that becomes empty goes too."""
    made = copy.deepcopy(data)
    for path in sorted(paths, key=str, reverse=True):
        parent = at(made, path[:-1])
        if isinstance(parent, list):
            del parent[int(path[-1])]
        elif isinstance(parent, dict):
            parent.pop(path[-1], None)
        if not parent and path[:-1]:
            made = without(made, path[:-1])
    return made


def _each_number(data: Data, *paths: Path) -> Iterator[Data]:
    for path in paths:
        value = at(data, path)
        if isinstance(value, int) and not isinstance(value, bool):
            yield from (put(data, (path, one)) for one in smaller(value))


def _each_duration(data: Data, *paths: Path) -> Iterator[Data]:
    for path in paths:
        if (value := at(data, path)) is not None:
            yield from (put(data, (path, one)) for one in simpler_seconds(value))


def _each_left_out(data: Data, *paths: Path) -> Iterator[Data]:
    yield from (without(data, path) for path in paths if at(data, path) is not None)


def _each_item(data: Data, path: Path) -> Iterator[Data]:
    """Leave out all items of a list, all but one, or one."""
    items = at(data, path)
    if isinstance(items, list) and items:
        yield without(data, path)
        if len(items) > 2:
            yield from (put(data, (path, [one])) for one in items)
        yield from (without(data, (*path, number)) for number in range(len(items)))


# -- the parts of a scenario --


def promises(data: Data) -> Iterator[Data]:
    """Keep one promise; promise amounts instead of numbers of outcomes, which are those of the old size."""
    given = data["promises"]
    if len(given) > 1:
        yield from (put(data, (("promises",), [one])) for one in given)
    for number in range(len(given)):
        path: Path = ("promises", number, "outcomes")
        amounts = at(data, path)
        if isinstance(amounts, dict):
            for name, amount in amounts.items():
                if amount not in ("all", "some"):
                    yield from (put(data, ((*path, name), word)) for word in ("all", "some"))
                    yield without(data, (*path, name))


def remarks(data: Data) -> Iterator[Data]:
    """Leave out what world sim does not read."""
    made = without(data, ("incident",), ("expected",), ("worlds",), ("time_scale",))
    if made != data:
        yield made


def first_in_first_out(data: Data) -> Iterator[Data]:
    yield from _each_left_out(data, ("schedule",))


def size(data: Data) -> Iterator[Data]:
    """Fewer calls and callers, by themselves or with everything that goes with their number."""
    load: Path = ("load",)
    if not isinstance(data.get("load"), dict):
        return
    calls = int(at(data, (*load, "calls"), _DEFAULT_CALLS))
    callers = int(at(data, (*load, "concurrency"), _DEFAULT_CONCURRENCY))
    for number in smaller(calls):
        yield put(data, ((*load, "calls"), number), ((*load, "concurrency"), min(callers, number)))
    path, permits = _limit(data)
    for part in (10, 5, 2):
        fewer = [
            ((*load, "calls"), calls // part),
            ((*load, "concurrency"), callers // part),
            (path, permits // part),
        ]
        counts = [(path, value // part) for path, value in _counts(data)]
        times = [(path, seconds(value) / part) for path, value in _times(data)]
        if all(number >= 1 for _, number in fewer):
            yield put(data, *fewer, *((path, max(1, number)) for path, number in counts))
            if times:
                yield put(data, *fewer, *((path, max(1, number)) for path, number in counts), *times)
                yield put(data, fewer[0], fewer[1], *times)
    yield from (put(data, ((*load, "concurrency"), number)) for number in smaller(callers))


def limit(data: Data) -> Iterator[Data]:
    """A lower limit, so that fewer calls are enough to reach it."""
    path, number = _limit(data)
    yield from (put(data, (path, lower)) for lower in smaller(number))


def _limit(data: Data) -> tuple[Path, int]:
    tools = data.get("tools")
    path: Path = ("tools", 0, "config", "rate_limit") if isinstance(tools, list) else ("tools", "rate_limit")
    number = at(data, path, _DEFAULT_LIMIT)
    return path, number if isinstance(number, int) else _DEFAULT_LIMIT


def _counts(data: Data) -> Iterator[tuple[Path, int]]:
    """Yield numbers of requests at which something happens, and the capacity of a server."""
    for path in _rule_paths(data):
        for key in ("after", "first", "every"):
            if isinstance(value := at(data, (*path, key)), int):
                yield (*path, key), value
    for key in ("quota", "queue", "in_flight", "workers"):
        if isinstance(value := at(data, ("sandbox", "model", key)), int):
            yield ("sandbox", "model", key), value
    for number, event in enumerate(data.get("events") or ()):
        if isinstance(event.get("resize"), int):
            yield ("events", number, "resize"), event["resize"]


def _times(data: Data) -> Iterator[tuple[Path, Any]]:
    for number, event in enumerate(data.get("events") or ()):
        yield ("events", number, "at"), event["at"]


def cluster(data: Data) -> Iterator[Data]:
    nodes, workers = at(data, ("cluster", "nodes"), 1), at(data, ("cluster", "workers_per_node"), 1)
    yield from _each_left_out(data, ("cluster",))
    if nodes * workers > 1 and data.get("events"):
        alone = put(data, (("cluster",), {"nodes": 1, "workers_per_node": 2}))
        yield re_targeted(alone, "worker-1")
        yield re_targeted(alone, "worker-2")
    yield from _each_number(data, ("cluster", "nodes"), ("cluster", "workers_per_node"))
    yield from _each_left_out(data, ("cluster", "link"), ("cluster", "link", "loss"), ("cluster", "link", "delay"))


def re_targeted(data: Data, worker: str) -> Data:
    """Return a copy in which events strike this worker instead of any other worker or node."""
    changes: list[tuple[Path, Any]] = []
    for number, event in enumerate(data.get("events") or ()):
        for key in ("kill", "pause", "cut_off"):
            if re.match(r"n[0-9]|node-|worker-", str(event.get(key, ""))):
                changes.append((("events", number, key), worker))
    return put(data, *changes)


def faults(data: Data) -> Iterator[Data]:
    """Fewer rules, with fewer conditions and fewer actions."""
    yield from _each_item(data, ("sandbox", "faults"))
    yield from _each_item(data, ("rollouts", "faults"))
    for path in _rule_paths(data):
        rule = at(data, path)
        if "probability" in rule:
            for other in _INSTEAD_OF_CHANCE:
                plain = {key: value for key, value in rule.items() if key != "probability"}
                yield put(data, (path, {**plain, **other}))
        yield from _each_left_out(data, *((*path, key) for key in _CONDITIONS))
        yield from _each_number(data, *((*path, key) for key in ("first", "first_attempts", "every", "times")))
        for key in ("after", "above_in_flight"):
            if isinstance(value := at(data, (*path, key)), int):
                yield from (put(data, ((*path, key), number)) for number in smaller(value, 0))
        what = rule.get("what")
        if isinstance(what, list):
            yield from _each_item(data, (*path, "what"))
        elif isinstance(what, dict) and len(what) > 1:
            yield from _each_left_out(data, *((*path, "what", key) for key in what))


def _rule_paths(data: Data) -> list[Path]:
    found: list[Path] = []
    places: list[Path] = [("sandbox", "faults"), ("rollouts", "faults")]
    places += [("sandbox", "each", name, "faults") for name in at(data, ("sandbox", "each"), {})]
    for place in places:
        found += [(*place, number) for number, rule in enumerate(at(data, place) or ()) if isinstance(rule, dict)]
    return found


def events(data: Data) -> Iterator[Data]:
    yield from _each_item(data, ("events",))
    for number, event in enumerate(data.get("events") or ()):
        yield from _each_duration(data, ("events", number, "at"), ("events", number, "seconds"))
        yield from _each_left_out(data, ("events", number, "may_not_strike"), ("events", number, "ping"))
        if isinstance(event.get("cancel"), float) and event["cancel"] != 1.0:
            yield put(data, (("events", number, "cancel"), 1.0))
        yield from _each_number(data, ("events", number, "resize"))


def sandbox(data: Data) -> Iterator[Data]:
    """One plain sandbox."""
    keys = ("model", "each", "profile", "executor", "instances")
    yield from _each_left_out(data, ("sandbox",), *(("sandbox", key) for key in keys))
    yield from _each_number(data, ("sandbox", "instances"))
    model = at(data, ("sandbox", "model"))
    if isinstance(model, dict):
        yield from _each_left_out(data, *(("sandbox", "model", key) for key in model))
        yield from _each_number(data, *(("sandbox", "model", key) for key in model if key != "status"))
    for name, part in (at(data, ("sandbox", "each")) or {}).items():
        yield from _each_left_out(data, ("sandbox", "each", name), *(("sandbox", "each", name, key) for key in part))


def programs(data: Data) -> Iterator[Data]:
    """One plain program, and callers that neither think nor give up."""
    yield from _each_left_out(data, ("load", "program"), ("load", "think"), ("load", "cancel"))
    yield from _each_duration(data, ("load", "think"), ("load", "cancel", "after"))
    yield from _each_left_out(data, ("load", "cancel", "share"))
    given = at(data, ("load", "program"))
    if isinstance(given, list):
        yield from (put(data, (("load", "program"), one)) for one in given)
        if len(given) > 1:
            yield from (without(data, ("load", "program", number)) for number in range(len(given)))
    for path in _program_paths(data):
        yield from _simpler_program(data, path)


def _program_paths(data: Data) -> list[Path]:
    given = at(data, ("load", "program"))
    found: list[Path] = [("load", "program")] if isinstance(given, dict) else []
    if isinstance(given, list):
        found += [("load", "program", number) for number in range(len(given))]
    for number, turn in enumerate(at(data, ("rollouts", "turns")) or ()):
        found += [("rollouts", "turns", number, "programs", place) for place in range(len(turn.get("programs") or ()))]
    return found


def _simpler_program(data: Data, path: Path) -> Iterator[Data]:
    program = at(data, path)
    yield from _each_left_out(data, *((*path, key) for key in program))
    yield from _each_duration(data, (*path, "seconds"))
    for key in ("prints", "early", "errors"):
        text = program.get(key)
        if isinstance(text, str) and (found := re.search(r"\{fill:([0-9]+)\}", text)):
            for number in smaller(int(found[1])):
                yield put(data, ((*path, key), f"{text[: found.start()]}{{fill:{number}}}{text[found.end() :]}"))
        elif isinstance(text, str) and len(text) > 60:
            yield put(data, ((*path, key), text[: len(text) // 2] + "\n"))


def tools(data: Data) -> Iterator[Data]:
    """Settings of the tool at their defaults."""
    given = data.get("tools")
    if isinstance(given, dict):
        limit = {"rate_limit": given["rate_limit"]} if given.get("rate_limit", _DEFAULT_LIMIT) != _DEFAULT_LIMIT else {}
        if set(given) - set(limit):
            yield put(data, (("tools",), limit)) if limit else without(data, ("tools",))
        yield from (without(data, ("tools", key)) for key in given if key not in limit)
    elif isinstance(given, list):
        if len(given) > 1:
            yield put(data, (("tools",), given[:1]))
        config = given[0].get("config") or {}
        yield from (without(data, ("tools", 0, "config", key)) for key in config if key != "rate_limit")


def rollouts(data: Data) -> Iterator[Data]:
    """Fewer and shorter trajectories."""
    part = data.get("rollouts")
    if not isinstance(part, dict):
        return
    keys = ("at_once", "enough", "repeat", "prompt", "format", "limits", "think")
    for number in smaller(part.get("count", 8)):
        yield put(data, (("rollouts", "count"), number))
    yield from _each_number(data, ("rollouts", "at_once"), ("rollouts", "enough"))
    yield from _each_left_out(data, *(("rollouts", key) for key in keys))
    yield from _each_left_out(data, *(("rollouts", "limits", key) for key in part.get("limits") or ()))
    turns = part["turns"]
    if len(turns) > 1:
        yield from (put(data, (("rollouts", "turns"), [one])) for one in turns)
        yield from (without(data, ("rollouts", "turns", number)) for number in range(len(turns)))
    for number, turn in enumerate(turns):
        yield from (without(data, ("rollouts", "turns", number, key)) for key in turn if len(turn) > 1)
        for place in range(len(turn.get("programs") or ())):
            yield without(data, ("rollouts", "turns", number, "programs", place))


def durations(data: Data) -> Iterator[Data]:
    """Simpler durations of faults, and the usual horizon."""
    yield from _each_left_out(data, ("horizon",))
    for path in _rule_paths(data):
        between = at(data, (*path, "between"))
        if isinstance(between, list):
            yield from _each_duration(data, (*path, "between", 0), (*path, "between", 1))
        what = at(data, (*path, "what"))
        for number, action in enumerate(what if isinstance(what, list) else [what]):
            place: Path = (*path, "what", number) if isinstance(what, list) else (*path, "what")
            if isinstance(action, dict):
                keys = ("delay", "hang", "seconds", "crash", "drip", "over", "start", "end", "retry_after")
                yield from _each_duration(data, *((*place, key) for key in keys if key in action))


def deviations(data: Data) -> Iterator[Data]:
    """Fewer deviations of an explicit schedule: those up to a step first, then without ever smaller parts."""
    given = at(data, ("schedule", "deviations"))
    path: Path = ("schedule", "deviations")
    if not given:
        return
    count = len(given)
    for share in (count // 8, count // 4, count // 2, count * 3 // 4, count - 1):
        if 0 < share < count:
            yield put(data, (path, given[:share]))
    part = count // 2
    while part >= 1:
        for start in range(0, count, part):
            rest = given[:start] + given[start + part :]
            if rest:
                yield put(data, (path, rest))
        part //= 2
    for number, (step, index) in enumerate(given):
        yield from (put(data, ((*path, number), [step, one])) for one in smaller(index))


def is_seeded(data: Data) -> bool:
    """Is there a schedule that a seed decides?"""
    return any(at(data, ("schedule", key)) is not None for key in _SEEDED)


def other_seeds(data: Data, count: int) -> Iterator[Data]:
    """Yield the same with other seeds of its schedule: a smaller scenario meets another order of events by chance."""
    for key in _SEEDED:
        if (seed := at(data, ("schedule", key))) is not None:
            yield from (put(data, (("schedule", key), seed + more)) for more in range(1, count + 1))


REDUCTIONS: tuple[Reduction, ...] = (
    promises,
    remarks,
    first_in_first_out,
    size,
    rollouts,
    limit,
    size,
    rollouts,
    cluster,
    faults,
    events,
    sandbox,
    programs,
    tools,
    durations,
    deviations,
)
"""In the order in which they are tried: what makes runs shorter first, and the number of calls before their length."""
