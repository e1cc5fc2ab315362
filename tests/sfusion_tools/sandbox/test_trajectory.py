"""How the outcomes of a trajectory reach verl's trainer, although verl drops the metrics of a
call."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest

from sfusion.fakes.sandbox import FakeSandbox
from sfusion.harness.core.logs.reading import read_records
from sfusion_tools.event_log import flush_event_logs
from sfusion_tools.outcome import Outcome
from sfusion_tools.sandbox import CallResult
from sfusion_tools.sandbox.tool import count_call
from sfusion_tools.sandbox_fusion_tools import SandboxFusionTool

THROTTLED = CallResult("c", Outcome.THROTTLED).metrics()


async def test_outcomes_are_counted_in_the_extras_of_agent_data() -> None:
    trajectory = SimpleNamespace(extra_fields={"turn_scores": []})
    other = SimpleNamespace(extra_fields={})
    async with FakeSandbox(
        executor="scripted", faults=[{"call": "b", "what": {"status": 500}}]
    ) as sandbox:
        config = {
            "sandbox_fusion_url": sandbox.url,
            "limiter": "local",
            "limiter_name": uuid4().hex,
            "max_attempts": 1,
        }
        tool = SandboxFusionTool(config)
        for arguments in ({"code": "1  # sfusion:call=a"}, {"code": "1  # sfusion:call=b"}, [1]):
            instance, _ = await tool.create()
            await tool.execute(instance, arguments, agent_data=trajectory)
            await tool.release(instance)
        await tool.execute("x", {"code": "1  # sfusion:call=c exit=1"}, agent_data=other)
    assert set(trajectory.extra_fields) == {"turn_scores", "extras"}
    counts = trajectory.extra_fields["extras"]["sfusion"]
    assert (counts["calls"], counts["infrastructure"]) == (3, 1)
    assert counts["outcomes"] == ["ok", "sandbox_error", "bad_arguments"]
    assert counts["attempts"] == [1, 1, 0]
    assert [seconds > 0 for seconds in counts["total_s"]] == [True, True, False]
    assert len(counts["permit_wait_s"]) == len(counts["backoff_s"]) == 3
    assert other.extra_fields["extras"]["sfusion"]["outcomes"] == ["program_error"]
    json.dumps(trajectory.extra_fields)


async def test_trajectory_and_group_are_in_what_the_tool_returns_and_in_the_event_log(
    tmp_path: Path,
) -> None:
    verl = SimpleNamespace(extra_fields={}, request_id="of verl")
    async with FakeSandbox(executor="scripted") as sandbox:
        config = {
            "sandbox_fusion_url": sandbox.url,
            "limiter": "local",
            "event_log": str(tmp_path / "events.ndjson"),
        }
        tool = SandboxFusionTool(config)
        await tool.create("mine", group_id=7)
        _, _, own = await tool.execute("mine", {"code": "1  # sfusion:call=a"})
        instance, _ = await tool.create(create_kwargs={"group_id": 'g"8'})
        _, _, given = await tool.execute(instance, {"code": ""}, agent_data=verl)
        await tool.execute("no instance", {"code": "1  # sfusion:call=b"})
    flush_event_logs()
    assert (own["trajectory"], own["group"], given["trajectory"], given["group"]) == (
        "mine",
        "7",
        "of verl",
        'g"8',
    )
    assert verl.extra_fields["extras"]["sfusion"]["trajectory"] == "of verl"
    found = [(call.trajectory, call.group) for call in read_records([tmp_path])]
    assert found == [("mine", "7"), ("of verl", 'g"8'), ("no instance", "")]


@pytest.mark.parametrize(
    "agent_data",
    [
        None,
        object(),
        SimpleNamespace(extra_fields=None),
        SimpleNamespace(extra_fields={"extras": "of another tool"}),
    ],
    ids=["none", "any object", "no fields", "extras of another kind"],
)
def test_agent_data_of_another_kind_is_left_untouched(agent_data: Any) -> None:
    before = repr(getattr(agent_data, "extra_fields", None))
    count_call(agent_data, THROTTLED)
    assert repr(getattr(agent_data, "extra_fields", None)) == before


def test_extras_of_other_tools_are_kept() -> None:
    agent_data = SimpleNamespace(extra_fields={"extras": {"search": 3}})
    count_call(agent_data, THROTTLED)
    assert agent_data.extra_fields["extras"].pop("sfusion")["outcomes"] == ["throttled"]
    assert agent_data.extra_fields == {"extras": {"search": 3}}
