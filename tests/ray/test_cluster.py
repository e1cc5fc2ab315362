"""The limiter of a whole cluster: three nodes, with processes that are really killed.

The names ``rate_limiter`` and ``rotten_execution`` are those of the tests in verl's original
design.
"""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import os
import signal
import subprocess
from typing import Any

import pytest
import ray

from sfusion.fakes.sandbox import FakeSandbox
from sfusion_tools.errors import LimiterError, ProtocolMismatch
from sfusion_tools.limiter import LimiterSettings
from sfusion_tools.limiter.messages import PROTOCOL, Attach, Batch, packed
from sfusion_tools.limiter.ray_limiter import (
    NAMESPACE,
    TokenBucketWorker,
    connect,
    find,
    ray_limiter,
    remove,
)
from sfusion_tools.sandbox_fusion_tools import PoolMode, init_execution_pool
from tests.patience import PATIENCE
from tests.ray.actors import Gate, Holder, OldLimiter, Trainer, node_options, snapshot, until
from tests.ray.processes import Watched
from tests.sfusion_tools.limiter.holding import give, take
from tests.warm import warm

pytestmark = pytest.mark.usefixtures("cluster")


def printed_by(script: str, *arguments: str) -> Any:
    """Run a script in a process of its own; return what it prints, which is JSON."""
    command = [warm("python"), "-c", script, *arguments]
    return json.loads(
        subprocess.run(
            command, stdout=subprocess.PIPE, text=True, timeout=PATIENCE, check=True
        ).stdout
    )


class TestMultiNodeRateLimiterCase:
    """Pools on several nodes share one limit."""

    @pytest.mark.usefixtures("fresh_default_limiter")
    def test_rate_limiter(self, gate: Gate) -> None:
        pools = [init_execution_pool(4, rate_limit=3, mode=PoolMode.ThreadMode) for _ in range(3)]
        calls = [
            pool.execute.remote(gate.through, f"{n}/{i}")
            for n, pool in enumerate(pools)
            for i in range(4)
        ]
        gate.wait_for(3)
        until(lambda: snapshot("rate-limiter").waiting == 9)
        gate.open()
        assert sorted(ray.get(calls)) == sorted(f"{n}/{i}" for n in range(3) for i in range(4))
        assert gate.peak <= 3

    @pytest.mark.usefixtures("fresh_default_limiter")
    def test_rotten_execution(self) -> None:
        pools = [init_execution_pool(2, rate_limit=1) for _ in range(2)]
        assert (
            ray.get([pool.execute.remote(int, "rotten") for pool in pools for _ in range(3)])
            == [None] * 6
        )
        assert snapshot("rate-limiter").in_use == 0, "a result comes after its permit is back"

    def test_clients_on_several_nodes_share_the_limit(self, limiter_name: str) -> None:
        holders = [
            Holder.options(**node_options(n)).remote(limiter_name, rate_limit=2) for n in range(2)
        ]
        ray.get([holder.acquire.remote() for holder in holders])
        late = holders[0].acquire.remote()
        until(lambda: snapshot(limiter_name).waiting == 1)
        assert snapshot(limiter_name).in_use == 2
        ray.get(holders[1].release.remote())
        ray.get(late)


def test_the_permits_of_a_killed_process_return(limiter_name: str) -> None:
    """verl defects (c) and (k): SIGKILL of a process that holds all permits and waits for more."""
    doomed = Holder.options(**node_options(0)).remote(limiter_name, rate_limit=2, lease=2.0)
    survivor = Holder.options(**node_options(1)).remote(limiter_name, rate_limit=2, lease=2.0)
    ray.get(doomed.acquire.remote(2))
    _ = doomed.acquire.remote(5)  # at the head of the queue when it dies
    until(lambda: snapshot(limiter_name).waiting == 1)
    waits = survivor.acquire.remote(2)
    until(lambda: snapshot(limiter_name).waiting == 2)
    os.kill(ray.get(doomed.pid.remote()), signal.SIGKILL)
    assert len(ray.get(waits)) == 2
    after = snapshot(limiter_name)
    assert list(after.holders.values()) == [2], "the survivor has all of them"
    # The dead process's waiter left the queue, or got a permit in its last moments that expired
    # like the others.
    assert after.expired + after.dropped == 3


def test_the_limiter_outlives_its_creator(limiter_name: str) -> None:
    """verl defect (d): however they end."""
    doomed = [
        Holder.options(**node_options(0)).remote(limiter_name, rate_limit=4, lease=2.0)
        for _ in range(3)
    ]
    for one in doomed:
        ray.get(one.acquire.remote())
    survivor = Holder.options(**node_options(1)).remote(limiter_name, rate_limit=4, lease=2.0)
    ray.get(survivor.acquire.remote())
    before = snapshot(limiter_name).incarnation
    pids = ray.get([one.pid.remote() for one in doomed])
    ray.kill(doomed[0])  # the creator
    os.kill(pids[1], signal.SIGKILL)
    del doomed, one  # out of scope
    gc.collect()
    until(lambda: not any(map(_is_running, pids)))
    ray.get(survivor.acquire.remote(3))  # once the leases of the dead processes end
    assert snapshot(limiter_name).incarnation == before


def _is_running(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):  # it may end between open and read
        return False


def test_a_killed_limiter_restarts_without_exceeding_the_limit(limiter_name: str) -> None:
    """Holders keep their permits, waiters keep their order, and the limit is not exceeded."""
    first = Holder.options(**node_options(0)).remote(limiter_name, rate_limit=3, lease=20.0)
    second = Holder.options(**node_options(1)).remote(limiter_name, rate_limit=3, lease=20.0)
    ray.get(first.acquire.remote(2))
    ray.get(second.acquire.remote())
    waits = second.acquire.remote()
    until(lambda: snapshot(limiter_name).waiting == 1)
    before = snapshot(limiter_name).incarnation
    ray.kill(find(limiter_name), no_restart=False)
    until(lambda: _after_restart(limiter_name, before) == (3, 1, False))
    ray.get(first.release.remote())
    ray.get(waits)
    assert snapshot(limiter_name).in_use == 3


def _after_restart(name: str, before: str) -> tuple[int, int, bool] | None:
    try:
        now = snapshot(name)
    except ray.exceptions.RayActorError:
        return None
    return (now.in_use, now.waiting, now.learning) if now.incarnation != before else None


def test_a_resized_limit_survives_a_restart(limiter_name: str) -> None:
    actor = connect(LimiterSettings(5), limiter_name)
    ray.get(actor.configure.remote(LimiterSettings(2)))
    before = snapshot(limiter_name).incarnation
    ray.kill(actor, no_restart=False)
    until(lambda: _after_restart(limiter_name, before) is not None)
    assert snapshot(limiter_name).rate_limit == 2


def test_a_removed_limiter_is_replaced_by_one_that_learns_first(limiter_name: str) -> None:
    """verl defect (d), second half: surviving clients continue with the new one, and the limit
    holds."""
    holder = Holder.remote(limiter_name, rate_limit=1, lease=60.0)
    ray.get(holder.acquire.remote())
    remove(limiter_name)
    waits = holder.acquire.remote()
    until(lambda: find(limiter_name) is not None and snapshot(limiter_name).waiting == 1)
    until(lambda: not snapshot(limiter_name).learning)
    assert snapshot(limiter_name).in_use == 1, "the new one knows what was held before"
    ray.get(holder.release.remote())
    ray.get(waits)


@pytest.mark.parametrize("way", ["ray.kill", "remove"])
def test_a_limiter_created_by_a_stranger_learns_first(limiter_name: str, way: str) -> None:
    """Its creator never knew the one before, and the process that holds the permit cannot report
    it."""
    holder = Holder.remote(limiter_name, rate_limit=1, lease=300.0)
    ray.get(holder.acquire.remote())
    pid = ray.get(holder.pid.remote())
    os.kill(pid, signal.SIGSTOP)
    try:
        if way == "remove":
            remove(limiter_name)
        else:
            ray.kill(find(limiter_name), no_restart=True)
        until(lambda: find(limiter_name) is None)
        stranger = Holder.remote(limiter_name, rate_limit=1, lease=2.0)
        waits = stranger.acquire.remote()
        until(lambda: find(limiter_name) is not None and snapshot(limiter_name).waiting == 1)
        assert (snapshot(limiter_name).learning, snapshot(limiter_name).granted) == (True, 0)
    finally:
        os.kill(pid, signal.SIGCONT)
    until(lambda: not snapshot(limiter_name).learning)
    assert (snapshot(limiter_name).in_use, snapshot(limiter_name).waiting) == (1, 1), (
        "the holder has reported"
    )
    ray.get(holder.release.remote())
    ray.get(waits)


def test_permits_of_direct_callers_survive_a_restart(limiter_name: str) -> None:
    """They have no lease, and nobody reports them: the limiter itself must know."""
    actor = TokenBucketWorker.options(name=limiter_name, get_if_exists=True).remote(3)
    permits = ray.get([actor.acquire.remote() for _ in range(3)])
    ray.get(actor.release.remote(permits[1]))
    before = snapshot(limiter_name).incarnation
    ray.kill(actor, no_restart=False)
    until(lambda: _after_restart(limiter_name, before) is not None)
    assert ray.get(actor.get_current_count.remote()) == 2
    assert ray.get(actor.release.remote(permits[2])) is True
    assert ray.get(actor.get_current_count.remote()) == 1
    assert not {*ray.get([actor.acquire.remote(), actor.acquire.remote()])} & {*permits}
    assert ray.get(actor.release.remote(permits[2])) is False
    assert ray.get(actor.release.remote()) is True, "the oldest that is out"
    assert ray.get(actor.release.remote(permits[0])) is False


def test_a_limiter_with_another_protocol_is_refused_with_advice(limiter_name: str) -> None:
    _ = OldLimiter.options(name=limiter_name, namespace=NAMESPACE, lifetime="detached").remote()

    async def use() -> None:
        async with ray_limiter(LimiterSettings(1), limiter_name).permit():
            pass

    with pytest.raises(ProtocolMismatch) as refused:
        asyncio.run(use())
    assert f"protocol 1, this sfusion speaks {PROTOCOL}" in str(refused.value)
    assert f"sfusion limiter --remove --name {limiter_name}" in str(refused.value)


def test_a_client_with_another_protocol_is_refused(limiter_name: str) -> None:
    actor = connect(LimiterSettings(1), limiter_name)
    old = Attach((), (), protocol=1)
    with pytest.raises(LimiterError, match="use the same version of sfusion"):
        ray.get(actor.exchange.remote(packed(Batch("old", old))))


def test_a_limiter_never_starts_ray_and_works_again_after_ray_was_started_again(
    cluster: str, limiter_name: str
) -> None:
    """In a process of its own: renewals, polls, a release and a detachment after ray.shutdown()."""
    script = """
import asyncio, ray, sys
from sfusion_tools.limiter import LimiterSettings
from sfusion_tools.limiter.ray_limiter import ray_limiter
address, name = sys.argv[1:]
async def main():
    limiter = ray_limiter(LimiterSettings(1, lease=0.6), name)
    async with limiter.permit():
        waiting = [asyncio.create_task(hold(limiter, n)) for n in range(2)]
        while limiter.waiting < 2:
            await asyncio.sleep(0)
        ray.shutdown()
        await asyncio.sleep(1.5)
    await asyncio.sleep(0.5)
    print(ray.is_initialized())
    ray.init(address, log_to_driver=False, logging_level="ERROR")
    await asyncio.gather(*waiting)
    ray.shutdown()
async def hold(limiter, number):
    async with limiter.permit(60):
        print("caller", number)
ray.init(address, log_to_driver=False, logging_level="ERROR")
asyncio.run(main())
print(ray.is_initialized())
"""
    command = [warm("python"), "-c", script, cluster, limiter_name]
    run = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    assert run.stdout.splitlines() == ["False", "caller 0", "caller 1", "False"], run.stderr


def test_two_hundred_grants_are_in_order_of_arrival(limiter_name: str, gate: Gate) -> None:
    """verl defect (m): one permit, 200 waiters of three processes, none out of order."""
    gate.open()
    holders = [
        Holder.options(**node_options(n)).remote(limiter_name, rate_limit=1) for n in range(3)
    ]
    ray.get(holders[0].acquire.remote())
    labels = [f"{number:03}" for number in range(200)]
    reports = []
    for number in range(0, 200, 5):
        reports.append(holders[number * 2 % 3].report.remote(gate, labels[number : number + 5]))
        until(lambda waiting=number + 5: snapshot(limiter_name).waiting == waiting)
    ray.get(holders[0].release.remote())
    ray.get(reports)
    assert gate.wait_for(200) == labels
    assert gate.peak == 1


def test_a_different_rate_limit_is_refused_or_applied_but_never_silently(
    limiter_name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """verl defect (e)."""
    connect(LimiterSettings(2), limiter_name)
    for apply, in_force, warning in (
        (False, 2, "rate_limit 50 is NOT in force"),
        (True, 50, "now it runs with rate_limit 50"),
    ):
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            connect(LimiterSettings(50), limiter_name, apply=apply)
        assert snapshot(limiter_name).rate_limit == in_force
        assert warning in caplog.text


def test_two_jobs_in_different_namespaces_share_one_limiter(
    cluster: str, limiter_name: str
) -> None:
    """verl defect (h)."""
    holder = Holder.remote(limiter_name, rate_limit=2)
    ray.get(holder.acquire.remote())
    script = """
import asyncio, json, sys, ray
from sfusion_tools.limiter import LimiterSettings
from sfusion_tools.limiter.ray_limiter import find, ray_limiter
ray.init(address=sys.argv[1], namespace="another-job", log_to_driver=False)
async def main():
    async with ray_limiter(LimiterSettings(2), sys.argv[2]).permit():
        print(json.dumps((await find(sys.argv[2]).snapshot.remote()).in_use))
asyncio.run(main())
"""
    assert printed_by(script, cluster, limiter_name) == 2, "its own permit and the one held here"


def test_a_tool_follows_the_ray_session_of_its_process(cluster: str, limiter_name: str) -> None:
    """After ray.shutdown() and ray.init() in one loop, every acquire failed for good."""
    script = """
import asyncio, json, sys, ray
from sfusion_tools.limiter import Limiter
from sfusion_tools.limiter.ray_limiter import find
from sfusion_tools.runtime import runtime
from sfusion_tools.sandbox_fusion_tools import SandboxFusionTool

address, name, url = sys.argv[1:]
tool = SandboxFusionTool({"sandbox_fusion_url": url, "limiter_name": name, "queue_timeout": 60})

async def call():
    _, _, metrics = await tool.execute("", {"code": "1"})
    scope = runtime.scope().items()
    return metrics["outcome"], [key[1] for key, held in scope if isinstance(held, Limiter)]

async def main():
    told = []
    for _ in range(2):
        ray.init(address=address, log_to_driver=False)
        told += [*await call(), find(name) is not None]
        ray.shutdown()
        told += [*await call(), ray.is_initialized()]
    print(json.dumps(told))

asyncio.run(main())
"""
    with FakeSandbox(executor="scripted") as sandbox:
        printed = printed_by(script, cluster, limiter_name, sandbox.url)
    both = ["ray", "local"]
    assert printed == [
        "ok",
        ["ray"],
        True,
        *["ok", both, False, "ok", both, True, "ok", both, False],
    ]


def test_callers_wait_in_their_order_until_ray_is_started_again(
    cluster: str, limiter_name: str
) -> None:
    """They ended as cancelled as soon as another call was made."""
    script = """
import asyncio, json, sys, ray
from sfusion_tools.limiter import Limiter
from sfusion_tools.runtime import runtime
from sfusion_tools.sandbox_fusion_tools import SandboxFusionTool

address, name, url = sys.argv[1:]
config = {"sandbox_fusion_url": url, "limiter_name": name, "rate_limit": 1, "queue_timeout": 60}
tool = SandboxFusionTool(config)
ended = []

async def call(number, seconds=0):
    code = f"1  # sfusion:call={number} seconds={seconds}"
    _, _, metrics = await tool.execute("", {"code": code})
    ended.append((number, metrics["outcome"]))

async def main():
    ray.init(address=address, log_to_driver=False)
    first = asyncio.create_task(call(0, 3600))
    waiting = []
    for number in (1, 2, 3):
        waiting.append(asyncio.create_task(call(number)))
        await queued(number)
    ray.shutdown()
    await call("without Ray")
    first.cancel()
    ray.init(address=address, log_to_driver=False)
    await call("again")
    await asyncio.gather(*waiting)
    print(json.dumps(ended))

async def queued(number):
    while counts() != [(1, number)]:
        await asyncio.sleep(0.01)

def counts():
    limiters = [held for _, held in runtime.scope().items() if isinstance(held, Limiter)]
    return [(limiter.held, limiter.waiting) for limiter in limiters]

asyncio.run(main())
"""
    with FakeSandbox(executor="scripted") as sandbox:
        printed = printed_by(script, cluster, limiter_name, sandbox.url)
    order = ["without Ray", 1, 2, 3, "again"]
    assert printed == [[number, "ok"] for number in order]


def test_a_cancelled_acquire_frees_its_place_at_once(limiter_name: str) -> None:
    """verl defects (f) and (j): cancelling while waiting, and at the moment of the grant."""

    async def scenario() -> None:
        limiter = ray_limiter(LimiterSettings(1), limiter_name)
        held = await take(limiter)
        waiting = [asyncio.create_task(take(limiter)) for _ in range(5)]
        await asyncio.to_thread(until, lambda: snapshot(limiter_name).waiting == 5)
        for task in waiting[:4]:
            task.cancel()
        await give(held)
        waiting[4].cancel()  # it has just been granted the permit, or is about to be
        await asyncio.gather(*waiting, return_exceptions=True)
        await limiter.flush()
        after = await asyncio.to_thread(snapshot, limiter_name)
        assert (after.in_use, after.waiting) == (0, 0)

    asyncio.run(scenario())


def test_a_limiter_killed_under_load_never_exceeds_the_limit(limiter_name: str) -> None:
    """Counted at the sandbox: three processes, and a limiter that is killed three times."""
    with FakeSandbox(executor="scripted") as sandbox:
        config = {
            "sandbox_fusion_url": sandbox.url,
            "rate_limit": 5,
            "limiter": "ray",
            "limiter_name": limiter_name,
            "permit_lease": 5.0,
        }
        trainers = [Trainer.options(**node_options(n)).remote(config) for n in range(3)]
        assert (
            ray.get([t.run.remote(f"warm{n}", 1) for n, t in enumerate(trainers)]) == [["ok"]] * 3
        )
        runs = [trainer.run.remote(f"t{n}", 100) for n, trainer in enumerate(trainers)]
        for kill in range(1, 4):
            until(lambda done=kill * 50: sandbox.ledger.finished >= done)
            before = snapshot(limiter_name).incarnation
            ray.kill(find(limiter_name), no_restart=False)
            until(lambda old=before: _after_restart(limiter_name, old) is not None)
        assert ray.get(runs) == [["ok"] * 100] * 3
        assert sandbox.ledger.peak_in_flight <= 5
        assert sandbox.ledger.finished == 303, "each call ran once"
    until(lambda: snapshot(limiter_name).in_use == 0)


def test_the_command_shows_resizes_and_removes_the_limiter(cluster: str, limiter_name: str) -> None:
    holder = Holder.remote(limiter_name, rate_limit=2)
    ray.get(holder.acquire.remote(2))
    waits = holder.acquire.remote()
    until(lambda: snapshot(limiter_name).waiting == 1)

    # One process for all commands, because each would take seconds to import Ray.
    serving = """
import json, sys
from typer.testing import CliRunner
from sfusion.harness.cli import app
for line in sys.stdin:
    done = CliRunner().invoke(app, json.loads(line))
    print(json.dumps([done.exit_code, done.stdout, done.stderr]), flush=True)
"""
    process = subprocess.Popen(
        [warm("python"), "-c", serving],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        bufsize=1,
    )

    def sfusion(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = ["limiter", *arguments, "--name", limiter_name, "--ray-address", cluster]
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(command) + "\n")
        return subprocess.CompletedProcess(command, *json.loads(process.stdout.readline()))

    shown = json.loads(sfusion("--json", "-").stdout)
    assert (shown["in_use"], shown["waiting"], shown["rate_limit"]) == (2, 1, 2)
    other = Holder.remote(limiter_name, share="nightly", rate_limit=2)
    also_waits = other.acquire.remote()
    until(lambda: snapshot(limiter_name).waiting == 2)
    table = sfusion().stdout
    assert "in use         2 of 2" in table
    assert "no share       holds 2, waits 1" in table
    assert "share nightly  holds 0, waits 1" in table
    page = sfusion("--metrics").stdout
    assert f'sfusion_limiter_in_use{{limiter="{limiter_name}"}} 2' in page.splitlines()
    assert page.endswith("\n")
    assert not page.endswith("\n\n")
    assert sfusion("--metrics", "--json", "-").returncode == 2
    refused = sfusion("--resize", "0")
    assert refused.returncode == 2
    assert "rate_limit must be a whole number of at least 1" in refused.stderr
    assert "rate_limit 2 -> 4" in sfusion("--resize", "4").stdout
    ray.get([waits, also_waits])
    clients = Watched(ray.get([one.pid.remote() for one in (other, holder)]))
    ray.kill(other)
    ray.kill(holder)
    assert (
        clients.still_alive(60) == []
    )  # while a client uses it, a removed limiter is replaced by a new one
    assert sfusion("--remove").returncode == 0
    until(lambda: find(limiter_name) is None)
    gone = sfusion()
    assert gone.returncode == 3
    assert f"no limiter named {limiter_name!r}" in gone.stderr
    process.communicate(timeout=PATIENCE)
