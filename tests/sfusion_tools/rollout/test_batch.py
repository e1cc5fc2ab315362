"""Concurrent trajectories and over-sampling: when enough are done, the rest are cancelled and leave nothing behind."""

from __future__ import annotations

import asyncio

import pytest

from sfusion_tools.errors import GuardTripped
from sfusion_tools.rollout import AsyncRolloutRequest, EndCause, RolloutDriver, format_parser, run_batch
from sfusion_tools.rollout import AsyncRolloutRequestStateEnum as State
from tests.sfusion_tools.rollout.helpers import RecordingTool, ScriptedEngine, calling, request

PARSE = format_parser("hermes")


class Straggling(RecordingTool):
    """Answers the quick instances and keeps the others waiting for ever."""

    def __init__(self, quick: set[str]) -> None:
        super().__init__()
        self.quick = quick

    async def execute(self, instance_id: str, parameters: dict[str, object], **kwargs: object) -> object:
        if instance_id not in self.quick:
            self.enter()
            try:
                await asyncio.Event().wait()
            finally:
                self.running -= 1
        return await super().execute(instance_id, parameters, **kwargs)


def requests(count: int) -> list[AsyncRolloutRequest]:
    return [request(request_id=f"r{number}", batch_data_id=number) for number in range(count)]


async def test_when_enough_are_done_the_rest_are_cancelled_and_release_their_tools() -> None:
    tool = Straggling({"r0", "r2", "r5"})
    ended: list[str] = []
    batch = await run_batch(
        RolloutDriver(ScriptedEngine(calling("3"), "Three."), [tool], PARSE),
        requests(6),
        enough=3,
        on_end=lambda done: ended.append(done.request_id),
    )
    assert [r.state is State.COMPLETED for r in batch] == [True, False, True, False, False, True]
    assert {r.ended_by for r in batch if r.state is State.FAILED} == {EndCause.CANCELLED}
    assert tool.open_instances == []
    assert tool.running == 0
    assert sorted(ended) == sorted(r.request_id for r in batch)


async def test_a_tripped_guard_ends_the_batch() -> None:
    class Guarded(Straggling):
        async def execute(self, instance_id: str, parameters: dict[str, object], **kwargs: object) -> object:
            if instance_id == "r1":
                raise GuardTripped("the sandbox is down")
            return await super().execute(instance_id, parameters, **kwargs)

    tool, batch = Guarded(set()), requests(3)
    with pytest.raises(GuardTripped, match="the sandbox is down"):
        await run_batch(RolloutDriver(ScriptedEngine(calling("3"), "Three."), [tool], PARSE), batch)
    assert [(r.state, r.ended_by) for r in batch] == [
        (State.FAILED, cause) for cause in (EndCause.CANCELLED, EndCause.ERROR, EndCause.CANCELLED)
    ]
    assert batch[1].failure == "the sandbox is down"
    assert (tool.open_instances, tool.running) == ([], 0)


async def test_requests_that_never_began_end_as_cancelled() -> None:
    tool = Straggling({"r0"})
    driver = RolloutDriver(ScriptedEngine(calling("3"), "Three."), [tool], PARSE)
    batch = await run_batch(driver, requests(4), enough=1, at_once=1)
    assert [r.state for r in batch] == [State.COMPLETED] + [State.FAILED] * 3
    assert tool.open_instances == []


async def test_failed_requests_do_not_count_as_done() -> None:
    driver = RolloutDriver(ScriptedEngine(RuntimeError("down")), [RecordingTool()], PARSE)
    batch = await run_batch(driver, requests(3), enough=1)
    assert [r.ended_by for r in batch] == [EndCause.ENGINE] * 3


async def test_cancelling_the_batch_releases_everything() -> None:
    tool = Straggling(set())
    tool.busy_at = 5
    batch = requests(5)
    task = asyncio.ensure_future(run_batch(RolloutDriver(ScriptedEngine(calling("3")), [tool], PARSE), batch, enough=5))
    await tool.busy.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert tool.open_instances == []
    assert {r.ended_by for r in batch} == {EndCause.CANCELLED}


async def test_at_most_at_once_requests_run_concurrently() -> None:
    tool = RecordingTool()
    driver = RolloutDriver(ScriptedEngine(calling("3"), "Three."), [tool], PARSE)
    batch = await run_batch(driver, requests(9), at_once=2)
    assert all(r.state is State.COMPLETED for r in batch)
    assert tool.peak <= 2


async def test_an_empty_batch_returns_at_once() -> None:
    assert await run_batch(RolloutDriver(ScriptedEngine(), [], PARSE), []) == []


@pytest.mark.parametrize("enough", [0, 3])
async def test_an_out_of_range_enough_is_refused(enough: int) -> None:
    with pytest.raises(ValueError, match="it must be between 1 and 2, the size of the batch"):
        await run_batch(RolloutDriver(ScriptedEngine(), [], PARSE), requests(2), enough=enough)
