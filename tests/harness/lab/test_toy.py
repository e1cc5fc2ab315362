"""The toy without the stack: what it learns on average, and where the closed form says that it
turns."""

from __future__ import annotations

from statistics import median
from typing import Any

import pytest

from sfusion.fakes.faults.chance import uniform
from sfusion.harness.core.advantages import Handling
from sfusion.harness.lab.scenarios.training import TrainingPart
from sfusion.harness.lab.toy import (
    Toy,
    chance_lost,
    expected_p,
    mask_threshold,
    simulate,
    uses_tool,
    zero_threshold,
)
from sfusion.harness.learning.trained import Spread

TWO = [{"name": "head", "right": 0.6}, {"name": "tool", "right": 0.95, "calls": 1}]


def two(**keys: Any) -> TrainingPart:
    return TrainingPart.model_validate({"behaviours": TWO, **keys})


def ends(part: TrainingPart, share: float, seeds: int) -> list[float]:
    def end(seed: int) -> float:
        steps = simulate(part, seed, lambda call: uniform(seed, "lost", call) < share)
        return uses_tool(part, steps[-1].p)

    return [end(seed) for seed in range(seeds)]


def test_the_thresholds_of_two_behaviours_are_those_of_the_closed_form() -> None:
    """Predicted first: 1 - 0.6 / 0.95 = 0.368 scored zero; its root, 0.607, with a loss mask where
    nearly all call."""
    assert zero_threshold(0.6, 0.95) == pytest.approx(0.3684, abs=1e-4)
    assert mask_threshold(0.6, 0.95) == pytest.approx(0.6070, abs=1e-4)
    for start in (0.1, 0.5, 0.9):
        shares = [{**TWO[0], "share": 1 - start}, {**TWO[1], "share": start}]
        for share, grows in ((0.36, True), (0.375, False)):
            one = TrainingPart.model_validate({"behaviours": shares, "steps": 1, "group": 16})
            assert (uses_tool(one, expected_p(one, share, Handling.ZERO)) > start) is grows, (
                start,
                share,
            )
    nearly = [{**TWO[0], "share": 0.001}, {**TWO[1], "share": 0.999}]
    for share, grows in ((0.59, True), (0.62, False)):
        one = TrainingPart.model_validate(
            {"behaviours": nearly, "steps": 1, "group": 400, "estimator": "dr_grpo"}
        )
        assert (uses_tool(one, expected_p(one, share, Handling.MASK)) > 0.999) is grows, share


def test_two_hundred_seeds_end_around_the_expected_probability() -> None:
    for lost, share, seeds in (
        ("zero", 0.5, 200),
        ("mask", 0.7, 40),
        ("exclude", 0.5, 40),
        ("drop", 0.2, 40),
    ):
        part = two(steps=8, prompts=2, group=4, lost=lost)
        found, expected = (
            Spread.of(ends(part, share, seeds)),
            uses_tool(part, expected_p(part, share)),
        )
        assert found.low < expected < found.high, lost
        assert found.middle == pytest.approx(expected, abs=0.05), lost


def test_scored_zero_unlearns_the_tool_and_excluding_keeps_it() -> None:
    """The figures of the experiment at 40 %: 0.18 scored zero, as without faults if excluded."""
    for lost, low, high in (("zero", 0.05, 0.35), ("exclude", 0.93, 1.0)):
        assert low < median(ends(TrainingPart(lost=lost), 0.4, 3)) < high


def test_long_trajectories_are_unlearned_first() -> None:
    part = TrainingPart()
    lost = [
        simulate(part, seed, lambda call, s=seed: uniform(s, "lost", call) < 0.1)[-1]
        for seed in range(3)
    ]
    twins = [simulate(part, seed)[-1] for seed in range(3)]
    assert median(uses_tool(part, one.p) for one in lost) > 0.9
    assert (
        median(uses_tool(part, one.p, 2) for one in lost)
        < median(uses_tool(part, one.p, 2) for one in twins) - 0.4
    )


def test_calls_made_again_make_a_loss_less_likely() -> None:
    """Two calls, one of which may be made again: (1 - f)^2 (1 + 2 f) survive."""
    again = TrainingPart.model_validate(
        {"behaviours": [TWO[0], {"name": "b", "right": 1, "calls": 2, "again": 1}]}
    )
    assert chance_lost(again.behaviours[1], 0.3) == pytest.approx(1 - 0.49 * 1.6)
    assert chance_lost(again.behaviours[0], 0.3) == 0.0
    sample = Toy(again, 0)._sample("g", 1, (0.0, 1.0))
    sample.results = [True, False]
    assert sample.calls_next
    sample.results = [False, True, False]
    assert (sample.calls_next, sample.gave_up, sample.lost) == (False, True, True)


def test_a_guess_after_a_loss_is_scored_as_any_answer() -> None:
    guessing = [TWO[0], {**TWO[1], "guess": 1.0}]
    part = TrainingPart.model_validate({"behaviours": guessing, "steps": 3})
    assert all(step.score > 0.5 for step in simulate(part, 1, lambda call: True))
    assert (
        simulate(part, 1, lambda call: True)[0].lost
        == simulate(two(steps=1), 1, lambda call: True)[0].lost
    )


def test_the_loss_divided_by_kept_samples_moves_more() -> None:
    moves = {}
    for by in ("all", "kept"):
        part = two(steps=1, lost="exclude", divide_by=by)
        moves[by] = (
            uses_tool(part, simulate(part, 3, lambda call: uniform(3, call) < 0.7)[0].p) - 0.5
        )
    assert abs(moves["kept"]) > 1.3 * abs(moves["all"]) > 0


def test_what_the_trainer_does_not_know_is_counted() -> None:
    (known,) = simulate(two(steps=1, lost="exclude"), 0, lambda call: True)
    (unseen,) = simulate(two(steps=1, lost="exclude"), 0, lambda call: True, seen=False)
    assert (known.lost, known.unseen, known.lost_weight) == (unseen.lost, 0, 0.0)
    assert (unseen.unseen, unseen.lost_weight > 0.2) == (unseen.lost, True)
