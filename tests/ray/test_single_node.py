"""The single-node tests of verl's original design, with events instead of a stopwatch, and our own.

Four names are verl's: ``tools_registration``, ``basic_multi_process_init``, ``rate_limiter``,
``rotten_execution``.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import threading
from collections import Counter
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
import ray
import ray.util.metrics
from ray._private import services

from benchmarks.calls import DESIGN, FLOOR, PUBLIC, VERL, Calls
from benchmarks.figures import OURS
from benchmarks.ground import Ground
from benchmarks.permits import ACTOR, Permits
from sfusion.fakes.sandbox import FakeSandbox
from sfusion.harness.lab.worlds import ray_cluster
from sfusion.harness.lab.worlds.ray_cluster import OwnCluster
from sfusion_tools.errors import ConfigError, GuardTripped
from sfusion_tools.limiter import LimiterSettings
from sfusion_tools.limiter.messages import PROTOCOL
from sfusion_tools.limiter.ray_limiter import ray_limiter
from sfusion_tools.outcome import Outcome
from sfusion_tools.runtime import runtime
from sfusion_tools.sandbox import CallResult, ray_metrics
from sfusion_tools.sandbox.ray_metrics import RayMetrics
from sfusion_tools.sandbox_fusion_tools import (
    ExecutionWorker,
    PoolMode,
    SandboxFusionTool,
    TokenBucketWorker,
    init_execution_pool,
)
from sfusion_tools.tool_registry import initialize_tools_from_config
from tests.docs.test_metrics_page import listed
from tests.patience import PATIENCE
from tests.ray.actors import DelayedLimiter, Gate, Process, snapshot, until
from tests.sfusion_tools.sandbox.helpers import in_virtual_time
from tests.sfusion_tools.sandbox.helpers import until as reached

pytestmark = pytest.mark.usefixtures("single_node", "fresh_default_limiter")

BOTH_MODES = pytest.mark.parametrize("mode", list(PoolMode))


def test_tools_registration(tmp_path: Path) -> None:
    config = tmp_path / "tools.yaml"
    config.write_text(
        """
        tools:
          - class_name: sfusion_tools.sandbox_fusion_tools.SandboxFusionTool
            config:
              type: native
              num_workers: 10
              rate_limit: 10
              enable_global_rate_limit: true
              default_timeout: 30
              default_language: python
              sandbox_fusion_url: http://127.0.0.1:1/run_code
            tool_schema:
              type: function
              function:
                name: code_interpreter
                description: A tool for executing code.
                parameters:
                  type: object
                  properties: {code: {type: string, description: The code to execute.}}
                  required: [code]
        """
    )
    (tool,) = initialize_tools_from_config(config)
    assert isinstance(tool, SandboxFusionTool)
    assert tool.name == "code_interpreter"
    assert tool.get_openai_tool_schema().function.parameters.required == ["code"]


def test_ray_forks_its_workers_from_a_warm_interpreter() -> None:
    """If it did not, only the time that the tests take would tell."""

    @ray.remote(num_cpus=0)
    def is_warm() -> bool:
        return "sfusion.harness.cli" in sys.modules  # of no use in a worker

    assert ray.get(is_warm.remote())


def test_basic_multi_process_init() -> None:
    first, second = Process.remote(), Process.remote()
    assert len(set(ray.get([first.pid.remote(), second.pid.remote()]))) == 2
    assert ray.get(first.acquire.remote())
    assert ray.get(second.acquire.remote())
    assert ray.get([first.count.remote(), second.count.remote()]) == [2, 2]
    assert ray.get(first.release.remote())
    assert ray.get(second.count.remote()) == 1


def test_the_limit_defaults_to_ten() -> None:
    limiter = TokenBucketWorker.options(name="rate-limiter", get_if_exists=True).remote()
    permits = ray.get([limiter.acquire.remote() for _ in range(10)])
    eleventh = limiter.acquire.remote()
    until(lambda: snapshot("rate-limiter").waiting == 1)
    ray.get(limiter.release.remote(permits[0]))
    assert ray.get(eleventh) not in permits


@pytest.mark.parametrize("limit", [0, -3, 2.5, "many"])
def test_an_invalid_limit_is_refused_before_an_actor_is_made(limit: object) -> None:
    with pytest.raises(ConfigError, match="rate_limit must be a whole number of at least 1"):
        TokenBucketWorker.options(name="rate-limiter", get_if_exists=True).remote(limit)
    with pytest.raises(ConfigError, match="rate_limit"):
        init_execution_pool(1, rate_limit=limit)


def test_a_release_without_a_permit_is_refused_and_frees_nothing() -> None:
    """verl defect (f): the count went to -4, and a limit of 1 let 5 through."""
    limiter = TokenBucketWorker.options(name="rate-limiter", get_if_exists=True).remote(1)
    assert ray.get(limiter.release.remote()) is False
    permit = ray.get(limiter.acquire.remote())
    assert ray.get(limiter.release.remote(permit)) is True
    assert ray.get(limiter.release.remote(permit)) is False
    assert ray.get(limiter.get_current_count.remote()) == 0


def test_a_cancelled_acquire_leaves_the_queue() -> None:
    limiter = TokenBucketWorker.options(name="rate-limiter", get_if_exists=True).remote(1)
    permit = ray.get(limiter.acquire.remote())
    given_up = limiter.acquire.remote()
    until(lambda: snapshot("rate-limiter").waiting == 1)
    ray.cancel(given_up)
    until(lambda: snapshot("rate-limiter").waiting == 0)
    ray.get(limiter.release.remote(permit))
    assert ray.get(limiter.acquire.remote())


def test_more_waiters_than_an_async_actor_can_hold_do_not_block_a_release() -> None:
    """An async actor is full at 1,000 waiters; release a permit with 1,200."""
    limiter = TokenBucketWorker.options(name="rate-limiter", get_if_exists=True).remote(1)
    permit = ray.get(limiter.acquire.remote())
    # Alone until it is in the queue: Ray delivers calls to an async actor in any order.
    first = limiter.acquire.remote()
    until(lambda: snapshot("rate-limiter").waiting == 1)
    others = [limiter.acquire.remote() for _ in range(1199)]
    until(lambda: snapshot("rate-limiter").waiting == 1200)
    assert ray.get(limiter.release.remote(permit)) is True
    assert ray.get(first), "the first waiter has it now"
    assert snapshot("rate-limiter").waiting == len(others)


class TestSingleNodeRateLimiterCase:
    """Functions of one pool, on one node."""

    @BOTH_MODES
    def test_rate_limiter(self, mode: PoolMode, gate: Gate) -> None:
        pool = init_execution_pool(
            num_workers=4, enable_global_rate_limit=True, rate_limit=2, mode=mode
        )
        assert ray.get(pool.ping.remote()) is True
        calls = [pool.execute.remote(gate.through, f"call {number}") for number in range(4)]
        first = gate.wait_for(2)
        until(lambda: snapshot("rate-limiter").waiting == 2)
        assert len(first) == 2
        gate.let_out(first[0])
        gate.wait_for(3)
        gate.open()
        assert ray.get(calls) == [f"call {number}" for number in range(4)]
        assert gate.peak == 2

    @BOTH_MODES
    def test_rotten_execution(self, mode: PoolMode) -> None:
        """A function that fails is logged, returns None, and releases its permit."""
        pool = init_execution_pool(
            num_workers=2, enable_global_rate_limit=True, rate_limit=1, mode=mode
        )
        assert ray.get(pool.execute.remote(_raise)) is None
        assert ray.get(pool.execute.remote(sys.exit, 3)) is None
        assert ray.get(pool.execute.remote(_add, 1, 2)) == 3
        assert snapshot("rate-limiter").in_use == 0, "a result comes after its permit is back"

    def test_a_function_that_kills_its_process_loses_only_its_own_result(self) -> None:
        pool = init_execution_pool(num_workers=2, rate_limit=1, mode=PoolMode.ProcessMode)
        assert ray.get(pool.execute.remote(os._exit, 1)) is None
        assert ray.get(pool.execute.remote(_add, 1, 2)) == 3
        assert snapshot("rate-limiter").expired == 0, (
            "its permit returned at once, not at the end of its lease"
        )

    @BOTH_MODES
    def test_without_a_limiter_functions_run_at_once(self, mode: PoolMode, gate: Gate) -> None:
        """verl defect (a): enable_global_rate_limit: false broke every call."""
        pool = init_execution_pool(
            num_workers=2, enable_global_rate_limit=False, rate_limit=1, mode=mode
        )
        calls = [pool.execute.remote(gate.through, str(number)) for number in range(2)]
        assert len(gate.wait_for(2)) == 2, "both at once, though rate_limit is 1"
        gate.open()
        assert ray.get(calls) == ["0", "1"]
        with pytest.raises(ValueError, match="rate-limiter"):
            ray.get_actor("rate-limiter", namespace="sfusion")


def test_a_worker_logs_why_a_function_failed(caplog: pytest.LogCaptureFixture) -> None:
    """verl defect (b): the pool returns None, as verl's original design says, but logs the
    reason."""
    with caplog.at_level(logging.WARNING):
        assert ExecutionWorker(enable_global_rate_limit=False).execute(_raise) is None
    assert "ZeroDivisionError" in caplog.text


def test_an_invalid_num_workers_is_refused() -> None:
    with pytest.raises(
        ConfigError, match="num_workers must be a whole number of at least 1, found 0"
    ):
        init_execution_pool(0)


def test_connecting_from_an_asynchronous_actor_causes_no_warning(limiter_name: str) -> None:
    """Ray warns about every ``ray.get`` in such an actor, and verl's agent loop workers are such
    actors."""

    @ray.remote(num_cpus=0)
    class Worker:
        async def acquire(self) -> list[str]:
            messages: list[str] = []
            handler = logging.Handler()
            handler.emit = lambda record: messages.append(record.getMessage())
            logging.getLogger("ray").addHandler(handler)
            async with ray_limiter(LimiterSettings(3), limiter_name).permit():
                return messages

    assert ray.get(Worker.remote().acquire.remote()) == []
    assert snapshot(limiter_name).rate_limit == 3


def _raise() -> None:
    raise ZeroDivisionError("rotten")


def _add(left: int, right: int) -> int:
    return left + right


def test_a_tripped_guard_fails_the_task_of_an_actor_and_nothing_else() -> None:
    """In verl, the trainer waits for such a task of every agent-loop worker."""

    class AgentLoops:
        async def generate(self) -> list[str]:
            tool = SandboxFusionTool(
                {
                    "sandbox_fusion_url": "http://127.0.0.1:1",
                    "guard": {"window": 3, "then": "fail"},
                    "max_attempts": 1,
                }
            )
            return [await self._show(tool) for _ in range(4)]

        async def _show(self, tool: SandboxFusionTool) -> str:
            try:
                return str((await tool.execute("", {"code": "1"}))[0].text)
            except Exception as error:
                return f"Error executing tool: {error}"

        async def ping(self) -> str:
            return "alive"

    worker = ray.remote(AgentLoops).remote()
    with pytest.raises(GuardTripped, match="3 of the last 3 calls"):
        ray.get(worker.generate.remote(), timeout=PATIENCE)
    assert ray.get(worker.ping.remote(), timeout=PATIENCE) == "alive"


class Recorded:
    """Everything that was recorded in ray.util.metrics, which still gets it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.all: list[tuple[str, dict[str, str], float]] = []
        self.news = threading.Event()
        for kind, method in (("Counter", "inc"), ("Gauge", "set"), ("Histogram", "observe")):
            cls = getattr(ray.util.metrics, kind)
            monkeypatch.setattr(cls, method, self._spy(getattr(cls, method)))

    def _spy(self, real: Any) -> Any:
        def record(metric: Any, value: float, tags: dict[str, str]) -> None:
            real(metric, value, tags)
            self.all.append((metric.info["name"].removeprefix("sfusion_"), tags, value))
            self.news.set()

        return record

    def sum(self, name: str, **tags: str) -> float:
        return sum(
            value for found, own, value in self.all if found == name and tags.items() <= own.items()
        )

    def last(self, name: str, **tags: str) -> float:
        return [
            value for found, own, value in self.all if found == name and tags.items() <= own.items()
        ][-1]


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> Recorded:
    runtime.shared(RayMetrics, RayMetrics).flush()  # what earlier tests have left
    return Recorded(monkeypatch)


def metered(sandbox: FakeSandbox, name: str, **config: Any) -> SandboxFusionTool:
    quick = {"max_attempts": 2, "backoff_base": 0.001, "limiter_name": name}
    return SandboxFusionTool({"sandbox_fusion_url": sandbox.url, **quick, **config})


def test_calls_attempts_and_times_are_passed_on_to_ray(
    recorded: Recorded, limiter_name: str
) -> None:
    async def go() -> str:
        async with FakeSandbox(
            executor="scripted",
            faults=[{"first": 3, "what": {"status": 503}}, {"code": "hang", "what": "hang"}],
        ) as sandbox:
            tool = metered(sandbox, limiter_name)
            for _ in range(6):
                await tool.execute("", {"code": "1"})
            await tool.execute("", {"cmd": "ls"})
            hanging = asyncio.create_task(tool.execute("", {"code": "hang"}))
            await reached(lambda: sandbox.ledger.in_flight)
            hanging.cancel()
            await asyncio.wait([hanging])
            unmetered = metered(sandbox, limiter_name, ray_metrics=False)
            await unmetered.execute("", {"code": "1"})
            return sandbox.url

    url = asyncio.run(go())
    tool = {"tool": "code_interpreter"}
    assert recorded.sum("calls", outcome="ok", **tool) == 5
    assert recorded.sum("calls", outcome="sandbox_error", **tool) == 1
    assert recorded.sum("calls", outcome="bad_arguments", **tool) == 1
    assert recorded.sum("calls", outcome="cancelled", **tool) == 1
    assert recorded.sum("calls") == 8
    assert recorded.sum("attempts", status="503", endpoint=url, **tool) == 3
    assert recorded.sum("attempts", status="200", endpoint=url, **tool) == 5
    assert recorded.sum("attempts", status="cancelled", endpoint=url, **tool) == 1
    observed = Counter(name for name, _, _ in recorded.all)
    assert (observed["call_seconds"], observed["permit_wait_seconds"]) == (7, 7), (
        "all but the one with bad arguments"
    )
    assert recorded.sum("call_seconds") > recorded.sum("permit_wait_seconds") > 0
    assert recorded.last("calls_in_flight", **tool) == 0


def test_the_docs_list_the_metrics_that_ray_gets() -> None:
    made = vars(ray_metrics._Instruments()).values()
    assert {m.info["name"]: type(m).__name__.lower() for m in made} == listed("The tool")


def test_calls_in_flight_and_waits_are_shown_while_calls_run(
    recorded: Recorded, limiter_name: str
) -> None:
    faults = [{"code": "hang", "what": "hang"}, {"code": "fail", "what": {"status": 500}}]

    async def go() -> None:
        async with FakeSandbox(executor="scripted", faults=faults) as sandbox:
            tool = metered(sandbox, limiter_name, rate_limit=1)
            metrics = runtime.shared(RayMetrics, RayMetrics)
            await tool.execute("", {"code": "1"})
            calls = [asyncio.create_task(tool.execute("", {"code": "hang"})) for _ in range(3)]
            await reached(lambda: sandbox.ledger.in_flight)
            metrics.flush()
            assert recorded.last("calls_in_flight") == 3
            impatient = metered(sandbox, limiter_name, rate_limit=1, queue_timeout=0.1)
            await impatient.execute("", {"code": "1"})
            metrics.flush()
            assert recorded.last("permit_wait_seconds") > 0, (
                "also of a call that never got a permit"
            )
            for call in calls:
                call.cancel()
            await asyncio.gather(*calls, return_exceptions=True)
            strict = metered(
                sandbox,
                limiter_name,
                rate_limit=1,
                max_attempts=1,
                guard={"window": 1, "then": "fail"},
            )
            before = recorded.sum("attempts", status="500")
            for _ in range(2):
                with pytest.raises(GuardTripped):
                    await strict.execute("", {"code": "fail"})
            metrics.flush()
            assert recorded.sum("attempts", status="500") == before + 1, (
                "the call that trips the guard was sent"
            )

    asyncio.run(go())


def test_metrics_are_passed_on_while_a_loop_runs(
    recorded: Recorded, limiter_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def go() -> None:
        async with FakeSandbox(executor="scripted") as sandbox:
            await metered(sandbox, limiter_name).execute("", {"code": "1"})
            assert await asyncio.to_thread(recorded.news.wait, 60)

    monkeypatch.setattr(ray_metrics, "INTERVAL", 0.01)
    asyncio.run(go())


def test_metrics_begin_anew_with_a_ray_session_even_if_they_failed_before(
    recorded: Recorded,
    limiter_name: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    real, metrics = ray_metrics.ray_session, RayMetrics()

    def count() -> None:
        metrics.begin("t")
        metrics.end("t", CallResult("c", Outcome.OK), raised=False)
        metrics.flush()

    monkeypatch.setattr(ray_metrics, "_Instruments", None)
    count()
    count()
    assert [
        record.levelname for record in caplog.records if record.name.endswith("ray_metrics")
    ] == ["WARNING"]
    monkeypatch.undo()
    again = Recorded(monkeypatch)
    count()
    assert again.all == [], "not in this session"
    monkeypatch.setattr(ray_metrics, "ray_session", lambda: real() + "'")
    count()
    assert again.sum("calls", tool="t") == 1
    monkeypatch.setattr(ray_metrics, "ray_session", lambda: "")
    count()
    monkeypatch.setattr(ray_metrics, "ray_session", real)
    count()
    assert again.sum("calls", tool="t") == 2, "without Ray nothing is kept for later"


def test_simulated_calls_and_switched_off_metrics_are_not_passed_on(
    recorded: Recorded, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def go() -> None:
        async with FakeSandbox(executor="scripted") as sandbox:
            tool = SandboxFusionTool({"sandbox_fusion_url": sandbox.url, "limiter": "local"})
            await tool.execute("", {"code": "1"})

    in_virtual_time(go)
    monkeypatch.setenv("SFUSION_RAY_METRICS", "0")
    monkeypatch.setattr(ray_metrics, "RayMetrics", type("RayMetrics", (RayMetrics,), {}))
    asyncio.run(go())
    runtime.shared(RayMetrics, RayMetrics).flush()
    assert recorded.sum("calls") == 0
    monkeypatch.setenv("SFUSION_RAY_METRICS", "1")
    monkeypatch.setattr(ray_metrics, "RayMetrics", type("RayMetrics", (RayMetrics,), {}))
    asyncio.run(go())
    assert recorded.sum("calls") == 1


def test_benchmarks_call_the_server_through_every_contestant_that_needs_ray() -> None:
    with Ground(0.001) as ground:
        with Calls(callers=3, limit=2, calls=16_000).open(ground) as contest:
            figures = contest.measure(1)
        with urlopen(ground.url("bare")) as answer:
            assert int(answer.read()) == 16 + 16 + 16 + 2  # the slow baseline makes an eighth
        assert set(figures) == {OURS, FLOOR, PUBLIC, DESIGN}
        assert set(contest.missing) == {VERL}
        with Permits(callers=1, pairs=3000).open(ground) as contest:
            assert set(contest.measure(1)) == {OURS, DESIGN, ACTOR}


def test_a_limiter_whose_threads_begin_late_answers_everyone() -> None:
    """With two named concurrency groups, a late thread of Ray's runs the event loop of the other
    group."""
    limiter = DelayedLimiter.remote(1)
    permit = ray.get(limiter.acquire.remote())
    waits = limiter.acquire.remote()
    assert ray.get([limiter.protocol.remote(), limiter.release.remote(permit)]) == [PROTOCOL, True]
    assert ray.get(waits) != permit
    ray.kill(limiter)


def test_a_node_whose_raylet_ends_while_it_starts_is_started_again(
    place: OwnCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a raylet does whose agent is slow to start. It is the last test: from now on there are
    two nodes."""
    ask, asked = services.get_node, []

    def get_node(gcs: str, node: str) -> Any:
        asked.append(node)
        if node != asked[0]:
            return ask(gcs, node)
        if len(asked) == 2:
            os.kill(ray_cluster._raylet_of(node), signal.SIGKILL)
        raise RuntimeError("not registered yet")

    monkeypatch.setattr(services, "get_node", get_node)
    size = len(place._nodes) + 1
    started = place.nodes(size, set())
    assert len(set(started)) == size
    assert (asked[0] in started, asked[-1] in started) == (False, True)
