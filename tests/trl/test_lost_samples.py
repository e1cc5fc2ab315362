"""What TRL does with a lost sample, in a real training of a tiny model: two steps on the CPU.

The model is made on the spot and talks nonsense, so the programs are those of the reward function:
one for each sample, of which the sandbox loses the second.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
trl = pytest.importorskip("trl")
transformers = pytest.importorskip("transformers")
datasets = pytest.importorskip("datasets")
tokenizers = pytest.importorskip("tokenizers")

from sfusion.fakes.sandbox import FakeSandbox  # noqa: E402
from sfusion_tools import CodeRunner  # noqa: E402

GROUP = 4
RIGHT = [1.1546, 0.0, -0.5773, -0.5773]
"""Advantages of [1, lost, 0, 0] as if the lost sample had not been there; TRL shuffles them."""
AS_ZERO = [1.5, -0.5, -0.5, -0.5]
"""Advantages of [1, 0, 0, 0]."""

Reward = Callable[..., Sequence[float | None]]


def tiny_tokenizer() -> Any:
    words = ["<pad>", "<eos>", "<unk>", *"abcdefgh"]
    vocabulary = {word: number for number, word in enumerate(words)}
    model = tokenizers.models.WordLevel(vocabulary, unk_token="<unk>")
    backend = tokenizers.Tokenizer(model)
    backend.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=backend, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>"
    )


def tiny_model(tokenizer: Any) -> Any:
    config = transformers.LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=64,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
        bos_token_id=tokenizer.eos_token_id,
    )
    return transformers.LlamaForCausalLM(config)


class Noting(trl.GRPOTrainer):  # type: ignore[misc]
    """Notes the advantages with which the loss of each step is computed."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.steps: list[list[float]] = []
        self.losses: list[float] = []
        super().__init__(*args, **kwargs)

    def compute_loss(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        self.steps.append(inputs["advantages"].tolist())
        loss = super().compute_loss(model, inputs, *args, **kwargs)
        self.losses.append(float(loss))
        return loss


def trained(folder: Path, rewards: Sequence[Reward], **config: Any) -> Noting:
    """Train two steps of one prompt with four samples."""
    torch.manual_seed(1)
    tokenizer = tiny_tokenizer()
    options: dict[str, Any] = {
        "output_dir": str(folder),
        "per_device_train_batch_size": GROUP,
        "num_generations": GROUP,
        "max_completion_length": 4,
        "max_steps": 2,
        "report_to": "none",
        "save_strategy": "no",
        "logging_steps": 1,
        "disable_tqdm": True,
        "use_cpu": True,
        "bf16": False,
    }
    prompts = datasets.Dataset.from_dict({"prompt": ["a b c", "d e f"]})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # TRL's own defaults are deprecated in transformers
        trainer = Noting(
            model=tiny_model(tokenizer),
            reward_funcs=list(rewards),
            args=trl.GRPOConfig(**options, **config),
            train_dataset=prompts,
            processing_class=tokenizer,
        )
        trainer.train()
    assert len(trainer.steps) == 2
    assert all(loss == loss for loss in trainer.losses), "a loss is NaN"
    return trainer


@pytest.fixture
def in_sandbox() -> Any:
    """A reward function whose programs run in a sandbox that loses the second of four."""
    lost = {"code": "number = 1", "what": {"status": 500}}
    with FakeSandbox(executor="python", faults=[lost]) as sandbox:
        runner = CodeRunner(sandbox.url, limiter="local", memory_limit_mb=-1, max_attempts=1)

        def first_is_right(completions: list[str], **kwargs: Any) -> list[float | None]:
            results = [
                runner.run_sync(f"number = {number}\nprint(number)")
                for number in range(len(completions))
            ]
            return [
                None if result.lost else float(result.text.strip() == "0") for result in results
            ]

        yield first_is_right


def well_formed(completions: list[str], **kwargs: Any) -> list[float]:
    """A second reward function, which needs no sandbox."""
    return [0.0] * len(completions)


def test_a_lost_sample_has_no_advantage_and_its_siblings_the_right_ones(
    tmp_path: Path, in_sandbox: Reward
) -> None:
    for step in trained(tmp_path, [in_sandbox]).steps:
        assert sorted(step) == pytest.approx(sorted(RIGHT), abs=1e-3)


def test_none_from_one_of_two_reward_functions_is_trained_on_like_a_wrong_answer(
    tmp_path: Path, in_sandbox: Reward
) -> None:
    for step in trained(tmp_path, [in_sandbox, well_formed]).steps:
        assert sorted(step) == pytest.approx(sorted(AS_ZERO), abs=1e-3)


def test_none_from_all_reward_functions_leaves_the_sample_out(
    tmp_path: Path, in_sandbox: Reward
) -> None:
    def well_formed_or_lost(completions: list[str], **kwargs: Any) -> list[float | None]:
        return [None if place == 1 else 0.0 for place in range(len(completions))]

    for step in trained(tmp_path, [in_sandbox, well_formed_or_lost]).steps:
        assert sorted(step) == pytest.approx(sorted(RIGHT), abs=1e-3)
