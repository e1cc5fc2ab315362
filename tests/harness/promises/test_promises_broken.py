"""For each promise, break the real component that keeps it: this promise is found broken, and no unrelated one."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import aiohttp
import pytest

from sfusion.harness.promises import PROMISES, judge
from sfusion.harness.worlds import sim
from sfusion_tools.limiter import LimiterCore, Permit
from sfusion_tools.outcome import Outcome
from sfusion_tools.rollout import AsyncRolloutRequest
from sfusion_tools.sandbox import client as client_module
from sfusion_tools.sandbox import session as session_module
from sfusion_tools.sandbox import text as text_module
from sfusion_tools.sandbox import tool as tool_module
from sfusion_tools.sandbox.retry import RetryPolicy
from sfusion_tools.sandbox.tool import SandboxFusionTool
from tests.harness.promises.scenes import broken_in, scene, verdicts

ROLLOUTS: dict[str, Any] = {
    "load": None,
    "rollouts": {
        "count": 3,
        "turns": [{"say": "Compute.", "programs": [{"prints": "4\n", "seconds": "50ms"}]}, {"say": "It is 4."}],
    },
}


def rollout_scene(**changes: Any) -> Any:
    data = {**ROLLOUTS, **changes}
    return scene(**{key: value for key, value in data.items() if value is not None} | {"load": None})


def _tested() -> set[str]:
    return {name.removeprefix("test_") for name in globals() if name.startswith("test_")}


def test_every_promise_is_held_when_nothing_is_broken() -> None:
    found = verdicts(sim.run(scene()))
    assert not [verdict for verdict in found.values() if verdict.state == "broken"]
    assert {name for name, verdict in found.items() if verdict.state == "unknown"} == {
        "retry_after_honoured",
        "partial_output_kept",
        "no_secret_leaked",
        "infra_never_scored",
        "recovers_within",
        "only_transient_retried",
        "retries_spread",
        "no_permit_while_backing_off",
        "refusals_told",
        "output_bounded",
        "cuts_marked",
        "stderr_shown",
        "no_dead_connection_used",
    }


def test_every_promise_has_a_test_that_breaks_it() -> None:
    assert not set(PROMISES) - _tested()


class OverAdmitting(LimiterCore):
    """Grants one permit more than it may."""

    def _free(self) -> int:
        return super()._free() + 1


def test_in_flight_within_limit() -> None:
    broken = broken_in(scene(), core=OverAdmitting)
    assert set(broken) == {"in_flight_within_limit"}
    assert "4 attempts were in flight; the limit is 3" in broken["in_flight_within_limit"].sentence
    assert broken["in_flight_within_limit"].evidence


def test_in_flight_within_limit_is_also_counted_at_the_sandbox(monkeypatch: pytest.MonkeyPatch) -> None:
    real = client_module.SandboxClient._send

    async def hedging(self: Any, *args: Any) -> Any:
        first, _ = await asyncio.gather(real(self, *args), real(self, *args))
        return first

    monkeypatch.setattr(client_module.SandboxClient, "_send", hedging)
    broken = broken_in(scene())
    assert set(broken) == {"in_flight_within_limit", "no_duplicate_execution"}
    assert "at the sandbox" in broken["in_flight_within_limit"].sentence


class Leaking(LimiterCore):
    """Ignores the release of one permit."""

    def _release(self, client: Any, permit: str, how: str = "released") -> bool:
        if how == "released" and permit == "p1-5":
            return True
        return super()._release(client, permit, how)


def test_no_permit_leaked() -> None:
    broken = broken_in(scene(tools={"rate_limit": 12}), core=Leaking)
    assert set(broken) == {"no_permit_leaked"}
    assert "was not released before its lease expired" in broken["no_permit_leaked"].sentence


class LastComeFirstServed(LimiterCore):
    """Serves the queue from its end."""

    def _next_in_line(self) -> Any:
        turn = super()._next_in_line()
        return turn and (turn[0], max(turn[0].waiters))


def test_grants_in_order() -> None:
    broken = broken_in(scene(), core=LastComeFirstServed)
    assert set(broken) == {"grants_in_order"}
    assert "was queued" in broken["grants_in_order"].sentence


class Starving(LimiterCore):
    """Grants nothing to the second node for a minute."""

    def _grant(self, now: float) -> None:
        self._now = now
        super()._grant(now)

    def _next_in_line(self) -> Any:
        turn = super()._next_in_line()
        if turn is None or self._now >= 70:
            return turn
        served = (ticket for ticket, (client, _) in turn[0].waiters.items() if client.name != "n2-w1")
        ticket = next(served, None)
        return None if ticket is None else (turn[0], ticket)

    def _run(self, client: Any) -> int:
        return 0

    def next_deadline(self, now: float) -> float:
        return min(super().next_deadline(now), 70.0 if now < 70 else now + 1e9)


def test_no_starvation() -> None:
    broken = broken_in(scene(), core=Starving)
    assert "no_starvation" in broken
    assert set(broken) <= {"no_starvation", "grants_in_order", "no_stall", "throughput_at_least"}


def test_every_call_ends_once(monkeypatch: pytest.MonkeyPatch) -> None:
    real = client_module.SandboxClient.run

    async def forgetful(self: Any, program: Any, **options: Any) -> Any:
        if options["result"].call_id == "c0005":
            await asyncio.get_running_loop().create_future()
        return await real(self, program, **options)

    monkeypatch.setattr(client_module.SandboxClient, "run", forgetful)
    broken = broken_in(scene(horizon="200s"))
    assert set(broken) == {"every_call_ends_once", "deadline_honoured", "no_stall", "outcomes"}
    assert broken["every_call_ends_once"].sentence == "call c0005 never ended"
    assert "1 of 24 calls ended unfinished" in broken["outcomes"].sentence


def test_every_call_ends_once_and_sends_nothing_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    real = client_module.SandboxClient.run

    async def heedless(self: Any, program: Any, **options: Any) -> Any:
        return await asyncio.shield(real(self, program, **options))

    monkeypatch.setattr(client_module.SandboxClient, "run", heedless)
    giving_up = {"calls": 24, "concurrency": 12, "program": {"seconds": "100ms"}, "cancel": {"after": "150ms"}}
    broken = broken_in(scene(load=giving_up))
    assert "sent a request" in broken["every_call_ends_once"].sentence
    assert "after it had ended" in broken["every_call_ends_once"].sentence


def test_tool_never_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    real = tool_module.model_text

    def fragile(result: Any, *args: Any, **options: Any) -> str:
        if result.call_id == "c0007":
            raise RuntimeError("boom")
        return real(result, *args, **options)

    monkeypatch.setattr(tool_module, "model_text", fragile)
    scenario = scene()
    broken = broken_in(scenario)
    assert set(broken) == {"tool_never_raises", "outcomes"}
    assert broken["tool_never_raises"].sentence.startswith(
        "the tool raised RuntimeError: boom (c0007, test_promises_broken.py:"
    )
    found = judge(sim.run(scenario), scenario.promises)
    assert [one.promise for one in found] == ["every_call_ends_once", "tool_never_raises"], "also if it is not named"


def test_tool_never_raises_when_it_is_released(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fragile(self: object, instance_id: str, **_: Any) -> None:
        raise RuntimeError(f"\x1b[31m{instance_id}\x1b[0m")

    monkeypatch.setattr(tool_module.SandboxFusionTool, "release", fragile)
    sentence = broken_in(scene())["tool_never_raises"].sentence
    assert sentence.startswith("the tool raised RuntimeError: c0001 (c0001, test_promises_broken.py:")


def test_outcomes() -> None:
    faulty = scene(sandbox={"faults": [{"call": "c0003", "what": "sandbox_error"}]})
    broken = broken_in(faulty)
    assert set(broken) == {"outcomes"}
    assert "1 of 24 calls ended sandbox_error" in broken["outcomes"].sentence
    assert any(event.get("call") == "c0003" for event in broken["outcomes"].evidence)


def test_attempts_per_call() -> None:
    # The tool's own limit on attempts is raised above that of the promise.
    stubborn = scene(
        sandbox={"faults": [{"first_attempts": 8, "call": "c0003", "what": {"status": 503}}]},
        tools={"rate_limit": 3, "max_attempts": 12, "call_deadline": 1000},
    )
    broken = broken_in(stubborn)
    assert set(broken) - {"throughput_at_least"} == {"attempts_per_call"}
    assert "call c0003 made 9 attempts" in broken["attempts_per_call"].sentence


def test_attempts_per_call_leaves_out_orders_to_wait() -> None:
    busy = {"first_attempts": 8, "call": "c0003", "what": {"status": 429, "retry_after": 1}}
    assert "attempts_per_call" not in broken_in(scene(sandbox={"faults": [busy]}, tools={"call_deadline": 1000}))
    busy["what"] = {"status": 429}
    eager = {"call_deadline": 1000, "max_attempts": 12}
    assert "attempts_per_call" in broken_in(scene(sandbox={"faults": [busy]}, tools=eager))


def test_retry_after_honoured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RetryPolicy, "pause", lambda self, call_id, attempt, retry_after: 0.5)
    busy = scene(sandbox={"faults": [{"first_attempts": 1, "every": 3, "what": {"status": 429, "retry_after": 4}}]})
    broken = broken_in(busy)
    assert set(broken) == {"retry_after_honoured"}
    assert "s before its Retry-After was over" in broken["retry_after_honoured"].sentence


def test_deadline_honoured(monkeypatch: pytest.MonkeyPatch) -> None:
    real = client_module.SandboxClient._send

    async def patient(self: Any, session: Any, address: Any, body: bytes, seconds: float) -> Any:
        return await real(self, session, address, body, seconds * 40)

    monkeypatch.setattr(client_module.SandboxClient, "_send", patient)
    hanging = scene(sandbox={"faults": [{"call": "c0004", "what": "hang"}]}, tools={"default_timeout": 5})
    broken = broken_in(hanging)
    assert "deadline_honoured" in broken
    assert set(broken) <= {"deadline_honoured", "no_stall", "outcomes", "throughput_at_least"}
    assert broken["deadline_honoured"].sentence.startswith("call c0004 took")


def test_no_duplicate_execution() -> None:
    twice = scene(sandbox={"faults": [{"first_attempts": 1, "every": 4, "phase": "after", "what": {"status": 504}}]})
    broken = broken_in(twice)
    assert set(broken) == {"no_duplicate_execution"}
    assert "was executed 2 times" in broken["no_duplicate_execution"].sentence


def test_text_is_truthful(monkeypatch: pytest.MonkeyPatch) -> None:
    # What verl's tool returned, whatever had happened.
    monkeypatch.setattr(tool_module, "model_text", lambda *args, **options: "no stdout here")
    broken = broken_in(scene())
    assert set(broken) == {"text_is_truthful"}
    assert "'no stdout here'" in broken["text_is_truthful"].sentence


def test_text_is_truthful_when_the_sandbox_loses_output() -> None:
    lossy = scene(sandbox={"faults": [{"every": 5, "what": {"output": "lost"}}]})
    assert set(broken_in(lossy)) == {"text_is_truthful"}


def test_partial_output_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    real = tool_module.model_text

    def forgetful(result: Any, *args: Any, **options: Any) -> str:
        if result.outcome is Outcome.PROGRAM_TIMEOUT:
            result.stdout = ""
        return real(result, *args, **options)

    monkeypatch.setattr(tool_module, "model_text", forgetful)
    slow = scene(
        tools={"default_timeout": 2},
        load={"calls": 6, "concurrency": 6, "program": {"seconds": "1h", "early": "step {call}\n"}},
    )
    broken = broken_in(slow)
    assert set(broken) - {"outcomes"} == {"partial_output_kept"}
    assert "before its timeout" in broken["partial_output_kept"].sentence


def test_no_secret_leaked(monkeypatch: pytest.MonkeyPatch) -> None:
    real = client_module.SandboxClient._send

    async def chatty(self: Any, *args: Any) -> Any:
        client_module.logger.warning("sending with %s", self._headers)
        return await real(self, *args)

    monkeypatch.setattr(client_module.SandboxClient, "_send", chatty)
    journal = sim.run(scene(tools={"rate_limit": 3, "headers": {"X-Token": "canary-4711"}}))
    found = verdicts(journal)
    assert {name for name, verdict in found.items() if verdict.state == "broken"} == {"no_secret_leaked"}
    assert "headers.X-Token" in found["no_secret_leaked"].sentence
    assert "canary-4711" not in json.dumps(journal.events)


def test_no_secret_leaked_beyond_the_recorded_part_of_a_long_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tool_module, "model_text", lambda *args, **options: "x" * 5000 + "canary-4711")
    journal = sim.run(scene(tools={"headers": {"X-Token": "canary-4711"}}))
    assert verdicts(journal)["no_secret_leaked"].state == "broken"
    assert max(len(event.get("text", "")) for event in journal.events) == 400


def test_text_is_truthful_for_long_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    long = scene(load={"calls": 4, "program": {"prints": "{call} {fill:1000}\n"}})
    assert not broken_in(long)
    monkeypatch.setattr(tool_module, "model_text", lambda *args, **options: "x" * 1001)
    assert set(broken_in(long)) == {"text_is_truthful"}


def test_infra_never_scored(monkeypatch: pytest.MonkeyPatch) -> None:
    async def harsh(self: Any, instance_id: str, **kwargs: Any) -> float:
        return 0.0

    monkeypatch.setattr(SandboxFusionTool, "calc_reward", harsh)
    faulty = scene(sandbox={"faults": [{"call": "c0003", "what": "sandbox_error"}]})
    broken = broken_in(faulty)
    assert set(broken) - {"outcomes"} == {"infra_never_scored"}
    assert "call c0003" in broken["infra_never_scored"].sentence


def test_rollout_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    real = AsyncRolloutRequest.add_tool_results

    def forgetful(self: Any, results: Any) -> None:
        if self.request_id != "r002":
            real(self, results)

    monkeypatch.setattr(AsyncRolloutRequest, "add_tool_results", forgetful)
    broken = broken_in(rollout_scene(horizon="20s"))
    assert "rollout_ends" in broken
    assert "rollout r002" in broken["rollout_ends"].sentence


def test_lengths_consistent(monkeypatch: pytest.MonkeyPatch) -> None:
    real = AsyncRolloutRequest.loss_mask
    monkeypatch.setattr(AsyncRolloutRequest, "loss_mask", property(lambda self: real.fget(self)[:-1]))  # type: ignore[attr-defined]
    broken = broken_in(rollout_scene())
    assert set(broken) == {"lengths_consistent"}
    assert "of loss_mask" in broken["lengths_consistent"].sentence


def test_recovers_within(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RetryPolicy, "pause", lambda self, call_id, attempt, retry_after: 30.0 + int(call_id[1:]))
    falling = scene(events=[{"at": "150ms", "crash": "sandbox", "seconds": "2s"}], tools={"rate_limit": 12})
    broken = broken_in(falling)
    assert set(broken) - {"no_duplicate_execution", "throughput_at_least"} == {"recovers_within"}
    assert "after restart" in broken["recovers_within"].sentence


def test_throughput_at_least(monkeypatch: pytest.MonkeyPatch) -> None:
    real = Permit.__aenter__

    async def sluggish(self: Any) -> Any:
        permit = await real(self)
        await asyncio.sleep(10.0)
        return permit

    monkeypatch.setattr(Permit, "__aenter__", sluggish)
    broken = broken_in(scene())
    assert set(broken) - {"no_starvation", "deadline_honoured"} == {"throughput_at_least"}


def test_only_transient_retried(monkeypatch: pytest.MonkeyPatch) -> None:
    refusing = scene(
        sandbox={"faults": [{"call": "c0003", "first_attempts": 1, "what": {"status": 404}}]},
        load={"calls": 24, "concurrency": 12, "program": [{"seconds": "100ms", "prints": "{call}\n"}, {"exit": 1}]},
    )
    assert verdicts(sim.run(refusing))["only_transient_retried"].held
    monkeypatch.setattr(client_module, "RETRIED_STATUSES", frozenset({404, 429, 502, 503, 504}))
    broken = broken_in(refusing)
    assert set(broken) - {"outcomes"} == {"only_transient_retried"}
    assert broken["only_transient_retried"].sentence == "call c0003 was sent again after status 404"


def test_only_transient_retried_also_forbids_to_retry_a_result(monkeypatch: pytest.MonkeyPatch) -> None:
    real = client_module.SandboxClient._send

    async def hopeful(self: Any, *args: Any) -> Any:
        sent = await real(self, *args)
        sent.transient = sent.transient or sent.reading.outcome is Outcome.PROGRAM_ERROR
        return sent

    monkeypatch.setattr(client_module.SandboxClient, "_send", hopeful)
    failing = scene(load={"calls": 3, "program": {"exit": 1}}, tools={"max_attempts": 2})
    broken = broken_in(failing)
    assert set(broken) - {"outcomes", "throughput_at_least"} == {"only_transient_retried", "no_duplicate_execution"}
    assert "after the result of its program" in broken["only_transient_retried"].sentence


BUSY = {"faults": [{"first_attempts": 1, "what": {"status": 503}}]}


def test_retries_spread(monkeypatch: pytest.MonkeyPatch) -> None:
    busy = scene(sandbox=BUSY, tools={"rate_limit": 12})
    assert verdicts(sim.run(busy))["retries_spread"].held
    monkeypatch.setattr(RetryPolicy, "pause", lambda self, call_id, attempt, retry_after: 1.0)
    broken = broken_in(busy)
    assert set(broken) == {"retries_spread"}
    assert "12 of 12 calls that were refused at" in broken["retries_spread"].sentence


def test_no_permit_while_backing_off(monkeypatch: pytest.MonkeyPatch) -> None:
    real = client_module.SandboxClient._send

    async def greedy(self: Any, *args: Any) -> Any:
        sent = await real(self, *args)
        if sent.transient:
            await asyncio.sleep(2.0)
        return sent

    busy = scene(sandbox=BUSY)
    assert verdicts(sim.run(busy))["no_permit_while_backing_off"].held
    monkeypatch.setattr(client_module.SandboxClient, "_send", greedy)
    broken = broken_in(busy)
    assert set(broken) == {"no_permit_while_backing_off"}
    assert "for 2 s after status 503" in broken["no_permit_while_backing_off"].sentence


def test_refusals_told(monkeypatch: pytest.MonkeyPatch) -> None:
    real = tool_module.model_text

    def silent(result: Any, *args: Any, **options: Any) -> str:
        return "ok" if result.outcome is Outcome.BAD_ARGUMENTS else real(result, *args, **options)

    wrong = scene(load={"calls": 8, "program": [{"arguments": {"cod": "1"}}, {"prints": "{call}\n", "seconds": "1s"}]})
    assert verdicts(sim.run(wrong))["refusals_told"].held
    monkeypatch.setattr(tool_module, "model_text", silent)
    broken = broken_in(wrong)
    assert set(broken) - {"outcomes"} == {"refusals_told", "text_is_truthful"}
    assert "was refused (bad arguments), but the tool message does not say so: 'ok'" in broken["refusals_told"].sentence


def test_refusals_told_in_rollouts(monkeypatch: pytest.MonkeyPatch) -> None:
    turns = [
        {"malformed": "unknown_tool", "programs": [{"prints": "never"}]},
        {"sees": "no tool", "programs": [{"prints": "4\n"}]},
        {"say": "It is 4."},
    ]
    refused = rollout_scene(rollouts={"count": 2, "turns": turns})
    assert verdicts(sim.run(refused), rollouts=True)["refusals_told"].held
    turns[1]["sees"] = "something else"
    found = broken_in(rollout_scene(rollouts={"count": 2, "turns": turns}))
    assert "was to read 'something else' and did not" in found["refusals_told"].sentence


def test_no_stall(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RetryPolicy, "pause", lambda self, call_id, attempt, retry_after: 70.0 + int(call_id[1:]) / 9)
    broken = broken_in(scene(sandbox=BUSY, tools={"rate_limit": 12, "call_deadline": 1000}))
    assert set(broken) - {"recovers_within", "throughput_at_least"} == {"no_stall"}
    assert "nothing happened for 70" in broken["no_stall"].sentence


def prints(**program: Any) -> Any:
    return scene(load={"calls": 4, "concurrency": 2, "program": {"seconds": "100ms", **program}})


def test_output_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    real = tool_module.model_text
    long = prints(prints="{call} {fill:200000}\n")
    assert verdicts(sim.run(long))["output_bounded"].held
    monkeypatch.setattr(tool_module, "model_text", lambda *args, **options: real(*args, **{**options, "limit": 10**9}))
    broken = broken_in(long)
    assert set(broken) == {"output_bounded"}
    assert "of call c0001 has 200,007 characters, promised at most 100,000" in broken["output_bounded"].sentence


@pytest.mark.parametrize("mark", ["", "\n(truncated)", "\n[cut after 20,000 characters]"])
def test_cuts_marked(mark: str, monkeypatch: pytest.MonkeyPatch) -> None:
    long = prints(prints="{call} {fill:200000}\n")
    assert verdicts(sim.run(long))["cuts_marked"].held
    monkeypatch.setattr(text_module, "cut_middle", lambda text, limit: text[:limit] + mark)
    broken = broken_in(long)
    assert set(broken) == {"cuts_marked"}
    assert "of call c0001 lacks 180,007" in broken["cuts_marked"].sentence or mark


def test_stderr_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    real = tool_module.model_text

    def deaf(result: Any, *args: Any, **options: Any) -> str:
        result.stderr = ""
        return real(result, *args, **options)

    for program in ({"errors": "bad {call}\n"}, {"prints": "{fill:30000}\n", "errors": "bad {call}\n"}):
        noisy = prints(**program)
        assert verdicts(sim.run(noisy))["stderr_shown"].held
        with monkeypatch.context() as patch:
            patch.setattr(tool_module, "model_text", deaf)
            broken = broken_in(noisy)
        assert set(broken) == {"stderr_shown"}
        assert "call c0001 wrote 'bad c0001' to stderr" in broken["stderr_shown"].sentence


def test_answers_are_own(monkeypatch: pytest.MonkeyPatch) -> None:
    real = client_module.SandboxClient.run
    cache: dict[str, Any] = {}

    async def remembering(self: Any, program: Any, *, result: Any) -> Any:
        if program.code in cache:
            result.outcome, result.stdout = Outcome.OK, cache[program.code]
        else:
            cache[program.code] = (await real(self, program, result=result)).stdout
        return result

    same = prints(repeated=True, prints="4\n")
    assert verdicts(sim.run(same))["answers_are_own"].held
    monkeypatch.setattr(client_module.SandboxClient, "run", remembering)
    broken = broken_in(same)
    assert set(broken) == {"answers_are_own", "text_is_truthful", "infra_never_scored"}
    assert broken["answers_are_own"].sentence == "call c0003 was answered without a request: '4\\n' (and 1 more)"


def test_answers_are_own_and_not_those_of_another_call(monkeypatch: pytest.MonkeyPatch) -> None:
    real = tool_module.model_text
    texts: list[str] = []

    def late(*args: Any, **options: Any) -> str:
        texts.append(real(*args, **options))
        return texts[max(0, len(texts) - 2)]

    monkeypatch.setattr(tool_module, "model_text", late)
    broken = broken_in(scene())
    assert set(broken) == {"answers_are_own", "text_is_truthful"}
    assert "call c0002 was given the answer of call c0011: 'c0011\\n'" in broken["answers_are_own"].sentence


def test_outcome_in_extras(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tool_module, "count_call", lambda agent_data, metrics: None)
    broken = broken_in(scene())
    assert set(broken) == {"outcome_in_extras"}
    assert "call c0001 ended ok, but the extras do not say so" in broken["outcome_in_extras"].sentence


def test_outcome_in_extras_counts_in_rollouts(monkeypatch: pytest.MonkeyPatch) -> None:
    assert verdicts(sim.run(rollout_scene()), rollouts=True)["outcome_in_extras"].held
    monkeypatch.setattr("sfusion_tools.rollout.metrics.RolloutMetrics.add_call", lambda *args: None)
    assert set(broken_in(rollout_scene())) == {"outcome_in_extras"}


def test_connections_reused(monkeypatch: pytest.MonkeyPatch) -> None:
    real = client_module.SandboxClient._send

    async def wasteful(self: Any, session: Any, *args: Any) -> Any:
        async with aiohttp.ClientSession(headers=session.headers) as own:
            return await real(self, own, *args)

    monkeypatch.setattr(client_module.SandboxClient, "_send", wasteful)
    broken = broken_in(scene())
    assert set(broken) == {"connections_reused"}
    assert "opened connection" in broken["connections_reused"].sentence


def test_no_dead_connection_used(monkeypatch: pytest.MonkeyPatch) -> None:
    slow = scene(load={"calls": 4, "concurrency": 1, "think": "4900ms", "program": {"prints": "{call}\n"}})
    assert verdicts(sim.run(slow))["no_dead_connection_used"].held
    monkeypatch.setattr(session_module, "IDLE_SECONDS", 60.0)
    broken = broken_in(slow)
    assert set(broken) - {"throughput_at_least"} == {"no_dead_connection_used"}
    assert "had been idle for 4.9 s; the sandbox closes it after 5 s" in broken["no_dead_connection_used"].sentence
