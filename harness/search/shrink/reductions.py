"""Simpler scenarios: variants of a scenario's data that are smaller in one respect, boldest first.

What may be tried for a field follows from its declaration, default and type in the model. Here is
beside that only what changes several parts at once. Whatever is yielded is simpler by construction
(fewer, smaller, rounder, or absent), so a search that accepts only these comes to an end. A variant
that is not a valid scenario is skipped by the search.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from annotated_types import Ge
from pydantic.fields import FieldInfo

from sfusion_tools.sandbox.config import SandboxToolConfig

from ....fakes.faults import KINDS, Action, Distribution
from ....fakes.faults.duration import seconds
from ....fakes.fields import NotShrunk, Reduced
from ...lab.scenarios.base import Data, declared, models_in
from ...lab.scenarios.model import Scenario
from ...lab.scenarios.parts import LoadPart

Reduction = Callable[[Data], Iterator[Data]]

_SIMPLE = (0.0, 0.1, 0.2, 0.5, 1.0, 2.0, 3.0, 5.0, 10.0, 20.0, 30.0, 60.0)
_FILL = re.compile(r"\{fill:([0-9]+)\}")
_LONG_TEXT = 60
"""Characters from which on a text is made shorter (chosen)."""
_SEEDED = ("random", "priority")


def smaller(number: int, least: int = 1) -> Iterator[int]:
    """Yield smaller numbers, the smallest first, in steps that get closer and closer to the
    number."""
    number = int(number)  # a scenario may write 10.0
    steps = {least, least + 1, least + 2, least + 4, number // 10, number // 4}
    steps.update(number - (number >> half) for half in range(1, number.bit_length()))
    yield from sorted(step for step in steps if least <= step < number)


def simpler_seconds(value: Any) -> Iterator[float]:
    """Yield simple durations in place of a duration or a distribution: smaller, or a rounder one
    of about that size."""
    if isinstance(value, dict):
        yield from _SIMPLE
        return
    with suppress(ValueError):
        number = seconds(value)
        yield from (simple for simple in _SIMPLE if simple < number)
        rounded = round(number, 1 - math.ceil(math.log10(number))) if number > 0 else 0.0
        if number not in _SIMPLE and len(f"{rounded:g}") < len(f"{number:g}"):
            yield rounded


def _shorter(text: str) -> Iterator[str]:
    if found := _FILL.search(text):
        for number in smaller(int(found[1])):
            yield f"{text[: found.start()]}{{fill:{number}}}{text[found.end() :]}"
    elif len(text) > _LONG_TEXT:
        yield text[: len(text) // 2] + "\n"


# -- by the model --


def simpler(annotation: Any, value: Any, metadata: tuple[Any, ...] = ()) -> Iterator[Any]:
    """Yield simpler values in place of one that a file has for a field of this type."""
    while get_origin(annotation) is Annotated:
        annotation, *more = get_args(annotation)
        metadata = (*metadata, *more)
    if declared(metadata, NotShrunk) is not None:
        return
    reduced = declared(metadata, Reduced)
    if reduced is not None and reduced.how is not None:
        yield from reduced.how(value)
    types = list(_types(annotation, metadata))
    if isinstance(value, list):
        yield from _simpler_list(annotation, value)
    elif Distribution in types:
        yield from simpler_seconds(value)
    elif isinstance(value, dict):
        yield from _simpler_mapping(annotation, value)
    elif int in types and not isinstance(value, bool):
        with suppress(ValueError):
            least: Any = next((hint.ge for hint in metadata if isinstance(hint, Ge)), 0)
            yield from smaller(int(value), least)
    elif str in types and isinstance(value, str):
        yield from _shorter(value)


def _types(annotation: Any, metadata: tuple[Any, ...] = ()) -> Iterator[Any]:
    """Yield what a value may be; a distribution stands for every duration."""
    if get_origin(annotation) is Annotated:
        yield from _types(annotation.__origin__, (*metadata, *annotation.__metadata__))
    elif any(getattr(hint, "func", None) is seconds for hint in metadata):
        yield Distribution
    elif get_origin(annotation) in (Union, UnionType):
        yield from (inner_type for inner in get_args(annotation) for inner_type in _types(inner))
    else:
        yield annotation


def _simpler_list(annotation: Any, items: list[Any]) -> Iterator[list[Any]]:
    """Yield the list with few of its items, without ever smaller parts, and with simpler items."""
    kinds = (annotation, *get_args(annotation))
    lists = [get_args(kind) for kind in kinds if get_origin(kind) in (list, tuple)]
    types = lists[0] if lists else ()
    # The items of a pair have a meaning by their place.
    is_pair = len(types) == 2 and types[1] is not Ellipsis
    if not is_pair:
        yield from _shorter_lists(items)
    for place, item in enumerate(items):
        of_item = Any
        if types:
            of_item = types[place] if is_pair else types[0]
        for simpler_item in simpler(of_item, item):
            yield [*items[:place], simpler_item, *items[place + 1 :]]


def _shorter_lists(items: list[Any]) -> Iterator[list[Any]]:
    """Yield single items, the first ones, and the list without ever smaller parts."""
    count = len(items)
    if 2 < count <= 10:
        yield from ([item] for item in items)
    for share in (count // 8, count // 4, count // 2, count * 3 // 4):
        if share > 0:
            yield items[:share]
    part = max(1, count // 2) if count > 2 else 1
    while part and count > 1:
        yield from (items[:start] + items[start + part :] for start in range(0, count, part))
        part //= 2


def _simpler_mapping(annotation: Any, part: Data) -> Iterator[Data]:
    """Yield a part without one of its keys, which then have their defaults, and with simpler
    values."""
    fields = _fields(annotation, part)
    of_values = get_args(annotation)[1] if get_origin(annotation) is dict else None
    for key in part:
        field = fields.get(key)
        if field is not None:
            yield from _without_key(field, part, key)
        elif of_values is not None:
            yield _dropped(part, key)
    for key, value in part.items():
        field = fields.get(key)
        if field is not None:
            yield from _with_simpler_value(field, part, key)
        elif of_values is not None:
            for simpler_value in simpler(of_values, value):
                yield {**part, key: simpler_value}


def _dropped(part: Data, key: str) -> Data:
    return {name: given for name, given in part.items() if name != key}


def _without_key(field: FieldInfo, part: Data, key: str) -> Iterator[Data]:
    """Yield a part without a key that may be left out, and with what may stand instead of it."""
    rest = _dropped(part, key)
    reduced = declared(field.metadata, Reduced) or Reduced()
    is_fixed = declared(field.metadata, NotShrunk) is not None
    is_needed = field.is_required() or reduced.kept or is_fixed
    if not is_needed and not _grows(field, part[key]):
        yield rest
    yield from ({**rest, **instead} for instead in reduced.instead)


def _with_simpler_value(field: FieldInfo, part: Data, key: str) -> Iterator[Data]:
    """Yield a part with simpler values of a key, and without it where nothing is left of it."""
    for value in simpler(field.annotation, part[key], tuple(field.metadata)):
        is_empty = value in ({}, []) and not field.is_required()
        yield _dropped(part, key) if is_empty else {**part, key: value}


def _grows(field: FieldInfo, value: Any) -> bool:
    """Is the default of a number larger than what is given?"""
    default = field.default
    numbers = isinstance(default, int) and isinstance(value, int) and not isinstance(default, bool)
    return numbers and default > value >= 0


def _fields(annotation: Any, part: Data) -> Mapping[str, FieldInfo]:
    """Return the fields of the model that a mapping in a file stands for."""
    models = list(models_in(annotation)) if get_origin(annotation) is not dict else []
    if Action in models:
        return _of_action(part)
    kinds = [model for model in models if "kind" in model.model_fields]
    models = [
        kind for kind in kinds if kind.model_fields["kind"].default == part.get("kind")
    ] or models
    return models[0].model_fields if models else {}


def _of_action(what: Data) -> Mapping[str, FieldInfo]:
    """A fault is written ``{status: 503, retry_after: 1}``, ``{hang: 5s}`` or ``{drip: {bytes:
    1}}``."""
    found = dict(KINDS["status"].model_fields) if "status" in what else {}
    for key, value in what.items():
        if key in found or (kind := KINDS.get(key)) is None:
            continue
        found |= kind.model_fields
        if key not in kind.model_fields:
            inner: Any = kind
            if not isinstance(value, dict | bool):
                field = kind.model_fields[next(iter(kind.from_scalar(value)))]
                inner = Annotated[
                    (field.annotation, *field.metadata, Reduced(how=lambda _: [True]))
                ]
            found[key] = FieldInfo(annotation=inner)
    return found


def scaled(annotation: Any, value: Any, by: int, times: bool) -> Any:
    """Return a part with the numbers, and perhaps the times, that go with the number of calls
    divided."""
    if isinstance(value, list):
        return [scaled(annotation, item, by, times) for item in value]
    if not isinstance(value, dict):
        return value
    if get_origin(annotation) is dict:
        return {
            name: scaled(get_args(annotation)[1], item, by, times) for name, item in value.items()
        }
    fields = _fields(annotation, value)
    found = {}
    for key, given in value.items():
        field = fields.get(key)
        found[key] = scaled(field.annotation, given, by, times) if field is not None else given
        if field is not None and (declared(field.metadata, Reduced) or Reduced()).scales:
            if Distribution not in _types(field.annotation, tuple(field.metadata)):
                found[key] = max(1, given // by) if isinstance(given, int) else given
            elif times:
                found[key] = seconds(given) / by
    return found


# -- several parts at once --


def _part(name: str, data: Data) -> Iterator[Data]:
    """Simplify one part of a scenario."""
    if name in data:
        only = {name: data[name]}
        rest = {key: value for key, value in data.items() if key != name}
        yield from ({**rest, **simpler_part} for simpler_part in _simpler_mapping(Scenario, only))


def size(data: Data) -> Iterator[Data]:
    """Fewer calls and callers, by themselves or with everything that goes with their number."""
    load = data.get("load")
    if not isinstance(load, dict):
        return
    calls, callers = (
        int(load.get(key, LoadPart.model_fields[key].default)) for key in ("calls", "concurrency")
    )

    def sized(calls: int, callers: int, of: Data = data) -> Data:
        return {**of, "load": {**of["load"], "calls": calls, "concurrency": callers}}

    yield from (sized(number, min(callers, number)) for number in smaller(calls))
    permits = _limit(data)
    for by in (10, 5, 2):
        if min(calls, callers, permits) >= by:
            fewer = sized(calls // by, callers // by)
            yield _limited(scaled(Scenario, fewer, by, times=False), permits // by)
            if data.get("events"):
                yield _limited(scaled(Scenario, fewer, by, times=True), permits // by)
    yield from (sized(calls, number) for number in smaller(callers))


def limit(data: Data) -> Iterator[Data]:
    """A lower limit, so that fewer calls are enough to reach it."""
    yield from (_limited(data, lower) for lower in smaller(_limit(data)))


def _limit(data: Data) -> int:
    tools = data.get("tools", {})
    config = (tools[0].get("config") or {}) if isinstance(tools, list) else tools
    default = SandboxToolConfig.model_fields["rate_limit"].default
    number = config.get("rate_limit", default)
    return number if isinstance(number, int) else int(default)


def _limited(data: Data, number: int) -> Data:
    tools = data.get("tools", {})
    if isinstance(tools, dict):
        return {**data, "tools": {**tools, "rate_limit": number}}
    first = {**tools[0], "config": {**(tools[0].get("config") or {}), "rate_limit": number}}
    return {**data, "tools": [first, *tools[1:]]}


def one_worker_struck(data: Data) -> Iterator[Data]:
    """Two workers, and events that strike one of them instead of any other worker or node."""
    cluster = data.get("cluster", {})
    events = data.get("events")
    if events and cluster.get("nodes", 1) * cluster.get("workers_per_node", 1) > 1:
        for worker in ("worker-1", "worker-2"):
            struck = [
                {
                    key: worker if re.match(r"n[0-9]|node-|worker-", str(value)) else value
                    for key, value in event.items()
                }
                for event in events
            ]
            yield {**data, "cluster": {"nodes": 1, "workers_per_node": 2}, "events": struck}


def is_seeded(data: Data) -> bool:
    """Is there a schedule that a seed decides?"""
    return any(key in data.get("schedule", {}) for key in _SEEDED)


def other_seeds(data: Data, count: int) -> Iterator[Data]:
    """Yield the same with other seeds of its schedule: a smaller scenario meets another order of
    events by chance."""
    schedule = data["schedule"]
    for key in _SEEDED:
        if key in schedule:
            yield from (
                {**data, "schedule": {**schedule, key: schedule[key] + more}}
                for more in range(1, count + 1)
            )


_FIRST: tuple[str | Reduction, ...] = (
    "promises",
    "schedule",
    size,
    "rollouts",
    limit,
    size,
    "cluster",
    one_worker_struck,
    "events",
    "sandbox",
)
"""What makes runs shorter first, and the number of calls before their length."""
_OTHERS = (name for name in Scenario.model_fields if name not in _FIRST)
REDUCTIONS: tuple[Reduction, ...] = tuple(
    partial(_part, reduction) if isinstance(reduction, str) else reduction
    for reduction in (*_FIRST, *_OTHERS)
)
"""In the order in which they are tried."""
