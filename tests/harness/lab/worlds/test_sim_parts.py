"""The parts of the simulated cluster: the link to the limiter, its deaths, and killed workers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from sfusion.harness.core.journal import Journal
from sfusion.harness.lab.scenarios.parts import LinkPart
from sfusion.harness.lab.worlds import sim
from sfusion.harness.lab.worlds.recorder import Recorder
from sfusion.harness.lab.worlds.sim import SimWorker
from sfusion.harness.lab.worlds.sim_limiter import Link, SimLimiter
from sfusion.harness.lab.worlds.virtual_time import run_virtually
from sfusion_tools.errors import LimiterUnreachable
from sfusion_tools.limiter import Limiter, LimiterSettings
from sfusion_tools.limiter.messages import Attach, Batch, Poll
from sfusion_tools.rollout import RolloutLimits
from tests.harness.lab.promises import scenes
from tests.sfusion_tools.limiter.holding import give, take

Scene = Callable[["Cluster"], Coroutine[Any, Any, Any]]


class Cluster:
    def __init__(self, **settings: Any) -> None:
        self.journal = Journal.begin(scenario="parts", cell="", seed=0, world="sim")
        self.recorder = Recorder(self.journal, asyncio.get_running_loop().time)
        self.limiter = SimLimiter(
            LimiterSettings(**{"rate_limit": 2, "lease": 6.0, **settings}), self.recorder
        )
        self.limiter.start()

    def link(self, name: str = "n1-w1", **part: Any) -> Link:
        return Link(name, self.limiter, LinkPart.model_validate(part), seed=0)

    def events(self, name: str) -> list[dict[str, Any]]:
        return [event for event in self.journal.events if event["event"] == name]


def play(scene: Scene, **settings: Any) -> Any:
    async def main() -> Any:
        return await scene(Cluster(**settings))

    return run_virtually(main())


def test_the_delay_applies_in_both_directions() -> None:
    async def scene(cluster: Cluster) -> float:
        await cluster.link(delay="50ms").exchange(Batch("n1-w1", detach=True))
        return asyncio.get_running_loop().time()

    assert play(scene) == pytest.approx(0.1)


def test_the_same_messages_are_lost_in_every_run() -> None:
    async def scene(cluster: Cluster) -> list[bool]:
        link = cluster.link(loss=0.3)
        arrived = []
        for _ in range(40):
            try:
                await link.exchange(Batch("n1-w1", detach=True))
                arrived.append(True)
            except LimiterUnreachable:
                arrived.append(False)
        return arrived

    first = play(scene)
    assert first == play(scene)
    assert 10 < sum(first) < 35


def test_a_cut_link_raises_and_works_again_once_restored() -> None:
    async def scene(cluster: Cluster) -> None:
        link = cluster.link()
        link.is_cut = True
        with pytest.raises(LimiterUnreachable):
            await link.exchange(Batch("n1-w1", detach=True))
        link.is_cut = False
        await link.exchange(Batch("n1-w1", detach=True))

    play(scene)


def test_waiting_at_a_limiter_fails_at_once_when_it_dies() -> None:
    async def scene(cluster: Cluster) -> float:
        link = cluster.link()
        epoch = (await link.exchange(Batch("n1-w1", attach=Attach((), ())))).version
        await link.wait(Poll("n1-w1", epoch, 1, 0.0))
        waiting = asyncio.ensure_future(link.wait(Poll("n1-w1", epoch, 2, 100.0)))
        await asyncio.sleep(1)
        died = asyncio.get_running_loop().time()
        await cluster.limiter.kill()
        with pytest.raises(LimiterUnreachable):
            await waiting
        return asyncio.get_running_loop().time() - died

    assert play(scene) == 0


def test_queued_callers_are_served_by_the_restarted_limiter() -> None:
    async def scene(cluster: Cluster) -> None:
        limiter = Limiter(cluster.link(), name="n1-w1")
        held = [await take(limiter) for _ in range(2)]
        third = asyncio.ensure_future(take(limiter))
        await asyncio.sleep(1)
        await cluster.limiter.kill()
        await asyncio.sleep(1)
        assert not third.done()
        cluster.limiter.start()
        await give(held[0])
        await third
        assert [event["life"] for event in cluster.events("limiter_started")] == [1, 2]
        await limiter.aclose()

    play(scene)


def test_a_restarted_limiter_grants_nothing_before_it_has_learned_what_is_held() -> None:
    async def scene(cluster: Cluster) -> tuple[float, int]:
        loop = asyncio.get_running_loop()
        holder, asker = (
            Limiter(cluster.link("n1-w1"), name="n1-w1"),
            Limiter(cluster.link("n2-w1"), name="n2-w1"),
        )
        held = [await take(holder) for _ in range(2)]
        await cluster.limiter.kill()
        cluster.limiter.start()
        waiting = asyncio.ensure_future(take(asker))
        await asyncio.sleep(20)
        learned = len(cluster.events("learned"))
        assert not waiting.done()
        assert len(held) == 2, "a permit that nobody refers to would return"
        waiting.cancel()
        await holder.aclose()
        await asker.aclose()
        return loop.time(), learned

    assert play(scene)[1] == 2


class Holder:
    """A tool whose calls hold a permit until they are cancelled."""

    def __init__(self, worker: SimWorker) -> None:
        self._worker = worker

    async def create(self, instance_id: str, **_: Any) -> str:
        return instance_id

    async def execute(self, instance_id: str, parameters: Any, **_: Any) -> str:
        limiter = self._worker.limiter()
        assert limiter is not None
        permit = await take(limiter)
        try:
            await asyncio.sleep(1000)
        finally:
            self._worker.client_event("permit_released", {"call": instance_id})
            await give(permit)
        return ""

    async def release(self, instance_id: str, **_: Any) -> None: ...


def test_a_killed_worker_releases_no_permit_and_records_nothing() -> None:
    async def scene(cluster: Cluster) -> None:
        worker = SimWorker(
            "n1-w1", scenes.scene(), cluster.recorder, cluster.link(), RolloutLimits()
        )
        worker._tools = [Holder(worker)]
        calling = asyncio.ensure_future(worker.call(1))
        await asyncio.sleep(1)
        await worker.die()
        await calling
        assert [event["call"] for event in cluster.events("lost")] == ["c0001"]
        assert not cluster.events("permit_released")
        assert (await cluster.limiter.snapshot()).in_use == 1  # type: ignore[union-attr] # it is alive
        await asyncio.sleep(10)
        assert (await cluster.limiter.snapshot()).in_use == 0  # type: ignore[union-attr] # it is alive
        assert len(cluster.events("expired")) == 1

    play(scene)


def test_a_paused_worker_loses_its_permits_and_gets_new_ones_afterwards() -> None:
    async def scene(cluster: Cluster) -> None:
        link = cluster.link()
        limiter = Limiter(link, name="n1-w1")
        permit = await take(limiter)
        link.open.clear()
        await asyncio.sleep(10)
        assert (await cluster.limiter.snapshot()).in_use == 0  # type: ignore[union-attr] # it is alive
        link.open.set()
        await give(permit)
        again = await take(limiter)
        assert again.id != permit.id
        await give(again)
        await limiter.aclose()

    play(scene)


def test_all_calls_of_a_step_end_before_the_next_step_begins() -> None:
    load = {
        "calls": 10,
        "concurrency": 4,
        "steps": 3,
        "step_pause": "5s",
        "program": {"seconds": "1s"},
    }
    journal = sim.run(scenes.scene(load=load))
    names = [(one["event"], one.get("call")) for one in journal.events if one["source"] == "world"]
    steps = [place for place, (event, _) in enumerate(names) if event == "step_ended"]
    assert len(steps) == 2
    for place, made in zip(steps, (3, 6), strict=True):
        before = [event for event, _ in names[:place]]
        assert (before.count("called"), before.count("returned")) == (made, made)
    assert [call for event, call in names if event == "called"] == [
        f"c{number:04d}" for number in range(1, 11)
    ]
