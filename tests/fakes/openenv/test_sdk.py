"""OpenEnv's own clients: whole episodes, and what they do under each fault."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from sfusion.fakes.openenv import FakeOpenEnv
from tests.fakes.lifecycle.watching import Event, done, executed, requests
from tests.sfusion_tools.sandbox.helpers import until

pytest.importorskip("openenv", reason="needs openenv-core: tox -e lifecycle")

from openenv.core.generic_client import GenericEnvClient
from websockets.exceptions import ConnectionClosed, ConnectionClosedError, ConnectionClosedOK


def code(call: str, prints: str = "hello") -> dict[str, str]:
    return {"code": f'x # sfusion:call={call} prints="{prints}"'}


class Bench:
    """A fake with its events."""

    def __init__(self, **options: Any) -> None:
        self.events: list[Event] = []
        self.fake = FakeOpenEnv(executor="scripted", journal=self.events.append, **options)

    async def __aenter__(self) -> Bench:
        await self.fake.start()
        return self

    async def __aexit__(self, *raised: object) -> None:
        await self.fake.stop(grace=1)

    def client(self, **options: Any) -> Any:
        return GenericEnvClient(base_url=self.fake.url, **options)

    async def live(self, count: int) -> None:
        """Wait until so many environments are live."""
        await until(lambda: self.fake.snapshot()["live"] == count)


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_a_whole_episode(kind: str) -> None:
    async def episode() -> None:
        client = GenericEnvClient(base_url=fake.url)
        if kind == "sync":
            client = client.sync()
        assert (await done(client.reset(episode_id="e1"))).reward is None
        stepped = await done(client.step(code("c1")))
        assert (stepped.observation["stdout"], stepped.reward) == ("hello", 1.0)
        assert (await done(client.state()))["step_count"] == 1
        await done(client.close())

    events: list[Event] = []
    with FakeOpenEnv(executor="scripted", journal=events.append, model={"boot": "50ms"}) as fake:
        asyncio.run(episode())
        assert fake.orphans() == []
    names = [event["event"] for event in events if event["event"].startswith("sandbox_")]
    assert names == ["sandbox_created", "sandbox_ready", "sandbox_deleting", "sandbox_deleted"]
    assert [event["episode"] for event in events if "instance" in event] == ["", "", "e1", "e1"]


async def test_after_one_timeout_every_step_gets_the_answer_of_the_step_before() -> None:
    """With its reward, silently (OpenEnv#1143)."""
    late = {"on": "exec", "phase": "after", "call": "c1", "what": {"delay": "500ms"}}
    async with Bench(faults=[late]) as bench:
        client = bench.client(message_timeout_s=0.1)
        await client.reset()
        with pytest.raises(TimeoutError):
            await client.step(code("c1", "one"))
        client._message_timeout = 30
        for number, before in enumerate(("one", "two", "three"), start=2):
            words = {2: "two", 3: "three", 4: "four"}
            answer = await client.step(code(f"c{number}", words[number]))
            assert (answer.observation["stdout"], answer.reward) == (before, 1.0)


async def test_a_client_that_finds_no_room_is_dead_for_good() -> None:
    async with Bench(model={"live": 2}) as bench:
        clients = [bench.client() for _ in range(3)]
        await clients[0].reset()
        await clients[1].reset()
        with pytest.raises(RuntimeError, match="CAPACITY_REACHED"):
            await clients[2].reset()
        await clients[0].close()
        await bench.live(1)
        with pytest.raises(ConnectionClosedOK):
            await clients[2].reset()


async def test_an_environment_that_raises_goes_on() -> None:
    script = {"exact": "raise", "sandbox_error": "broken"}
    async with Bench(scripts=[script]) as bench:
        client = bench.client()
        await client.reset()
        with pytest.raises(RuntimeError, match=r"broken \(code: EXECUTION_ERROR\)"):
            await client.step({"code": "raise"})
        assert (await client.step(code("c1"))).reward == 1.0


@pytest.mark.parametrize(
    ("what", "expected"),
    [
        ({"death": "reset"}, ConnectionClosedError),
        ({"death": "gone"}, ConnectionClosedError),
        ({"death": "cut"}, ConnectionClosedError),
        ({"status": 503}, ConnectionClosedError),
        ({"close": True}, ConnectionClosedError),
        ({"early_end": 0}, ConnectionClosedOK),
    ],
)
async def test_a_socket_that_dies_in_a_step_is_never_opened_again(
    what: dict[str, Any], expected: type[ConnectionClosed]
) -> None:
    async with Bench(faults=[{"on": "exec", "what": what}]) as bench:
        client = bench.client()
        await client.reset()
        for _ in range(2):
            with pytest.raises(expected):
                await client.step(code("c1"))
        assert requests(bench.events, "create") == 1
        await bench.live(0)


async def test_a_step_after_close_opens_a_fresh_environment_and_is_rewarded() -> None:
    async with Bench() as bench:
        client = bench.client()
        await client.reset(episode_id="e1")
        await client.close()
        assert (await client.step(code("c1"))).reward == 1.0
        assert requests(bench.events, "create") == 2
        assert requests(bench.events, "ready") == 1
        arrived = [event for event in bench.events if event["event"] == "arrived"]
        assert arrived[-1]["sent"]["episode"] == ""


async def test_a_client_that_goes_without_a_word_leaves_no_environment() -> None:
    async with Bench() as bench:
        client = bench.client()
        await client.reset()
        await bench.live(1)
        client._ws.transport.abort()
        await bench.live(0)
        assert requests(bench.events, "delete") == 0


async def test_a_half_open_connection_keeps_its_place_until_it_idles_out() -> None:
    """All slots leaked in about a day (OpenEnv#1000)."""
    async with Bench(model={"live": 1, "idle": "300ms"}) as bench:
        held = bench.client()
        await held.reset()
        with pytest.raises(RuntimeError, match="CAPACITY_REACHED"):
            await bench.client().reset()
        await bench.live(0)
        await bench.client().reset()
        with pytest.raises(ConnectionClosedError):
            await held.step(code("c1"))
        assert executed(bench.events, "c1") == 0
