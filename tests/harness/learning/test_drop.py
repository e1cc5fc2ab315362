"""What explains a drop: lost calls, the model itself, or both; and the interval of the answer."""

from __future__ import annotations

import random
import re
import statistics
from collections import Counter
from pathlib import Path

import pytest

from sfusion.harness.learning.drop import DropVerdict, explain
from tests.cases import every

from .planted import figures_of, found_by, output_of, poison, sample, training, write


def first_line(output: str) -> str:
    return output.splitlines()[0]


def test_an_outage_is_the_lost_calls(tmp_path: Path) -> None:
    lines = training(24, uses=0.8, lost=lambda step: 0.6 if 10 <= step <= 14 else 0.0)
    _, output = poison(write(tmp_path / "all.jsonl", lines))
    assert first_line(output).startswith("Lost calls explain ")
    drop = found_by(tmp_path, tmp_path / "all.jsonl")["drop"]
    assert drop["verdict"] == "lost_calls"
    assert drop["after"] == [10, 14]
    low, high = drop["explained_interval"]
    assert low < 0.6 * 0.8 * 0.75 < high


def test_a_model_that_got_worse_is_not_infrastructure(tmp_path: Path) -> None:
    lines = training(
        24,
        uses=0.8,
        lost=lambda step: 0.02,
        right=lambda step: 0.75 if step < 12 else 0.35,
    )
    _, output = poison(write(tmp_path / "all.jsonl", lines))
    assert first_line(output).startswith("Not infrastructure: ")
    assert "the healthy samples fell as much" in first_line(output)
    drop = found_by(tmp_path, tmp_path / "all.jsonl")["drop"]
    assert drop["after"][0] == 12
    low, high = drop["healthy_interval"]
    assert low < 0.4 < high


def test_both_at_once_are_told_apart(tmp_path: Path) -> None:
    lines = training(
        24,
        lost=lambda step: 0.4 if step >= 12 else 0.0,
        right=lambda step: 0.8 if step < 12 else 0.5,
    )
    drop = found_by(tmp_path, write(tmp_path / "all.jsonl", lines))["drop"]
    assert drop["verdict"] == "partly"
    assert drop["explained"] == pytest.approx(0.2, abs=0.05)
    assert drop["healthy_drop"] == pytest.approx(0.3, abs=0.05)


@every(range(5), str)
def test_noise_is_not_a_drop(seed: int, tmp_path: Path) -> None:
    lines = training(60, 4, 8, uses=0.8, seed=seed)
    found = figures_of(write(tmp_path / "all.jsonl", lines))
    drop = explain(found.scores, {})
    assert drop is not None
    assert drop.verdict is DropVerdict.NO_DROP


def test_a_drop_of_less_than_2_percent_of_the_range_is_none(tmp_path: Path) -> None:
    """However sure it is: here all samples of a step agree."""
    for late, verdict in ((0.985, DropVerdict.NO_DROP), (0.975, DropVerdict.NOT_INFRASTRUCTURE)):
        lines = training(24)
        for line in lines:
            line["score"] = 0.0 if line["step"] == 1 else 1.0 if line["step"] < 13 else late
        drop = explain(figures_of(write(tmp_path / "all.jsonl", lines)).scores, {})
        assert drop is not None
        assert drop.verdict is verdict


def test_a_drop_at_the_losses_needs_no_search(tmp_path: Path) -> None:
    """Among hundreds of stretches it is told from chance in 6 of 20 trainings; the losses say where
    to look."""
    share = 0.25
    found = Counter[str]()
    covered = 0
    for seed in range(20):
        lines = training(
            24, 8, 8, uses=0.8, lost=lambda step: share if 13 <= step <= 16 else 0, seed=seed
        )
        drop = explain(figures_of(write(tmp_path / f"{seed}.jsonl", lines)).scores, {})
        assert drop is not None
        found[drop.verdict.value] += 1
        if drop.explained is not None:
            covered += abs(drop.explained - 0.8 * share * 0.75) < drop.explained_interval
    assert found["lost_calls"] + found["partly"] >= 17, found
    assert found["no_drop"] == 20 - found["lost_calls"] - found["partly"], found
    assert covered >= 16


@every(range(5), str)
def test_losses_that_cost_nothing_are_no_drop(seed: int, tmp_path: Path) -> None:
    """The lost samples score like the others, as after a guess that was right."""
    lines = training(24, 6, 8, uses=0.8, lost=lambda s: 0.35 if 13 <= s <= 16 else 0, seed=seed)
    draw = random.Random(seed)
    for line in lines:
        if 13 <= line["step"] <= 16:
            line["score"] = float(draw.random() < 0.75)
    drop = found_by(tmp_path, write(tmp_path / "all.jsonl", lines))["drop"]
    assert drop["verdict"] == "no_drop"


def test_losses_without_a_drop_say_what_they_cost(tmp_path: Path) -> None:
    """They are spread over the training, so that no step fell."""
    lines = training(24, lost=lambda step: 0.1)
    _, output = poison(write(tmp_path / "all.jsonl", lines))
    said = re.match(
        r"[\d.]+% of the samples were lost: they cost (\S+) of the score \((\S+) to (\S+)\), "
        r"which is (\S+) instead of (\S+)\.$",
        first_line(output),
    )
    assert said, first_line(output)
    cost, low, high, score, healthy = map(float, said.groups())
    assert 0 < low < cost < high
    assert cost == pytest.approx(healthy - score, abs=0.011)


def test_samples_that_never_needed_the_tool_do_not_stand_for_those_that_lost_it(
    tmp_path: Path,
) -> None:
    """Users score 0.9 and others 0.3; in the outage most users are lost, so the healthy ones left
    are mostly those others, and their mean falls without any model being worse."""
    draw = random.Random(5)
    lines = []
    for step in range(1, 21):
        for group in range(10):
            for _ in range(8):
                used = draw.random() < 0.6
                lost = used and step > 12 and draw.random() < 0.9
                score = float(draw.random() < (0.9 if used else 0.3)) if not lost else 0.0
                text = ["429 Client Error: Too Many Requests for url: http://s"] if lost else ["1"]
                answers = text if used else []
                lines.append(sample(score, *answers, question=f"{step} {group}", step=step))
    drop = found_by(tmp_path, write(tmp_path / "all.jsonl", lines))["drop"]
    assert drop["verdict"] == "lost_calls"
    assert abs(drop["healthy_drop"]) < 0.08


def test_without_evidence_nothing_is_concluded(tmp_path: Path) -> None:
    lines = training(24, lost=lambda step: 0.6 if step > 12 else 0.0, text="no stdout here")
    _, output = poison(write(tmp_path / "all.jsonl", lines))
    assert "whether lost calls explain it cannot be told" in first_line(output)


def test_nothing_is_concluded_from_a_dump_without_any_tool_message(tmp_path: Path) -> None:
    lines = training(24, uses=0.0, right=lambda step: 0.8 if step < 12 else 0.3)
    _, output = poison(write(tmp_path / "all.jsonl", lines))
    assert "whether lost calls explain it cannot be told" in first_line(output)


def test_the_last_few_healthy_samples_do_not_speak_for_all(tmp_path: Path) -> None:
    """Three of 256 got a result, and all three are wrong by chance."""
    lines = training(20, lost=lambda step: 1.0 if 9 <= step <= 12 else 0.0)
    for line in [line for line in lines if line["step"] == 10][::30]:
        line["output"] = output_of(["17"])
    _, output = poison(write(tmp_path / "all.jsonl", lines))
    assert first_line(output).startswith("Lost calls explain all of the drop")
    assert "too few healthy samples are left" in first_line(output)
    drop = found_by(tmp_path, tmp_path / "all.jsonl")["drop"]
    low, high = drop["explained_interval"]
    assert high - low > 0.02


def test_a_fall_of_the_healthy_samples_that_may_be_chance_is_not_told(tmp_path: Path) -> None:
    """Most are lost, and the 20 that are left of 256 say little about the model."""
    verdicts = set()
    for seed in range(6):
        lines = training(
            20,
            lost=lambda step: 0.92 if 9 <= step <= 12 else 0.0,
            right=lambda step: 0.7,
            seed=seed,
        )
        drop = found_by(tmp_path, write(tmp_path / "all.jsonl", lines))["drop"]
        verdicts.add(drop["verdict"])
        if drop["verdict"] == "partly":
            assert drop["healthy_interval"][0] > 0
    assert verdicts <= {"lost_calls", "partly"}


def test_a_difference_that_chance_makes_is_not_called_a_worse_model(tmp_path: Path) -> None:
    """Named steps of a training in which nothing happened differ, too."""
    dump = write(tmp_path / "all.jsonl", training(12, 4, 4))
    pairs = [f"{step},{step + 1}" for step in range(1, 12)]
    drops = [found_by(tmp_path, dump, "--between", pair)["drop"] for pair in pairs]
    fell = [drop for drop in drops if drop["drop"] > 0]
    assert "unknown" in {drop["verdict"] for drop in fell}
    for drop in fell:
        is_sure = drop["healthy_interval"][0] > 0
        assert drop["verdict"] == ("not_infrastructure" if is_sure else "unknown")


def test_lost_calls_share_the_blame_only_if_what_they_cost_is_more_than_chance(
    tmp_path: Path,
) -> None:
    """The model got worse for sure, and so few calls were lost that they may have cost nothing."""
    found = Counter[str]()
    for seed in range(14):
        lines = training(
            8,
            4,
            4,
            lost=lambda step: 0.05 if step > 4 else 0.0,
            right=lambda step: 0.9 if step < 5 else 0.75,
            seed=seed,
        )
        scores = figures_of(write(tmp_path / "all.jsonl", lines)).scores
        drop = explain(scores, {}, ((1, 4), (5, 8)))
        assert drop is not None
        assert drop.explained is not None
        assert drop.healthy_drop is not None
        is_partly = 0.2 < drop.explained / drop.drop < 0.8
        if is_partly and drop.healthy_drop > drop.healthy_interval:
            is_sure = drop.explained > drop.explained_interval
            assert drop.verdict is (DropVerdict.PARTLY if is_sure else DropVerdict.UNKNOWN)
            found[drop.verdict.value] += 1
    assert set(found) == {"partly", "unknown"}, found


def test_the_steps_can_be_named(tmp_path: Path) -> None:
    dump = write(tmp_path / "all.jsonl", training(lost=lambda step: 0.5 if step == 6 else 0.0))
    drop = found_by(tmp_path, dump, "--between", "1-3,6")["drop"]
    assert (drop["before"], drop["after"]) == ([1, 3], [6, 6])
    for wrong in ("1", "1-2", "a,b", "3,99"):
        code, output = poison(dump, "--between", wrong)
        assert (code, "--between" in output) == (2, True)


def test_the_interval_holds_what_was_planted_as_often_as_it_says(tmp_path: Path) -> None:
    """95 % of 50 trainings: at least 88 %, since the steps are named and not searched for."""
    inside = []
    for seed in range(50):
        lines = training(8, 6, 6, lost=lambda step: 0.4 if step > 4 else 0.0, seed=seed)
        found = figures_of(write(tmp_path / "all.jsonl", lines))
        drop = explain(found.scores, {}, ((1, 4), (5, 8)))
        assert drop is not None
        assert drop.verdict is not DropVerdict.UNKNOWN
        assert drop.explained is not None
        inside.append(abs(drop.explained - 0.4 * 0.75) <= drop.explained_interval)
    assert statistics.mean(inside) >= 0.88
