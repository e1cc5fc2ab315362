"""Changes to our own stack, one for each promise: each is applied for one run and then taken
back."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Any

import pytest

from sfusion_tools import runner as runner_module
from sfusion_tools.limiter import LimiterCore
from sfusion_tools.limiter.client import LeasedPermit
from sfusion_tools.outcome import Outcome
from sfusion_tools.rollout import AsyncRolloutRequest, RolloutDriver
from sfusion_tools.rollout import request as request_module
from sfusion_tools.sandbox import CallResult
from sfusion_tools.sandbox import client as client_module
from sfusion_tools.sandbox import public_transport as transport_module
from sfusion_tools.sandbox import retry as retry_module
from sfusion_tools.sandbox import text as text_module
from sfusion_tools.sandbox import tool as tool_module
from sfusion_tools.sandbox.client import SandboxClient
from sfusion_tools.sandbox.config import SandboxToolConfig
from sfusion_tools.sandbox.retry import RETRIED_STATUSES, RetryPolicy
from sfusion_tools.sandbox.text import model_text
from sfusion_tools.sandbox.tool import SandboxFusionTool
from tests.own_bugs.bugs import BUGS
from tests.proof.change import CHANGES as CHANGES
from tests.proof.change import Replace, change
from tests.proof.mistakes.learning import LEARNED

# -- limiter --


@change("in_flight_within_limit", "single-node")
def grants_one_too_many(replace: Replace) -> None:
    """The limiter grants one permit more than the limit."""
    real = LimiterCore._free
    replace(LimiterCore, "_free", lambda self: real(self) + 1)


@change("grants_in_order", "single-node")
def serves_the_last_first(replace: Replace) -> None:
    """The limiter serves its queue from the end (verl, m)."""
    real = LimiterCore._next_in_line

    def last(self: Any) -> Any:
        turn = real(self)
        return turn and (turn[0], max(turn[0].waiters))

    replace(LimiterCore, "_next_in_line", last)


@change("no_permit_leaked", "single-node")
def loses_a_release(replace: Replace) -> None:
    """The limiter ignores the release of one permit."""
    real = LimiterCore._release

    def forget(self: Any, client: Any, permit: str, how: str = "released") -> bool:
        return True if how == "released" and permit == "p1-5" else real(self, client, permit, how)

    replace(LimiterCore, "_release", forget)


@change("no_starvation", "single-node-tight-limit[rate_limit=1]")
def returns_permits_late(replace: Replace) -> None:
    """A permit is kept for five seconds after the answer."""
    real = LeasedPermit.__aexit__

    async def late(self: Any, *error: Any) -> None:
        await asyncio.sleep(5.0)
        await real(self, *error)

    replace(LeasedPermit, "__aexit__", late)


@change("no_permit_while_backing_off", "patient-429", also=("retries_spread",))
def keeps_permits_after_an_answer(replace: Replace) -> None:
    """A permit is kept for two seconds after the answer."""
    real = LeasedPermit.__aexit__

    async def late(self: Any, *error: Any) -> None:
        await asyncio.sleep(2.0)
        await real(self, *error)

    replace(LeasedPermit, "__aexit__", late)


@change("throughput_at_least", "full-width", also=("metrics_are_true",))
def wastes_permits(replace: Replace) -> None:
    """A permit lies idle for ten seconds before it is used."""
    real = LeasedPermit.__aenter__

    async def sluggish(self: Any) -> Any:
        permit = await real(self)
        await asyncio.sleep(10.0)
        return permit

    replace(LeasedPermit, "__aenter__", sluggish)


# -- client --


@change("every_call_ends_once", "stopped-during-a-call", also=("no_starvation",))
def ignores_cancellation(replace: Replace) -> None:
    """A cancelled call goes on in the background."""
    real = SandboxClient.run

    async def heedless(self: Any, program: Any, **options: Any) -> Any:
        return await asyncio.shield(real(self, program, **options))

    replace(SandboxClient, "run", heedless)


@change(
    "outcomes",
    "gateway-504-then-fine[first_attempts=1,status=503]",
    also=("attempts_per_call", "no_duplicate_execution", "retries_spread"),
)
def retries_nothing(replace: Replace) -> None:
    """No status is worth another attempt."""
    replace(client_module, "RETRIED_STATUSES", frozenset())


@change("attempts_per_call", "proxy-in-between")
def tries_too_often(replace: Replace) -> None:
    """The number of attempts is twice that of the config."""
    real = SandboxToolConfig.retry.fget  # type: ignore[attr-defined]
    replace(SandboxToolConfig, "retry", property(lambda self: _twice(real(self))))


def _twice(policy: RetryPolicy) -> RetryPolicy:
    return dataclasses.replace(policy, max_attempts=2 * policy.max_attempts)


@change("only_transient_retried", "wrong-path", also=("attempts_per_call",))
def retries_not_found(replace: Replace) -> None:
    """A 404 is sent again."""
    replace(client_module, "RETRIED_STATUSES", RETRIED_STATUSES | {404})


@change("retry_after_honoured", "patient-429")
def comes_back_early(replace: Replace) -> None:
    """The pause between attempts ignores Retry-After."""
    real = RetryPolicy.pause
    replace(
        RetryPolicy,
        "pause",
        lambda self, call_id, attempt, retry_after: real(self, call_id, attempt, None),
    )


@change("retries_spread", "patient-429")
def comes_back_in_step(replace: Replace) -> None:
    """The pause between attempts has no jitter."""
    replace(retry_module, "_fraction", lambda *keys: 0.5)


@change("no_stall", "gateway-504-then-fine[first_attempts=1,status=503]")
def sleeps_before_retrying(replace: Replace) -> None:
    """The pause between attempts is twenty seconds longer."""
    real = RetryPolicy.pause
    replace(
        RetryPolicy,
        "pause",
        lambda self, call, attempt, asked: 20.0 + real(self, call, attempt, asked),
    )


@change("connections_reused", "single-node")
def closes_every_connection(replace: Replace) -> None:
    """Each request has a session, and a connection, of its own."""
    real = SandboxClient._send

    async def alone(self: Any, session: Any, *args: Any) -> Any:
        own = type(session)(asyncio.get_running_loop())
        try:
            return await real(self, own, *args)
        finally:
            await own.aclose()

    replace(SandboxClient, "_send", alone)


@change("no_dead_connection_used", "idle-keep-alive")
def keeps_dead_connections(replace: Replace) -> None:
    """Idle connections are kept for longer than the server keeps them."""
    replace(transport_module, "IDLE_SECONDS", 3600.0)


@change("answers_are_own", "single-node", also=("text_is_truthful",))
def mixes_up_answers(replace: Replace) -> None:
    """Each call gets the output of the one that ended before it."""
    real = SandboxClient.run
    last: list[str] = []

    async def mixed(self: Any, *args: Any, **options: Any) -> Any:
        result = await real(self, *args, **options)
        last.append(result.stdout)
        result.stdout = last[-2:][0]
        return result

    replace(SandboxClient, "run", mixed)


@change("recovers_within", "crash-and-restart")
def backs_off_too_long(replace: Replace) -> None:
    """The pause between attempts is half a minute longer."""
    real = RetryPolicy.pause
    replace(
        RetryPolicy,
        "pause",
        lambda self, call, attempt, asked: 30.0 + real(self, call, attempt, asked),
    )


@change("deadline_honoured", "wedged-for-good", also=("no_stall", "no_starvation"))
def waits_forty_times_as_long(replace: Replace) -> None:
    """A request may take forty times as long as it should."""
    real = SandboxClient._send

    async def patient(self: Any, session: Any, address: Any, body: bytes, seconds: float) -> Any:
        return await real(self, session, address, body, seconds * 40)

    replace(SandboxClient, "_send", patient)


@change(
    "no_duplicate_execution",
    "executed-then-504",
    also=("attempts_per_call", "infra_never_scored", "metrics_are_true", "outcomes"),
)
def believes_that_nothing_ran(replace: Replace) -> None:
    """Every failed attempt counts as one whose program did not run."""
    replace(client_module, "may_have_run", lambda status: False)


@change("no_secret_leaked", "kept-secrets")
def logs_its_headers(replace: Replace) -> None:
    """Each request is logged with its headers."""
    real = SandboxClient._send

    async def chatty(self: Any, *args: Any) -> Any:
        client_module.logger.warning("sending with %s", self._headers)
        return await real(self, *args)

    replace(SandboxClient, "_send", chatty)


# -- tool --


@change("tool_never_raises", "poisoned-call", also=("infra_never_scored", "outcomes"))
def raises_on_a_sandbox_error(replace: Replace) -> None:
    """The tool raises where the sandbox failed."""

    def fragile(result: Any, *args: Any, **options: Any) -> str:
        if result.outcome is Outcome.SANDBOX_ERROR:
            raise RuntimeError(result.message)
        return model_text(result, *args, **options)

    replace(runner_module, "model_text", fragile)


@change("text_is_truthful")
def shows_a_placeholder(replace: Replace) -> None:
    """Every failure is the same placeholder, as in verl 0.7.1."""

    def placeholder(result: Any, *args: Any, **options: Any) -> str:
        return (
            model_text(result, *args, **options)
            if result.outcome.is_from_program
            else "no stdout here"
        )

    replace(runner_module, "model_text", placeholder)


@change("partial_output_kept", "rotten-hang")
def forgets_partial_output(replace: Replace) -> None:
    """What a program printed before its timeout is thrown away."""

    def forgetful(result: Any, *args: Any, **options: Any) -> str:
        if result.outcome is Outcome.PROGRAM_TIMEOUT:
            result.stdout = ""
        return model_text(result, *args, **options)

    replace(runner_module, "model_text", forgetful)


@change("infra_never_scored", "swallowed-failures")
def scores_outages(replace: Replace) -> None:
    """Every call is scored 0.0."""

    async def harsh(self: Any, instance_id: str, **kwargs: Any) -> float:
        return 0.0

    replace(SandboxFusionTool, "calc_reward", harsh)


@change("text_is_truthful", "bad-arguments")
def says_nothing_about_refusals(replace: Replace) -> None:
    """A call with bad arguments gets an empty text."""

    def silent(result: Any, *args: Any, **options: Any) -> str:
        return (
            "" if result.outcome is Outcome.BAD_ARGUMENTS else model_text(result, *args, **options)
        )

    replace(runner_module, "model_text", silent)


@change("stderr_shown", "rotten-raise")
def drops_stderr_of_programs(replace: Replace) -> None:
    """The model does not see stderr."""

    def half(result: Any, *args: Any, **options: Any) -> str:
        result.stderr = ""
        return model_text(result, *args, **options)

    replace(runner_module, "model_text", half)


@change("cuts_marked", "silent-truncation", also=("text_is_truthful",))
def cuts_without_a_mark(replace: Replace) -> None:
    """Long output is cut, and nothing says so."""
    replace(text_module, "_marker", lambda gone: "")


@change("output_bounded", "large-output", also=("cuts_marked",))
def shows_everything(replace: Replace) -> None:
    """Output of any size is passed on to the model."""
    replace(text_module, "cut_middle", lambda text, limit: text)


@change("outcome_in_extras", "single-node")
def tells_verl_nothing(replace: Replace) -> None:
    """The outcome is not left where verl's trainer finds it."""
    replace(tool_module, "count_call", lambda agent_data, metrics: None)


def _from_own_bugs(name: str, about: str) -> None:
    """Take over a bug of ``tests.own_bugs``."""
    found = next(one for one in BUGS if one.name == name)

    def make(replace: Replace) -> None:
        patch = pytest.MonkeyPatch()
        patch.setattr = replace  # type: ignore[method-assign, assignment]
        found.put(patch)

    make.__name__, make.__doc__ = name, about
    change(found.promise, found.scenario)(make)


_from_own_bugs("memory_field_misspelt", "memory_limit_mb is sent, which the server does not know.")
_from_own_bugs("waited_time_not_counted", "The metrics say that no call waited for a permit.")
_from_own_bugs("instances_leaked", "An instance that is released is kept.")
_from_own_bugs("bucket_gives_one_too_many", "One request too many starts per second.")


# -- rollout --


@change("rollout_ends", "list-of-calls", also=("lengths_consistent", "outcome_in_extras"))
def never_resumes(replace: Replace) -> None:
    """A trajectory is not resumed after its tool calls."""
    real = RolloutDriver._step

    async def stuck(self: Any, request: Any, tools: Any) -> None:
        if request.metrics.tool_seconds:
            await asyncio.get_running_loop().create_future()
        await real(self, request, tools)

    replace(RolloutDriver, "_step", stuck)


@change("lengths_consistent", "oversize-response[max_response_len=under]")
def loses_a_mask(replace: Replace) -> None:
    """The loss mask is one token short."""
    real: Any = AsyncRolloutRequest.loss_mask
    replace(AsyncRolloutRequest, "loss_mask", property(lambda self: real.fget(self)[:-1]))


# -- what training learns --


def _stated(replace: Replace, outcome: Outcome) -> None:
    """State another outcome for lost calls."""
    real = CallResult.metrics

    def metrics(self: CallResult) -> dict[str, Any]:
        found = real(self)
        return (
            {**found, "outcome": outcome.value, "infrastructure": False}
            if found["infrastructure"]
            else found
        )

    replace(CallResult, "metrics", metrics)


_MISSTATED = ("text_is_truthful",)


@change("tool_use_kept", "outage-left-out-of-training", also=LEARNED)
def forgets_lost_calls(replace: Replace) -> None:
    """A trajectory does not know that its last call was lost."""
    replace(request_module, "_is_lost", lambda outcome: False)


@change("several_calls_kept", "outage-left-out-of-training", also=(*LEARNED, *_MISSTATED))
def states_lost_calls_ok(replace: Replace) -> None:
    """A lost call is stated as ok."""
    _stated(replace, Outcome.OK)


@change("tool_use_recovers", "outage-left-out-of-training", also=(*LEARNED, *_MISSTATED))
def blames_the_program(replace: Replace) -> None:
    """A lost call is stated as a failure of the program."""
    _stated(replace, Outcome.PROGRAM_ERROR)


@change("push_has_the_twins_sign", "outage-left-out-of-training", also=LEARNED)
def blames_the_model(replace: Replace) -> None:
    """A lost call is stated as one with wrong arguments."""
    _stated(replace, Outcome.BAD_ARGUMENTS)


@change("no_gradient_from_lost_samples", "dead-server-read-as-failing-code", also=_MISSTATED)
def blames_the_program_for_a_lost_body(replace: Replace) -> None:
    """An answer that cannot be read is stated as a failure of the program."""
    _stated(replace, Outcome.PROGRAM_ERROR)


@change(
    "no_signal_only_through_losses",
    "masked-but-in-the-baseline",
    also=("no_gradient_from_lost_samples",),
)
def forgets_lost_calls_in_the_baseline(replace: Replace) -> None:
    """A trajectory whose last call was lost counts in the baseline of its group."""
    replace(request_module, "_is_lost", lambda outcome: False)
