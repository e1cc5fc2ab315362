"""SandboxFusionTool: its config, schema, pickled form and events."""

from __future__ import annotations

import json
import pickle
from typing import Any

import pytest

from sfusion.fakes.sandbox import FakeSandbox
from sfusion_tools.errors import ConfigError
from sfusion_tools.outcome import Outcome
from sfusion_tools.sandbox import Program
from sfusion_tools.sandbox_fusion_tools import SandboxFusionTool
from sfusion_tools.schemas import OpenAIFunctionToolSchema
from tests.sfusion_tools.sandbox.helpers import Events, in_virtual_time
from tests.sfusion_tools.sandbox.tools import ask, make, printing


async def test_headers_and_memory_limit_of_the_config_are_sent():
    seen: list[Any] = []
    async with FakeSandbox() as sandbox:
        app = sandbox.server.app
        visit = app.visit
        app.visit = lambda request: (seen.append(request), visit(request))[1]
        await ask(make(sandbox, headers={"X-Team": "rl"}, memory_limit_mb=77), printing("3\n"))
    assert seen[0].headers["X-Team"] == "rl"
    assert json.loads(seen[0].body)["memory_limit_MB"] == 77


async def test_a_pickled_tool_keeps_config_and_schema_only():
    """In verl, each call pickled the whole tool: 273 kB with 256 instances of 1 kB."""
    async with FakeSandbox() as sandbox:
        tool = make(sandbox)
        before = len(pickle.dumps(tool))
        for _ in range(256):
            await tool.create(ground_truth="x" * 1000)
        await ask(tool, printing("3\n"))
        data = pickle.dumps(tool)
        assert len(data) == before < 2000
        copy = pickle.loads(data)
        assert (copy.name, copy.config, copy.tool_schema) == (
            tool.name,
            tool.config,
            tool.tool_schema,
        )
        assert (await ask(copy, printing("3\n")))[0] == "3\n"


def test_the_schema_of_the_config_replaces_the_default():
    schema = OpenAIFunctionToolSchema.model_validate(
        {"type": "function", "function": {"name": "run", "description": "Run."}}
    )
    tool = SandboxFusionTool({"sandbox_fusion_url": "http://127.0.0.1:1"}, schema)
    assert (tool.name, tool.get_openai_tool_schema()) == ("run", schema)
    assert make("http://127.0.0.1:1").get_openai_tool_schema().function.name == "code_interpreter"


def test_a_call_with_an_id_backs_off_the_same_in_every_run():
    async def go() -> list[dict[str, Any]]:
        events = Events()
        async with FakeSandbox(
            executor="scripted", faults=[{"first_attempts": 3, "what": {"status": 503}}]
        ) as sandbox:
            tool = make(sandbox, on_event=events, backoff_base=0.5, backoff_cap=8.0)
            _, _, metrics = await tool.execute("instance", {"code": "1"}, call_id="step-7")
        assert metrics is not None
        assert metrics["call_id"] == "step-7"
        return events.of("backing_off")

    first, second = in_virtual_time(go), in_virtual_time(go)
    assert first == second
    assert len(first) == 3


async def test_the_attributes_that_verl_users_set_take_effect():
    """Setting ``tool.sandbox_fusion_url`` did nothing, without a word."""
    async with FakeSandbox() as sandbox:
        tool = make("http://127.0.0.1:1", rate_limit=3)
        assert (tool.sandbox_fusion_url, tool.rate_limit, tool.default_language) == (
            "http://127.0.0.1:1",
            3,
            "python",
        )
        tool.sandbox_fusion_url = f"{sandbox.url}/run_code"
        assert (await ask(tool, printing("3\n")))[0] == "3\n"
        assert pickle.loads(pickle.dumps(tool)).sandbox_fusion_url == f"{sandbox.url}/run_code"
    with pytest.raises(ConfigError, match="rate_limit"):
        tool.rate_limit = 0
    assert tool.rate_limit == 3


async def test_the_total_timeout_of_the_config_bounds_a_call():
    tool = make("http://127.0.0.1:1", total_timeout=12, call_deadline=99)
    assert tool.settings.bounds.of(Program("", timeout=30.0)) == (40.0, 12.0)


@pytest.mark.parametrize("key", ["total_timeout", "default_timeout", "max_response_mb"])
@pytest.mark.parametrize("value", [True, "3", 0, float("nan")])
def test_a_number_of_the_config_is_a_number(key, value):
    with pytest.raises(ConfigError, match=key):
        make("http://127.0.0.1:1", **{key: value})


def test_a_call_emits_its_events_in_order():
    async def go() -> None:
        events = Events()
        async with FakeSandbox(faults=[{"first": 1, "what": {"status": 429}}]) as sandbox:
            _, metrics = await ask(make(sandbox, on_event=events), printing("3\n"))
        assert {facts["call"] for _, facts in events.all} == {metrics["call_id"]}
        attempt = ["permit_granted", "attempt_started", "permit_released", "attempt_ended"]
        assert events.names() == ["call_started", *attempt, "backing_off", *attempt, "call_ended"]
        assert events.of("call_ended")[0]["outcome"] == Outcome.OK.value

    in_virtual_time(go)
