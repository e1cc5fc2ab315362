"""What is retried, how often, after which pause, and under which permit."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from sfusion.fakes.sandbox import FakeSandbox
from sfusion_tools.errors import LimiterError
from sfusion_tools.limiter import LimiterSettings, local_host, local_limiter
from sfusion_tools.limiter.client import Limiter
from sfusion_tools.limiter.host import LocalTransport
from sfusion_tools.outcome import Outcome
from sfusion_tools.sandbox import Bounds, Program, RetryPolicy
from tests.ports import closed_port
from tests.sfusion_tools.limiter.holding import give, take
from tests.sfusion_tools.sandbox.helpers import (
    FAST,
    Ending,
    Events,
    answering,
    client,
    http,
    in_virtual_time,
    run_answer,
    until,
)

PROGRAM = Program("print(3)")
FINE = http(run_answer())
BUSY = http("busy", "429 Too Many Requests")


@pytest.mark.parametrize(
    ("failure", "may_have_run"),
    [
        (BUSY, False),
        (http("", "502 Bad Gateway"), True),
        (http("", "503 Service Unavailable"), False),
        (http("", "504 Gateway Timeout"), True),
        (Ending.RESET, True),
        (Ending.CLOSE, True),
        (http(run_answer(), length=10_000) + b"\r\n", True),
        (http("", "500 Internal Server Error"), True),
        (http("{"), True),
        (http({"status": "SandboxError", "message": "x"}), True),
        (http(run_answer(None)), True),
    ],
    ids=[
        "429",
        "502",
        "503",
        "504",
        "reset",
        "closed",
        "hangs in the body",
        "500",
        "no JSON",
        "SandboxError",
        "null",
    ],
)
def test_transient_failures_are_retried(failure, may_have_run):
    """verl defect (g): only 504 was retried."""

    async def go() -> None:
        async with answering(failure, failure, FINE) as (url, server):
            result = await client(url, bounds=Bounds(deadline=300.0)).run(PROGRAM)
        assert (result.outcome, len(server.requests)) == (Outcome.OK, 3)
        assert [attempt.may_have_run for attempt in result.attempts] == [
            may_have_run,
            may_have_run,
            True,
        ]
        assert result.possible_executions == 1 + 2 * may_have_run

    in_virtual_time(go)


@pytest.mark.parametrize(
    "final",
    [
        http("", "404 Not Found"),
        http("", "422 Unprocessable Entity"),
        http(run_answer(code=1)),
        http(run_answer(run="TimeLimitExceeded", code=None)),
    ],
    ids=["404", "422", "program error", "program timeout"],
)
async def test_permanent_failures_are_not_retried(final):
    async with answering(final) as (url, server):
        result = await client(url).run(PROGRAM)
    assert (len(result.attempts), len(server.requests)) == (1, 1)


def test_a_server_that_comes_back_is_reached_by_a_retry():
    async def go() -> None:
        async with FakeSandbox(
            executor="scripted", faults=[{"first": 1, "what": {"crash": "5s"}}]
        ) as sandbox:
            result = await client(sandbox.url, retry=RetryPolicy()).run(PROGRAM)
        assert result.outcome is Outcome.OK
        assert len(result.attempts) > 3
        assert {attempt.outcome for attempt in result.attempts[:-1]} == {Outcome.UNREACHABLE}

    in_virtual_time(go)


async def test_attempts_stop_at_max_attempts():
    async with answering(BUSY) as (url, server):
        result = await client(url, retry=RetryPolicy(4, 0.001, 0.002)).run(PROGRAM)
    assert (result.outcome, len(result.attempts), len(server.requests)) == (Outcome.THROTTLED, 4, 4)
    assert result.message.endswith("; gave up after 4 attempts")
    assert result.metrics()["attempt_outcomes"] == ["throttled"] * 4


FULL = http("", "429 Too Many Requests", "retry-after: 2")


def test_orders_to_wait_do_not_use_up_the_attempts():
    """Real programs are slower than scripted ones: each call meets a full gateway more often than
    max_attempts."""

    async def go() -> None:
        failed = http("", "503 Service Unavailable", "retry-after: 1")
        async with answering(*[FULL] * 9, failed, *[FULL] * 2, FINE) as (url, _):
            result = await client(url, retry=RetryPolicy(2), bounds=Bounds(deadline=600)).run(
                PROGRAM
            )
        assert (result.outcome, len(result.attempts)) == (Outcome.OK, 13)

    in_virtual_time(go)


def test_orders_to_wait_are_bounded_by_the_deadline_and_counted_in_the_message():
    async def go() -> None:
        async with answering(http("", "503 Service Unavailable"), FULL) as (url, server):
            result = await client(url, retry=RetryPolicy(2), bounds=Bounds(deadline=60)).run(
                PROGRAM
            )
        assert result.outcome is Outcome.THROTTLED
        assert 45 < result.seconds <= 60
        made = len(server.requests)
        counts = f"gave up after {made} attempts ({made - 1} answered with 429 and Retry-After)"
        assert result.message.endswith(f"{counts}: the next attempt would miss the deadline")

    in_virtual_time(go)


@pytest.mark.parametrize("failure", [http("", "504 Gateway Timeout"), Ending.RESET, http("{")])
async def test_retry_may_have_run_false_prevents_a_second_execution(failure):
    """NVIDIA-NeMo/Gym#2434: a retry can run the code twice."""
    async with answering(failure, FINE) as (url, server):
        result = await client(url, retry=RetryPolicy(retry_may_have_run=False)).run(PROGRAM)
    assert (result.possible_executions, len(server.requests)) == (1, 1)
    assert result.outcome in (Outcome.SANDBOX_ERROR, Outcome.UNREACHABLE, Outcome.BAD_RESPONSE)
    assert result.message.endswith("; not repeated because the program may have run")


async def test_retry_may_have_run_false_still_retries_what_cannot_have_run():
    forbidding = RetryPolicy(6, 0.001, 0.002, retry_may_have_run=False)
    async with answering(BUSY, http("", "503 Service Unavailable"), FINE) as (url, _):
        result = await client(url, retry=forbidding).run(PROGRAM)
    assert (result.outcome, result.possible_executions) == (Outcome.OK, 1)
    result = await client(f"http://127.0.0.1:{closed_port()}", retry=forbidding).run(PROGRAM)
    assert (len(result.attempts), result.possible_executions) == (6, 0)


async def test_possible_executions_never_undercount_the_ledger():
    """The code runs three times before an answer arrives: the ledger and the result agree."""
    rule = {"first_attempts": 2, "phase": "after", "what": {"status": 504}}
    async with FakeSandbox(
        executor="scripted", faults=[rule, {"first": 1, "phase": "before", "what": {"status": 503}}]
    ) as sandbox:
        result = await client(sandbox.url).run(Program("print(3)  # sfusion:call=twice"))
        executions = sandbox.ledger.executions("twice")
    assert result.outcome is Outcome.OK
    assert executions <= result.possible_executions <= len(result.attempts)
    assert executions >= 2


def test_retry_after_is_honoured_in_both_forms():
    moment = datetime.now(UTC)
    date = format_datetime(moment, usegmt=True)
    until = format_datetime(moment + timedelta(seconds=25), usegmt=True)
    headers = [
        ("retry-after: 7",),
        ("retry-after: 1.5",),
        (f"date: {date}", f"retry-after: {until}"),
        (),
    ]

    async def go() -> None:
        events = Events()
        answers = [http("", "429 Too Many Requests", *lines) for lines in headers]
        async with answering(*answers, FINE) as (url, _):
            result = await client(
                url, on_event=events, retry=RetryPolicy(), bounds=Bounds(deadline=600)
            ).run(PROGRAM)
        assert result.outcome is Outcome.OK
        pauses = events.of("backing_off")
        assert [pause["asked"] for pause in pauses] == [7.0, 1.5, 25.0, None]
        for pause, (_, least) in zip(
            pauses, zip(headers, [7.0, 1.5, 25.0, 0.5 * 8 / 2], strict=True), strict=True
        ):
            assert pause["seconds"] >= least
        assert result.backed_off == pytest.approx(sum(pause["seconds"] for pause in pauses))

    in_virtual_time(go)


def test_a_retry_after_beyond_the_deadline_ends_the_call_at_once():
    async def go() -> None:
        async with answering(http("", "429 Too Many Requests", "retry-after: 3600")) as (
            url,
            server,
        ):
            result = await client(url, bounds=Bounds(deadline=60.0)).run(PROGRAM)
        assert (result.outcome, len(server.requests)) == (Outcome.THROTTLED, 1)
        assert result.seconds < 1.0
        assert "gave up after 1 attempt: the next attempt would miss the deadline" in result.message

    in_virtual_time(go)


async def test_the_permit_is_released_while_backing_off():
    """verl defect (g): the permit was held during the pause."""
    events = Events()
    limiter = local_limiter(LimiterSettings(rate_limit=1))
    async with answering(BUSY, FINE, FINE) as (url, server):
        retry = RetryPolicy(base=3600.0, cap=3600.0)
        sandbox = client(
            url,
            limiter=lambda: limiter,
            on_event=events,
            retry=retry,
            bounds=Bounds(deadline=10_000.0),
        )
        resting = asyncio.create_task(sandbox.run(PROGRAM, call_id="resting"))
        await events.first("backing_off")
        assert limiter.held == 0
        other = await sandbox.run(
            PROGRAM, call_id="other"
        )  # there is only one permit, so this needs it
        assert (other.outcome, len(server.requests)) == (Outcome.OK, 2)
        assert not resting.done()
        resting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await resting
    mine = [name for name, facts in events.all if facts["call"] == "resting"]
    assert mine == [
        "call_started",
        "permit_granted",
        "attempt_started",
        "permit_released",
        "attempt_ended",
        "backing_off",
        "call_ended",
    ]


async def test_each_attempt_has_its_own_permit():
    events = Events()
    limiter = local_limiter(LimiterSettings(rate_limit=3))
    async with answering(BUSY, BUSY, FINE) as (url, _):
        await client(url, limiter=lambda: limiter, on_event=events).run(PROGRAM)
    granted = [facts["permit"] for facts in events.of("permit_granted")]
    assert len(granted) == 3
    assert all(granted)
    assert [facts["permit"] for facts in events.of("permit_released")] == granted
    assert limiter.held == 0


async def test_attempts_in_flight_never_exceed_the_permits():
    limiter = local_limiter(LimiterSettings(rate_limit=4))
    async with FakeSandbox(
        executor="scripted", faults=[{"every": 3, "what": {"status": 503}}]
    ) as sandbox:
        tool = client(sandbox.url, limiter=lambda: limiter, retry=RetryPolicy(12, 0.001, 0.01))
        results = await asyncio.gather(
            *(tool.run(Program(f"{n}  # sfusion:call=c{n} seconds=0.01")) for n in range(40))
        )
        peak = sandbox.ledger.peak_in_flight
    assert {result.outcome for result in results} == {Outcome.OK}
    assert peak == 4


async def test_throttling_and_success_reach_an_adaptive_limiter():
    host = local_host(LimiterSettings(rate_limit=8, adaptive=True))
    limiter = Limiter(LocalTransport(host))
    async with answering(BUSY, FINE) as (url, _):
        await client(url, limiter=lambda: limiter).run(PROGRAM)
        await limiter.flush()
    assert host.snapshot().width < 8


async def test_a_failure_that_is_no_throttling_does_not_narrow_an_adaptive_limiter():
    host = local_host(LimiterSettings(rate_limit=8, adaptive=True))
    limiter = Limiter(LocalTransport(host))
    async with answering(http("", "502 Bad Gateway"), Ending.RESET, FINE) as (url, _):
        await client(url, limiter=lambda: limiter).run(PROGRAM)
        await limiter.flush()
    assert host.snapshot().width == 8


def test_a_call_without_a_permit_in_time_is_throttled_and_sends_nothing():
    async def go() -> None:
        limiter = local_limiter(LimiterSettings(rate_limit=1), asyncio.get_running_loop().time)
        async with answering(FINE) as (url, server):
            sandbox = client(url, limiter=lambda: limiter, bounds=Bounds(queue=120.0))
            held = await take(limiter)
            result = await sandbox.run(PROGRAM)
            assert (result.outcome, result.attempts, server.requests) == (Outcome.THROTTLED, [], [])
            assert result.message == "no permit from the limiter within 120 s"
            assert result.waited == pytest.approx(120.0)
            await give(held)
            assert (await sandbox.run(PROGRAM)).outcome is Outcome.OK

    in_virtual_time(go)


async def test_a_closed_or_failing_limiter_becomes_an_outcome():
    limiter = local_limiter(LimiterSettings(rate_limit=1))
    await take(limiter)
    sandbox = client("http://127.0.0.1:1", limiter=lambda: limiter)
    task = asyncio.create_task(sandbox.run(PROGRAM))
    await until(lambda: limiter.waiting)
    await limiter.aclose()
    assert ((await task).outcome, (await task).attempts) == (Outcome.CANCELLED, [])

    def broken() -> Limiter:
        raise LimiterError("it broke")

    result = await client("http://127.0.0.1:1", limiter=broken).run(PROGRAM)
    assert (result.outcome, result.message) == (Outcome.THROTTLED, "no permit: it broke")


async def test_calls_succeed_when_one_of_several_endpoints_is_dead():
    async with (
        FakeSandbox(executor="scripted") as first,
        FakeSandbox(executor="scripted") as second,
    ):
        urls = [f"http://127.0.0.1:{closed_port()}", first.url, f"{second.url}/run_code"]
        sandbox = client(urls, retry=FAST)
        results = await asyncio.gather(*(sandbox.run(Program(f"print({n})")) for n in range(30)))
        assert {result.outcome for result in results} == {Outcome.OK}
        again = [await sandbox.run(PROGRAM) for _ in range(6)]
        shares = (first.ledger.arrived, second.ledger.arrived)
    assert all(len(result.attempts) == 1 for result in again)  # the dead one is set aside
    assert sum(shares) == 36
    assert min(shares) >= 12


def test_an_endpoint_that_was_set_aside_is_used_again_once_it_is_back():
    async def go() -> None:
        async with (
            FakeSandbox(executor="scripted") as steady,
            FakeSandbox(executor="scripted") as flaky,
        ):
            sandbox = client([flaky.url, steady.url])
            flaky.server.crash()
            for _ in range(4):
                assert (await sandbox.run(PROGRAM)).outcome is Outcome.OK
            assert flaky.ledger.arrived == 0
            await flaky.server.restart()
            await asyncio.sleep(60.0)
            for _ in range(6):
                assert (await sandbox.run(PROGRAM)).outcome is Outcome.OK
            assert flaky.ledger.arrived == 3

    in_virtual_time(go)


@pytest.mark.parametrize(
    "refusal",
    [
        http("not found", "404 Not Found"),
        http("", "302 Found", "location: /login"),
        http("<html>log in</html>", "200 OK", "content-type: text/html"),
        http({}),
        http(run_answer(status="SandboxError")),
    ],
    ids=["404", "302", "page", "empty", "SandboxError"],
)
async def test_a_sandbox_that_refuses_every_call_at_once_does_not_attract_them(refusal):
    async with answering(refusal) as (bad, refusing), FakeSandbox(executor="scripted") as good:
        sandbox = client([bad, good.url])
        outcomes = [(await sandbox.run(PROGRAM)).outcome for _ in range(60)]
        assert outcomes.count(Outcome.OK) == good.ledger.arrived
        assert len(refusing.requests) <= 15


async def test_a_sandbox_is_not_set_aside_for_one_answer_without_a_result():
    """Its program may be the cause, and then any other sandbox fails at it, too."""
    error = http(run_answer(status="SandboxError"))
    async with answering(error, FINE) as (first, server), answering(FINE) as (second, _):
        sandbox = client([first, second], retry=RetryPolicy(max_attempts=1))
        results = [await sandbox.run(PROGRAM) for _ in range(7)]
    assert [result.outcome for result in results] == [Outcome.SANDBOX_ERROR] + 6 * [Outcome.OK]
    assert len(server.requests) > 1
