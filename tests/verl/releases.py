"""The differences between verl releases, in one place; everything but the model's text comes from
verl."""

from __future__ import annotations

from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import verl
from hydra import compose, initialize_config_dir
from verl.experimental.agent_loop.agent_loop import AgentLoopManager, DictConfigWrap
from verl.experimental.agent_loop.tool_agent_loop import AgentData, ToolAgentLoop
from verl.utils.dataset.rl_dataset import RLHFDataset

NEW = not verl.__version__.startswith("0.7.")

if NEW:
    from verl.tools.tool_registry import initialize_tools_from_config
else:
    from verl.tools.utils.tool_registry import initialize_tools_from_config

__all__ = [
    "NEW",
    "agent_data",
    "initialize_tools_from_config",
    "make_loop",
    "make_manager",
    "trainer_config",
]

LENGTH = 4096


def trainer_config(model: Path, tools: Path, **multi_turn: Any) -> Any:
    """Return the trainer's config of this release; keywords are settings of ``multi_turn``."""
    config = deepcopy(_composed(model))
    config.actor_rollout_ref.rollout.multi_turn.update(
        {"tool_config_path": str(tools), **multi_turn}
    )
    return config


@cache
def _composed(model: Path) -> Any:
    """Compose verl's own files with hydra."""
    rollout = "actor_rollout_ref.rollout"
    overrides = [
        f"actor_rollout_ref.model.path={model}",
        f"{rollout}.name=sglang",
        f"{rollout}.prompt_length={LENGTH}",
        f"{rollout}.response_length={LENGTH}",
        f"{rollout}.agent.num_workers=2",
        f"{rollout}.agent.default_agent_loop=tool_agent",
        f"{rollout}.multi_turn.enable=True",
    ]
    files = Path(verl.__file__).parent / "trainer" / "config"
    with initialize_config_dir(config_dir=str(files), version_base=None):
        return compose("ppo_trainer", overrides=overrides)


def make_loop(config: Any, server: Any = None) -> ToolAgentLoop:
    """Make an agent loop as a worker does; ``server`` generates the turns. Needs a running event
    loop."""
    from transformers import AutoTokenizer

    rest: dict[str, Any] = {}
    if NEW:
        from verl.experimental.agent_loop.agent_loop import ToolListWrap

        tools = initialize_tools_from_config(
            config.actor_rollout_ref.rollout.multi_turn.tool_config_path
        )
        rest = {"tools": ToolListWrap(tools), "hf_model_type": "qwen2"}
    return ToolAgentLoop(
        trainer_config=DictConfigWrap(config),
        server_manager=server,
        tokenizer=AutoTokenizer.from_pretrained(config.actor_rollout_ref.model.path),
        processor=None,
        dataset_cls=RLHFDataset,
        data_config=DictConfigWrap(config.data),
        **rest,
    )


def agent_data(**tools_kwargs: Any) -> AgentData:
    """Return the state of a trajectory before its first turn."""
    rest: dict[str, Any] = {"audio_data": None, "mm_processor_kwargs": None} if NEW else {}
    return AgentData(
        messages=[],
        image_data=[],
        video_data=[],
        metrics={},
        request_id="a trajectory",
        tools_kwargs=tools_kwargs,
        **rest,
    )


def make_manager(config: Any, server: Any, rewards: list[Any] | None = None) -> AgentLoopManager:
    """Make verl's manager with its workers and load balancer; the actor ``server`` is their only
    engine."""
    import ray

    if NEW:
        from verl.workers.rollout.llm_server import GlobalRequestLoadBalancer, LLMServerClient

        balancer = ray.remote(GlobalRequestLoadBalancer).remote({"engine": server})
        return AgentLoopManager.create(
            config, LLMServerClient(config, balancer), reward_loop_worker_handles=rewards
        )

    class Replica:
        """Replaces what would start an engine on a GPU."""

        def __init__(self, **_: Any) -> None:
            self._server_handle, self._server_address = server, "engine"

        async def init_standalone(self) -> None:
            """There is nothing to start."""

    class Manager(AgentLoopManager):
        """Uses the replica class above, which the manager allows to be replaced."""

        rollout_replica_class = Replica

    rollout = config.actor_rollout_ref.rollout
    rollout.nnodes, rollout.n_gpus_per_node = 1, rollout.tensor_model_parallel_size
    return Manager.create(config, reward_loop_worker_handles=rewards)
