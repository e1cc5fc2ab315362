"""The toy without the stack: what it learns on average, and where the closed form says that it
turns."""

from __future__ import annotations

from statistics import mean, median
from typing import Any

import pytest

from sfusion.fakes.faults.chance import uniform
from sfusion.harness.lab.scenarios.training import TrainingPart
from sfusion.harness.lab.toy import (
    HealthyTraining,
    Toy,
    chance_lost,
    expected,
    fitted,
    mask_threshold,
    simulate,
    simulate_share,
    threshold,
    turning_share,
    uses_tool,
    with_learning,
    zero_threshold,
)
from sfusion.harness.learning.trained import Spread
from sfusion_tools.advantages import Handling

TWO: list[dict[str, Any]] = [
    {"name": "head", "right": 0.6, "learns": 0},
    {"name": "tool", "right": 0.95, "calls": 1, "learns": 0},
]
"""Skills that stand still, as in the closed form."""


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
            assert (expected(one, share, Handling.ZERO)[-1].tool > start) is grows, (
                start,
                share,
            )
    nearly = [{**TWO[0], "share": 0.001}, {**TWO[1], "share": 0.999}]
    for share, grows in ((0.59, True), (0.62, False)):
        one = TrainingPart.model_validate(
            {"behaviours": nearly, "steps": 1, "group": 400, "estimator": "dr_grpo"}
        )
        assert (expected(one, share, Handling.MASK)[-1].tool > 0.999) is grows, share


def test_two_hundred_seeds_end_around_the_expected_probability() -> None:
    for lost, share, seeds in (
        ("zero", 0.5, 200),
        ("mask", 0.7, 40),
        ("exclude", 0.5, 40),
        ("drop", 0.2, 40),
    ):
        part = two(steps=8, prompts=2, group=4, lost=lost)
        found = Spread.of(ends(part, share, seeds))
        on_average = expected(part, share)[-1].tool
        assert found.low < on_average < found.high, lost
        assert found.middle == pytest.approx(on_average, abs=0.05), lost


def test_scored_zero_unlearns_the_tool_and_excluding_keeps_it() -> None:
    """At 40 % lost; the head learns, so that it is worth less and less to call."""
    for lost, low, high in (("zero", 0.0, 0.15), ("exclude", 0.9, 1.0)):
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
    sample = Toy(again, 0)._sample("g", 1, (0.0, 1.0), 0.0)
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


REAL = {"steps": 80, "prompts": 32, "group": 8, "learning_rate": 0.33}


def skilled(head: dict[str, Any], tool: dict[str, Any], **keys: Any) -> TrainingPart:
    behaviours = [
        {"name": "head", **head},
        {"name": "tool", "calls": 1, **tool},
    ]
    return TrainingPart.model_validate({**REAL, "behaviours": behaviours, **keys})


def test_a_model_that_gets_better_without_its_tool_loses_it_far_below_the_closed_form() -> None:
    """The start `noisy` of the real trainings: the formula says 51 %, 25 % turned every one."""
    standing = skilled({"right": 0.46, "learns": 0}, {"right": 0.94, "learns": 0})
    learning = skilled({"right": 0.46}, {"right": 0.94})
    assert zero_threshold(0.46, 0.94) == pytest.approx(0.51, abs=0.01)
    assert expected(standing, 0.3)[-1].tool > 0.9
    assert expected(learning, 0.1)[-1].tool > 0.85
    assert expected(learning, 0.3)[-1].tool < 0.1
    assert expected(learning, 0.3)[-1].right[0] > 0.95
    assert expected(learning, 0.3, Handling.EXCLUDE)[-1].tool > 0.9


def test_the_healthy_score_tells_a_lost_tool_that_is_missed_from_one_that_is_not() -> None:
    sharpened = expected(skilled({"right": 0.46}, {"right": 0.94}), 0.4)[-1]
    needed = expected(skilled({"right": 0.46, "best": 0.5}, {"right": 0.94}), 0.8)[-1]
    assert sharpened.tool < 0.1
    assert sharpened.healthy > 0.9
    assert needed.tool < 0.1
    assert needed.healthy == pytest.approx(needed.right[0], abs=0.03) == pytest.approx(0.5, abs=0.1)


def test_skills_move_with_the_same_gradient_in_samples_and_on_average() -> None:
    behaviours = [
        {"name": "head", "right": 0.4, "best": 0.9, "learns": 2, "spread": 1.5, "tokens": 30},
        {
            "name": "tool",
            "right": 0.7,
            "calls": 1,
            "spread": 0.5,
            "guess": 0.3,
            "tokens": 90,
            "tokens_lost": 40,
        },
        {"name": "hang", "right": 0.5, "calls": 1, "provokes": 0.8, "length": 2, "tokens": 60},
    ]
    settings: list[dict[str, Any]] = [
        {"lost": "zero", "format_reward": 0.2},
        {"lost": "mask", "aggregation": "seq-mean-token-mean"},
        {"lost": "exclude", "endless": "lost", "kl": 0.3, "aggregation": "seq-mean-token-sum"},
    ]
    for more in settings:
        part = TrainingPart.model_validate(
            {"steps": 6, "prompts": 40, "group": 6, "behaviours": behaviours, **more}
        )
        runs = [simulate_share(part, seed, 0.3)[-1] for seed in range(12)]
        end = expected(part, 0.3)[-1]
        for place in range(3):
            assert mean(run.p[place] for run in runs) == pytest.approx(end.p[place], abs=0.02)
            assert mean(run.right[place] for run in runs) == pytest.approx(
                end.right[place], abs=0.02
            )
        assert mean(run.healthy for run in runs) == pytest.approx(end.healthy, abs=0.02)


def test_a_skill_does_not_pass_its_best() -> None:
    steps = expected(skilled({"right": 0.3, "best": 0.5, "learns": 100}, {"right": 0.6}), 0.9)
    assert 0.45 < steps[-1].right[0] <= 0.5
    assert steps[-1].right[1] > 0.6


def test_losses_alone_teach_no_skill() -> None:
    """Every call is lost and scored 0: what the attempts were worth is not in the scores."""
    part = skilled({"right": 0.5, "learns": 0}, {"right": 0.6}, steps=10)
    assert expected(part, 1.0)[-1].right[1] == pytest.approx(0.6, abs=1e-9)
    assert simulate_share(part, 1, 1.0)[0].right[1] != 0.6


def test_what_moves_the_threshold() -> None:
    """Each of these pushes away from the tool where the closed form says that it is kept."""

    def end(share: float, tool: dict[str, Any], **keys: Any) -> float:
        head = {**TWO[0], "tokens": tool.get("tokens", 1)}
        part = TrainingPart.model_validate(
            {"steps": 200, "behaviours": [head, {**TWO[1], **tool}], **keys}
        )
        return expected(part, share)[-1].tool

    assert end(0.33, {}) > 0.7
    assert end(0.33, {}, format_reward=0.2) < 0.5
    assert end(0.2, {"length": 2.0}) < end(0.2, {}) - 0.1
    assert end(0.4, {"guess": 0.6}) > end(0.4, {}) + 0.5
    short = {"tokens": 60, "tokens_lost": 20}
    assert end(0.33, short, aggregation="seq-mean-token-mean") < 0.1
    assert end(0.33, short, aggregation="token-mean") > 0.7
    long = {"tokens": 20, "tokens_lost": 60}
    assert end(0.4, {}) < 0.1
    assert end(0.4, long, aggregation="seq-mean-token-mean") > 0.7


def test_a_program_that_never_ends_is_learned_if_it_counts_as_lost_and_unlearned_if_scored() -> (
    None
):
    behaviours = [
        {"name": "honest", "right": 0.55, "calls": 1, "learns": 0, "share": 0.9},
        {"name": "hang", "right": 0.45, "calls": 1, "learns": 0, "provokes": 1, "share": 0.1},
    ]
    part = TrainingPart.model_validate(
        {"steps": 400, "prompts": 16, "lost": "exclude", "behaviours": behaviours}
    )
    scored = expected(part, 0.0)[-1]
    left_out = expected(part.model_copy(update={"endless": "lost"}), 0.0)[-1]
    assert scored.p[1] < 0.05
    assert left_out.p[1] > 0.9
    assert left_out.healthy == pytest.approx(0.45, abs=0.01)


def test_rates_are_found_again_from_a_training_without_faults() -> None:
    true = skilled({"right": 0.46, "learns": 0.7}, {"right": 0.9, "learns": 0.4})
    seen = expected(true, 0.0)
    measured = HealthyTraining(
        chosen=[step.tool for step in seen],
        right={"head": seen[-1].right[0], "tool": seen[-1].right[1]},
    )
    blank = skilled({"right": 0.46, "learns": 0}, {"right": 0.9, "learns": 0}, learning_rate=1)
    found = fitted(blank, measured)
    assert found.learning_rate == pytest.approx(0.33, rel=0.02)
    assert found.behaviours[0].learns == pytest.approx(0.7, rel=0.05)
    assert found.behaviours[1].learns == pytest.approx(0.4, rel=0.05)
    by_loss = with_learning(true, "head", expected(true, 1.0)[-1].right[0], 1.0)
    assert by_loss.behaviours[0].learns == pytest.approx(0.7, rel=0.01)
    with pytest.raises(ValueError, match="3 steps were measured"):
        fitted(blank, HealthyTraining([0.5] * 3, {}))


def test_a_threshold_is_a_range_that_begins_below_that_of_skills_that_stand_still() -> None:
    learning = skilled({"right": 0.46}, {"right": 0.94})
    found = threshold(learning, Handling.ZERO)
    assert found.standing_still == pytest.approx(zero_threshold(0.46, 0.94), abs=0.02)
    assert found.as_set is not None
    assert found.lowest is not None
    assert found.highest is not None
    assert found.lowest < found.as_set < 0.3 < found.highest
    assert threshold(learning, Handling.EXCLUDE).as_set is None
    assert turning_share(learning, Handling.ZERO) == found.as_set


def test_extreme_policies_are_followed_without_an_error() -> None:
    behaviours = [
        {"name": "never", "right": 0.0, "share": 1e-6, "spread": 10},
        {"name": "always", "right": 1.0, "calls": 1, "share": 1e6},
        {"name": "at its best", "right": 0.5, "best": 0.5, "calls": 20, "learns": 100},
        {"name": "cannot", "right": 0.0, "best": 0.0, "calls": 1, "provokes": 1.0},
    ]
    part = TrainingPart.model_validate(
        {
            "steps": 30,
            "learning_rate": 100,
            "kl": 100,
            "format_reward": 10,
            "behaviours": behaviours,
            "lost": "exclude",
        }
    )
    for share in (0.0, 0.5, 1.0):
        for end in (expected(part, share)[-1], simulate_share(part, 1, share)[-1]):
            assert sum(end.p) == pytest.approx(1)
            assert end.right[0] == 0.0
            assert end.right[2] == 0.5
            assert 0 <= end.healthy <= 1
    with pytest.raises(ValueError, match=r"between 0 and 1, found 1\.5"):
        expected(part, 1.5)
    with pytest.raises(ValueError, match="between 0 and 1"):
        expected(part, [])
