"""The calls of a batch as one flat dict of numbers, for wandb, TensorBoard or a log line."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from numbers import Real
from typing import Any

from sfusion_tools.outcome import OUTCOMES, Outcome
from sfusion_tools.rollout import AsyncRolloutRequest, RolloutMetrics
from sfusion_tools.sandbox import CallResult
from sfusion_tools.sandbox.tool import EXTRAS, KEY, MEASURED

_RAISED = "raised"
"""A call whose tool raised, which is never an outcome."""


def outcome_metrics(batch: Iterable[object], prefix: str = "tools/") -> dict[str, float]:
    """Summarize the calls of a batch.

    The keys are always the same, and without calls every value is 0. The items are metrics of calls
    as ``execute`` returns them, ``CallResult``s, rollout requests, or the ``extras`` of verl's
    batches. None, NaN, and calls of tools that report no outcome, do not count.
    """
    calls: list[Mapping[str, Any]] = []
    for item in batch:
        calls += _calls(item)
    ran = [call for call in calls if call["outcome"] not in (_RAISED, Outcome.BAD_ARGUMENTS)]
    lost = sum(_is_lost(call) for call in calls)
    found = {"calls": float(len(calls)), "infra_rate": _share(lost, len(calls))}
    for word in (*OUTCOMES, _RAISED):
        found[f"{word}_rate"] = _share(sum(call["outcome"] == word for call in calls), len(calls))
    attempts = _values(ran, "attempts")
    found["attempts_per_call"] = _share(sum(attempts), len(attempts))
    for name in ("permit_wait_s", "total_s"):
        values = sorted(_values(ran, name))
        found[f"{name}_p50"] = _quantile(values, 0.5)
        found[f"{name}_p95"] = _quantile(values, 0.95)
    found["backoff_share"] = _share(sum(_values(ran, "backoff_s")), sum(_values(ran, "total_s")))
    return {f"{prefix}{name}": value for name, value in found.items()}


def _calls(item: object) -> Iterator[Mapping[str, Any]]:
    """The calls of an item, each with a known outcome and what was measured."""
    if item is None or (isinstance(item, float) and math.isnan(item)):
        return
    if isinstance(item, CallResult):
        item = item.metrics()
    elif isinstance(item, AsyncRolloutRequest):
        item = item.metrics
    if isinstance(item, RolloutMetrics):
        for _ in range(item.tool_errors):
            yield {"outcome": _RAISED}
        for metrics in item.call_metrics:
            yield from _calls(metrics)
    elif isinstance(item, Mapping):
        yield from _calls_in_mapping(item)
    else:
        raise TypeError(
            f"expected metrics of calls, rollout requests or verl's extras, found {item!r:.100}"
        )


def _calls_in_mapping(item: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The calls of verl's extras, of columns with a value per call, or the metrics of one call."""
    for key in (EXTRAS, KEY):
        if key in item:
            # Another tool may have put something else there.
            if isinstance(item[key], Mapping):
                yield from _calls(item[key])
            return
    if "outcomes" in item:
        yield from _calls_in_columns(item)
    elif isinstance(item.get("outcome"), str) and item["outcome"] in OUTCOMES:
        yield item


def _calls_in_columns(item: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    columns = {name: _column(item.get(name)) for name in MEASURED}
    for place, outcome in enumerate(_column(item["outcomes"])):
        measured = {name: column[place] for name, column in columns.items() if place < len(column)}
        yield from _calls({"outcome": outcome, **measured})


def _is_lost(call: Mapping[str, Any]) -> bool:
    return call["outcome"] == _RAISED or OUTCOMES[call["outcome"]].is_infrastructure


def _values(calls: Iterable[Mapping[str, Any]], name: str) -> list[float]:
    found = [call.get(name) for call in calls]
    return [float(value) for value in found if isinstance(value, Real) and math.isfinite(value)]


def _column(values: object) -> list[Any]:
    """A list or an array; anything else is a gap, which data frames fill with None or NaN."""
    return list(values) if isinstance(values, Iterable) and not isinstance(values, str) else []


def _share(part: float, whole: float) -> float:
    return part / whole if whole else 0.0


def _quantile(values: Sequence[float], q: float) -> float:
    """Interpolate between the neighbours, as numpy does by default; the values are sorted."""
    if not values:
        return 0.0
    last = len(values) - 1
    below = int(q * last)
    above = min(below + 1, last)
    return values[below] + (values[above] - values[below]) * (q * last - below)
