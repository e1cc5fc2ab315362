"""Findings that only appear under load: the stdin race, throttling, and throughput."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from aiohttp import web

from benchmarks.servers import ANSWER
from sfusion.fakes.sandbox import FakeSandbox, ProgramScript
from sfusion.fakes.sandbox.executors.python import command
from sfusion.harness.real.doctor import throughput
from sfusion.harness.real.doctor.examination import Observer, examine
from sfusion.harness.real.doctor.knee import Point
from sfusion.harness.real.doctor.mix import Mix
from sfusion.harness.real.doctor.settings import Plan, SandboxSettings, settings_of_url
from sfusion.harness.real.doctor.throughput import Sweep, is_stable, pooled
from sfusion_tools.sandbox.config import SandboxToolConfig
from tests.harness.real.doctor.servers import (
    GREETS,
    NOWHERE,
    PATIENT,
    SFUSION,
    VERL,
    breaking,
    examined,
    ids,
    only,
    scripted,
    seen,
    severity,
)
from tests.sfusion_tools.sandbox.helpers import virtually

RACE = only("connection", "ping", "run_code", "stdin race", "server version")
SWEEP = only("connection", "ping", "run_code", "throughput")
PLAN = replace(PATIENT, burst=24, levels=16, sweep_sleep=0.05, sweep_seconds=30.0)


@pytest.mark.parametrize("executor", ["python", "scripted"])
async def test_the_stdin_race_of_the_old_image_is_detected(
    executor: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        command, "SPAWN_STALL", 2.0
    )  # a busy machine may need seconds to start any of the programs
    scripts = [{"pattern": "6", "prints": "sfusion 42\n"}] if executor == "scripted" else []
    async with FakeSandbox(executor=executor, profile="2025-06", scripts=scripts) as sandbox:
        result = await examined(sandbox.url, PLAN, checks=RACE)
        assert breaking(result) == ["stdin-race"]
        assert "of 24 programs sent at once with stdin that they do not read" in seen(
            result, "stdin-race"
        )
        assert "WriteUnixTransport" in seen(result, "stdin-race")
        assert "2025-06" in seen(result, "server-version")


async def test_the_newer_server_has_no_race() -> None:
    async with FakeSandbox(executor="python") as sandbox:
        result = await examined(sandbox.url, PLAN, checks=RACE)
        assert ids(result) == set()
        assert result.measured["stdin_race"] == "0 of 24"


@virtually
async def test_a_throttled_burst_is_not_examined() -> None:
    refuses = {"code": "doctor-stdin", "what": {"status": 429}}
    async with scripted(faults=[refuses]) as sandbox:
        result = await examined(sandbox.url, PLAN, checks=RACE)
        assert result.findings == []
        assert result.not_examined == [
            ("stdin race", "none of 24 programs sent at once was run: 24 x throttled")
        ]


async def test_idle_connections_of_the_doctor_are_not_taken_for_programs_at_a_time() -> None:
    """As behind uvicorn with --limit-concurrency 4, which counts open connections."""

    async def run_code(request: web.Request) -> web.Response:
        assert runner.server is not None
        if "doctor-sweep" in await request.text() and len(runner.server.connections) >= 4:
            return web.Response(status=503)
        await asyncio.sleep(0.05)
        ran = {**ANSWER["run_result"], "stdout": "sfusion 42\n"}
        return web.json_response({**ANSWER, "run_result": ran})

    async def ping(request: web.Request) -> web.Response:
        return web.json_response("pong")

    app = web.Application()
    app.router.add_get("/v1/ping", ping)
    app.router.add_post("/run_code", run_code)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    checks = only("connection", "ping", "run_code", "stdin race", "throughput")
    try:
        result = await examined(f"http://127.0.0.1:{runner.addresses[0][1]}", PLAN, checks=checks)
    finally:
        await runner.cleanup()
    assert seen(result, "throttled").startswith("with 4 programs at a time, requests get 503")


@virtually
async def test_recommended_rate_limit_is_close_to_the_queue_size() -> None:
    async with scripted(model={"kind": "queue", "workers": 4}) as sandbox:
        result = await examined(sandbox.url, PLAN, checks=SWEEP)
        assert ids(result) == {"rate-limit"}
        assert 3 <= result.measured["recommended_rate_limit"] <= 8
        fitted = result.measured["server_model"]
        assert fitted["model"]["kind"] in (
            "queue",
            "unbounded",
        )  # by what a request costs on this machine
        assert fitted["programs"] == "programs that sleep 0.05 s"
        assert severity(result, "rate-limit") == "note"
        above = await examined(sandbox.url, PLAN, checks=SWEEP, rate_limit=64)
        assert ids(above) == {"rate-limit-above-knee"}
        assert severity(above, "rate-limit-above-knee") == "hurts"
        assert "it has rate_limit 64, but above" in seen(above, "rate-limit-above-knee")


@virtually
async def test_a_limit_at_the_knee_is_not_reported() -> None:
    async with scripted(model={"kind": "queue", "workers": 4}) as sandbox:
        result = await examined(sandbox.url, PLAN, checks=SWEEP)
        limit = result.measured["recommended_rate_limit"]
        again = await examined(sandbox.url, replace(PLAN, levels=8), checks=SWEEP, rate_limit=limit)
        assert ids(again) == set()


@pytest.mark.parametrize("default_timeout", [1.0, 30.0])
@virtually
async def test_a_limit_so_high_that_calls_time_out_breaks_training(default_timeout: float) -> None:
    async with scripted(model={"kind": "queue", "workers": 1}) as sandbox:
        result = await examined(
            sandbox.url, PLAN, checks=SWEEP, rate_limit=5000, default_timeout=default_timeout
        )
        assert breaking(result) == ["rate-limit-above-knee"]


@virtually
async def test_shared_cores_bound_the_recommended_limit() -> None:
    async with scripted(model={"kind": "unbounded", "cores": 2}) as sandbox:
        result = await examined(sandbox.url, PLAN, checks=SWEEP)
        # The knee is at 2, in real time; a server without it would get all 16 levels.
        assert 1 <= result.measured["recommended_rate_limit"] <= 8


@pytest.mark.parametrize(
    ("client", "limit", "expected"),
    [
        (VERL, 10, "breaks"),
        (SFUSION, 10, "hurts"),
        (SFUSION, None, "hurts"),
        (VERL, 6, "hurts"),  # four at a time were admitted, of eight some were not
        (VERL, 4, "note"),
    ],
)
@virtually
async def test_severity_of_throttling_depends_on_client_and_rate_limit(
    client: object, limit: int | None, expected: str
) -> None:
    async with scripted(model={"kind": "quota", "in_flight": 4, "retry_after": 0.5}) as sandbox:
        result = await examined(sandbox.url, PLAN, checks=SWEEP, client=client, rate_limit=limit)
        assert severity(result, "throttled") == expected
        assert "with 8 programs at a time, requests get 429 with Retry-After 0.5" in seen(
            result, "throttled"
        )
        assert 3 <= result.measured["recommended_rate_limit"] <= 4
        assert breaking(result) == (["throttled"] if expected == "breaks" else [])
        if limit is not None:
            assert ids(result) == {"throttled"}, "which says what to set"


@virtually
async def test_the_limit_to_set_is_that_of_all_sandboxes_that_share_it() -> None:
    async with scripted(model={"kind": "queue", "workers": 4}) as sandbox:
        for own, total in ((8, 32), (2, 8)):
            config = SandboxToolConfig(sandbox_fusion_url=sandbox.url, rate_limit=total)
            settings = SandboxSettings(sandbox.url, config, rate_limit=own, sharing=4)
            result = await examine(settings, PLAN, environ={}, root=NOWHERE, checks=SWEEP)
            assert len(result.findings) == 1, result.findings
            (found,) = result.findings
            assert "16 (4 for each of 4 sandboxes)" in found.change
            if own == 8:
                assert "it has rate_limit 32 (8 for this sandbox), but above 4" in found.seen
            else:
                assert "raise rate_limit from 8 towards" in found.change


@virtually
async def test_programs_that_never_end_are_no_failures_of_the_sandbox() -> None:
    """They have the time limit of training, and the doctor waits as long."""
    endless = [ProgramScript(pattern="endless", seconds=100_000), GREETS]
    mix = Mix((*["quick()"] * 11, "endless()"), "12 programs")
    async with FakeSandbox(executor="scripted", scripts=endless) as sandbox:
        plan = replace(PLAN, patience=8.0, levels=4, mix=mix)
        result = await examined(sandbox.url, plan, checks=SWEEP, default_timeout=12.0)
    assert breaking(result) == []
    assert "at best it runs" in seen(result, "rate-limit")


@virtually
async def test_throttling_without_retry_after_is_reported_as_such() -> None:
    async with scripted(model={"kind": "queue", "workers": 2, "waiting": 0}) as sandbox:
        result = await examined(sandbox.url, PLAN, checks=SWEEP)
        assert "requests get 503 without Retry-After" in seen(result, "throttled")


@virtually
async def test_a_server_below_its_capacity_has_no_finding() -> None:
    async with scripted() as sandbox:
        result = await examined(sandbox.url, replace(PLAN, levels=4), checks=SWEEP, rate_limit=4)
        assert ids(result) == set()
        assert result.measured["recommended_rate_limit"] == 4


@virtually
async def test_failures_with_one_program_at_a_time_break_training() -> None:
    fails = {"code": "doctor-sweep", "what": {"sandbox_error": "no room"}}
    async with scripted(faults=[fails]) as sandbox:
        result = await examined(sandbox.url, PLAN, checks=SWEEP)
        assert breaking(result) == ["fails-under-load"]


@virtually
async def test_failures_under_load_bound_the_recommended_limit() -> None:
    fails = {"code": "doctor-sweep", "above_in_flight": 5, "what": {"sandbox_error": "no room"}}
    async with scripted(faults=[fails]) as sandbox:
        result = await examined(sandbox.url, PLAN, checks=SWEEP, rate_limit=16)
        assert "fails calls" in seen(result, "rate-limit-above-knee")
        assert result.measured["recommended_rate_limit"] <= 5


@virtually
async def test_throughput_is_measured_with_the_given_program() -> None:
    scripts = [ProgramScript(pattern="crunch", seconds=0.02), GREETS]
    async with FakeSandbox(
        executor="scripted", scripts=scripts, model={"kind": "queue", "workers": 2}
    ) as sandbox:
        result = await examined(
            sandbox.url,
            replace(PLAN, levels=8, mix=Mix(("crunch()",), "the given program")),
            checks=SWEEP,
        )
        assert sandbox.ledger.snapshot()["arrived"] > 10
    assert "measured with the given program" in seen(result, "rate-limit")
    assert "--program" not in result.findings[0].change
    fast = result.measured["sweep"][0]["latency"]
    assert fast < PLAN.sweep_sleep, "and not with sleepers"


def test_the_advice_is_repeated_until_two_sweeps_agree() -> None:
    assert not is_stable([])
    assert not is_stable([10])
    assert not is_stable([10, 5])
    assert is_stable([10, 5, 6])
    assert is_stable([30, 26])


def test_several_sweeps_are_pooled_by_their_medians() -> None:
    sweeps = [[Point(1, 10, 0.1, 2), Point(2, by, 0.1, 4, failed=1)] for by in (18.0, 30.0, 20.0)]
    sweeps[0].append(Point(4, 99, 0.1, 8))
    assert pooled(sweeps) == [Point(1, 10, 0.1, 6), Point(2, 20, 0.1, 12, failed=3)]


@virtually
async def test_the_range_of_all_sweeps_is_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same server gave 10, 5, 9, 5, 5 and 6 in six runs."""
    measured = iter([8, 16, 4, 8])

    async def measure(context: object, levels: object) -> Sweep:
        knee = next(measured)
        return Sweep(
            [
                Point(level, 10.0 * min(level, knee), 0.1, 2 * level)
                for level in (1, 2, 4, 8, 16, 32)
            ]
        )

    monkeypatch.setattr(throughput, "_measure", measure)
    async with scripted() as sandbox:
        result = await examined(sandbox.url, PLAN, checks=SWEEP)
    assert result.measured["recommended_by_sweep"] == [8, 16, 4, 8]
    assert "set rate_limit: 8 (4 to 16 in 4 sweeps)" in result.findings[0].change
    text = seen(result, "rate-limit")
    assert (
        "at best it runs 80 programs per second; 8 at a time are enough for nearly all of that"
        in text
    )
    assert "8: 80/s" in text


@virtually
async def test_the_load_is_bounded_and_announced() -> None:
    announced: list[str] = []
    arrived: list[int] = []

    class Watching(Observer):
        def announce(self, text: str) -> None:
            announced.append(text)
            arrived.append(sandbox.ledger.snapshot()["arrived"])

    async with scripted() as sandbox:
        await examine(
            settings_of_url(sandbox.url), PLAN, environ={}, observer=Watching(), checks=SWEEP
        )
        sent = sandbox.ledger.snapshot()["arrived"] - arrived[0]
        assert announced[0].startswith(
            "load: programs that sleep 0.05 s, at most 62 of them and 16 at a time"
        )
        assert announced[0].endswith("repeated up to 4 times until the result is stable")
        assert sent <= 4 * (62 + 1), "plus one each to check that it is still alive"


@pytest.mark.parametrize(
    ("plan", "why"), [(Plan(quick=True), "--quick"), (Plan(sweep=False), "--no-sweep")]
)
@virtually
async def test_load_can_be_skipped(plan: Plan, why: str) -> None:
    async with scripted() as sandbox:
        result = await examined(sandbox.url, plan, checks=SWEEP)
        assert result.not_examined == [("throughput", f"left out by {why}")]
        assert sandbox.ledger.snapshot()["arrived"] == 1, "only the first program"


def test_the_load_on_other_machines_is_small_by_default() -> None:
    here, there = (
        Plan().levels_for(local=True, rate_limit=None),
        Plan().levels_for(local=False, rate_limit=None),
    )
    asked = Plan(sweep=True).levels_for(local=False, rate_limit=None)
    assert there < here < asked
    assert Plan(sweep=True).levels_for(local=False, rate_limit=100_000) <= 256
    assert Plan().burst_for(local=False) < Plan().burst_for(local=True)
