"""Server models: quota, queue and contention, as pure rules and on virtual time."""

from __future__ import annotations

import asyncio
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfusion.fakes.sandbox import (
    FakeSandbox,
    Queue,
    Quota,
    SandboxSetupError,
    Unbounded,
    read_model,
)
from sfusion.fakes.sandbox.executors.scripted import ScriptedExecutor
from sfusion.fakes.sandbox.gate import Gate
from sfusion.fakes.sandbox.models import QueueLine, QuotaCounter, SharedCores
from sfusion.fakes.sandbox.protocol import RunCode
from sfusion.harness.lab.worlds.virtual_time import run_virtually
from tests.fakes.sandbox.memory import MemoryConnection
from tests.fakes.wire.raw import PING, run_code


def test_model_is_a_name_or_a_mapping_with_its_kind() -> None:
    assert read_model(None) == Unbounded()
    assert read_model({"kind": "quota", "in_flight": 8}) == Quota(in_flight=8)
    assert read_model({"kind": "queue", "workers": 4, "waiting": 2}) == Queue(workers=4, waiting=2)
    assert read_model("unbounded") == Unbounded()
    assert (
        read_model({"kind": "quota", "per_second": 5, "retry_after": "500ms"}).model_dump()[
            "retry_after"
        ]
        == 0.5
    )


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        ("quotta", "did you mean 'quota'"),
        ({"quota": 8}, "write {kind: quota, in_flight: 8, ...}"),
        ({"queue": 3, "waiting": 2}, "write {kind: queue, workers: 3, ...}"),
        ({"kind": "quota", "in_flight": 8, "queue": 3}, "unknown key 'queue'"),
        ({"kind": "quota", "in_fligt": 3}, "unknown key 'in_fligt'; did you mean 'in_flight'"),
        ({"kind": "quota", "in_flight": 0}, "greater than or equal to 1"),
        (7, "a server model has a kind"),
    ],
)
def test_invalid_model_is_refused_with_a_clear_error(value: object, sentence: str) -> None:
    with pytest.raises(SandboxSetupError, match=sentence):
        read_model(value)


def test_quota_per_second_admits_a_burst_then_returns_retry_after() -> None:
    counter = QuotaCounter(Quota(per_second=2, burst=3))
    assert [counter.admit(0.0) for _ in range(4)] == [None, None, None, 0.5]
    assert counter.admit(0.25) == pytest.approx(0.25)
    assert counter.admit(0.5) is None
    assert counter.admit(100.0) is None
    assert [counter.admit(100.0) for _ in range(3)] == [None, None, 0.5], (
        "the bucket holds no more than the burst"
    )


@settings(max_examples=25)
@given(st.integers(1, 5), st.lists(st.booleans(), max_size=60))
def test_quota_in_flight_is_never_exceeded(limit: int, arrivals: list[bool]) -> None:
    counter = QuotaCounter(Quota(in_flight=limit))
    inside = 0
    for arrives in arrivals:
        if arrives:
            admitted = counter.admit(0.0) is None
            assert admitted == (inside < limit)
            inside += admitted
        elif inside:
            counter.leave()
            inside -= 1
        assert counter.in_flight == inside <= limit


@settings(max_examples=25)
@given(
    st.integers(1, 4),
    st.none() | st.integers(0, 3),
    st.lists(st.sampled_from(["come", "done", "give up"])),
)
def test_queue_is_first_come_first_served(
    workers: int, waiting: int | None, steps: list[str]
) -> None:
    line = QueueLine(Queue(workers=workers, waiting=waiting))
    expected: list[int] = []
    working = number = 0
    for step in steps:
        if step == "come":
            number += 1
            got = line.enter(number)
            if working < workers and not expected:
                assert got == "in"
                working += 1
            elif waiting is not None and len(expected) >= waiting:
                assert got == "away"
            else:
                assert got == "wait"
                expected.append(number)
        elif step == "done" and working:
            following = line.leave()
            assert following == (expected.pop(0) if expected else None)
            working -= following is None
        elif step == "give up" and expected:
            line.give_up(expected.pop())
        assert line.working == working <= workers


def test_oldest_waiter_runs_next() -> None:
    line = QueueLine(Queue(workers=1))
    assert [line.enter(name) for name in "abc"] == ["in", "wait", "wait"]
    assert [line.leave() for _ in range(3)] == ["b", "c", None]


def test_cancelled_waiter_frees_its_place_in_the_queue() -> None:
    async def scene() -> list[bool]:
        gate = Gate(Queue(workers=1, waiting=1))
        assert await gate.admit() is None
        waiting = asyncio.create_task(gate.admit())
        await asyncio.sleep(0)
        full = await gate.admit() is not None
        waiting.cancel()
        await asyncio.sleep(0)
        following = asyncio.create_task(gate.admit())
        await asyncio.sleep(0)
        gate.leave()
        return [full, await following is None]

    assert run_virtually(scene()) == [True, True]


def test_programs_share_cores() -> None:
    cores = SharedCores(2.0)
    for program in range(4):
        cores.add(program, 1.0, 0.0)
    assert cores.next_end() == (2.0, [0, 1, 2, 3]), "four programs on two cores take twice as long"
    cores.remove(0, 1.0)
    cores.remove(1, 1.0)
    assert cores.next_end() == (1.5, [2, 3]), "alone, they run at full speed"


async def _took(gate: Gate, work: list[float]) -> list[float]:
    loop = asyncio.get_running_loop()
    begun = loop.time()

    async def one(seconds: float) -> float:
        await gate.spawn()
        await gate.work(seconds)
        return round(loop.time() - begun, 6)

    return list(await asyncio.gather(*(one(seconds) for seconds in work)))


def test_service_time_grows_with_the_number_in_flight() -> None:
    alone = run_virtually(_took(Gate(Unbounded(cores=8)), [1.0]))
    many = run_virtually(_took(Gate(Unbounded(cores=8)), [1.0] * 128))
    assert alone == [1.0]
    assert set(many) == {16.0}


def test_the_time_limit_of_a_program_is_by_the_clock_however_little_of_a_core_it_gets() -> None:
    async def scene() -> list[tuple[str, float, float]]:
        executor = ScriptedExecutor(default={"seconds": 0.8}, work=Gate(Unbounded(cores=1)).work)
        loop = asyncio.get_running_loop()

        async def one(timeout: float) -> tuple[str, float, float]:
            answer = await executor.run_code(RunCode("x", "python", run_timeout=timeout))
            assert answer.run_result is not None
            assert answer.run_result.execution_time is not None
            return answer.run_result.status, answer.run_result.execution_time, round(loop.time(), 6)

        return list(await asyncio.gather(one(1.0), one(10.0), one(1.5)))

    # A third of the core each for 1 s, half for 0.5 s, and the rest alone.
    assert run_virtually(scene()) == [
        ("TimeLimitExceeded", 1.0, 1.0),
        ("Finished", pytest.approx(1.716667), pytest.approx(1.716667)),
        ("TimeLimitExceeded", 1.5, 1.5),
    ]


def test_spawning_blocks_the_loop_as_on_the_real_server() -> None:
    # Measured there: sleep(1) x 64 took 3.3 s, x 128 took 6.0 s.
    gate = Gate(Unbounded(spawn_cost=0.04))
    assert max(run_virtually(_took(gate, [1.0] * 64))) == pytest.approx(1 + 64 * 0.04)


def test_cancelled_program_returns_its_share_of_the_cores() -> None:
    async def scene() -> float:
        gate = Gate(Unbounded(cores=1))
        loop = asyncio.get_running_loop()
        victim = asyncio.create_task(gate.work(100.0))
        other = asyncio.create_task(gate.work(2.0))
        await asyncio.sleep(2.0)
        victim.cancel()
        await other
        return loop.time()

    assert run_virtually(scene()) == pytest.approx(3.0), "half speed for 2 s, then full speed"


def test_ping_stalls_while_programs_are_started() -> None:
    async def scene() -> float | None:
        sandbox = FakeSandbox(model={"kind": "unbounded", "spawn_cost": 0.1})
        sandbox.server.attach()
        for run in [MemoryConnection(sandbox.server) for _ in range(5)]:
            run.send(run_code("# sfusion:call=a seconds=1"))
        await asyncio.sleep(0.01)
        ping = MemoryConnection(sandbox.server)
        ping.send(PING)
        await asyncio.sleep(60.0)
        await sandbox.stop()
        return ping.received_at

    assert run_virtually(scene()) == pytest.approx(0.5)


def test_idle_connection_is_closed_after_five_seconds() -> None:
    async def scene() -> tuple[float | None, float | None]:
        sandbox = FakeSandbox()
        sandbox.server.attach()
        silent, idle = MemoryConnection(sandbox.server), MemoryConnection(sandbox.server)
        await asyncio.sleep(100.0)
        idle.send(PING)
        await asyncio.sleep(100.0)
        ends = silent.closed_at, idle.closed_at
        await sandbox.stop()
        return ends

    silent, idle = run_virtually(scene())
    assert silent is None, "the clock starts with the first answer"
    assert idle == pytest.approx(105.0)


def test_queue_makes_requests_wait_or_turns_them_away() -> None:
    async def scene() -> tuple[list[int], int]:
        sandbox = FakeSandbox(
            model={"kind": "queue", "workers": 2, "waiting": 3, "retry_after": 1.5}
        )
        sandbox.server.attach()
        runs = [MemoryConnection(sandbox.server) for _ in range(8)]
        for number, run in enumerate(runs):
            run.send(run_code(f"# sfusion:call=c{number} seconds=1"))
        await asyncio.sleep(60.0)
        statuses = [int(run.received.split(b" ", 2)[1]) for run in runs]
        assert b"retry-after: 1.5\r\n" in runs[-1].received
        await sandbox.stop()
        return statuses, sandbox.ledger.peak_executing

    assert run_virtually(scene()) == ([200] * 5 + [503] * 3, 2)


@pytest.mark.parametrize(
    ("work", "ends"),
    [([1.0, 2.0], [2.0, 3.0]), ([1.0, 2.0, 3.0], [3.0, 5.0, 6.0]), ([0.1] * 3, [0.3] * 3)],
)
def test_shared_core_does_all_of_the_work_and_no_more(work: list[float], ends: list[float]) -> None:
    assert run_virtually(_took(Gate(Unbounded(cores=1)), work)) == ends


@settings(max_examples=25)
@given(
    st.integers(1, 3),
    st.lists(st.tuples(st.integers(0, 20), st.integers(1, 20)), min_size=1, max_size=8),
)
def test_programs_on_shared_cores_end_as_in_a_simulation_in_small_steps(
    cores: int, programs: list[tuple[int, int]]
) -> None:
    async def scene() -> list[float]:
        gate, loop = Gate(Unbounded(cores=cores)), asyncio.get_running_loop()
        begun = loop.time()

        async def one(at: int, work: int) -> float:
            await asyncio.sleep(at)
            await gate.work(work)
            return loop.time() - begun

        return list(await asyncio.gather(*(one(at, work) for at, work in programs)))

    left = [Fraction(work) for _, work in programs]
    now, ends = Fraction(0), [0.0] * len(programs)
    while any(left):
        running = [n for n, (at, _) in enumerate(programs) if at <= now and left[n]]
        coming = [Fraction(at) - now for at, _ in programs if at > now]
        speed = min(Fraction(1), Fraction(cores, len(running))) if running else Fraction(1)
        step = min([left[n] / speed for n in running] + coming)
        now += step
        for n in running:
            left[n] -= step * speed
            if not left[n]:
                ends[n] = float(now)
    assert run_virtually(scene()) == pytest.approx(ends)
