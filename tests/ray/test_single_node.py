"""The single-node tests of verl's original design, with events instead of a stopwatch, and our own.

Four names are verl's: ``tools_registration``, ``basic_multi_process_init``, ``rate_limiter``, ``rotten_execution``.
"""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path

import pytest
import ray

from sfusion_tools.errors import ConfigError, GuardTripped
from sfusion_tools.limiter import LimiterSettings
from sfusion_tools.limiter.ray_limiter import ray_limiter
from sfusion_tools.sandbox_fusion_tools import (
    ExecutionWorker,
    PoolMode,
    SandboxFusionTool,
    TokenBucketWorker,
    init_execution_pool,
)
from sfusion_tools.tool_registry import initialize_tools_from_config
from tests.ray.actors import Gate, snapshot, until

pytestmark = pytest.mark.usefixtures("single_node", "fresh_default_limiter")

BOTH_MODES = pytest.mark.parametrize("mode", list(PoolMode))


def test_tools_registration(tmp_path: Path) -> None:
    config = tmp_path / "tools.yaml"
    config.write_text(
        """
        tools:
          - class_name: sfusion_tools.sandbox_fusion_tools.SandboxFusionTool
            config:
              type: native
              num_workers: 10
              rate_limit: 10
              enable_global_rate_limit: true
              default_timeout: 30
              default_language: python
              sandbox_fusion_url: http://127.0.0.1:1/run_code
            tool_schema:
              type: function
              function:
                name: code_interpreter
                description: A tool for executing code.
                parameters:
                  type: object
                  properties: {code: {type: string, description: The code to execute.}}
                  required: [code]
        """
    )
    (tool,) = initialize_tools_from_config(config)
    assert isinstance(tool, SandboxFusionTool)
    assert tool.name == "code_interpreter"
    assert tool.get_openai_tool_schema().function.parameters.required == ["code"]


@ray.remote(num_cpus=0)
class Process:
    """A process that looks up the limiter as verl's original design does."""

    def __init__(self) -> None:
        self.limiter = TokenBucketWorker.options(name="rate-limiter", get_if_exists=True).remote(3)

    def acquire(self) -> str:
        return ray.get(self.limiter.acquire.remote())

    def release(self) -> bool:
        return ray.get(self.limiter.release.remote())

    def count(self) -> int:
        return ray.get(self.limiter.get_current_count.remote())

    def pid(self) -> int:
        return os.getpid()


def test_basic_multi_process_init() -> None:
    first, second = Process.remote(), Process.remote()
    assert len(set(ray.get([first.pid.remote(), second.pid.remote()]))) == 2
    assert ray.get(first.acquire.remote())
    assert ray.get(second.acquire.remote())
    assert ray.get([first.count.remote(), second.count.remote()]) == [2, 2]
    assert ray.get(first.release.remote())
    assert ray.get(second.count.remote()) == 1


def test_the_limit_defaults_to_ten() -> None:
    limiter = TokenBucketWorker.options(name="rate-limiter", get_if_exists=True).remote()
    permits = ray.get([limiter.acquire.remote() for _ in range(10)])
    eleventh = limiter.acquire.remote()
    until(lambda: snapshot("rate-limiter").waiting == 1)
    ray.get(limiter.release.remote(permits[0]))
    assert ray.get(eleventh) not in permits


@pytest.mark.parametrize("limit", [0, -3, 2.5, "many"])
def test_an_invalid_limit_is_refused_before_an_actor_is_made(limit: object) -> None:
    with pytest.raises(ConfigError, match="rate_limit must be a whole number of at least 1"):
        TokenBucketWorker.options(name="rate-limiter", get_if_exists=True).remote(limit)
    with pytest.raises(ConfigError, match="rate_limit"):
        init_execution_pool(1, rate_limit=limit)


def test_a_release_without_a_permit_is_refused_and_frees_nothing() -> None:
    """verl defect (f): the count went to -4, and a limit of 1 let 5 through."""
    limiter = TokenBucketWorker.options(name="rate-limiter", get_if_exists=True).remote(1)
    assert ray.get(limiter.release.remote()) is False
    permit = ray.get(limiter.acquire.remote())
    assert ray.get(limiter.release.remote(permit)) is True
    assert ray.get(limiter.release.remote(permit)) is False
    assert ray.get(limiter.get_current_count.remote()) == 0


def test_a_cancelled_acquire_leaves_the_queue() -> None:
    limiter = TokenBucketWorker.options(name="rate-limiter", get_if_exists=True).remote(1)
    permit = ray.get(limiter.acquire.remote())
    given_up = limiter.acquire.remote()
    until(lambda: snapshot("rate-limiter").waiting == 1)
    ray.cancel(given_up)
    until(lambda: snapshot("rate-limiter").waiting == 0)
    ray.get(limiter.release.remote(permit))
    assert ray.get(limiter.acquire.remote())


def test_more_waiters_than_an_async_actor_can_hold_do_not_block_a_release() -> None:
    """An async actor is full at 1,000 waiters; release a permit with 1,200."""
    limiter = TokenBucketWorker.options(name="rate-limiter", get_if_exists=True).remote(1)
    permit = ray.get(limiter.acquire.remote())
    waiters = [limiter.acquire.remote() for _ in range(1200)]
    until(lambda: snapshot("rate-limiter").waiting == 1200)
    assert ray.get(limiter.release.remote(permit)) is True
    assert ray.get(waiters[0]), "the first waiter has it now"
    assert snapshot("rate-limiter").waiting == 1199


class TestSingleNodeRateLimiterCase:
    """Functions of one pool, on one node."""

    @BOTH_MODES
    def test_rate_limiter(self, mode: PoolMode, gate: Gate) -> None:
        pool = init_execution_pool(num_workers=6, enable_global_rate_limit=True, rate_limit=3, mode=mode)
        assert ray.get(pool.ping.remote()) is True
        calls = [pool.execute.remote(gate.through, f"call {number}") for number in range(6)]
        first = gate.wait_for(3)
        until(lambda: snapshot("rate-limiter").waiting == 3)
        assert len(first) == 3
        gate.let_out(first[0])
        gate.wait_for(4)
        gate.open()
        assert ray.get(calls) == [f"call {number}" for number in range(6)]
        assert gate.peak == 3

    @BOTH_MODES
    def test_rotten_execution(self, mode: PoolMode, gate: Gate) -> None:
        """A function that fails is logged, returns None, and releases its permit."""
        pool = init_execution_pool(num_workers=2, enable_global_rate_limit=True, rate_limit=1, mode=mode)
        assert ray.get(pool.execute.remote(_raise)) is None
        assert ray.get(pool.execute.remote(sys.exit, 3)) is None
        assert ray.get(pool.execute.remote(_add, 1, 2)) == 3
        until(lambda: snapshot("rate-limiter").in_use == 0)

    def test_a_function_that_kills_its_process_loses_only_its_own_result(self) -> None:
        pool = init_execution_pool(num_workers=2, rate_limit=1, mode=PoolMode.ProcessMode)
        assert ray.get(pool.execute.remote(os._exit, 1)) is None
        assert ray.get(pool.execute.remote(_add, 1, 2)) == 3
        assert snapshot("rate-limiter").expired == 0, "its permit returned at once, not at the end of its lease"

    @BOTH_MODES
    def test_without_a_limiter_functions_run_at_once(self, mode: PoolMode, gate: Gate) -> None:
        """verl defect (a): enable_global_rate_limit: false broke every call."""
        pool = init_execution_pool(num_workers=4, enable_global_rate_limit=False, rate_limit=1, mode=mode)
        calls = [pool.execute.remote(gate.through, str(number)) for number in range(4)]
        assert len(gate.wait_for(4)) == 4, "all at once, though rate_limit is 1"
        gate.open()
        assert ray.get(calls) == ["0", "1", "2", "3"]
        with pytest.raises(ValueError, match="rate-limiter"):
            ray.get_actor("rate-limiter", namespace="sfusion")


def test_a_worker_logs_why_a_function_failed(caplog: pytest.LogCaptureFixture) -> None:
    """verl defect (b): the pool returns None, as verl's original design says, but logs the reason."""
    with caplog.at_level(logging.WARNING):
        assert ExecutionWorker(enable_global_rate_limit=False).execute(_raise) is None
    assert "ZeroDivisionError" in caplog.text


def test_an_invalid_num_workers_is_refused() -> None:
    with pytest.raises(ConfigError, match="num_workers must be a whole number of at least 1, found 0"):
        init_execution_pool(0)


def test_connecting_from_an_asynchronous_actor_causes_no_warning(limiter_name: str) -> None:
    """Ray warns about every ``ray.get`` in such an actor, and verl's agent loop workers are such actors."""

    @ray.remote(num_cpus=0)
    class Worker:
        async def acquire(self) -> list[str]:
            messages: list[str] = []
            handler = logging.Handler()
            handler.emit = lambda record: messages.append(record.getMessage())
            logging.getLogger("ray").addHandler(handler)
            async with ray_limiter(LimiterSettings(3), limiter_name).permit():
                return messages

    assert ray.get(Worker.remote().acquire.remote()) == []
    assert snapshot(limiter_name).rate_limit == 3


def _raise() -> None:
    raise ZeroDivisionError("rotten")


def _add(left: int, right: int) -> int:
    return left + right


def test_a_tripped_guard_fails_the_task_of_an_actor_and_nothing_else() -> None:
    """In verl, the trainer waits for such a task of every agent-loop worker."""

    class AgentLoops:
        async def generate(self) -> list[str]:
            tool = SandboxFusionTool(
                {"sandbox_fusion_url": "http://127.0.0.1:1", "guard": {"window": 3, "then": "fail"}, "max_attempts": 1}
            )
            return [await self._show(tool) for _ in range(4)]

        async def _show(self, tool: SandboxFusionTool) -> str:
            try:
                return str((await tool.execute("", {"code": "1"}))[0].text)
            except Exception as error:
                return f"Error executing tool: {error}"

        async def ping(self) -> str:
            return "alive"

    worker = ray.remote(AgentLoops).remote()
    with pytest.raises(GuardTripped, match="3 of the last 3 calls"):
        ray.get(worker.generate.remote(), timeout=60)
    assert ray.get(worker.ping.remote(), timeout=60) == "alive"
