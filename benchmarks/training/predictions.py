"""What the toy says of a training, from what was measured without lost calls.

The toy is told the skills before and after a training without lost calls, its curve, and, where the
head can get better, the head's skill after a training without a tool (every call lost). Nothing of
the trainings that are predicted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from sfusion.harness.lab.scenarios.training import TrainingPart
from sfusion.harness.lab.toy import HealthyTraining, expected, fitted, with_learning

from .conditions import STARTS, Condition
from .plans import FAST, USUAL
from .sizes import Size, fitting
from .tasks import LOOKS

RATE_RANGE = 1.5
LEARNS_RANGE = 2.0
"""Factors by which the fitted rates may be wrong; chosen before the trainings."""

Record = Mapping[str, Any]


def predict_all(
    conditions: Sequence[Condition], baselines: Iterable[Record], size: Size
) -> Iterator[dict[str, Any]]:
    """Yield a prediction for each condition."""
    known = {record["name"]: record for record in baselines}
    parts: dict[str, TrainingPart] = {}
    for condition in conditions:
        base = _baseline_of(condition)
        if base.name not in parts:
            parts[base.name] = _part(base, known, size)
        yield _predict(condition, parts[base.name], known[base.name])


def _baseline_of(condition: Condition) -> Condition:
    """Return the same training without lost calls."""
    return replace(condition, lost="zero", share=0.0, outage=None, quota=None, attempts=1)


def _part(base: Condition, known: Mapping[str, Record], size: Size) -> TrainingPart:
    record = known[base.name]
    before = record["before"]
    after = record["after"]
    start = STARTS[base.start]
    size = fitting(size, start.kind)
    several = start.kind == "looks"
    if several:
        behaviours = [
            {"name": "one", "share": 1 - before["several"], "calls": 1},
            {"name": "four", "share": before["several"], "calls": LOOKS},
        ]
        rights = {"one": "one_call", "four": "more_calls"}
    else:
        behaviours = [
            {"name": "head", "share": 1 - before["tool"], "calls": 0},
            {"name": "tool", "share": before["tool"], "calls": 1},
        ]
        rights = {"head": "head", "tool": "with_tool"}
    for behaviour in behaviours:
        skill = before[rights[str(behaviour["name"])]]
        # A skill of exactly 0 or 1 would be one that nothing can move.
        behaviour["right"] = min(0.995, max(0.005, skill))
    part = TrainingPart.model_validate(
        {
            "steps": size.steps,
            "prompts": size.prompts,
            "group": size.group,
            "estimator": "grpo" if base.std else "dr_grpo",
            "kl": base.kl,
            "behaviours": behaviours,
        }
    )
    ends: dict[str, float] = {}
    for name, key in rights.items():
        # Nobody did it at the end, so its skill was not seen.
        if after[key] is not None:
            ends[name] = min(0.995, after[key])
    if start.decision_only:
        ends = {}
    curve = record["steps"]["several" if several else "tool"]
    part = fitted(part, HealthyTraining(chosen=curve, right=ends, calls=2 if several else 1))
    without_tool = known.get(replace(_usual(base), share=1.0).name)
    if without_tool is not None and not start.decision_only:
        head = without_tool["after"]["head"]
        calibrated = with_learning(_at_usual_rate(part, base, known), "head", head, share=1.0)
        part = _with_learns_of(part, calibrated, "head")
    return part


def _at_usual_rate(
    part: TrainingPart, base: Condition, known: Mapping[str, Record]
) -> TrainingPart:
    """Return the training whose head was measured without a tool."""
    usual = _usual(base)
    if usual.name == base.name:
        return part
    curve = known[usual.name]["steps"]["tool"]
    plain = part.model_copy(update={"kl": 0.0, "estimator": "grpo"})
    return fitted(plain, HealthyTraining(chosen=curve, right={}))


def _usual(base: Condition) -> Condition:
    """Return the training that was also played without a tool."""
    rate = FAST if base.rate == FAST else USUAL
    return replace(base, rate=rate, kl=0.0, std=True)


def _with_learns_of(part: TrainingPart, other: TrainingPart, name: str) -> TrainingPart:
    learns = {behaviour.name: behaviour.learns for behaviour in other.behaviours}
    behaviours = [
        behaviour.model_copy(update={"learns": learns[name]})
        if behaviour.name == name
        else behaviour
        for behaviour in part.behaviours
    ]
    return part.model_copy(update={"behaviours": behaviours})


def _predict(condition: Condition, part: TrainingPart, base: Record) -> dict[str, Any]:
    several = STARTS[condition.start].kind == "looks"
    part = part.model_copy(update={"lost": condition.lost})
    finals = {}
    for name, variant in _variants(part).items():
        steps = _expected(condition, variant)
        chosen = steps[-1].several if several else steps[-1].tool
        finals[name] = {"chosen": round(chosen, 3), "score": round(steps[-1].healthy, 3)}
    chosen = [final["chosen"] for final in finals.values()]
    began = base["before"]["several" if several else "tool"]
    told = "cannot tell"
    if min(chosen) >= began:
        told = "kept"
    elif max(chosen) < began:
        told = "lost"
    return {
        "name": condition.name,
        "began": round(began, 3),
        "predicted": finals["as fitted"]["chosen"],
        "range": [min(chosen), max(chosen)],
        "score": finals["as fitted"]["score"],
        "told": told,
        "learning_rate": round(part.learning_rate, 3),
        "learns": {each.name: round(each.learns, 3) for each in part.behaviours},
    }


def _variants(part: TrainingPart) -> dict[str, TrainingPart]:
    """Return the training as fitted, and with rates that are as wrong as they may be."""
    variants = {"as fitted": part}
    for name, factor in (("slower", 1 / RATE_RANGE), ("faster", RATE_RANGE)):
        rate = part.learning_rate * factor
        variants[name] = part.model_copy(update={"learning_rate": rate})
    for name, factor in (("learns less", 1 / LEARNS_RANGE), ("learns more", LEARNS_RANGE)):
        behaviours = [
            each.model_copy(update={"learns": min(100.0, each.learns * factor)})
            for each in part.behaviours
        ]
        variants[name] = part.model_copy(update={"behaviours": behaviours})
    return variants


def _expected(condition: Condition, part: TrainingPart) -> list[Any]:
    if condition.outage is not None:
        first, last = condition.outage
        inside = range(first, last + 1)
        shares = [float(step in inside) for step in range(1, part.steps + 1)]
        return expected(part, shares)
    if condition.quota is None:
        return expected(part, condition.share**condition.attempts)
    shares = [0.0] * part.steps
    steps = expected(part, shares)
    samples = part.prompts * part.group
    # What a step loses depends on what was learned before it: each round makes one step more right.
    for _ in range(part.steps):
        calls = [samples * step.tool for step in steps]
        shares = [max(0.0, 1 - condition.quota / max(1.0, count)) for count in calls]
        steps = expected(part, shares)
    return steps


def closed_form_keeps(condition: Condition, before: Mapping[str, Any]) -> bool:
    """Say by the skills at the start alone whether a lossy tool is still the better choice.

    Right if skills stand still; what a more elaborate prediction has to beat.
    """
    several = STARTS[condition.start].kind == "looks"
    worse = before["one_call" if several else "head"]
    better = before["more_calls" if several else "with_tool"]
    if condition.lost in ("exclude", "drop"):
        return True
    share = condition.share**condition.attempts
    more_calls = LOOKS - 1 if several else 1
    lost = 1 - (1 - share) ** more_calls
    if condition.lost == "mask":
        lost = lost**2
    return bool((1 - lost) * better >= worse)
