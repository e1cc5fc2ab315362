"""Importing the tools is cheap: Ray comes only when it is used."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    "modules",
    [
        "sfusion_tools",
        "sfusion_tools.sandbox_fusion_tools",
        "sfusion_tools.reward",
        "sfusion_tools.gsm8k_tool, sfusion_tools.tool_registry, sfusion_tools.schemas",
    ],
)
def test_importing_does_not_import_ray(modules):
    program = f"import sys, {modules}; print(sorted(m for m in sys.modules if m.partition('.')[0] == 'ray'))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "[]\n"


def test_a_tool_runs_without_ray():
    program = """if True:
        import asyncio, sys
        from sfusion.fakes.sandbox import FakeSandbox
        from sfusion_tools.sandbox_fusion_tools import SandboxFusionTool

        async def go():
            async with FakeSandbox() as sandbox:
                tool = SandboxFusionTool({"sandbox_fusion_url": sandbox.url})
                response, _, metrics = await tool.execute("x", {"code": '1  # sfusion:call=x prints="3"'})
                print(response.text, metrics["outcome"], "ray" in sys.modules)

        asyncio.run(go())
    """
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "3 ok False\n"
    assert "Ray is not running here, so rate_limit 10 holds for this process only" in done.stderr


def test_the_face_has_the_names_of_the_plan():
    from sfusion_tools import sandbox_fusion_tools

    assert sandbox_fusion_tools.__all__ == [
        "ExecutionWorker",
        "PoolMode",
        "SandboxFusionTool",
        "TokenBucketWorker",
        "init_execution_pool",
    ]
    with pytest.raises(AttributeError, match="has no attribute 'Tool'"):
        _ = sandbox_fusion_tools.Tool
