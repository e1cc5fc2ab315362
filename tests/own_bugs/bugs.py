"""The bugs, each a small change of the product for the time of a run."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from sfusion_tools import runner
from sfusion_tools.base_tool import TrajectoryTool
from sfusion_tools.limiter import pace
from sfusion_tools.outcome import Outcome
from sfusion_tools.sandbox import answer, arguments, client, retry, text, tool
from sfusion_tools.sandbox.program import Bounds, Program
from sfusion_tools.sandbox.result import CallResult
from sfusion_tools.sandbox.tool import SandboxFusionTool

Patch = pytest.MonkeyPatch


@dataclass(frozen=True)
class Bug:
    """One bug: the scenario that shows it, the promise that breaks, and how it is put in."""

    name: str
    scenario: str
    promise: str
    put: Callable[[Patch], None]


BUGS: list[Bug] = []


def bug(
    scenario: str, promise: str
) -> Callable[[Callable[[Patch], None]], Callable[[Patch], None]]:
    def add(put: Callable[[Patch], None]) -> Callable[[Patch], None]:
        BUGS.append(Bug(put.__name__, scenario, promise, put))
        return put

    return add


def changed(patch: Patch, where: Any, name: str, change: Callable[..., Any]) -> None:
    """Replace a function by one that is given the original first."""
    original = getattr(where, name)
    patch.setattr(where, name, lambda *args, **more: change(original, *args, **more))


# -- what is sent --


@bug("one-after-the-other", "sent_as_asked")
def three_lines_prepended(patch: Patch) -> None:
    changed(
        patch,
        Program,
        "body",
        lambda body, self: body(dataclasses.replace(self, code="\n\n\n" + self.code)),
    )


@bug("one-after-the-other", "sent_as_asked")
def memory_field_misspelt(patch: Patch) -> None:
    changed(
        patch,
        Program,
        "body",
        lambda body, self: body(self).replace(b"memory_limit_MB", b"memory_limit_mb"),
    )


@bug("one-after-the-other", "sent_as_asked")
def compiler_gets_the_timeout_of_the_program(patch: Patch) -> None:
    changed(
        patch,
        Program,
        "body",
        lambda body, self: body(dataclasses.replace(self, compile_timeout=self.timeout)),
    )


@bug("hidden-default-timeout", "sent_as_asked")
def timeout_of_the_call_ignored(patch: Patch) -> None:
    changed(patch, arguments, "_timeout", lambda given, asked, longest: (30.0, ""))


@bug("rotten-compile", "outcomes")
def language_ignored(patch: Patch) -> None:
    changed(patch, arguments, "_language", lambda given, asked, default, others: default)


@bug("kept-secrets", "sent_as_asked")
def headers_never_sent(patch: Patch) -> None:
    changed(patch, client, "Address", lambda made, *args: made(*args[:3]))


@bug("one-after-the-other", "sent_as_asked")
def trailing_newline_of_the_code_stripped(patch: Patch) -> None:
    changed(patch, arguments, "_code", lambda code, parameters: code(parameters).rstrip())


# -- what is read --


def rewritten(patch: Patch, change: Callable[[str], str]) -> None:
    changed(patch, runner, "model_text", lambda made, *args, **more: change(made(*args, **more)))


@bug("one-after-the-other", "text_is_truthful")
def last_character_dropped(patch: Patch) -> None:
    rewritten(patch, lambda said: said[:-1])


@bug("one-after-the-other", "text_is_truthful")
def stderr_first(patch: Patch) -> None:
    def swapped(made: Any, result: CallResult, *args: Any, **more: Any) -> Any:
        return made(
            dataclasses.replace(result, stdout=result.stderr, stderr=result.stdout), *args, **more
        )

    changed(patch, runner, "model_text", swapped)


@bug("one-after-the-other", "text_is_truthful")
def blank_lines_dropped(patch: Patch) -> None:
    rewritten(patch, lambda said: said.replace("\n\n", "\n"))


@bug("large-output", "cuts_marked")
def cut_tells_one_too_few(patch: Patch) -> None:
    changed(patch, text, "_marker", lambda marker, gone: marker(gone - 1))


@bug("large-output", "text_is_truthful")
def cut_shows_a_piece_twice(patch: Patch) -> None:
    def cut(original: Any, output: str, limit: int) -> str:
        return (
            output
            if len(output) <= limit
            else output[: limit // 2] + text._marker(len(output) - limit) + output[: limit // 2]
        )

    changed(patch, text, "cut_middle", cut)


@bug("rotten-killed", "text_is_truthful")
def wrong_signal(patch: Patch) -> None:
    rewritten(patch, lambda said: said.replace("by signal 9", "by signal 10"))


@bug("rotten-exit", "metrics_are_true")
def exit_code_is_always_one(patch: Patch) -> None:
    def read(original: Any, outcome: Any, *args: Any) -> Any:
        reading = original(outcome, *args)
        return (
            dataclasses.replace(reading, return_code=1)
            if outcome is Outcome.PROGRAM_ERROR
            else reading
        )

    changed(patch, answer, "_reading", read)


@bug("rotten-hang", "partial_output_kept")
def output_of_timeouts_dropped(patch: Patch) -> None:
    def read(original: Any, outcome: Any, *args: Any) -> Any:
        reading = original(outcome, *args)
        return (
            dataclasses.replace(reading, stdout="")
            if outcome is Outcome.PROGRAM_TIMEOUT
            else reading
        )

    changed(patch, answer, "_reading", read)


# -- attempts, time and limits --


@bug("patient-429", "retry_after_honoured")
def retry_after_of_503_ignored(patch: Patch) -> None:
    def parse(original: Any, self: Any, response: Any) -> Any:
        sent = original(self, response)
        return dataclasses.replace(sent, asked=None) if sent.status == 503 else sent

    changed(patch, client.SandboxClient, "_parse", parse)


@bug("executed-then-504", "no_duplicate_execution")
def status_502_taken_for_not_run(patch: Patch) -> None:
    changed(patch, client, "may_have_run", lambda may, status: may(status) and status != 502)


@bug("bound-to-loopback", "attempts_per_call")
def one_attempt_too_many(patch: Patch) -> None:
    patch.setattr(retry.RetryPolicy, "__init__", _one_more(retry.RetryPolicy.__init__))


def _one_more(original: Any) -> Any:
    def init(self: Any, attempts: int = 6, *rest: Any, **more: Any) -> None:
        original(self, attempts + 1, *rest, **more)

    return init


@bug("hang-at-the-end", "deadline_honoured")
def deadline_ignored(patch: Patch) -> None:
    changed(patch, Bounds, "of", lambda of, self, program: (10 * of(self, program)[0], math.inf))


@bug("one-after-the-other", "metrics_are_true")
def waited_time_not_counted(patch: Patch) -> None:
    def metrics(original: Any, self: Any) -> Any:
        return {**original(self), "permit_wait_s": 0.0}

    changed(patch, CallResult, "metrics", metrics)


@bug("paced-requests", "requests_paced")
def bucket_gives_one_too_many(patch: Patch) -> None:
    def take(original: Any, self: Any, now: float) -> bool:
        self._fill(now)
        if self.tokens < 0.0:
            return False
        self.tokens -= 1.0
        return True

    changed(patch, pace.Bucket, "take", take)


@bug("adaptive-limit", "in_flight_within_limit")
def widens_above_the_limit(patch: Patch) -> None:
    def succeeded(original: Any, self: Any, count: int) -> None:
        self.value = min(self.ceiling + 1.0, self.value + self.WIDEN_BY * count / self.value)

    changed(patch, pace.Width, "succeeded", succeeded)
    patch.setattr(
        pace.Width,
        "permits",
        property(lambda self: max(1, min(self.ceiling + 1, int(self.value)))),
    )


@bug("adaptive-limit", "throughput_at_least")
def never_widens(patch: Patch) -> None:
    patch.setattr(pace.Width, "WIDEN_BY", 0.0)


@bug("gateway-504-then-fine[first_attempts=1,status=503]", "retries_spread")
def jitter_lost(patch: Patch) -> None:
    changed(patch, retry, "_fraction", lambda fraction, *keys: 0.5)


# -- rewards and state --


@bug("one-after-the-other", "instances_released")
def instances_leaked(patch: Patch) -> None:
    async def release(self: Any, instance_id: str, **more: Any) -> None: ...

    patch.setattr(TrajectoryTool, "release", release)


@bug("broken-memory-limit", "infra_never_scored")
def lost_calls_scored_zero(patch: Patch) -> None:
    async def reward(self: Any, instance_id: str, **more: Any) -> float:
        return 0.0

    patch.setattr(SandboxFusionTool, "calc_reward", reward)


@bug("one-after-the-other", "outcome_in_extras")
def outcome_not_left_for_the_trainer(patch: Patch) -> None:
    changed(patch, tool, "count_call", lambda count, *args: None)
