"""Schedules: any order that real processes and networks could have, decided by a seed, and no
other."""

from __future__ import annotations

import asyncio
import itertools
import socket
import time
from contextvars import copy_context
from typing import Any

import pytest

from sfusion.harness.core.journal import Journal
from sfusion.harness.errors import BadOption
from sfusion.harness.lab.scenarios import parse_scenarios
from sfusion.harness.lab.scenarios.parts import SchedulePart, read_schedule
from sfusion.harness.lab.worlds import sim
from sfusion.harness.lab.worlds.schedules import ScheduledQueue, make_schedule, running_as
from sfusion.harness.lab.worlds.virtual_time import VirtualTimeLoop, run_virtually
from sfusion.harness.search.hunt.generate import named
from tests.cases import every
from tests.harness.lab.runs.test_determinism import STORMY
from tests.reference_tool import GoodTool, tool_config

SEEDED = [{key: seed} for seed in range(20) for key in ("random", "priority")]


def queue(**schedule: Any) -> ScheduledQueue:
    return ScheduledQueue(make_schedule(SchedulePart(**schedule)))


def orders(scene: Any) -> set[tuple[Any, ...]]:
    """Return what a scene returns under many schedules; it is deterministic under each of them."""
    found = set()
    for schedule in SEEDED:
        one, two = (tuple(run_virtually(scene(), queue(**schedule))) for _ in range(2))
        assert one == two
        found.add(one)
    assert tuple(run_virtually(scene())) in found
    return found


async def _settled() -> None:
    await asyncio.sleep(1)


def test_callbacks_of_one_process_keep_their_order_and_those_of_two_do_not() -> None:
    async def scene() -> list[str]:
        seen: list[str] = []
        for process, number in itertools.product(("a", "b"), (1, 2)):
            with running_as(process):
                asyncio.get_running_loop().call_soon(seen.append, f"{process}{number}")
        await _settled()
        return seen

    found = orders(scene)
    assert len(found) == 6, "all orders of two pairs"
    assert all(
        order.index("a1") < order.index("a2") and order.index("b1") < order.index("b2")
        for order in found
    )


def test_one_connection_stays_in_order_and_never_overtakes_what_was_ready_before() -> None:
    async def scene() -> list[str]:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualTimeLoop)
        seen: list[str] = []
        with running_as("a"):
            loop.call_soon(seen.append, "before")
            context = copy_context()
        for end, number in itertools.product((1, 2), (1, 2)):
            loop.call_on_arrival(seen.append, f"{end}.{number}", end=end, context=context)
        with running_as("a"):
            loop.call_soon(seen.append, "after")
        await _settled()
        return seen

    found = orders(scene)
    assert {order[0] for order in found} == {"before"}
    assert all(
        order.index(f"{end}.1") < order.index(f"{end}.2") for order in found for end in (1, 2)
    )
    assert {order.index("after") for order in found} > {1, 5}
    assert {order.index("1.1") < order.index("2.1") for order in found} == {True, False}


def test_timers_of_one_process_swap_only_if_they_are_due_at_the_same_time() -> None:
    async def scene() -> list[str]:
        loop = asyncio.get_running_loop()
        seen: list[str] = []
        for name, seconds in (("late", 0.2), ("early", 0.1), ("too", 0.2)):
            loop.call_later(seconds, seen.append, name)
        time.sleep(0.5)  # noqa: ASYNC251 - all of them are overdue when the loop runs again
        await _settled()
        return seen

    assert orders(scene) == {("early", "late", "too"), ("early", "too", "late")}


@every(SEEDED, str)
def test_a_timer_or_callback_that_was_cancelled_changes_nothing(schedule: dict[str, int]) -> None:
    """Which of them a library starts and cancels depends on its version, and a journal must not."""

    async def scene(cancelled: int) -> list[str]:
        loop = asyncio.get_running_loop()
        seen: list[str] = []
        for process in ("a", "b", "c"):
            with running_as(process):
                loop.call_later(1, seen.append, process)
                for _ in range(cancelled):
                    loop.call_later(1, seen.append, "never").cancel()
        await _settled()
        for process in ("a", "b", "c"):
            with running_as(process):
                for _ in range(cancelled):
                    loop.call_soon(seen.append, "never").cancel()
                loop.call_soon(seen.append, process)
        await _settled()
        return seen

    def played(cancelled: int) -> tuple[list[str], int, list[tuple[int, int]]]:
        callbacks = queue(**schedule)
        return run_virtually(scene(cancelled), callbacks), callbacks.steps, callbacks.deviations

    assert played(2) == played(0)


def test_a_connection_is_made_before_bytes_arrive_in_order_before_it_is_lost() -> None:
    """Under every schedule, also while other connections are busy."""

    class Server(asyncio.Protocol):
        def __init__(self, seen: list[str]) -> None:
            self.seen = seen

        def connection_made(self, transport: Any) -> None:
            self.seen.append("made")

        def data_received(self, data: bytes) -> None:
            self.seen.append(data.decode())

        def connection_lost(self, error: Exception | None) -> None:
            self.seen.append("lost")

    async def scene() -> list[str]:
        loop = asyncio.get_running_loop()
        logs: list[list[str]] = []

        def accept() -> Server:
            logs.append([])
            return Server(logs[-1])

        with running_as("server"):
            sock = socket.create_server(("127.0.0.1", 0))
            server = await loop.create_server(accept, sock=sock)

        async def talk() -> None:
            transport, _ = await loop.create_connection(asyncio.Protocol, *sock.getsockname())
            for piece in "abcde":
                transport.write(piece.encode())
                await asyncio.sleep(0)
            transport.close()

        await asyncio.gather(*(talk() for _ in range(3)))
        await _settled()
        server.close()
        return ["|".join([log[0], "".join(log[1:-1]), log[-1]]) for log in logs]

    assert orders(scene) == {("made|abcde|lost",) * 3}


def test_a_process_that_polls_does_not_stop_the_others_whatever_its_priority() -> None:
    async def scene() -> list[str]:
        done = asyncio.Event()

        async def poll() -> None:
            while not done.is_set():  # noqa: ASYNC110 - as a careless tool does
                await asyncio.sleep(0)

        with running_as("polling"):
            polling = asyncio.ensure_future(poll())
        with running_as("other"):
            asyncio.get_running_loop().call_soon(done.set)
        await polling
        return ["ended"]

    assert orders(scene) == {("ended",)}


def test_tasks_that_wait_until_a_time_get_there_although_timers_fire_a_rounding_error_early() -> (
    None
):
    async def scene() -> list[float]:
        loop = asyncio.get_running_loop()
        await asyncio.sleep(0.581)
        until = 5.015
        assert loop.time() + (until - loop.time()) < until, "a rounding error"

        async def wait(hops: int) -> None:
            await asyncio.sleep(until - loop.time())
            for _ in range(hops):  # the two never sleep in the same iteration of the loop
                await asyncio.sleep(0)
            while loop.time() < until:  # noqa: ASYNC110 - as the limiter does
                await asyncio.sleep(until - loop.time())

        await asyncio.gather(wait(0), wait(1))
        return [round(loop.time(), 6)]

    assert run_virtually(scene()) == [5.015]


def stormy(**keys: Any) -> Journal:
    return sim.run(parse_scenarios(STORMY)[0].changed(**keys))


@pytest.mark.parametrize("schedule", [{"random": 3}, {"priority": 3, "changes": 8}], ids=str)
def test_the_deviations_in_a_journal_are_the_whole_schedule(schedule: dict[str, int]) -> None:
    seeded, again, fifo = stormy(schedule=schedule), stormy(schedule=schedule), stormy()
    assert seeded.digest() == again.digest()
    last = seeded.events[-1]
    assert last["event"] == "scheduled"
    assert 100 < len(last["deviations"]) < last["steps"]
    explicit = stormy(schedule={"deviations": last["deviations"]})
    assert explicit.digest() == seeded.digest()
    assert fifo.events != seeded.events[:-1], "the schedule changes the run"


@pytest.mark.parametrize("seed", range(5))
def test_the_answer_to_the_last_call_is_recorded_however_late_the_sandbox_is(seed: int) -> None:
    data = {
        "tools": tool_config(GoodTool),
        "load": {"calls": 1, "concurrency": 1, "program": {"prints": "{fill:262144}"}},
        "schedule": {"priority": seed},
    }
    events = [event["event"] for event in sim.run(named(data)).events]
    assert "answered" in events[: events.index("ended")]


def test_without_deviations_the_order_is_first_in_first_out() -> None:
    impossible = stormy(schedule={"deviations": [[5, 10_000]]})
    assert impossible.events.pop()["deviations"] == []
    assert impossible.events == stormy().events


def test_what_the_command_line_calls_a_schedule() -> None:
    assert read_schedule("7") == {"random": 7}
    assert read_schedule("priority:7") == {"priority": 7}
    assert read_schedule("priority:7:0") == {"priority": 7, "changes": 0}
    for wrong in ("", "-1", "priority", "priority:", "priority:1:2:3", "random:7", "٣"):
        with pytest.raises(BadOption, match="SEED"):
            read_schedule(wrong)


@pytest.mark.parametrize(
    ("schedule", "says"),
    [
        ({}, "exactly one of"),
        ({"random": 1, "priority": 1}, "exactly one of"),
        ({"random": 1, "changes": 2}, "belongs to"),
        ({"deviations": [[5, 1], [5, 2]]}, "must increase"),
        ({"deviations": [[5, 0]]}, "greater than or equal to 1"),
    ],
)
def test_schedules_that_make_no_sense_are_refused(schedule: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        SchedulePart(**schedule)
