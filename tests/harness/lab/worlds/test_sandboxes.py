"""Several sandboxes of which one is different: fakes, and proxies in front of a real one."""

from __future__ import annotations

from typing import Any

import pytest

from sfusion.fakes.sandbox import FakeSandbox
from sfusion.harness.core.journal import Journal
from sfusion.harness.lab.worlds.recorder import Recorder
from sfusion.harness.lab.worlds.sandboxes import FakeSandboxes, RealSandboxes
from sfusion.harness.real.targets import RealSandbox
from tests.fakes.wire.raw import one, run_code
from tests.harness.lab.promises.scenes import scene

CHANGED = scene(
    sandbox={
        "instances": 3,
        "faults": [{"what": {"status": 500}}],
        "each": {"sandbox-2": {"faults": [{"what": {"status": 503}}]}, "sandbox-3": {"faults": []}},
    }
)


async def status(port: int) -> int | None:
    """The status of an answer; None if nobody listens."""
    try:
        return (await one(port, run_code("print(1)"))).status
    except ConnectionError:
        return None


async def test_a_crash_of_one_of_several_sandboxes_is_that_of_no_other() -> None:
    recorder = Recorder(Journal.begin(scenario="s", cell="", seed=0, world="sim"), lambda: 0.0)
    group = FakeSandboxes(CHANGED, recorder)
    try:
        ports = [int(url.rpartition(":")[2]) for url in await group.start()]
        seen = []
        for name in ("sandbox-1", "sandbox-3"):
            await group.do("crash", name, None, None)
            seen.append([await status(port) for port in ports])
    finally:
        await group.stop()
    assert seen == [[None, 200, 200], [None, 200, None]]


@pytest.mark.parametrize("kind", ["fake", "real"])
async def test_one_of_several_sandboxes_can_be_different_and_none_fails_before_the_load_begins(
    kind: str,
) -> None:
    recorder = Recorder(Journal.begin(scenario="s", cell="", seed=0, world="sim"), lambda: 0.0)
    async with FakeSandbox() as behind:
        group: Any = FakeSandboxes(CHANGED, recorder)
        if kind == "real":
            group = RealSandboxes(
                CHANGED, recorder, [RealSandbox("behind", behind.url)], "127.0.0.1"
            )
        try:
            ports = [int(url.rpartition(":")[2]) for url in await group.start()]
            before = [await one(port, run_code("print(1)")) for port in ports]
            await group.begin()
            answers = [await one(port, run_code("print(1)")) for port in ports]
        finally:
            await group.stop()
    assert [answer.status for answer in before] == [200, 200, 200]
    assert [answer.status for answer in answers] == [500, 503, 200]
