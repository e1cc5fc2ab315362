"""Subclasses of verl's tool, as its recipes write them, derived from ours; verl 0.7.1's own class
is the control."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from verl.experimental.agent_loop.tool_parser import FunctionCall
from verl.tools.schemas import OpenAIFunctionToolSchema

from sfusion.fakes.sandbox import FakeSandbox
from tests.verl.recipe import BASES, OurRecipe
from tests.verl.releases import agent_data, make_loop, trainer_config
from tests.verl.tools import SCHEMA, quick, write_tools

pytestmark = [pytest.mark.usefixtures("cluster"), pytest.mark.timeout(600)]

CODE = "```python\n1 + 2```"


def make(tool: Any, url: str, **config: Any) -> Any:
    schema = OpenAIFunctionToolSchema.model_validate(SCHEMA)
    return tool(quick(f"{url}/run_code", memory_limit_mb=-1, **config), schema)


@pytest.fixture(scope="module")
def python() -> Any:
    with FakeSandbox(executor="python") as sandbox:
        yield sandbox


@pytest.mark.parametrize("name", BASES)
async def test_a_recipe_runs_its_code_and_its_own_reward(name: str, python: FakeSandbox) -> None:
    tool = make(BASES[name][0], python.url)
    instance, _ = await tool.create()
    response, reward, _ = await tool.execute(instance, {"code": CODE})
    assert (response.text, reward) == ("3\n", None)
    assert await tool.calc_reward(instance) == len("print(1 + 2)")
    await tool.release(instance)
    assert tool._instance_dict == {}


@pytest.mark.parametrize("name", BASES)
async def test_an_overridden_execute_code_is_used(name: str, python: FakeSandbox) -> None:
    tool = make(BASES[name][1], python.url, rate_limit=1)
    instance, _ = await tool.create()
    assert (await tool.execute(instance, {"code": "print(3)"}))[0].text == "<3\n>"
    await tool.release(instance)


@pytest.mark.parametrize("name", BASES)
async def test_only_ours_retries_and_reports_failures_through_the_pool(name: str) -> None:
    ours = name == "ours"
    async with FakeSandbox(faults=[{"first": 1, "what": {"status": 503}}]) as sandbox:
        tool = make(BASES[name][0], sandbox.url)
        instance, _ = await tool.create()
        response, _, _ = await tool.execute(
            instance, {"code": 'print(3)  # sfusion:call=a prints="3"'}
        )
    assert response.text == ("3" if ours else "no stdout here")
    async with FakeSandbox(faults=[{"what": {"status": 503}}]) as sandbox:
        tool.sandbox_fusion_url = f"{sandbox.url}/run_code"
        response, _, metrics = await tool.execute(
            instance, {"code": 'print(3)  # sfusion:call=b prints="3"'}
        )
    assert ("This is not output of a program" in response.text) == ours
    assert (metrics or {}).get("infrastructure") == (True if ours else None)


async def test_the_agent_loop_runs_a_recipe_and_its_calls_are_counted(
    model: Path, tmp_path: Path, python: FakeSandbox
) -> None:
    tool = make(OurRecipe, python.url)
    file = write_tools(tmp_path / "tools.yaml", tool.config, "tests.verl.recipe.OurRecipe")
    loop, data = make_loop(trainer_config(model, file)), agent_data()
    call = FunctionCall(name="code_interpreter", arguments='{"code": "1 + 2"}')
    response, reward, metrics = await loop._call_tool(call, {}, data)
    assert (response.text, reward, metrics["outcome"]) == ("3\n", None, "ok")
    assert data.extra_fields["extras"]["sfusion"]["outcomes"] == ["ok"]
