"""The tool's metrics in a process that serves them with prometheus_client."""

from __future__ import annotations

import subprocess
import sys

import pytest
from prometheus_client import REGISTRY

from sfusion.fakes.sandbox import FakeSandbox
from tests.patience import PATIENCE
from tests.sfusion_tools.sandbox.tools import make, printing


def value(name: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(name, labels) or 0.0


@pytest.mark.parametrize("on", [True, False], ids=["on", "off"])
async def test_calls_and_attempts_are_counted(on: bool) -> None:
    faults = [{"first_attempts": 1, "what": {"status": 503}}]
    async with FakeSandbox(faults=faults) as sandbox:
        tool = make(sandbox, ray_metrics=on)

        def counted() -> tuple[float, float, float]:
            """Calls, and attempts by status; a port may be that of a server before."""
            calls = value("sfusion_calls_total", tool=tool.name, outcome="ok")
            labels = {"tool": tool.name, "endpoint": sandbox.url}
            refused = value("sfusion_attempts_total", **labels, status="503")
            answered = value("sfusion_attempts_total", **labels, status="200")
            return calls, refused, answered

        before = counted()
        await tool.execute("i", printing("3"))
        await tool.execute("i", {"nothing": "useful"})
        more = [after - earlier for after, earlier in zip(counted(), before, strict=True)]
        assert more == [on, on, on]
        assert value("sfusion_calls_in_flight", tool=tool.name) == 0


def test_the_library_is_not_imported_for_them() -> None:
    script = (
        "import asyncio, sys\n"
        "from sfusion.fakes.sandbox import FakeSandbox\n"
        "from sfusion_tools import CodeRunner\n"
        "async def main():\n"
        "    async with FakeSandbox() as sandbox:\n"
        "        await CodeRunner(sandbox.url).run('print(1)')\n"
        "asyncio.run(main())\n"
        "print('prometheus_client' in sys.modules)\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=PATIENCE
    )
    assert run.stdout == "False\n", run.stderr
