"""Advantage estimators on trial: every planted mistake is found, and nothing that is right is
blamed."""

from __future__ import annotations

import functools
import json
import math
import statistics
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from sfusion.harness.core.verdict import Verdict
from sfusion.harness.errors import BadOption
from sfusion.harness.lab.shapes import shape_of
from sfusion.harness.trial.reporting import report_of
from sfusion.harness.trial.result import TrialResult
from sfusion.harness.trial.trial import judge, write_baseline
from tests.warm import warm

from .estimators.right import RIGHT, by_lost, by_mask
from .estimators.wrong import WRONG, masked_only, zero_times_nan

LEFT_OUT, NO_LESSON = "lost_samples_left_out", "no_lesson_without_siblings"
WORDS = {
    "masked_only": {(LEFT_OUT, "mask", "masked_only"), (NO_LESSON, "mask", "equal")},
    "std_of_all": {(LEFT_OUT, "mask", "masked_only")},
    "divides_by_all": {(LEFT_OUT, "mask", "masked_only"), (NO_LESSON, "mask", "equal")},
    "keeps_the_lost": {(LEFT_OUT, "mask", "trained_on")},
    "lone_raw": {(NO_LESSON, "mask", "lone"), (NO_LESSON, "row dropped", "lone")},
    "rows_by_place": {
        (LEFT_OUT, "row dropped", "mixes_prompts"),
        (NO_LESSON, "row dropped", "lone"),
    },
    "one_mean_if_uneven": {
        (LEFT_OUT, "reward NaN", "poisoned"),
        (LEFT_OUT, "row dropped", "mixes_prompts"),
        (NO_LESSON, "row dropped", "equal"),
    },
    "refuses_uneven": set(),  # it is loud in every way, so that nothing is held either
    "none_is_zero": {
        (LEFT_OUT, "reward NaN", "poisoned"),
        (LEFT_OUT, "reward None", "zero"),
        (NO_LESSON, "reward None", "equal"),
    },
    "nan_to_zero": {
        (LEFT_OUT, "reward NaN", "zero"),
        (LEFT_OUT, "reward None", "zero"),
        (NO_LESSON, "reward NaN", "equal"),
        (NO_LESSON, "reward None", "equal"),
    },
    "zero_times_nan": {(LEFT_OUT, "mask", "nan_spreads")},
    "leave_one_out_of_all": {
        (LEFT_OUT, "mask", "masked_only"),
        (NO_LESSON, "mask", "equal"),
        (NO_LESSON, "row dropped", "lone"),
    },
    "whitens_with_the_lost": {(LEFT_OUT, "mask", "masked_only"), (NO_LESSON, "mask", "equal")},
    "divides_by_no_one": {(LEFT_OUT, "mask", "crash")},
    "spills_over": {(LEFT_OUT, "mask", "mixes_prompts"), (NO_LESSON, "mask", "equal")},
    "forgets_a_row": {(LEFT_OUT, "mask", "rows")},
    "two_are_too_many": {(LEFT_OUT, "mask", "masked_only")},
}
"""What is found about each mistake: promise, way to declare a loss, kind."""


def _told(verdict: Verdict) -> tuple[str, str, str]:
    return verdict.promise, dict(verdict.how.identity).get("way", ""), verdict.how.kind


def _broken(result: TrialResult) -> set[tuple[str, str, str]]:
    return {_told(verdict) for verdict in result.verdicts if verdict.state == "broken"}


def test_every_mistake_is_found_in_the_words_of_trainers() -> None:
    results = {name: judge(function) for name, function in WRONG.items()}
    assert {name: _broken(result) for name, result in results.items()} == WORDS
    assert not [name for name, result in results.items() if result.ok]


def test_no_right_estimator_is_blamed() -> None:
    results = {name: judge(function) for name, function in RIGHT.items()}
    assert {name: _broken(result) for name, result in results.items()} == {
        name: set() for name in RIGHT
    }
    assert all(result.ok for result in results.values())


def test_the_sentence_has_the_numbers_and_the_evidence_the_batch() -> None:
    result = judge(masked_only, scenes="mask")
    found = next(verdict for verdict in result.verdicts if verdict.promise == LEFT_OUT)
    assert found.sentence == (
        "mask: masked only: in [1, lost, 0, 0] [1, 1, 0, 0] with the lost reward 0 the others get "
        "1.50, -0.50, -0.50; without the lost sample 1.15, -0.58, -0.58"
    )
    asked, returned = found.evidence
    assert asked["asked"]["groups"] == [[1, "lost", 0, 0], [1, 1, 0, 0]]
    assert returned["fields"]["advantages"][:2] == [pytest.approx(1.5, abs=1e-4), 0.0]


def test_a_baseline_passes_what_it_accepts_and_fails_where_that_is_gone(tmp_path: Path) -> None:
    file = tmp_path / "accepted.json"
    write_baseline(file, judge(masked_only))
    same, mended = judge(masked_only, baseline=file), judge(by_mask, baseline=file)
    assert (same.ok, report_of(same).state) == (True, "held")
    assert (mended.ok, report_of(mended).state) == (False, "broken")
    assert [text.partition(":")[2] for text in mended.changes] == [
        " accepted, but not found any more; --update removes it"
    ] * 2


def test_a_function_in_which_no_sample_moves_another_is_not_judged() -> None:
    def raw(rewards: list[float], groups: list[str]) -> list[float]:
        return [reward - 0.5 for reward in rewards]

    result = judge(raw)
    assert {verdict.state for verdict in result.verdicts} == {"not_applicable"}
    assert "not relative, nothing to judge" in result.table()
    assert not result.ok


def test_a_mask_of_the_other_sense_is_understood() -> None:
    def advantages(rewards: list[float], groups: list[str], mask: list[bool]) -> list[float]:
        return by_mask(rewards, groups, [not flag for flag in mask])

    result = judge(advantages)
    assert result.ok
    assert "its mask is true for lost samples" in result.about


def test_a_parameter_with_a_clear_name_is_not_taken_the_other_way_round() -> None:
    def trains_the_lost(rewards: list[float], groups: list[str], lost: list[bool]) -> list[float]:
        return by_mask(rewards, groups, lost)

    def drops_the_kept(rewards: list[float], groups: list[str], keep: list[bool]) -> list[float]:
        return by_mask(rewards, groups, [not flag for flag in keep])

    for function, name in ((trains_the_lost, "lost"), (drops_the_kept, "keep")):
        with pytest.raises(BadOption, match=f"it takes `{name}` the other way round"):
            judge(function)


def test_a_list_of_flags_is_a_row_each_whatever_its_name() -> None:
    def advantages(rewards: list[float], groups: list[str], loss_mask: list[bool]) -> list[float]:
        return by_mask(rewards, groups, loss_mask)

    assert judge(advantages).ok


def test_numpy_is_probed_and_one_group_is_enough() -> None:
    numpy = pytest.importorskip("numpy")

    def grpo(rewards: Any) -> Any:
        assert isinstance(rewards, numpy.ndarray)
        kept = rewards[~numpy.isnan(rewards)]
        if len(kept) < 2:
            return numpy.zeros(len(rewards))
        return numpy.nan_to_num((rewards - kept.mean()) / (kept.std() + 1e-6))

    result = judge(grpo)
    assert result.ok
    assert "(numpy, a reward for each row)" in result.about
    assert result.left_out == {
        "judge-lost-by-mask": "it has no parameter for a mask",
        "judge-lost-by-none": "its rewards are numbers",
    }


def test_prompts_may_be_a_matrix_of_token_ids_and_groups_a_list_beside_arrays() -> None:
    numpy = pytest.importorskip("numpy")

    def helper(prompts: Any, rewards: Any, valid_mask: Any) -> Any:
        advantages = numpy.zeros(len(rewards))
        for prompt in numpy.unique(prompts, axis=0):
            rows = (prompts == prompt).all(axis=1) & valid_mask.astype(bool)
            if rows.sum() > 1:
                advantages[rows] = rewards[rows] - rewards[rows].mean()
        return advantages

    def beside_a_list(rewards: Any, uids: list[str], mask: Any) -> Any:
        first_row = [uids.index(uid) for uid in uids]  # an array has no `index`
        return helper(numpy.array(first_row)[:, None], numpy.nan_to_num(rewards), mask)

    for function in (helper, beside_a_list):
        result = judge(function)
        assert result.ok, result.table()
        assert "(numpy, a reward for each row)" in result.about


class _Centred:
    """An estimator as an object, which a trainer makes of its config."""

    def __init__(self, *, scale: float) -> None:
        self.scale = scale

    def __call__(self, rewards: list[float], groups: list[str], lost: list[bool]) -> list[float]:
        found = by_mask(rewards, groups, [not gone for gone in lost])
        return [self.scale * value for value in found]


def test_an_object_and_a_partial_are_called_like_a_function() -> None:
    wrong = functools.partial(masked_only)
    for target in (_Centred(scale=2.0), functools.partial(by_mask)):
        assert judge(target).ok
    assert (LEFT_OUT, "mask", "masked_only") in _broken(judge(wrong))


def test_a_batch_that_nothing_is_known_of_is_refused_with_the_words_too() -> None:
    def reward_postprocess(data: dict[str, Any], pipeline_config: Any) -> dict[str, Any]:
        return data

    def send(data: str) -> str:
        return data

    with pytest.raises(BadOption, match=r"for `data` and `pipeline_config`.*(.|\n)*def advantages"):
        shape_of(reward_postprocess)
    with pytest.raises(BadOption, match="what to pass for `data`") as caught:
        shape_of(send)
    assert "advantages" not in str(caught.value)


def test_a_baseline_is_not_taken_for_advantages() -> None:
    def baseline(rewards: list[float], groups: list[str], mask: list[bool]) -> list[float]:
        centred = by_mask(rewards, groups, mask)
        return [reward - value for reward, value in zip(rewards, centred, strict=True)]

    with pytest.raises(BadOption, match="this may be a baseline"):
        shape_of(baseline)


def test_a_refusal_names_the_first_problem_of_each_container_and_the_methods_of_an_object() -> None:
    def needs_help(rewards: list[float], groups: list[Any], mask: list[Any]) -> list[float]:
        if isinstance(groups[0], int) or isinstance(mask[0], list):
            raise TypeError("another form")
        raise NameError("masked_whiten")

    with pytest.raises(BadOption, match="with lists, a reward for each row: NameError"):
        shape_of(needs_help)
    with pytest.raises(BadOption, match=r"or a method: .*:DOCUMENT\.advantages"):
        shape_of(f"{__name__}:DOCUMENT")


class _Holder:
    def advantages(self, rewards: list[float], groups: list[str]) -> list[float]:
        return rewards


DOCUMENT = _Holder()


def test_a_row_without_a_reward_that_moves_its_siblings_is_told_without_a_lost_reward() -> None:
    def counts_it(rewards: list[float], groups: list[str]) -> list[float]:
        known = [0.0 if math.isnan(reward) else reward for reward in rewards]
        centred = by_mask(known, groups, [True] * len(rewards))
        pairs = zip(rewards, centred, strict=True)
        return [0.0 if math.isnan(reward) else value for reward, value in pairs]

    result = judge(counts_it, scenes="nan")
    told = next(verdict for verdict in result.verdicts if verdict.promise == LEFT_OUT)
    assert told.how.kind == "moved"
    assert "with the lost reward" not in told.sentence


def test_what_is_not_understood_is_refused_with_the_words_for_an_adapter() -> None:
    def strange(rewards: list[float], groups: list[str], wiggle: int) -> list[float]:
        return rewards

    def returns_nothing(rewards: list[float], groups: list[str]) -> None:
        return None

    draws = iter(range(1000))

    def drawn(rewards: list[float], groups: list[str]) -> list[float]:
        return [reward + next(draws) for reward in rewards]

    for function, said in (
        (strange, "not known what to pass for `wiggle`"),
        (returns_nothing, "returned no advantage for each of 8 samples"),
        (drawn, "two calls with the same rewards differ"),
    ):
        with pytest.raises(BadOption, match=said) as caught:
            shape_of(function)
        assert "def advantages(rewards, groups, mask)" in str(caught.value)


def test_a_run_of_an_estimator_is_written_and_replayed(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(
        "def advantages(rewards, groups, mask):\n"
        "    found = []\n"
        "    for reward, group, keep in zip(rewards, groups, mask):\n"
        "        mine = [r for r, g in zip(rewards, groups) if g == group]\n"
        "        found.append((reward - sum(mine) / len(mine)) * keep)\n"
        "    return found\n"
    )
    out = tmp_path / "out"
    judged = _sfusion("judge", f"{file}:advantages", "--out", str(out), "--json", "-")
    assert judged.returncode == 1
    verdicts = json.loads(judged.stdout)["verdicts"]
    kinds = {verdict["how"]["kind"] for verdict in verdicts if verdict["state"] == "broken"}
    assert kinds == {"masked_only", "equal"}
    replayed = _sfusion("replay", str(out / "judge-lost-by-mask"), "--trust")
    assert "the same journal" in replayed.stdout, replayed.stdout + replayed.stderr


def _sfusion(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([warm("sfusion"), *words], capture_output=True, text=True, check=False)


def test_a_nan_in_the_lost_row_alone_is_found() -> None:
    def advantages(rewards: list[float], groups: list[str], lost: list[bool]) -> list[float]:
        found = by_mask(rewards, groups, [not gone for gone in lost])
        return [math.nan if gone else value for value, gone in zip(found, lost, strict=True)]

    result = judge(advantages)
    assert _broken(result) == {(LEFT_OUT, "mask", "poisoned")}
    assert "[1, lost, 0, 0] [1, 1, 0, 0]: the lost samples get nan\n" in result.table()


def test_a_nan_that_spreads_is_told_apart_from_a_number_that_does() -> None:
    def all_lost(rewards: list[float], groups: list[str], lost: list[bool]) -> list[float]:
        found = zero_times_nan(rewards, groups, [float(not gone) for gone in lost])
        gone = {group for group in groups if all(_flags(lost, groups, group))}
        return [math.nan if group in gone else v for v, group in zip(found, groups, strict=True)]

    for function, said in (
        (zero_times_nan, "mask: excluded, but NaN spreads: in [1, lost, 0, 0] [1, 1, 0, 0] with"),
        (all_lost, "mask: not finite for [lost, lost, lost, lost] [1, 1, 0, 0]: the lost samples"),
    ):
        told = _found(judge(function, scenes="mask"), LEFT_OUT, "mask")
        assert told.sentence.startswith(said)


def _flags(lost: list[bool], groups: list[str], group: str) -> list[bool]:
    return [gone for gone, other in zip(lost, groups, strict=True) if other == group]


def test_a_nan_beside_a_mask_has_its_own_verdict_and_is_not_blamed() -> None:
    """Trainers with a mask need not know NaN, but a team may return one."""

    def knows_both(rewards: list[float], groups: list[str], lost: list[bool]) -> Any:
        gone = [flag or math.isnan(reward) for reward, flag in zip(rewards, lost, strict=True)]
        return by_lost(rewards, groups, gone)

    def nan_is_zero(rewards: list[float], groups: list[str], lost: list[bool]) -> Any:
        known = [0.0 if math.isnan(reward) else reward for reward in rewards]
        return by_lost(known, groups, lost)

    both, mask_alone, zero = map(judge, (knows_both, by_lost, nan_is_zero))
    assert _found(both, LEFT_OUT, "reward NaN").state == "held"
    assert mask_alone.ok
    assert zero.ok
    for result, fault in ((mask_alone, "not finite"), (zero, "zero")):
        told = _found(result, LEFT_OUT, "reward NaN")
        assert told.state == "not_applicable"
        assert told.sentence.startswith(f"reward NaN: {fault}; its mask declares a loss")
    assert not judge(by_lost, scenes="nan").ok


def _found(result: TrialResult, promise: str, way: str) -> Verdict:
    (found,) = [verdict for verdict in result.verdicts if _told(verdict)[:2] == (promise, way)]
    return found


def _of_prompt(group: Sequence[float | None]) -> list[float]:
    kept = [reward for reward in group if reward is not None]
    if len(kept) < 2:
        return [0.0] * len(group)
    return [0.0 if reward is None else reward - statistics.fmean(kept) for reward in group]


def test_a_row_for_each_prompt_is_understood() -> None:
    def right(rewards: list[list[float | None]]) -> list[list[float]]:
        return [_of_prompt(group) for group in rewards]

    def zero(rewards: list[list[float | None]]) -> list[list[float]]:
        return right([[reward or 0.0 for reward in group] for group in rewards])

    assert "(lists, a row for each prompt)" in judge(right, scenes="none").table()
    assert judge(right, scenes="none or dropped").ok
    assert _found(judge(zero), LEFT_OUT, "reward None").how.kind == "zero"


def test_arrays_of_each_prompt_are_understood_with_their_masks() -> None:
    numpy = pytest.importorskip("numpy")

    def right(rewards: list[Any], mask: list[Any]) -> tuple[list[Any], None]:
        found = []
        for group, keep in zip(rewards, mask, strict=True):
            left = numpy.where(keep, group, 0.0)
            few = keep.sum() < 2
            mean = left.sum() / max(1, keep.sum())
            found.append(numpy.zeros(len(group)) if few else (left - mean) * keep)
        return found, None

    result = judge(right)
    assert result.ok, result.table()
    assert "(numpy, a row for each prompt)" in result.about


def test_a_list_of_arrays_is_not_called_with_lists() -> None:
    """As rLLM has it: a lone survivor, which it leaves as it is, must be an array."""
    numpy = pytest.importorskip("numpy")

    def normal(rewards: list[numpy.ndarray]) -> Any:
        found = []
        for group in rewards:
            mean, spread = (0.0, 1.0) if len(group) < 2 else (numpy.mean(group), numpy.std(group))
            found.append((group - mean) / (spread + 1e-6))
        return tuple(found), tuple(found)

    result = judge(normal, scenes="dropped")
    assert _found(result, LEFT_OUT, "row dropped").state == "held"
    assert _found(result, NO_LESSON, "row dropped").how.kind == "lone"


def test_rewards_of_tokens_are_not_taken_for_samples_of_a_prompt() -> None:
    def returns_to_go(rewards: list[list[float]]) -> list[list[float]]:
        return [[sum(row[place:]) for place in range(len(row))] for row in rewards]

    result = judge(returns_to_go)
    assert {verdict.state for verdict in result.verdicts} == {"not_applicable"}
    assert "not relative" in result.table()
