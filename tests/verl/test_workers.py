"""verl's manager with its workers as Ray actors: the limit holds, and outcomes reach the
trainer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import pytest
import ray
from verl.experimental.reward_loop.reward_loop import RewardLoopWorker
from verl.protocol import DataProto

from sfusion.fakes.sandbox import FakeSandbox
from sfusion.fakes.sglang import ScriptedPolicy, ScriptedTurn, ToolCall
from sfusion_tools import outcome_metrics
from sfusion_tools.limiter.ray_limiter import find, remove
from tests.verl.engine import Engine
from tests.verl.releases import make_manager, trainer_config
from tests.verl.tools import quick, write_tools

# Importing verl in a new process takes seconds, more on a busy machine.
pytestmark = [pytest.mark.usefixtures("cluster"), pytest.mark.timeout(600)]

REWARD = '''
"""A reward function like those of verl's users."""


def compute_score(data_source, solution_str, ground_truth, extra_info):
    calls = (extra_info.get("extras") or {}).get("sfusion") or {"calls": 0, "infrastructure": 0}
    return {"score": float(ground_truth in solution_str), "lost_calls": calls["infrastructure"]}
'''


def policy() -> ScriptedPolicy:
    """Return a model that runs the program named in the question, or answers at once if there is
    none."""
    call = ToolCall("code_interpreter", {"code": '1  # sfusion:call=a seconds=30ms prints="149"'})
    lost = ToolCall("code_interpreter", {"code": "1  # sfusion:call=lost"})
    return ScriptedPolicy(
        [
            ScriptedTurn(say="149, I am told.", tool_result="^149"),
            ScriptedTurn(say="I cannot know.", tool_result="This is not output of a program"),
            ScriptedTurn(say="One: ", calls=(call,), prompt="count"),
            ScriptedTurn(say="Two: ", calls=(lost,), prompt="lose"),
        ],
        otherwise="I know nothing of that.",
    )


def batch(*questions: str) -> DataProto:
    """Return a batch as the trainer sends it: prompts, and what the reward is computed from."""
    count = len(questions)
    prompts, models = np.empty(count, dtype=object), np.empty(count, dtype=object)
    for number, question in enumerate(questions):
        prompts[number] = [{"role": "user", "content": question}]
        models[number] = {"ground_truth": "149", "style": "rule"}
    infos = np.array([{"index": number} for number in range(count)], dtype=object)
    sources = np.array(["students"] * count, dtype=object)
    return DataProto(
        non_tensor_batch={
            "raw_prompt": prompts,
            "reward_model": models,
            "extra_info": infos,
            "data_source": sources,
        }
    )


@pytest.fixture
def limiter_name() -> Iterator[str]:
    """The name of a limiter for this test, removed afterwards."""
    name = uuid4().hex
    yield name
    remove(name)


def test_workers_share_the_limit_and_report_outcomes_in_the_batch(
    model: Path, tmp_path: Path, limiter_name: str
) -> None:
    """Two workers, one limit. No question of the first needs a tool, and still the batches can
    be concatenated."""
    rewards = tmp_path / "reward.py"
    rewards.write_text(REWARD)
    with FakeSandbox(faults=[{"call": "lost", "what": {"status": 500}}]) as sandbox:
        file = write_tools(
            tmp_path / "tools.yaml", quick(sandbox.url, rate_limit=2, limiter_name=limiter_name)
        )
        config = trainer_config(model, file)
        config.reward.custom_reward_function.path = str(rewards)
        engine = ray.remote(Engine).options(num_cpus=0).remote(model, policy())
        judge = ray.remote(RewardLoopWorker).options(num_cpus=0).remote(config, None)
        manager = make_manager(config, engine, [judge])
        output = manager.generate_sequences(batch(*["chat"] * 8, *["count"] * 7, "lose"))
        limiter = find(limiter_name)
        assert limiter is not None, "the workers use the limiter of the cluster"
        snapshot = ray.get(limiter.snapshot.remote())
        ledger = sandbox.ledger
        assert (snapshot.rate_limit, snapshot.in_use, snapshot.waiting) == (2, 0, 0)
        assert (ledger.arrived, ledger.peak_in_flight) == (13, 2), (
            "the lost call is tried six times"
        )
    assert output.non_tensor_batch["__num_turns__"].tolist() == [2] * 8 + [4] * 8
    extras = output.non_tensor_batch["extras"]
    outcomes = [one and one["sfusion"]["outcomes"] for one in extras.tolist()]
    assert outcomes == [None] * 8 + [["ok"]] * 7 + [["sandbox_error"]]
    metrics = outcome_metrics(extras)
    assert (
        metrics["tools/calls"],
        metrics["tools/infra_rate"],
        metrics["tools/attempts_per_call"],
    ) == (
        8.0,
        0.125,
        1.625,
    )
    assert metrics["tools/total_s_p50"] > 0.03
    assert output.non_tensor_batch["lost_calls"].tolist() == [0] * 15 + [1]
    assert output.batch["rm_scores"].sum(dim=1).tolist() == [0.0] * 8 + [1.0] * 7 + [0.0]


def test_the_limiter_outlives_the_worker_that_made_it(
    model: Path, tmp_path: Path, limiter_name: str
) -> None:
    """verl defect (d): its limiter died with the worker that created it."""
    with FakeSandbox() as sandbox:
        file = write_tools(
            tmp_path / "tools.yaml", quick(sandbox.url, rate_limit=1, limiter_name=limiter_name)
        )
        config: Any = trainer_config(model, file)
        config.actor_rollout_ref.rollout.agent.num_workers = 1
        engine = ray.remote(Engine).options(num_cpus=0).remote(model, policy())
        incarnations = []
        for _ in range(2):
            manager = make_manager(config, engine)
            output = manager.generate_sequences(batch(*["count"] * 4))
            assert [
                extras["sfusion"]["outcomes"] for extras in output.non_tensor_batch["extras"]
            ] == [["ok"]] * 4
            incarnations.append(ray.get(find(limiter_name).snapshot.remote()).incarnation)
            for worker in manager.agent_loop_workers:
                ray.kill(worker)
        assert incarnations[0] == incarnations[1]
        assert (sandbox.ledger.arrived, sandbox.ledger.peak_in_flight) == (8, 1)
