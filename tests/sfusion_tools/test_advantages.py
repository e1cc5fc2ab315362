"""Estimators and handlings: tables worked out by hand, and what must hold for any group."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfusion_tools.advantages import Estimator, Handling, advantages, handled, push

# One group of four with the scores 1, 1, 0, 0, of which the last was lost. Mean 1/2, std sqrt(1/3),
# whitening the same.
ROOT3 = math.sqrt(3)
EVEN = ROOT3 / 2  # (1 - 1/2) / sqrt(1/3)
SCORES, LOST = [1.0, 1.0, 0.0, 0.0], [False, False, False, True]
# Without the lost sample: 1, 1, 0, mean 2/3, std sqrt(1/3). Passed: 1, 1, 0, 1, mean 3/4, std 1/2.
HIGH, LOW = ROOT3 / 3, -2 * ROOT3 / 3
BY_HAND = {
    Estimator.GRPO: {
        Handling.ZERO: [EVEN, EVEN, -EVEN, -EVEN],
        Handling.MASK: [EVEN, EVEN, -EVEN, 0],
        Handling.EXCLUDE: [HIGH, HIGH, LOW, 0],
        Handling.DROP: [0, 0, 0, 0],
        Handling.FAILED: [EVEN, EVEN, -EVEN, -EVEN],
        Handling.PASSED: [0.5, 0.5, -1.5, 0.5],
    },
    Estimator.DR_GRPO: {
        Handling.ZERO: [0.5, 0.5, -0.5, -0.5],
        Handling.MASK: [0.5, 0.5, -0.5, 0],
        Handling.EXCLUDE: [1 / 3, 1 / 3, -2 / 3, 0],
        Handling.DROP: [0, 0, 0, 0],
        Handling.FAILED: [0.5, 0.5, -0.5, -0.5],
        Handling.PASSED: [0.25, 0.25, -0.75, 0.25],
    },
    Estimator.RLOO: {
        Handling.ZERO: [2 / 3, 2 / 3, -2 / 3, -2 / 3],
        Handling.MASK: [2 / 3, 2 / 3, -2 / 3, 0],
        Handling.EXCLUDE: [0.5, 0.5, -1, 0],
        Handling.DROP: [0, 0, 0, 0],
        Handling.FAILED: [2 / 3, 2 / 3, -2 / 3, -2 / 3],
        Handling.PASSED: [1 / 3, 1 / 3, -1, 1 / 3],
    },
    # One group, so whitening is the std of the group; the mask whitens 1/2, 1/2, -1/2: mean 1/6,
    # std sqrt(1/3).
    Estimator.REINFORCE_PLUS_PLUS_BASELINE: {
        Handling.ZERO: [EVEN, EVEN, -EVEN, -EVEN],
        Handling.MASK: [HIGH, HIGH, LOW, 0],
        Handling.EXCLUDE: [HIGH, HIGH, LOW, 0],
        Handling.DROP: [0, 0, 0, 0],
        Handling.FAILED: [EVEN, EVEN, -EVEN, -EVEN],
        Handling.PASSED: [0.5, 0.5, -1.5, 0.5],
    },
    # The scores themselves are whitened, which with one group is the same.
    Estimator.REINFORCE_PLUS_PLUS: {
        Handling.ZERO: [EVEN, EVEN, -EVEN, -EVEN],
        Handling.MASK: [HIGH, HIGH, LOW, 0],
        Handling.EXCLUDE: [HIGH, HIGH, LOW, 0],
        Handling.DROP: [0, 0, 0, 0],
        Handling.FAILED: [EVEN, EVEN, -EVEN, -EVEN],
        Handling.PASSED: [0.5, 0.5, -1.5, 0.5],
    },
    # One group, so the std of the step is that of the group; 1e-4 beside it instead of 1e-6.
    Estimator.GRPO_BATCH_STD: {
        Handling.ZERO: [EVEN, EVEN, -EVEN, -EVEN],
        Handling.MASK: [EVEN, EVEN, -EVEN, 0],
        Handling.EXCLUDE: [HIGH, HIGH, LOW, 0],
        Handling.DROP: [0, 0, 0, 0],
        Handling.FAILED: [EVEN, EVEN, -EVEN, -EVEN],
        Handling.PASSED: [0.5, 0.5, -1.5, 0.5],
    },
    # Siblings of a 1 among 1, 1, 0, 0: 1, 0, 0, mean 1/3, std sqrt(1/3). Of a 1 among 1, 1, 0: 1
    # and 0, mean 1/2, std sqrt(1/2); the 0 has siblings without a std, so nothing is divided.
    Estimator.GRPO_LEAVE_ONE_OUT: {
        Handling.ZERO: [2 / ROOT3, 2 / ROOT3, -2 / ROOT3, -2 / ROOT3],
        Handling.MASK: [2 / ROOT3, 2 / ROOT3, -2 / ROOT3, 0],
        Handling.EXCLUDE: [math.sqrt(0.5), math.sqrt(0.5), -1, 0],
        Handling.DROP: [0, 0, 0, 0],
        Handling.FAILED: [2 / ROOT3, 2 / ROOT3, -2 / ROOT3, -2 / ROOT3],
        Handling.PASSED: [1 / ROOT3, 1 / ROOT3, -1, 1 / ROOT3],
    },
}


@pytest.mark.parametrize("estimator", Estimator)
def test_every_handling_gives_the_advantages_worked_out_by_hand(estimator: Estimator) -> None:
    for handling in Handling:
        found = handled(SCORES, [0] * 4, LOST, handling, estimator).advantages
        within = 3e-4 if estimator is Estimator.GRPO_BATCH_STD else 1e-5
        assert found == pytest.approx(BY_HAND[estimator][handling], abs=within), handling


def test_a_default_of_zero_earns_a_positive_advantage_where_other_rewards_are_negative() -> None:
    """As in trl#6427: mean -3/4, and the sample that was never judged is the best of its group."""
    scores, lost = [-1.0, -1.0, -1.0, 0.0], [False, False, False, True]
    assert handled(scores, [0] * 4, lost, Handling.ZERO).advantages == pytest.approx(
        [-0.5] * 3 + [1.5], abs=1e-5
    )
    assert handled(scores, [0] * 4, lost, Handling.MASK).advantages == pytest.approx(
        [-0.5] * 3 + [0], abs=1e-5
    )
    assert handled(scores, [0] * 4, lost, Handling.EXCLUDE).advantages == [0.0] * 4


def test_a_mask_leaves_the_baseline_where_the_lost_samples_put_it() -> None:
    """As in NeMo RL#4061: five of eight are lost; the healthy ones are all right and still get
    an advantage."""
    scores, lost = [1.0] * 3 + [0.0] * 5, [False] * 3 + [True] * 5
    masked = handled(scores, [0] * 8, lost, Handling.MASK, Estimator.DR_GRPO)
    assert masked.advantages == [0.625] * 3 + [0.0] * 5
    assert (masked.divisor(by_kept=False), masked.divisor(by_kept=True)) == (8, 3)
    assert (
        handled(scores, [0] * 8, lost, Handling.EXCLUDE, Estimator.DR_GRPO).advantages == [0.0] * 8
    )


def test_a_sample_without_siblings_has_the_baseline_zero() -> None:
    for estimator in (Estimator.GRPO, Estimator.DR_GRPO, Estimator.RLOO):
        assert advantages([0.75], ["alone"], estimator) == pytest.approx([0.75], abs=1e-5)
    for estimator in set(Estimator) - {Estimator.GRPO, Estimator.DR_GRPO, Estimator.RLOO}:
        assert advantages([0.75], ["alone"], estimator) == [0.0]
    for estimator in Estimator:
        assert advantages([], [], estimator) == []


def test_one_std_of_the_step_scales_every_group_alike() -> None:
    """TRL: centred 1/2 and -1/2, and 0 and 0; the std of 1, 0, 1, 1 is 1/2."""
    found = advantages([1.0, 0.0, 1.0, 1.0], [0, 0, 1, 1], Estimator.GRPO_BATCH_STD)
    assert found == pytest.approx([1.0, -1.0, 0.0, 0.0], abs=3e-4)


def test_without_groups_a_prompt_that_all_solve_is_still_pushed() -> None:
    """REINFORCE++ compares with the whole step: 1, 1 against 0, 0 of another prompt."""
    found = advantages([1.0, 1.0, 0.0, 0.0], [0, 0, 1, 1], Estimator.REINFORCE_PLUS_PLUS)
    assert found == pytest.approx([EVEN, EVEN, -EVEN, -EVEN], abs=1e-5)


def test_whitening_weighs_samples_by_their_tokens() -> None:
    """Centred 1/2 with three tokens and -1/2 with one: mean 1/4, variance (3/16 + 9/16) / 3 =
    1/4."""
    found = advantages([1.0, 0.0], [0, 0], Estimator.REINFORCE_PLUS_PLUS_BASELINE, tokens=[3, 1])
    assert found == pytest.approx([0.5, -1.5], abs=1e-5)


def test_the_push_counts_samples_that_the_mask_took_out_of_the_loss() -> None:
    """Users pass, but half of them are lost: their mean advantage is unchanged, the push is
    halved."""
    scores, used = [1.0, 1.0, 0.0, 0.0], [True, True, False, False]
    whole = handled(scores, [0] * 4, [False] * 4, Handling.MASK, Estimator.DR_GRPO)
    half = handled(
        [1.0, 1.0, 0.0, 0.0], [0] * 4, [True, False, False, False], Handling.MASK, Estimator.DR_GRPO
    )
    assert push(whole.advantages, used) == 0.25
    assert push(half.advantages, used) == 0.1875
    assert push([], []) == 0.0


_step = st.lists(
    st.tuples(st.floats(-5, 5), st.integers(0, 3), st.booleans()), min_size=1, max_size=20
)


@settings(max_examples=25, deadline=None)
@given(_step, st.sampled_from(Estimator))
def test_excluding_is_the_step_without_the_lost_samples(
    step: list[tuple[float, int, bool]], by: Estimator
) -> None:
    scores, groups, lost = zip(*step, strict=True)
    found = handled(scores, groups, lost, Handling.EXCLUDE, by)
    kept = [(score, group) for score, group, gone in step if not gone]
    left = [group for _, group in kept]
    kept = [
        (score, group) for score, group in kept if left.count(group) > 1 or groups.count(group) == 1
    ]
    expected = advantages([score for score, _ in kept], [group for _, group in kept], by)
    assert [
        one for one, keep in zip(found.advantages, found.in_loss, strict=True) if keep
    ] == expected
    assert all(
        one == 0 for one, keep in zip(found.advantages, found.in_loss, strict=True) if not keep
    )
    assert not any(keep and gone for keep, gone in zip(found.in_loss, lost, strict=True))


def test_a_sample_that_lost_all_its_siblings_has_no_baseline_left() -> None:
    """As a group of one, verl would give it the advantage of its score."""
    found = handled([1.0, 0.0, 0.0], ["a", "a", "b"], [False, True, False], Handling.EXCLUDE)
    assert (found.advantages, found.in_loss) == ([0.0, 0.0, 0.0], [False, False, True])


@settings(max_examples=25, deadline=None)
@given(
    _step,
    st.sampled_from(Estimator),
    st.sampled_from([Handling.ZERO, Handling.EXCLUDE, Handling.DROP]),
)
def test_the_advantages_of_siblings_in_the_loss_sum_to_zero(
    step: list[tuple[float, int, bool]], by: Estimator, handling: Handling
) -> None:
    scores, groups, lost = zip(*step, strict=True)
    found = handled(scores, groups, lost, handling, by)
    kept = [place for place, keep in enumerate(found.in_loss) if keep]
    if by is Estimator.GRPO_LEAVE_ONE_OUT:  # each sample has a std of its own
        return
    if by.is_whitened and by is not Estimator.GRPO_BATCH_STD:
        assert math.fsum(found.advantages) == pytest.approx(0, abs=1e-6)
        return
    for group in set(groups):
        mine = [found.advantages[place] for place in kept if groups[place] == group]
        if len(mine) > 1:
            assert math.fsum(mine) == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("estimator", [Estimator.GRPO, Estimator.DR_GRPO, Estimator.RLOO])
def test_failed_and_passed_bound_every_completion(estimator: Estimator) -> None:
    """Every group of up to six with scores 0 and 1 and lost tool users: siblings, and the net
    push on the tool."""
    for healthy in itertools.chain.from_iterable(
        itertools.product(((0, 0), (0, 1), (1, 0), (1, 1)), repeat=n) for n in (1, 2, 3)
    ):
        for count in (1, 2, 3):
            size = len(healthy) + count
            used = [bool(u) for u, _ in healthy] + [True] * count
            lost = [False] * len(healthy) + [True] * count
            scores = [float(s) for _, s in healthy] + [0.0] * count
            worst = handled(scores, [0] * size, lost, Handling.FAILED, estimator).advantages
            best = handled(scores, [0] * size, lost, Handling.PASSED, estimator).advantages
            for passed in range(count + 1):
                done = scores[: len(healthy)] + [1.0] * passed + [0.0] * (count - passed)
                found = advantages(done, [0] * size, estimator)
                for place in range(len(healthy)):
                    assert best[place] - 1e-9 <= found[place] <= worst[place] + 1e-9
                assert push(worst, used) - 1e-9 <= push(found, used) <= push(best, used) + 1e-9
