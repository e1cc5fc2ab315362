"""Instances of a tool, and the reward of a trajectory."""

from __future__ import annotations

import asyncio

import pytest

from sfusion.fakes.sandbox import FakeSandbox
from tests.sfusion_tools.sandbox.helpers import in_virtual_time, until
from tests.sfusion_tools.sandbox.tools import ask, make, printing


async def test_instances_have_separate_states():
    async with FakeSandbox() as sandbox:
        tool = make(sandbox)
        right, response = await tool.create(ground_truth="3")
        wrong, _ = await tool.create("wrong", create_kwargs={"ground_truth": 4})
        blank, _ = await tool.create()
        assert response.is_empty()
        assert wrong == "wrong"
        assert len({right, wrong, blank}) == 3
        assert [await tool.calc_reward(i) for i in (right, wrong, blank)] == [[], [], []]
        for instance in (right, wrong, blank):
            await tool.execute(instance, printing("3\n"))
        assert [await tool.calc_reward(i) for i in (right, wrong, blank)] == [1.0, 0.0, []]
        for instance in (right, wrong, blank):
            await tool.release(instance)
        assert [await tool.calc_reward(i) for i in (right, wrong, blank)] == [[], [], []]


async def test_nested_create_arguments_win_over_spread_ones():
    async with FakeSandbox() as sandbox:
        tool = make(sandbox)
        instance, _ = await tool.create(ground_truth="old", create_kwargs={"ground_truth": "3"})
        await tool.execute(instance, printing("3\n"))
        assert await tool.calc_reward(instance) == 1.0


async def test_releasing_an_unknown_instance_is_harmless():
    """In verl, an exception in release ends the trajectory."""
    tool = make("http://127.0.0.1:1")
    assert await tool.release("never seen") is None
    instance, _ = await tool.create()
    await tool.release(instance)
    assert await tool.release(instance) is None


async def test_a_call_for_an_unknown_instance_is_executed():
    async with FakeSandbox() as sandbox:
        text, _ = await ask(make(sandbox), printing("3\n"))
    assert text == "3\n"


async def test_a_trajectory_that_ends_with_an_infrastructure_failure_has_no_reward():
    """NVIDIA-NeMo/Gym#2212: an infrastructure failure scored 0, like a wrong answer."""
    async with FakeSandbox(faults=[{"first": 1, "what": {"sandbox_error": True}}]) as sandbox:
        tool = make(sandbox, max_attempts=1)
        instance, _ = await tool.create(ground_truth="3")
        await tool.execute(instance, printing("3\n"))
        assert await tool.calc_reward(instance) is None
        await tool.execute(instance, {})
        assert await tool.calc_reward(instance) == 0.0
        await tool.execute(instance, printing("3\n", exit=1))
        assert await tool.calc_reward(instance) == 0.0
        await tool.execute(instance, printing("3\n"))
        assert await tool.calc_reward(instance) == 1.0


async def test_a_program_that_poses_as_a_missing_runtime_is_scored():
    words = "/bin/bash: line 1: python: command not found\n"
    async with FakeSandbox(scripts=[{"exit": 127, "errors": words}]) as sandbox:
        tool = make(sandbox)
        instance, _ = await tool.create(ground_truth="3")
        response, _, metrics = await tool.execute(instance, {"code": "1"})
        text = f"{words}[The program exited with code 127.]"
        assert (response.text, metrics["outcome"], metrics["infrastructure"]) == (
            text,
            "program_error",
            False,
        )
        assert await tool.calc_reward(instance) == 0.0


@pytest.mark.parametrize(("first", "last"), [(5, 1), (1, 5)])
def test_the_reward_is_of_the_call_that_started_last(first, last):
    async def go() -> None:
        async with FakeSandbox() as sandbox:
            tool = make(sandbox)
            instance, _ = await tool.create(ground_truth="3")
            await asyncio.gather(
                tool.execute(instance, printing("4\n", seconds=first)),
                tool.execute(instance, printing("3\n", seconds=last)),
            )
            assert await tool.calc_reward(instance) == 1.0

    in_virtual_time(go)


async def test_a_last_call_that_was_cancelled_is_not_rewarded():
    async with FakeSandbox(faults=[{"after": 1, "what": "hang"}]) as sandbox:
        tool = make(sandbox)
        instance, _ = await tool.create(ground_truth="3")
        await tool.execute(instance, printing("3\n"))
        hanging = asyncio.ensure_future(tool.execute(instance, printing("4\n")))
        await until(lambda: sandbox.ledger.in_flight)
        hanging.cancel()
        await asyncio.wait([hanging])
        assert await tool.calc_reward(instance) is None
