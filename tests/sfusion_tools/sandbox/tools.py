"""A tool for a fake sandbox, and calls of it."""

from __future__ import annotations

import json
from typing import Any
from uuid import uuid4

from sfusion.fakes.sandbox import FakeSandbox
from sfusion_tools.sandbox_fusion_tools import SandboxFusionTool

METRICS = {
    "call_id",
    "trajectory",
    "group",
    "outcome",
    "infrastructure",
    "message",
    "attempts",
    "possible_executions",
    "permit_wait_s",
    "backoff_s",
    "request_s",
    "total_s",
    "execution_s",
    "return_code",
    "http_status",
    "attempt_outcomes",
    "problem",
    "provoked",
}


def make(sandbox: FakeSandbox | str, *, on_event: Any = None, **config: Any) -> SandboxFusionTool:
    """Make a tool with its own limiter."""
    url = sandbox if isinstance(sandbox, str) else sandbox.url
    fast = {
        "limiter": "local",
        "limiter_name": uuid4().hex,
        "backoff_base": 0.001,
        "backoff_cap": 0.002,
    }
    return SandboxFusionTool(
        {"type": "native", "sandbox_fusion_url": url, **fast, **config}, on_event=on_event
    )


def printing(text: str, **hints: Any) -> dict[str, str]:
    """Return arguments whose program prints a text in the fake."""
    more = " ".join(f"{key}={json.dumps(value)}" for key, value in hints.items())
    return {"code": f"…  # sfusion:call={uuid4().hex} prints={json.dumps(text)} {more}"}


async def ask(tool: SandboxFusionTool, arguments: Any) -> tuple[str, dict[str, Any]]:
    response, reward, metrics = await tool.execute("instance", arguments, agent_data=object())
    assert reward is None
    assert response.text is not None
    assert metrics is not None
    assert set(metrics) == METRICS
    json.dumps(metrics, allow_nan=False)
    return response.text, metrics
