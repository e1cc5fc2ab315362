"""The figures of poison against a second computation in numpy, written from the trainers'
formulas."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sfusion.harness.learning.figures import Weighting
from sfusion_tools.advantages import Estimator, Handling
from tests.cases import every

from .planted import LOST, figures_of, sample, write

np = pytest.importorskip("numpy")

Line = dict[str, Any]


def _line(step: int, group: int, place: int, score: float, *answers: str, tokens: int) -> Line:
    name = f"s{step}g{group}"
    return sample(score, *answers, question=name, step=step, uid=name, tokens=tokens)


def _planted(
    seed: int,
    *,
    share: float,
    steps: int = 4,
    sizes: tuple[int, ...] = (8,),
    whole_groups: bool = False,
    scores: tuple[float, ...] = (0.0, 1.0),
    uses: float = 0.7,
    score_of_lost: float = 0.0,
) -> list[Line]:
    draw = random.Random(seed)
    lines = []
    for step in range(1, steps + 1):
        for group in range(6):
            size = sizes[group % len(sizes)]
            all_lost = whole_groups and draw.random() < share
            for place in range(size):
                used = draw.random() < uses or all_lost
                lost = all_lost or (used and not whole_groups and draw.random() < share)
                score = score_of_lost if lost else draw.choice(scores)
                answers = [LOST] if lost else ["42"] if used else []
                tokens = draw.randrange(5, 400)
                lines.append(_line(step, group, place, score, *answers, tokens=tokens))
    return lines


DUMPS: dict[str, Callable[[], list[Line]]] = {
    "a tenth": lambda: _planted(1, share=0.1),
    "half": lambda: _planted(2, share=0.5),
    "nearly all": lambda: _planted(3, share=0.95),
    "whole groups": lambda: _planted(4, share=0.5, whole_groups=True),
    "uneven groups": lambda: _planted(5, share=0.3, sizes=(2, 5, 9)),
    "groups of one": lambda: _planted(6, share=0.3, sizes=(1, 4)),
    "continuous scores": lambda: _planted(7, share=0.3, scores=(-1.5, 0.1, 0.7, 2.0)),
    "lost ones score high": lambda: _planted(8, share=0.3, score_of_lost=1.0),
    "everybody uses it": lambda: _planted(9, share=0.2, uses=1.0),
}


def _advantages(estimator: str, scores: Any, groups: Any, tokens: Any) -> Any:
    """The advantages of one step."""
    found = np.zeros(len(scores))
    if estimator == "reinforce_plus_plus":
        return _whitened(scores, tokens)
    for group in set(groups):
        inside = np.array([name == group for name in groups])
        own = scores[inside]
        count = len(own)
        if count == 1:
            zero = estimator in ("grpo_batch_std", "grpo_leave_one_out")
            found[inside] = 0.0 if zero else own
            if estimator == "grpo":
                found[inside] = own / (1 + 1e-6)
            continue
        centred = own - own.mean()
        match estimator:
            case "grpo":
                found[inside] = centred / (own.std(ddof=1) + 1e-6)
            case "rloo":
                found[inside] = own - (own.sum() - own) / (count - 1)
            case "grpo_leave_one_out":
                found[inside] = [_left_out(own, place) for place in range(count)]
            case _:
                found[inside] = centred
    if estimator == "grpo_batch_std":
        found = found / (scores.std(ddof=1) + 1e-4)
    if estimator == "reinforce_plus_plus_baseline":
        found = _whitened(found, tokens)
    return found


def _left_out(own: Any, place: int) -> float:
    others = np.delete(own, place)
    spread = others.std(ddof=1) if len(others) > 1 else 0.0
    value = own[place] - others.mean()
    return float(value / (spread + 1e-6)) if spread > 0 else float(value)


def _whitened(values: Any, tokens: Any) -> Any:
    repeated = np.repeat(values, tokens)
    return (values - repeated.mean()) / np.sqrt(repeated.var(ddof=1) + 1e-8)


ESTIMATORS = (
    "grpo",
    "dr_grpo",
    "rloo",
    "reinforce_plus_plus_baseline",
    "reinforce_plus_plus",
    "grpo_batch_std",
    "grpo_leave_one_out",
)


@every([(name, by) for name in DUMPS for by in ESTIMATORS], str)
def test_weights_and_pushes_equal_those_of_numpy(case: tuple[str, str], tmp_path: Path) -> None:
    name, estimator = case
    lines = DUMPS[name]()
    dump = write(tmp_path / "all.jsonl", lines)
    weight = {"tokens": [0.0, 0.0], "samples": [0.0, 0.0]}
    pushed = 0.0
    for step in sorted({line["step"] for line in lines}):
        here = [line for line in lines if line["step"] == step]
        scores = np.array([line["score"] for line in here], dtype=float)
        tokens = np.array([line["tokens"] for line in here])
        lost = np.array([LOST in line["output"] for line in here])
        used = np.array(["<tool_response>" in line["output"] for line in here], dtype=float)
        found = _advantages(estimator, scores, [line["uid"] for line in here], tokens)
        pushed += float((found * (used - used.mean())).sum())
        weight["samples"][0] += float(np.abs(found[lost]).sum())
        weight["samples"][1] += float(np.abs(found).sum())
        weight["tokens"][0] += float((np.abs(found) * tokens)[lost].sum())
        weight["tokens"][1] += float((np.abs(found) * tokens).sum())
    total = figures_of(dump, Estimator(estimator)).total
    assert total.push(Handling.ZERO) == pytest.approx(pushed / len(lines), abs=2e-5)
    for weighting, (part, whole) in weight.items():
        assert total.weight_share(Weighting(weighting)) == pytest.approx(part / whole, abs=2e-5)
