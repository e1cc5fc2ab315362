"""Promises about advantage estimators: what a lost sample does to its own advantage, to its
siblings and to other prompts.

The measure is always the function's own answer on healthy samples, so that an epsilon, a std or
a scale of its own changes nothing. What a function does not do to healthy samples, such as giving
equal siblings no advantage, is not asked of it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

from ...core.verdict import Verdict
from ..facts.batch import LostBy, PlantedBatch
from ..single_calls.calls import CallFacts
from ..single_calls.suite import SuiteFacts
from .base import Promise

_SAME = 1e-3
"""Advantages that differ by less are the same, if the largest healthy one is 1. Chosen: far above
the rounding of 32-bit floats, and below what the smallest planted reward changes."""
_WAYS: dict[LostBy, str] = {
    "mask": "mask",
    "nan": "reward NaN",
    "none": "reward None",
    "dropped": "row dropped",
}
"""Each way to declare a loss, in the words of a sentence."""


@dataclass(frozen=True)
class Estimate:
    """What an estimator answered to one batch."""

    call: CallFacts
    batch: PlantedBatch
    rows: tuple[float, ...] = ()
    raised: str = ""

    @property
    def whole(self) -> bool:
        """Is there one advantage for each row?"""
        return len(self.rows) == len(self.batch.rows)

    @property
    def finite(self) -> bool:
        return all(map(math.isfinite, self.rows))

    @property
    def masks_nan(self) -> bool:
        """Is NaN the reward of its masked samples?"""
        return self.batch.lost_by == "mask" and math.isnan(self.batch.lost_reward)

    @property
    def usable(self) -> bool:
        return not self.raised and self.whole and self.finite

    @cached_property
    def groups(self) -> list[list[float | None]]:
        return self.batch.by_group(self.rows)

    def survivors(self, group: int) -> list[float]:
        """Return the advantages of a group's healthy samples."""
        rewards = self.batch.groups[group]
        pairs = zip(self.groups[group], rewards, strict=True)
        return [value for value, reward in pairs if reward is not None and value is not None]

    def lost(self, group: int) -> list[float]:
        """Return the advantages of a group's lost samples that still have a row."""
        rewards = self.batch.groups[group]
        pairs = zip(self.groups[group], rewards, strict=True)
        return [value for value, reward in pairs if reward is None and value is not None]


def estimate_of(call: CallFacts) -> Estimate | None:
    """Read what came back from a call; None if it did not end."""
    batch = call.ask.batch
    if batch is None or call.returned is None:
        return None
    if call.returned.raised is not None:
        return Estimate(call, batch, raised=call.returned.raised)
    values = call.returned.fields.get("advantages") or []
    return Estimate(call, batch, tuple(float(value) for value in values))


class Misstep(NamedTuple):
    """What is wrong with one way to declare a loss; the kind is the trainers' word for it."""

    kind: str
    estimate: Estimate
    parameters: dict[str, Any]


class Estimates:
    """All answers of one estimator, with what it does to healthy samples."""

    def __init__(self, facts: SuiteFacts) -> None:
        found = [estimate_of(call) for call in facts.estimates]
        read = [estimate for estimate in found if estimate is not None]
        self.scale = _scale(read)
        self.by_mask = "mask" in facts.takes
        """Has it a mask? Then a loss need not be declared by its reward."""
        self.all = [_scaled(estimate, self.scale) for estimate in read]
        self._healthy = {
            estimate.batch.groups: estimate
            for estimate in self.all
            if estimate.batch.lost_by is None and estimate.usable
        }

    def healthy(self, *groups: Sequence[float | None]) -> Estimate | None:
        """Return the answer to a batch without losses, if it was played."""
        return self._healthy.get(tuple(tuple(group) for group in groups))

    def numbers(self, values: Sequence[float]) -> str:
        """Return advantages as the function returned them."""
        shown = [value * self.scale for value in values]
        short = all(value == 0 or abs(value) >= 0.01 for value in shown)
        return ", ".join(f"{value:.2f}" if short else f"{value:.2g}" for value in shown)

    def by(self, way: LostBy) -> list[Estimate]:
        return [estimate for estimate in self.all if estimate.batch.lost_by == way]

    @property
    def ways(self) -> list[LostBy]:
        return [way for way in _WAYS if self.by(way)]

    @cached_property
    def relative(self) -> bool:
        """Does the reward of one sample change the advantage of another?"""
        singles = [each for each in self._healthy.values() if len(each.batch.groups) == 1]
        by_first: dict[float | None, list[float]] = {}
        for estimate in singles:
            by_first.setdefault(estimate.batch.groups[0][0], []).append(estimate.rows[0])
        return any(max(values) - min(values) > _SAME for values in by_first.values())

    @cached_property
    def local(self) -> bool:
        """Is the advantage of healthy samples independent of other prompts?"""
        several = [each for each in self._healthy.values() if len(each.batch.groups) > 1]
        for estimate in several:
            for group, rewards in enumerate(estimate.batch.groups):
                alone = self.healthy(rewards)
                if alone is not None and not _same(alone.rows, estimate.survivors(group)):
                    return False
        return True

    @cached_property
    def silences_equals(self) -> bool:
        """Do healthy siblings with equal rewards get no advantage?"""
        equal = [
            estimate.survivors(group)
            for estimate in self._healthy.values()
            for group in range(len(estimate.batch.groups))
            if len(set(estimate.batch.groups[group])) == 1
        ]
        return bool(equal) and all(_silent(advantages) for advantages in equal)

    def expected(self, batch: PlantedBatch) -> Iterator[tuple[int, Sequence[float]]]:
        """Yield each group with what its survivors must get, where healthy samples show it."""
        survivors = [batch.survivors(group) for group in range(len(batch.groups))]
        together = self.healthy(*survivors)
        for group, rewards in enumerate(survivors):
            alone = self.healthy(rewards) if self.local else None
            if together is not None:
                yield group, together.survivors(group)
            elif alone is not None:
                yield group, alone.rows


def _scale(estimates: Sequence[Estimate]) -> float:
    """Return the largest advantage of a healthy sample, by which all are divided."""
    healthy = [estimate for estimate in estimates if estimate.batch.lost_by is None]
    sizes = [abs(value) for estimate in healthy if estimate.finite for value in estimate.rows]
    return max(sizes, default=0.0) or 1.0


def _scaled(estimate: Estimate, scale: float) -> Estimate:
    return replace(estimate, rows=tuple(value / scale for value in estimate.rows))


def _same(one: Sequence[float], other: Sequence[float]) -> bool:
    pairs = zip(one, other, strict=True)
    return all(abs(value - another) <= _SAME * max(1.0, abs(value)) for value, another in pairs)


def _silent(advantages: Sequence[float]) -> bool:
    return all(abs(value) <= _SAME for value in advantages)


def _written(batch: PlantedBatch) -> str:
    """Return a batch as a scenario writes it."""
    groups = [
        ", ".join("lost" if reward is None else f"{reward:g}" for reward in group)
        for group in batch.groups
    ]
    return " ".join(f"[{group}]" for group in groups)


class _OfEstimates(Promise):
    """Judges each way to declare a loss by itself."""

    takes: ClassVar[frozenset[str]] = frozenset({"groups"})
    identity: ClassVar[tuple[str, ...]] = ("way",)
    unseen: ClassVar[str] = "no lost sample was declared; judge-lost-by-mask and its like do"

    def check_calls(self, facts: SuiteFacts) -> list[Verdict]:
        """Return a verdict for each way that was played."""
        if not facts.estimates:
            return super().check_calls(facts)
        estimates = Estimates(facts)
        if not estimates.relative:
            return [self.not_applicable("not_relative")]
        verdicts = [self._verdict_on(estimates, way) for way in estimates.ways]
        return verdicts or [self.unknown("calls_unseen", unseen=self.unseen)]

    def _verdict_on(self, estimates: Estimates, way: LostBy) -> Verdict:
        name = _WAYS[way]
        judged = self.judged(estimates.by(way))
        found = next(self.problems(estimates, judged), None)
        if found is not None and way == "nan" and estimates.by_mask:
            fault = _FAULTS.get(found.kind, "not excluded")
            return self.not_applicable("by_mask", way=name, fault=fault)
        if found is not None:
            about = {"batch": _written(found.estimate.batch), **found.parameters}
            return self.broken(found.kind, found.estimate.call.evidence, way=name, **about)
        refused = [estimate for estimate in judged if estimate.raised]
        if refused:
            return self.not_applicable("refused", way=name, raised=refused[0].raised)
        if not all(estimate.finite for estimate in judged):
            if way == "nan" and estimates.by_mask:
                return self.not_applicable("by_mask", way=name, fault="not finite")
            return self.unknown("not_finite", way=name)
        return self.held("excluded", way=name, judged=len(judged))

    def judged(self, estimates: list[Estimate]) -> list[Estimate]:
        """Return the batches of one way that show something about this promise."""
        return estimates

    def problems(self, estimates: Estimates, judged: list[Estimate]) -> Iterator[Misstep]:
        """Yield what is wrong with a way, the most telling first."""
        raise NotImplementedError


_NOT_RELATIVE = "not relative, nothing to judge: no sample's reward changes another's advantage"
_REFUSED = "{way}: crash: {raised}; a loss cannot be declared in this way"
_BY_MASK = "{way}: {fault}; its mask declares a loss, a reward alone does not"
_FAULTS = {"poisoned": "not finite", "mixes_prompts": "mixes prompts", "zero": "zero"}
"""What a reward of NaN alone does to a function with a mask, in the trainers' words."""


class LostSamplesLeftOut(_OfEstimates):
    """An advantage estimator leaves a lost sample out: it has no advantage, its siblings get what
    they would get without it, and other prompts do not change."""

    sentences: ClassVar = {
        "not_relative": _NOT_RELATIVE,
        "refused": _REFUSED,
        "crash": "{way}: crash: {raised} for {batch}",
        "by_mask": _BY_MASK,
        "excluded": "{way}: excluded in each of {judged:case}",
        "rows": "{way}: {found} advantages for {rows:row} of {batch}",
        "poisoned": "{way}: not finite for {batch}: {whose} get {found}",
        "nan_spreads": "{way}: excluded, but NaN spreads: in {batch} with the lost reward NaN "
        "{whose} get {found}; with a number there they get what is right",
        "mixes_prompts": "{way}: mixes prompts: in {batch} a prompt that lost nothing gets "
        "{found}, by itself {right}",
        "zero": "{way}: zero: in {batch} the lost sample is trained on with {found}, like a reward "
        "of 0",
        "trained_on": "{way}: in {batch} the lost sample has an advantage of {found}",
        "masked_only": "{way}: masked only: in {batch} with the lost reward {reward:g} the others "
        "get {found}; without the lost sample {right}",
        "moved": "{way}: in {batch} the others get {found}; without the lost sample {right}",
    }

    def problems(self, estimates: Estimates, judged: list[Estimate]) -> Iterator[Misstep]:
        for question in (_mixed, _baseline_moved, _trained_on, _crashed, _not_finite):
            for estimate in judged:
                found = question(estimates, estimate)
                if found is not None:
                    yield found


def _crashed(estimates: Estimates, estimate: Estimate) -> Misstep | None:
    if estimate.raised:
        # Elsewhere it is loud and teaches nothing; only a mask that it takes itself must work.
        crash = Misstep("crash", estimate, {"raised": estimate.raised})
        return crash if estimate.batch.lost_by == "mask" else None
    if estimate.whole:
        return None
    rows = {"found": len(estimate.rows), "rows": len(estimate.batch.rows)}
    return Misstep("rows", estimate, rows)


def _not_finite(estimates: Estimates, estimate: Estimate) -> Misstep | None:
    if estimate.finite:
        return None
    if estimate.masks_nan and any(map(_poisoned_by_number, estimates.by("mask"))):
        return None  # the other one tells more
    groups = range(len(estimate.batch.groups))
    rows = [value for group in groups for value in estimate.survivors(group)]
    whose = "the samples that are not lost"
    if all(map(math.isfinite, rows)):
        rows = [value for group in groups for value in estimate.lost(group)]
        whose = "the lost samples"
    kind = "nan_spreads" if estimate.masks_nan else "poisoned"
    return Misstep(kind, estimate, {"whose": whose, "found": estimates.numbers(rows)})


def _poisoned_by_number(estimate: Estimate) -> bool:
    """Is something not finite although every masked reward is a number?"""
    return not estimate.finite and not estimate.masks_nan


def _mixed(estimates: Estimates, estimate: Estimate) -> Misstep | None:
    """Does a prompt that lost nothing get other advantages?"""
    if not estimates.local or not estimate.usable:
        return None
    for group, right in estimates.expected(estimate.batch):
        if None in estimate.batch.groups[group]:
            continue
        found = estimate.survivors(group)
        if not _as_expected(estimate, found, right, group_lost=False):
            numbers = {"found": estimates.numbers(found), "right": estimates.numbers(right)}
            return Misstep("mixes_prompts", estimate, numbers)
    return None


def _baseline_moved(estimates: Estimates, estimate: Estimate) -> Misstep | None:
    """Do the survivors get other advantages than without the lost sample?"""
    if not estimate.usable:
        return None
    for group, right in estimates.expected(estimate.batch):
        found = estimate.survivors(group)
        group_lost = None in estimate.batch.groups[group]
        if _as_expected(estimate, found, right, group_lost=group_lost):
            continue
        own = estimate.lost(group)
        if estimate.batch.lost_by in ("nan", "none") and not _silent(own):
            return Misstep("zero", estimate, {"found": estimates.numbers(own)})
        numbers = {"found": estimates.numbers(found), "right": estimates.numbers(right)}
        if estimate.batch.lost_by != "mask":
            return Misstep("moved", estimate, numbers)  # it has no reward that could be named
        reward = estimate.batch.lost_reward
        return Misstep("masked_only", estimate, {**numbers, "reward": reward})
    return None


def _as_expected(
    estimate: Estimate, found: Sequence[float], right: Sequence[float], *, group_lost: bool
) -> bool:
    """Are advantages right as they are, or scaled so that a loss that is divided by all rows is
    one that is divided by those in it? A group that lost a sample may be left out as a whole."""
    batch = estimate.batch
    if group_lost and _silent(found):
        return True
    healthy = [batch.survivors(group) for group in range(len(batch.groups))]
    kept = sum(map(len, healthy))
    with_siblings = sum(len(rewards) for rewards in healthy if len(rewards) > 1)
    factors = {1.0} | {len(batch.rows) / count for count in (kept, with_siblings) if count}
    if with_siblings:  # masked rows are not in what a token mask divides by
        factors.add(kept / with_siblings)
    return any(_same(found, [value * factor for value in right]) for factor in factors)


def _trained_on(estimates: Estimates, estimate: Estimate) -> Misstep | None:
    if not estimate.usable:
        return None
    for group in range(len(estimate.batch.groups)):
        own = estimate.lost(group)
        if not _silent(own):
            return Misstep("trained_on", estimate, {"found": estimates.numbers(own)})
    return None


class NoLessonWithoutSiblings(_OfEstimates):
    """An advantage estimator gives no advantage to a sample whose siblings are all lost, to equal
    survivors, or to a group that is lost as a whole."""

    sentences: ClassVar = {
        "not_relative": _NOT_RELATIVE,
        "not_by_group": "healthy siblings with equal rewards get an advantage too, so that nothing "
        "is promised about a group without differences",
        "refused": _REFUSED,
        "by_mask": _BY_MASK,
        "not_finite": "{way}: some advantages are not finite",
        "excluded": "{way}: a lone survivor gets 0.00, and so do equal survivors",
        "lone": "{way}: in {batch} the lone survivor gets {found}",
        "equal": "{way}: in {batch} the survivors are equal and get {found}",
    }

    def check_calls(self, facts: SuiteFacts) -> list[Verdict]:
        estimates = Estimates(facts)
        if facts.estimates and estimates.relative and not estimates.silences_equals:
            return [self.not_applicable("not_by_group")]
        verdicts = super().check_calls(facts)
        # What the other promise says of such a way is enough.
        return [verdict for verdict in verdicts if verdict.how.kind != "by_mask"] or verdicts

    def judged(self, estimates: list[Estimate]) -> list[Estimate]:
        """Return the batches with a group that lost something and whose survivors are equal."""
        return [
            estimate
            for estimate in estimates
            if any(_without_differences(group) for group in estimate.batch.groups)
        ]

    def problems(self, estimates: Estimates, judged: list[Estimate]) -> Iterator[Misstep]:
        for estimate in judged:
            if estimate.usable:
                yield from _lessons(estimates, estimate)


def _without_differences(rewards: Sequence[float | None]) -> bool:
    """Did a group lose something, so that what is left is equal?"""
    left = {reward for reward in rewards if reward is not None}
    return None in rewards and len(left) == 1


def _lessons(estimates: Estimates, estimate: Estimate) -> Iterator[Misstep]:
    """Yield the groups that teach something although their survivors do not differ."""
    for group, rewards in enumerate(estimate.batch.groups):
        if not _without_differences(rewards):
            continue
        found = estimate.survivors(group)
        if not _silent(found):
            kind = "lone" if len(found) == 1 else "equal"
            yield Misstep(kind, estimate, {"found": estimates.numbers(found)})
