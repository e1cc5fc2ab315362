"""Subclasses as people wrote them for verl's tool: its names work here, under our limiter, with our
outcomes."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest

from sfusion.fakes.sandbox import FakeSandbox
from sfusion_tools.sandbox_fusion_tools import SandboxFusionTool
from sfusion_tools.schemas import ToolResponse
from tests.sfusion_tools.sandbox.tools import printing


class Recipe(SandboxFusionTool):
    """Overrides ``execute`` as verl's recipes do: it changes the code and returns what the pool
    returns."""

    async def execute(self, instance_id: str, parameters: dict[str, Any], **kwargs: Any) -> Any:
        code = parameters["code"].removeprefix("```python\n").removesuffix("\n```")
        timeout = parameters.get("timeout", self.default_timeout)
        language = parameters.get("language", self.default_language)
        result = await self.execution_pool.execute.remote(
            self.execute_code, instance_id, code, timeout, language
        )
        return result, None, None


class OwnCode(SandboxFusionTool):
    """Overrides ``execute_code`` and uses the one of its base."""

    def execute_code(
        self, instance_id: str, code: str, timeout: float = 30, language: str = "python"
    ) -> Any:
        response = super().execute_code(instance_id, code, timeout, language)
        self._instance_dict[instance_id]["response"] = response.text
        return f"<{response.text}>"


class OwnRequest(SandboxFusionTool):
    """Overrides ``execute_code`` with something that knows nothing of our client."""

    inside = peak = 0

    def execute_code(
        self, instance_id: str, code: str, timeout: float = 30, language: str = "python"
    ) -> Any:
        cls = type(self)
        cls.inside += 1
        cls.peak = max(cls.peak, cls.inside)
        done = asyncio.run_coroutine_threadsafe(asyncio.sleep(0.02), self.loop)
        done.result()
        cls.inside -= 1
        return ToolResponse(text=code)


class OwnState(SandboxFusionTool):
    """Keeps its own entries, and its own rewards in them."""

    async def create(
        self, instance_id: str | None = None, **kwargs: Any
    ) -> tuple[str, ToolResponse]:
        self._instance_dict["mine"] = {
            "response": "",
            "ground_truth": kwargs.get("ground_truth"),
            "reward": [],
        }
        return "mine", ToolResponse()

    async def release(self, instance_id: str, **kwargs: Any) -> None:
        del self._instance_dict[instance_id]


def make(cls: type[SandboxFusionTool], sandbox: FakeSandbox, **config: Any) -> Any:
    quick = {"limiter": "local", "limiter_name": uuid4().hex, "backoff_base": 0.001}
    return cls({"sandbox_fusion_url": sandbox.url, **quick, **config})


async def test_the_pool_returns_the_output_and_the_call_is_counted():
    trajectory = SimpleNamespace(extra_fields={})
    async with FakeSandbox() as sandbox:
        tool = make(Recipe, sandbox)
        instance, _ = await tool.create(ground_truth="3")
        response, reward, metrics = await tool.execute(
            instance, printing("3\n"), agent_data=trajectory
        )
        assert (response.text, reward, metrics["outcome"]) == ("3\n", None, "ok")
        assert await tool.calc_reward(instance) == 1.0
        assert await tool.execution_pool.ping.remote()
    assert trajectory.extra_fields["extras"]["sfusion"]["outcomes"] == ["ok"]


async def test_failures_are_retried_and_reported_through_the_pool():
    async with FakeSandbox(faults=[{"first_attempts": 1, "what": {"status": 429}}]) as sandbox:
        response, _, metrics = await make(Recipe, sandbox).execute("i", printing("3\n"))
    assert (response.text, metrics["attempts"]) == ("3\n", 2)
    async with FakeSandbox(faults=[{"what": {"sandbox_error": "no memory"}}]) as sandbox:
        tool = make(Recipe, sandbox)
        instance, _ = await tool.create(ground_truth="3")
        response, _, metrics = await tool.execute(instance, printing("3\n"))
        assert await tool.calc_reward(instance) is None
    assert response.text.startswith("[code_interpreter] This is not output of a program")
    assert metrics["infrastructure"]


async def test_a_cancelled_call_through_the_pool_frees_its_permit():
    async with FakeSandbox(faults=[{"first": 1, "what": "hang"}]) as sandbox:
        tool = make(Recipe, sandbox, rate_limit=1)
        hanging = asyncio.create_task(tool.execute("i", printing("1")))
        while not sandbox.ledger.arrived:  # noqa: ASYNC110
            await asyncio.sleep(0)
        hanging.cancel()
        with pytest.raises(asyncio.CancelledError):
            await hanging
        assert (await tool.execute("i", printing("2")))[0].text == "2"


@pytest.mark.parametrize("rate_limit", [1, 4])
async def test_an_overridden_execute_code_is_called_and_may_call_its_base(rate_limit):
    """Its own permit is given up when the base takes one: with a limit of 1 they would wait for
    each other."""
    trajectory = SimpleNamespace(extra_fields={})
    async with FakeSandbox() as sandbox:
        tool = make(OwnCode, sandbox, rate_limit=rate_limit)
        instance, _ = await tool.create(ground_truth="3")
        calls = [
            tool.execute(instance, printing("3\n", seconds=0.01), agent_data=trajectory)
            for _ in range(6)
        ]
        answers = await asyncio.gather(*calls)
        assert sandbox.ledger.peak_in_flight <= rate_limit
        assert tool._instance_dict[instance]["response"] == "3\n"
        refused, _, metrics = await tool.execute(instance, {"cod": "1"})
    assert [(response.text, metrics["outcome"]) for response, _, metrics in answers] == [
        ("<3\n>", "ok")
    ] * 6
    assert trajectory.extra_fields["extras"]["sfusion"]["calls"] == 6
    assert ("`code` is missing" in refused.text, metrics["outcome"]) == (True, "bad_arguments")


async def test_a_function_of_its_own_runs_under_one_permit_and_its_errors_are_raised():
    async with FakeSandbox() as sandbox:
        tool = make(OwnRequest, sandbox, rate_limit=2)
        OwnRequest.loop = asyncio.get_running_loop()
        answers = await asyncio.gather(*(tool.execute("i", {"code": f"{n}"}) for n in range(8)))
        assert [response.text for response, _, _ in answers] == [f"{n}" for n in range(8)]
        assert (OwnRequest.peak, sandbox.ledger.arrived) == (2, 0)
        with pytest.raises(ZeroDivisionError):
            await tool.execution_pool.execute.remote(lambda: 1 / 0)


async def test_entries_of_the_instance_dict_may_be_the_subclass_own():
    async with FakeSandbox() as sandbox:
        tool = make(OwnState, sandbox)
        instance, _ = await tool.create(ground_truth=3)
        assert await tool.calc_reward(instance) == []
        await tool.execute(instance, printing("3\n"))
        assert await tool.calc_reward(instance) == 1.0
        tool._instance_dict[instance]["reward"].append(0.5)
        assert await tool.calc_reward(instance) == [0.5]
        await tool.release(instance)
        assert tool._instance_dict == {}


def test_blocking_callers_may_run_code_too():
    with FakeSandbox() as sandbox:
        response = make(SandboxFusionTool, sandbox).execute_code("i", printing("3\n")["code"], 5)
    assert (response.text, str(response)) == ("3\n", "3\n")
