"""Concurrent trajectories and over-sampling: when enough are done, the rest are cancelled and leave
nothing behind."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections import Counter
from typing import Any

import pytest

from sfusion_tools.errors import GuardTripped
from sfusion_tools.rollout import (
    AsyncRolloutRequest,
    EndCause,
    RolloutDriver,
    RolloutLimits,
    format_parser,
    run_batch,
)
from sfusion_tools.rollout import AsyncRolloutRequestStateEnum as State
from sfusion_tools.rollout.outline import call_id
from sfusion_tools.schemas import ToolResponse
from tests.sfusion_tools.rollout.helpers import RecordingTool, ScriptedEngine, calling, request
from tests.sfusion_tools.sandbox.helpers import in_virtual_time

PARSE = format_parser("hermes")


class Straggling(RecordingTool):
    """Answers the quick instances and keeps the others waiting for ever."""

    def __init__(self, quick: set[str]) -> None:
        super().__init__()
        self.quick = quick

    async def execute(
        self, instance_id: str, parameters: dict[str, object], **kwargs: object
    ) -> object:
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
        async def execute(
            self, instance_id: str, parameters: dict[str, object], **kwargs: object
        ) -> object:
            if instance_id == "r1":
                raise GuardTripped("the sandbox is down")
            return await super().execute(instance_id, parameters, **kwargs)

    tool, batch = Guarded(set()), requests(3)
    with pytest.raises(GuardTripped, match="the sandbox is down"):
        await run_batch(RolloutDriver(ScriptedEngine(calling("3"), "Three."), [tool], PARSE), batch)
    assert [(r.state, r.ended_by) for r in batch] == [
        (State.FAILED, cause) for cause in (EndCause.CANCELLED, EndCause.ERROR, EndCause.CANCELLED)
    ]
    assert batch[1].failure == "GuardTripped: the sandbox is down"
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


class Pausing(RecordingTool):
    """Yields to the loop at every step, for calc_reward as many times as its request says, and
    rewards 1.0."""

    def __init__(self, rewarding: dict[str, int] | None = None) -> None:
        super().__init__()
        self.rewarding = rewarding or {}

    async def create(
        self, instance_id: str | None = None, **kwargs: Any
    ) -> tuple[str, ToolResponse]:
        await asyncio.sleep(0)
        made = await super().create(instance_id, **kwargs)
        await asyncio.sleep(0)
        return made

    async def execute(self, instance_id: str, parameters: dict[str, Any], **kwargs: Any) -> Any:
        await asyncio.sleep(0)
        return await super().execute(instance_id, parameters, **kwargs)

    async def calc_reward(self, instance_id: str, **kwargs: Any) -> float | None:
        for _ in range(self.rewarding.get(instance_id, 2)):
            await asyncio.sleep(0)
        return 1.0


def is_settled(batch: list[AsyncRolloutRequest], ended: list[str], tool: RecordingTool) -> None:
    """Every request is reported once, its tool released once, and it is either a whole sample or
    cancelled."""
    assert sorted(ended) == sorted(r.request_id for r in batch)
    assert tool.open_instances == []
    assert max(Counter(tool.released).values(), default=1) == 1
    for r in batch:
        if r.state is State.COMPLETED:
            assert (r.reward_scores, r.failure) == ({"code_interpreter": 1.0}, None)
        else:
            assert (r.state, r.ended_by, r.reward_scores) == (State.FAILED, EndCause.CANCELLED, {})


@pytest.mark.parametrize("again", [None, 1, 2])
async def test_a_batch_cancelled_at_any_step_reports_and_releases_every_request_once(
    again: int | None,
) -> None:
    for steps in itertools.count():
        tool, batch, ended = Pausing(), requests(2), list[str]()
        driver = RolloutDriver(ScriptedEngine(calling("3"), "Three."), [tool], PARSE)
        task = asyncio.ensure_future(
            run_batch(driver, batch, on_end=lambda r, into=ended: into.append(r.request_id))
        )
        for _ in range(steps):
            await asyncio.sleep(0)
        if steps and task.done():
            break
        task.cancel()
        if again is not None:
            for _ in range(again):
                await asyncio.sleep(0)
            task.cancel()
        await asyncio.wait([task])
        if steps:  # else the batch itself never began
            assert task.cancelled()
            is_settled(batch, ended, tool)
    assert {r.state for r in batch} == {State.COMPLETED}
    assert steps > 20


@pytest.mark.parametrize("enough", [1, 2])
async def test_enough_counts_requests_that_are_rewarded_and_released(enough: int) -> None:
    """A request cancelled while its reward was computed used to be COMPLETED without a reward, and
    not reported."""
    for rewarding in itertools.product(range(5), repeat=3):
        tool, batch, ended = (
            Pausing({f"r{n}": steps for n, steps in enumerate(rewarding)}),
            requests(3),
            list[str](),
        )
        driver = RolloutDriver(ScriptedEngine(calling("3"), "Three."), [tool], PARSE)
        await run_batch(
            driver, batch, enough=enough, on_end=lambda r, into=ended: into.append(r.request_id)
        )
        is_settled(batch, ended, tool)
        assert sum(r.state is State.COMPLETED for r in batch) >= enough


async def test_a_request_whose_reward_failed_is_not_enough() -> None:
    class Unsure(Pausing):
        async def calc_reward(self, instance_id: str, **kwargs: Any) -> float | None:
            if instance_id == "r0":
                raise OSError("no judge")
            return await super().calc_reward(instance_id)

    batch = await run_batch(
        RolloutDriver(ScriptedEngine("Three."), [Unsure({"r1": 9, "r2": 40})], PARSE),
        requests(3),
        enough=2,
    )
    assert [(r.state, r.failure) for r in batch] == [
        (State.COMPLETED, "OSError: no judge"),
        (State.COMPLETED, None),
        (State.COMPLETED, None),
    ]


async def test_on_end_is_called_once_for_each_request_even_if_it_raises() -> None:
    def raising(r: AsyncRolloutRequest) -> None:
        ended.append(r.request_id)
        raise KeyError(r.request_id)

    tool, batch, ended = Straggling({"r1"}), requests(3), list[str]()
    with pytest.raises(KeyError, match="r1"):
        await run_batch(
            RolloutDriver(ScriptedEngine(calling("3"), "ok"), [tool], PARSE), batch, on_end=raising
        )
    assert sorted(ended) == ["r0", "r1", "r2"]
    assert [r.ended_by for r in batch] == [
        EndCause.CANCELLED,
        EndCause.ANSWERED,
        EndCause.CANCELLED,
    ]
    assert tool.open_instances == []


class Stuck(RecordingTool):
    """Hangs in one step and ignores cancellation until ``let_go`` is set."""

    def __init__(self, step: str) -> None:
        super().__init__()
        self.step = step
        self.reached, self.let_go = asyncio.Event(), asyncio.Event()

    async def _hang(self, step: str) -> None:
        while step == self.step and not self.let_go.is_set():
            self.reached.set()
            try:
                await self.let_go.wait()
            except asyncio.CancelledError:
                continue

    async def create(
        self, instance_id: str | None = None, **kwargs: Any
    ) -> tuple[str, ToolResponse]:
        made = await super().create(instance_id, **kwargs)
        await self._hang("create")
        return made

    async def execute(self, instance_id: str, parameters: dict[str, Any], **kwargs: Any) -> Any:
        await self._hang("execute")
        return await super().execute(instance_id, parameters, **kwargs)

    async def calc_reward(self, instance_id: str, **kwargs: Any) -> float | None:
        await self._hang("calc_reward")
        return 1.0

    async def release(self, instance_id: str, **kwargs: Any) -> None:
        await self._hang("release")
        await super().release(instance_id)


STEPS = ["create", "execute", "calc_reward", "release"]


@pytest.mark.parametrize("step", STEPS)
def test_a_tool_that_hangs_cannot_keep_a_batch_from_being_cancelled(
    step: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def go() -> None:
        tool, ended = Stuck(step), list[str]()
        batch = [request(request_id="r0", limits=RolloutLimits(release_timeout=20.0))]
        task = asyncio.ensure_future(
            run_batch(
                RolloutDriver(ScriptedEngine(calling("3"), "ok"), [tool], PARSE),
                batch,
                on_end=lambda r: ended.append(r.request_id),
            )
        )
        await tool.reached.wait()
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()
        assert asyncio.get_running_loop().time() == pytest.approx(20.0)
        assert ended == ["r0"]
        assert batch[0].state is (State.COMPLETED if step == "release" else State.FAILED)
        tool.let_go.set()

    in_virtual_time(go)
    call = f" ({call_id('r0 1', 0)})" if step == "execute" else ""
    assert f"{step} of tool 'code_interpreter' for request 'r0'{call} does not stop" in caplog.text


@pytest.mark.parametrize("step", ["create", "calc_reward", "release"])
def test_a_step_that_hangs_ends_at_its_limit(step: str, caplog: pytest.LogCaptureFixture) -> None:
    async def go() -> None:
        tool = Stuck(step)
        limits = RolloutLimits(tool_timeout=50.0, release_timeout=5.0)
        (done,) = await run_batch(
            RolloutDriver(ScriptedEngine("ok"), [tool], PARSE),
            [request(request_id="r0", limits=limits)],
        )
        late = (
            f"StepTimeout: {step} of tool 'code_interpreter' for request 'r0' did not "
            "end within 50 s"
        )
        wanted = {
            "create": (State.FAILED, EndCause.TOOL_CREATION, late, 0),
            "calc_reward": (State.COMPLETED, EndCause.ANSWERED, late, 0),
            "release": (State.COMPLETED, EndCause.ANSWERED, None, 1),
        }
        assert (done.state, done.ended_by, done.failure, done.metrics.release_errors) == wanted[
            step
        ]
        assert asyncio.get_running_loop().time() == pytest.approx(
            5.0 if step == "release" else 55.0
        )
        tool.let_go.set()

    with caplog.at_level(logging.WARNING):
        in_virtual_time(go)
    assert f"{step} of tool 'code_interpreter' for request 'r0' did not end within" in caplog.text


async def test_a_tool_that_cancels_itself_does_not_cancel_the_batch() -> None:
    def cancelled(code: str) -> Any:
        raise asyncio.CancelledError

    batch = await run_batch(
        RolloutDriver(ScriptedEngine(calling("3"), "ok"), [RecordingTool(cancelled)], PARSE),
        requests(2),
    )
    assert [(r.state, r.metrics.tool_errors) for r in batch] == [(State.COMPLETED, 1)] * 2


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


class Stop(BaseException):
    pass


@pytest.mark.parametrize("step", STEPS)
async def test_an_error_that_is_not_an_exception_stops_the_batch(step: str) -> None:
    class Stopping(Stuck):
        async def _hang(self, step: str) -> None:
            if step == self.step:
                raise Stop(step)

    tool, batch, ended = Stopping(step), requests(3), list[str]()
    driver = RolloutDriver(ScriptedEngine(calling("1", "2"), "ok"), [tool], PARSE)
    with pytest.raises(Stop, match=step):
        await run_batch(driver, batch, enough=1, on_end=lambda r: ended.append(r.request_id))
    assert ended == ["r0", "r1", "r2"]
    if step != "release":
        assert {(r.state, r.ended_by, r.failure) for r in batch} == {
            (State.FAILED, EndCause.ERROR, f"Stop: {step}")
        }
        assert tool.open_instances == []


@pytest.mark.parametrize("error", [Stop, asyncio.CancelledError])
async def test_on_end_is_called_for_each_request_whatever_it_raises(
    error: type[BaseException],
) -> None:
    def raising(r: AsyncRolloutRequest) -> None:
        ended.append(r.request_id)
        raise error if len(ended) > 1 else KeyError(r.request_id)

    tool, batch, ended = RecordingTool(), requests(4), list[str]()
    with pytest.raises(error):
        await run_batch(
            RolloutDriver(ScriptedEngine(calling("3"), "ok"), [tool], PARSE), batch, on_end=raising
        )
    assert sorted(ended) == ["r0", "r1", "r2", "r3"]
    assert all(r.state.is_final for r in batch)
    assert tool.open_instances == []
