"""What public trainers do with a lost sample: the table of docs/trainers.md, and the command that
judges the trainers which are installed."""

from __future__ import annotations

from dataclasses import dataclass

from sfusion.harness.trial.result import TrialResult
from sfusion.harness.trial.trial import judge

_CORE = "verl.trainer.ppo.core_algos:compute_"
_WORDS = {
    "excluded": "excluded",
    "masked_only": "masked only",
    "mixes_prompts": "mixes prompts",
    "moved": "moves siblings",
    "zero": "zero",
    "trained_on": "trained on",
    "poisoned": "not finite",
    "nan_spreads": "excluded, NaN spreads",
    "crash": "crash",
    "refused": "crash",
    "rows": "wrong number of rows",
}


@dataclass(frozen=True)
class Row:
    """One way to declare a loss in one trainer, and what becomes of it."""

    trainer: str
    declared: str
    """How a lost sample is declared, in the trainer's terms."""
    way: str
    """The way that `sfusion judge` plays: mask, reward NaN, reward None or row dropped."""
    verdict: str
    where: str
    targets: tuple[str, ...] = ()
    """What is judged where the trainer is installed."""
    run: str = ""
    """How it was run, if no installed function is judged."""

    @property
    def evidence(self) -> str:
        return "judged, `tox -e verl`" if self.targets else self.run


VERL = "verl 0.9.1"
NEMO = "NeMo RL 7ea279abf"
SKYRL = "SkyRL a9564572e"
TRL = "TRL 1.16.0"
SLIME = "slime 624b824a8"
_SOURCE = "judged from source"
_PLANTED = "called on planted groups"
ROWS = (
    Row(
        VERL,
        "`response_mask` 0",
        "mask",
        "masked only",
        "core_algos.py:267",
        (
            f"{_CORE}grpo_outcome_advantage",
            f"{_CORE}rloo_outcome_advantage",
            f"{_CORE}rloo_vectorized_outcome_advantage",
            f"{_CORE}reinforce_plus_plus_baseline_outcome_advantage",
            f"{_CORE}gpg_outcome_advantage",
        ),
    ),
    Row(
        VERL,
        "row dropped: grpo, rloo",
        "row dropped",
        "excluded, lone raw",
        "core_algos.py:267",
        (f"{_CORE}grpo_outcome_advantage", f"{_CORE}rloo_outcome_advantage"),
    ),
    Row(
        VERL,
        "a reward of NaN: grpo, rloo",
        "reward NaN",
        "not finite",
        "core_algos.py:267",
        (f"{_CORE}grpo_outcome_advantage", f"{_CORE}rloo_outcome_advantage"),
    ),
    Row(
        VERL,
        "`sfusion_grpo`: `response_mask` 0 or a reward of NaN",
        "mask",
        "excluded",
        "sfusion_tools/verl_estimators.py",
        run="judged, `tox -e verl`",
    ),
    Row(NEMO, "`mask_sample`", "mask", "masked only", "advantage_estimator.py:69", run=_SOURCE),
    Row(
        NEMO,
        "`valid_mask` of its helper",
        "mask",
        "excluded, NaN spreads",
        "utils.py:104",
        run=_SOURCE,
    ),
    Row(SKYRL, "`loss_mask` 0", "mask", "masked only", "ppo_utils.py:1344", run=_SOURCE),
    Row(
        TRL,
        "None from all reward functions",
        "reward None",
        "excluded",
        "grpo_trainer.py:2759",
        run="two steps, `tox -e trl`",
    ),
    Row(
        TRL,
        "None from one of two reward functions",
        "reward None",
        "zero",
        "grpo_trainer.py:2763",
        run="two steps, `tox -e trl`",
    ),
    Row(
        TRL,
        "`mask_truncated_completions`",
        "mask",
        "masked only",
        "grpo_trainer.py:2417",
        run=_PLANTED,
    ),
    Row(SLIME, "`remove_sample`", "mask", "masked only", "ray/rollout.py:608", run=_SOURCE),
    Row(SLIME, "row dropped", "row dropped", "mixes prompts", "ray/rollout.py:619", run=_SOURCE),
    Row(SLIME, "reward None", "reward None", "crash", "ray/rollout.py:619", run=_SOURCE),
    Row(
        "miles 31f1ca961",
        "`remove_sample`",
        "mask",
        "masked only",
        "train_data_conversion.py:257",
        run=_PLANTED,
    ),
    Row(
        "miles 31f1ca961",
        "row dropped",
        "row dropped",
        "excluded",
        "train_data_conversion.py:257",
        run=_PLANTED,
    ),
    Row(
        "OpenRLHF 3c3be623",
        "`action_mask` 0",
        "mask",
        "masked only",
        "experience_maker.py:238",
        run=_PLANTED,
    ),
    Row(
        "ROLL 8eb27cc2",
        "`final_response_mask` 0",
        "mask",
        "masked only",
        "functionals.py:564",
        run=_SOURCE,
    ),
    Row("AReaL 4aef98d8d", "`loss_mask` 0", "mask", "masked only", "actor.py:145", run=_PLANTED),
    Row(
        "AReaL 4aef98d8d",
        "episode None",
        "row dropped",
        "mixes prompts",
        "data.py:1424",
        run=_PLANTED,
    ),
    Row(
        "open-instruct e6c3044aa",
        "row dropped",
        "row dropped",
        "crash",
        "data_loader.py:1472",
        run=_PLANTED,
    ),
    Row(
        "prime-rl 559b44772",
        "`has_error`",
        "row dropped",
        "excluded",
        "algo/base.py:35",
        run=_PLANTED,
    ),
    Row(
        "rLLM 9beb6e0f",
        "compact filtering",
        "row dropped",
        "excluded, lone raw",
        "transform.py:119",
        run=_SOURCE,
    ),
)


def word_of(result: TrialResult, way: str) -> str:
    """Return the verdict on one way to declare a loss, in the trainers' words."""
    found = {
        verdict.promise: verdict.how
        for verdict in result.verdicts
        if dict(verdict.how.identity).get("way") == way
    }
    siblings = found.get("lost_samples_left_out")
    if siblings is None:
        return "not judged"
    if siblings.kind == "by_mask":
        return str(siblings.details["fault"])
    word = _WORDS.get(siblings.kind, "not judged")
    alone = found.get("no_lesson_without_siblings")
    lone = alone is not None and alone.kind == "lone"
    return f"{word}, lone raw" if lone and word == "excluded" else word


def judged(row: Row) -> dict[str, str]:
    """Judge the functions of a row and return the verdict on each."""
    return {target: word_of(judge(target), row.way) for target in row.targets}


def table() -> str:
    """Return the table of the page."""
    lines = ["| trainer | a lost sample is declared by | verdict | where | shown by |"]
    lines.append("|---|---|---|---|---|")
    for row in ROWS:
        cells = (row.trainer, row.declared, row.verdict, row.where, row.evidence)
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)
