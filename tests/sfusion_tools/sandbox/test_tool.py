"""SandboxFusionTool with a fake sandbox: what the model and the trainer get for every outcome."""

from __future__ import annotations

import asyncio
import gc
import inspect
import json
import pickle
import sys
from collections import Counter
from operator import itemgetter
from types import FrameType
from typing import Any
from uuid import uuid4

import pytest

from sfusion.fakes.sandbox import FakeSandbox
from sfusion_tools.errors import ConfigError
from sfusion_tools.limiter import LimiterSettings, local_limiter
from sfusion_tools.limiter.local import shared_host
from sfusion_tools.limiter.settings import Share
from sfusion_tools.outcome import Outcome
from sfusion_tools.runtime import Runtime
from sfusion_tools.sandbox import Program
from sfusion_tools.sandbox_fusion_tools import SandboxFusionTool
from sfusion_tools.schemas import OpenAIFunctionToolSchema
from tests.sfusion_tools.limiter.holding import give, take
from tests.sfusion_tools.sandbox.helpers import Events, free_port, in_virtual_time, until

METRICS = {
    "call_id",
    "outcome",
    "infrastructure",
    "message",
    "attempts",
    "possible_executions",
    "permit_wait_s",
    "backoff_s",
    "request_s",
    "total_s",
    "execution_s",
    "return_code",
    "http_status",
    "attempt_outcomes",
}


def make(sandbox: FakeSandbox | str, *, on_event: Any = None, **config: Any) -> SandboxFusionTool:
    """Make a tool with its own limiter."""
    url = sandbox if isinstance(sandbox, str) else sandbox.url
    fast = {"limiter": "local", "limiter_name": uuid4().hex, "backoff_base": 0.001, "backoff_cap": 0.002}
    return SandboxFusionTool({"type": "native", "sandbox_fusion_url": url, **fast, **config}, on_event=on_event)


def printing(text: str, **hints: Any) -> dict[str, str]:
    """Return arguments whose program prints a text in the fake."""
    more = " ".join(f"{key}={json.dumps(value)}" for key, value in hints.items())
    return {"code": f"…  # sfusion:call={uuid4().hex} prints={json.dumps(text)} {more}"}


async def ask(tool: SandboxFusionTool, arguments: Any) -> tuple[str, dict[str, Any]]:
    response, reward, metrics = await tool.execute("instance", arguments, agent_data=object())
    assert reward is None
    assert response.text is not None
    assert metrics is not None
    assert set(metrics) == METRICS
    json.dumps(metrics, allow_nan=False)
    return response.text, metrics


async def test_the_model_reads_what_its_program_printed():
    async with FakeSandbox() as sandbox:
        text, metrics = await ask(make(sandbox), printing("3\n"))
    assert text == "3\n"
    assert (metrics["outcome"], metrics["infrastructure"], metrics["message"]) == ("ok", False, "")
    assert (metrics["attempts"], metrics["possible_executions"], metrics["attempt_outcomes"]) == (1, 1, ["ok"])
    assert (metrics["return_code"], metrics["http_status"], metrics["backoff_s"]) == (0, 200, 0.0)
    assert metrics["total_s"] >= metrics["request_s"] > 0


TABLE = {
    "429": ({"what": {"status": 429}}, "throttled", 6, "too busy"),
    "500": ({"what": {"status": 500}}, "sandbox_error", 1, "failed by itself"),
    "503": ({"what": {"status": 503}}, "sandbox_error", 6, "failed by itself"),
    "504": ({"what": {"status": 504}}, "sandbox_error", 6, "failed by itself"),
    "reset": ({"what": "reset"}, "unreachable", 6, "could not be reached"),
    "malformed body": ({"what": {"malformed": "json"}}, "bad_response", 1, "could not be understood"),
    "SandboxError": ({"what": {"sandbox_error": "no memory"}}, "sandbox_error", 1, "no memory"),
}


@pytest.mark.parametrize("name", TABLE)
async def test_no_failure_of_the_sandbox_looks_like_output(name):
    """verl defect (b): the model read ``no stdout here`` for all of these, and the trainer learned nothing."""
    fault, outcome, attempts, says = TABLE[name]
    async with FakeSandbox(faults=[fault]) as sandbox:
        text, metrics = await ask(make(sandbox), printing("3\n"))
    assert text.startswith("[code_interpreter] This is not output of a program: the sandbox failed, not your code (")
    assert says in text
    assert "no stdout here" not in text
    assert (metrics["outcome"], metrics["infrastructure"], metrics["attempts"]) == (outcome, True, attempts)
    assert metrics["message"]


async def test_the_model_reads_that_the_sandbox_could_not_be_reached():
    """verl showed ``no stdout here``."""
    text, metrics = await ask(make(f"http://127.0.0.1:{free_port()}"), printing("3\n"))
    assert "could not be reached" in text
    assert text.endswith("The code did not run.")
    assert (metrics["outcome"], metrics["possible_executions"], metrics["http_status"]) == ("unreachable", 0, None)


def test_the_model_reads_that_the_sandbox_did_not_answer_in_time():
    """SandboxFusion#67; verl waited 70.8 s and showed ``no stdout here``."""

    async def go() -> None:
        async with FakeSandbox(faults=[{"what": "hang"}]) as sandbox:
            text, metrics = await ask(make(sandbox, call_deadline=50), printing("3\n"))
        assert "did not answer in time" in text
        assert text.endswith("The code may have run, but its output is lost.")
        assert metrics["outcome"] == "transport_timeout"
        assert metrics["total_s"] == pytest.approx(50.0, abs=0.01)
        assert metrics["total_s"] == pytest.approx(metrics["request_s"] + metrics["backoff_s"], abs=0.01)

    in_virtual_time(go)


def test_a_program_that_runs_too_long_keeps_its_partial_output():
    """verl dropped the output of a program that timed out."""

    async def go() -> None:
        async with FakeSandbox() as sandbox:
            arguments = {**printing("never", seconds="100", early="step 1\n"), "timeout": 5}
            text, metrics = await ask(make(sandbox), arguments)
        assert text == ("step 1\n[The program timed out after 5 s; the output above is what it printed until then.]")
        assert (metrics["outcome"], metrics["infrastructure"], metrics["attempts"]) == ("program_timeout", False, 1)

    in_virtual_time(go)


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
async def test_a_null_stream_does_not_empty_the_message(stream):
    """In verl, a null stdout or stderr gave an empty message."""
    async with FakeSandbox(faults=[{"what": {"output": {"what": "null", "stream": stream}}}]) as sandbox:
        text, metrics = await ask(make(sandbox), printing("out\n", errors="err\n"))
    assert text == ("err\n" if stream == "stdout" else "out\n")
    assert metrics["outcome"] == "ok"


async def test_the_model_reads_the_traceback_of_its_program():
    async with FakeSandbox() as sandbox:
        text, metrics = await ask(make(sandbox), printing("so far\n", raises="ValueError: bad"))
    assert text.startswith("so far\n")
    assert "ValueError: bad" in text
    assert (metrics["outcome"], metrics["infrastructure"], metrics["return_code"]) == ("program_error", False, 1)


async def test_transient_failures_are_invisible_to_the_model():
    """verl defect (g): a 503 was final."""
    async with FakeSandbox(faults=[{"first_attempts": 2, "what": {"status": 503}}]) as sandbox:
        text, metrics = await ask(make(sandbox), printing("3\n"))
    assert text == "3\n"
    assert metrics["attempt_outcomes"] == ["sandbox_error", "sandbox_error", "ok"]
    assert metrics["backoff_s"] > 0


@pytest.mark.parametrize("allowed", [True, False])
async def test_retry_may_have_run_decides_whether_code_may_run_twice(allowed):
    fault = {"first": 1, "phase": "after", "what": {"status": 504}}
    async with FakeSandbox(faults=[fault]) as sandbox:
        _, metrics = await ask(make(sandbox, retry_may_have_run=allowed), printing("3\n"))
        ran = sandbox.ledger.started
    assert ran == metrics["possible_executions"] == (2 if allowed else 1)
    assert metrics["outcome"] == ("ok" if allowed else "sandbox_error")


@pytest.mark.parametrize(
    "arguments",
    [
        None,
        [],
        [{"code": "1"}],
        "print(1)",
        '{"code": "print(1)"}',
        3,
        {},
        {"cmd": "1"},
        {"code": None},
        {"code": 5},
        {"code": ["1"]},
        {"code": ""},
        {"code": "\ud800"},
        {"code": "1", "timeout": "abc"},
        {"code": "1", "timeout": -1},
        {"code": "1", "timeout": []},
        {"code": "1", "language": "python3"},
        {"code": "1", "language": "scala"},
        {"code": "1", "language": ["python"]},
    ],
)
async def test_bad_arguments_get_a_message_and_send_nothing(arguments):
    async with FakeSandbox() as sandbox:
        text, metrics = await ask(make(sandbox), arguments)
        assert sandbox.ledger.arrived == 0
    assert text.startswith("[code_interpreter] The call was refused and nothing was run: ")
    assert (metrics["outcome"], metrics["infrastructure"], metrics["attempts"]) == ("bad_arguments", False, 0)


async def test_the_models_timeout_is_capped():
    async with FakeSandbox() as sandbox:
        tool = make(sandbox, max_timeout=45, on_event=None)
        text, metrics = await ask(tool, {**printing("3\n"), "timeout": 10**9})
    assert text == "3\n[`timeout` 1000000000 was lowered to 45 s, the most allowed here.]"
    assert metrics["outcome"] == "ok"


async def test_long_output_is_cut_at_max_output_chars():
    async with FakeSandbox() as sandbox:
        text, _ = await ask(make(sandbox, max_output_chars=100), printing("x" * 5000))
    assert len(text) <= 100
    assert "characters cut" in text


async def test_terminal_colours_are_stripped():
    async with FakeSandbox() as sandbox:
        text, _ = await ask(make(sandbox), printing("\x1b[31mred\x1b[0m\n"))
    assert text == "red\n"


async def test_headers_and_memory_limit_of_the_config_are_sent():
    seen: list[Any] = []
    async with FakeSandbox() as sandbox:
        app = sandbox.server.app
        visit = app.visit
        app.visit = lambda request: (seen.append(request), visit(request))[1]
        await ask(make(sandbox, headers={"X-Team": "rl"}, memory_limit_mb=77), printing("3\n"))
    assert seen[0].headers["X-Team"] == "rl"
    assert json.loads(seen[0].body)["memory_limit_MB"] == 77


async def test_without_a_limiter_all_calls_run_at_once():
    """verl defect (a): enable_global_rate_limit false broke every call."""
    events = Events()
    async with FakeSandbox() as sandbox:
        tool = make(sandbox, enable_global_rate_limit=False, rate_limit=1, on_event=events)
        held = [asyncio.create_task(ask(tool, printing("", seconds="60"))) for _ in range(20)]
        await until(lambda: sandbox.ledger.in_flight == 20)
        for task in held:
            task.cancel()
        await asyncio.gather(*held, return_exceptions=True)
        text, _ = await ask(tool, printing("3\n"))
    assert text == "3\n"
    assert not events.of("permit_granted")


async def test_a_call_alone_makes_few_python_calls():
    """Of several calls the cheapest counts, because a slow one also renews leases.

    Coroutines are not counted: how often one goes on depends on the network. Nor is what other tasks do, or the look at
    loops that other tests have left.
    """
    counted = Counter[str]()
    found: list[tuple[int, Counter[str], dict[str, Any]]] = []
    caller = asyncio.current_task()

    def count(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        ours = "/sfusion_tools/" in code.co_filename and code is not Runtime.sweep.__code__
        if event == "call" and ours and not code.co_flags & inspect.CO_COROUTINE and asyncio.current_task() is caller:
            counted[code.co_qualname] += 1

    async with FakeSandbox() as sandbox:
        tool, call = make(sandbox), printing("3\n")
        for _ in range(2):
            await tool.execute("", call)
        gc.disable()  # it would end what other tests have left
        try:
            for _ in range(5):
                counted.clear()
                sys.setprofile(count)
                _, _, metrics = await tool.execute("", call)
                sys.setprofile(None)
                found.append((counted.total(), Counter(counted), metrics))
        finally:
            sys.setprofile(None)
            gc.enable()
    total, calls, metrics = min(found, key=itemgetter(0))
    assert metrics["outcome"] == "ok"
    assert metrics["permit_wait_s"] == 0.0, "a free permit is not waited for"
    assert calls["LimiterCore.take"] == calls["LimiterCore.give_back"] == 1
    assert total <= 81, calls


async def test_calls_in_flight_never_exceed_rate_limit():
    async with FakeSandbox() as sandbox:
        tool = make(sandbox, rate_limit=3)
        answers = await asyncio.gather(*(ask(tool, printing(f"{n}\n", seconds="0.01")) for n in range(20)))
        assert sandbox.ledger.peak_in_flight == 3
    assert [text for text, _ in answers] == [f"{n}\n" for n in range(20)]
    assert max(metrics["permit_wait_s"] for _, metrics in answers) > 0


async def test_tools_with_the_same_limiter_name_share_the_limit():
    async with FakeSandbox() as sandbox:
        name = uuid4().hex
        tools = [make(sandbox, rate_limit=2, limiter_name=name) for _ in range(3)]
        await asyncio.gather(*(ask(tool, printing("", seconds="0.01")) for tool in tools for _ in range(6)))
        assert sandbox.ledger.peak_in_flight == 2


async def test_cancelling_the_awaiting_task_frees_its_permit_at_once():
    """verl defect (j): the permit was held until the request was over."""
    async with FakeSandbox() as sandbox:
        tool = make(sandbox, rate_limit=1)
        stuck = asyncio.create_task(ask(tool, printing("", seconds="3600")))
        await until(lambda: sandbox.ledger.in_flight == 1)
        stuck.cancel()
        text, metrics = await ask(tool, printing("3\n"))
        with pytest.raises(asyncio.CancelledError):
            await stuck
        host = shared_host(tool.settings.limiter_name, tool.settings.limits, apply=False)
        await until(lambda: host.snapshot().in_use == 0)
    assert (text, metrics["attempts"]) == ("3\n", 1)


async def test_a_failing_call_does_not_affect_others():
    """ltzheng/SimpleTIR#22, verifiers#1622: one bad call ended all others."""
    async with FakeSandbox(faults=[{"call": "poisoned", "what": "reset"}]) as sandbox:
        tool = make(sandbox, rate_limit=16)
        poisoned = {"code": "1  # sfusion:call=poisoned"}
        calls = [poisoned if n == 7 else printing("3\n") for n in range(64)]
        answers = await asyncio.gather(*(ask(tool, arguments) for arguments in calls))
    outcomes = [metrics["outcome"] for _, metrics in answers]
    assert outcomes[7] == "unreachable"
    assert outcomes.count("ok") == 63


async def test_instances_have_separate_states():
    async with FakeSandbox() as sandbox:
        tool = make(sandbox)
        right, response = await tool.create(ground_truth="3")
        wrong, _ = await tool.create("wrong", create_kwargs={"ground_truth": 4})
        blank, _ = await tool.create()
        assert response.is_empty()
        assert wrong == "wrong"
        assert len({right, wrong, blank}) == 3
        assert [await tool.calc_reward(i) for i in (right, wrong, blank)] == [[], [], []]
        for instance in (right, wrong, blank):
            await tool.execute(instance, printing("3\n"))
        assert [await tool.calc_reward(i) for i in (right, wrong, blank)] == [1.0, 0.0, []]
        for instance in (right, wrong, blank):
            await tool.release(instance)
        assert [await tool.calc_reward(i) for i in (right, wrong, blank)] == [[], [], []]


async def test_nested_create_arguments_win_over_spread_ones():
    async with FakeSandbox() as sandbox:
        tool = make(sandbox)
        instance, _ = await tool.create(ground_truth="old", create_kwargs={"ground_truth": "3"})
        await tool.execute(instance, printing("3\n"))
        assert await tool.calc_reward(instance) == 1.0


async def test_releasing_an_unknown_instance_is_harmless():
    """In verl, an exception in release ends the trajectory."""
    tool = make("http://127.0.0.1:1")
    assert await tool.release("never seen") is None
    instance, _ = await tool.create()
    await tool.release(instance)
    assert await tool.release(instance) is None


async def test_a_call_for_an_unknown_instance_is_executed():
    async with FakeSandbox() as sandbox:
        text, _ = await ask(make(sandbox), printing("3\n"))
    assert text == "3\n"


async def test_a_trajectory_that_ends_with_an_infrastructure_failure_has_no_reward():
    """NVIDIA-NeMo/Gym#2212: an infrastructure failure scored 0, like a wrong answer."""
    async with FakeSandbox(faults=[{"first": 1, "what": {"sandbox_error": True}}]) as sandbox:
        tool = make(sandbox)
        instance, _ = await tool.create(ground_truth="3")
        await tool.execute(instance, printing("3\n"))
        assert await tool.calc_reward(instance) is None
        await tool.execute(instance, {})
        assert await tool.calc_reward(instance) == 0.0
        await tool.execute(instance, printing("3\n", exit=1))
        assert await tool.calc_reward(instance) == 0.0
        await tool.execute(instance, printing("3\n"))
        assert await tool.calc_reward(instance) == 1.0


async def test_a_program_that_poses_as_a_missing_runtime_is_scored():
    words = "/bin/bash: line 1: python: command not found\n"
    async with FakeSandbox(scripts=[{"exit": 127, "errors": words}]) as sandbox:
        tool = make(sandbox)
        instance, _ = await tool.create(ground_truth="3")
        response, _, metrics = await tool.execute(instance, {"code": "1"})
        assert (response.text, metrics["outcome"], metrics["infrastructure"]) == (words, "program_error", False)
        assert await tool.calc_reward(instance) == 0.0


@pytest.mark.parametrize(("first", "last"), [(5, 1), (1, 5)])
def test_the_reward_is_of_the_call_that_started_last(first, last):
    async def go() -> None:
        async with FakeSandbox() as sandbox:
            tool = make(sandbox)
            instance, _ = await tool.create(ground_truth="3")
            await asyncio.gather(
                tool.execute(instance, printing("4\n", seconds=first)),
                tool.execute(instance, printing("3\n", seconds=last)),
            )
            assert await tool.calc_reward(instance) == 1.0

    in_virtual_time(go)


async def test_a_last_call_that_was_cancelled_is_not_rewarded():
    async with FakeSandbox(faults=[{"after": 1, "what": "hang"}]) as sandbox:
        tool = make(sandbox)
        instance, _ = await tool.create(ground_truth="3")
        await tool.execute(instance, printing("3\n"))
        hanging = asyncio.ensure_future(tool.execute(instance, printing("4\n")))
        await until(lambda: sandbox.ledger.in_flight)
        hanging.cancel()
        await asyncio.wait([hanging])
        assert await tool.calc_reward(instance) is None


async def test_a_pickled_tool_keeps_config_and_schema_only():
    """In verl, each call pickled the whole tool: 273 kB with 256 instances of 1 kB."""
    async with FakeSandbox() as sandbox:
        tool = make(sandbox)
        before = len(pickle.dumps(tool))
        for _ in range(256):
            await tool.create(ground_truth="x" * 1000)
        await ask(tool, printing("3\n"))
        data = pickle.dumps(tool)
        assert len(data) == before < 2000
        copy = pickle.loads(data)
        assert (copy.name, copy.config, copy.tool_schema) == (tool.name, tool.config, tool.tool_schema)
        assert (await ask(copy, printing("3\n")))[0] == "3\n"


def test_the_schema_of_the_config_replaces_the_default():
    schema = OpenAIFunctionToolSchema.model_validate(
        {"type": "function", "function": {"name": "run", "description": "Run."}}
    )
    tool = SandboxFusionTool({"sandbox_fusion_url": "http://127.0.0.1:1"}, schema)
    assert (tool.name, tool.get_openai_tool_schema()) == ("run", schema)
    assert make("http://127.0.0.1:1").get_openai_tool_schema().function.name == "code_interpreter"


def test_a_call_with_an_id_backs_off_the_same_in_every_run():
    async def go() -> list[dict[str, Any]]:
        events = Events()
        async with FakeSandbox(executor="scripted", faults=[{"first_attempts": 3, "what": {"status": 503}}]) as sandbox:
            tool = make(sandbox, on_event=events, backoff_base=0.5, backoff_cap=8.0)
            _, _, metrics = await tool.execute("instance", {"code": "1"}, call_id="step-7")
        assert metrics is not None
        assert metrics["call_id"] == "step-7"
        return events.of("backing_off")

    first, second = in_virtual_time(go), in_virtual_time(go)
    assert first == second
    assert len(first) == 3


async def test_the_attributes_that_verl_users_set_take_effect():
    """Setting ``tool.sandbox_fusion_url`` did nothing, without a word."""
    async with FakeSandbox() as sandbox:
        tool = make("http://127.0.0.1:1", rate_limit=3)
        assert (tool.sandbox_fusion_url, tool.rate_limit, tool.default_language) == ("http://127.0.0.1:1", 3, "python")
        tool.sandbox_fusion_url = f"{sandbox.url}/run_code"
        assert (await ask(tool, printing("3\n")))[0] == "3\n"
        assert pickle.loads(pickle.dumps(tool)).sandbox_fusion_url == f"{sandbox.url}/run_code"
    with pytest.raises(ConfigError, match="rate_limit"):
        tool.rate_limit = 0
    assert tool.rate_limit == 3


async def test_the_total_timeout_of_the_config_bounds_a_call():
    tool = make("http://127.0.0.1:1", total_timeout=12, call_deadline=99)
    assert tool.settings.bounds.of(Program("", timeout=30.0)) == (40.0, 12.0)


@pytest.mark.parametrize("key", ["total_timeout", "default_timeout", "max_response_mb"])
@pytest.mark.parametrize("value", [True, "3", 0, float("nan")])
def test_a_number_of_the_config_is_a_number(key, value):
    with pytest.raises(ConfigError, match=key):
        make("http://127.0.0.1:1", **{key: value})


def test_a_share_of_the_limiter_is_passed_on():
    tool = make("http://127.0.0.1:1", limiter_share={"name": "eval", "weight": 2})
    assert tool.settings.share == Share("eval", 2.0)
    assert make("http://127.0.0.1:1").settings.share is None
    with pytest.raises(ConfigError, match="limiter_share"):
        make("http://127.0.0.1:1", limiter_share={"name": "eval", "weight": 0})


async def test_a_limiter_can_be_injected():
    limiter = local_limiter(LimiterSettings(rate_limit=1))
    async with FakeSandbox() as sandbox:
        tool = SandboxFusionTool({"sandbox_fusion_url": sandbox.url}, limiter=lambda: limiter)
        held = await take(limiter)
        waiting = asyncio.create_task(ask(tool, printing("3\n")))
        await until(lambda: limiter.waiting == 1)
        assert sandbox.ledger.arrived == 0
        await give(held)
        assert (await waiting)[0] == "3\n"


def test_a_call_emits_its_events_in_order():
    async def go() -> None:
        events = Events()
        async with FakeSandbox(faults=[{"first": 1, "what": {"status": 429}}]) as sandbox:
            _, metrics = await ask(make(sandbox, on_event=events), printing("3\n"))
        assert {facts["call"] for _, facts in events.all} == {metrics["call_id"]}
        attempt = ["permit_granted", "attempt_started", "permit_released", "attempt_ended"]
        assert events.names() == ["call_started", *attempt, "backing_off", *attempt, "call_ended"]
        assert events.of("call_ended")[0]["outcome"] == Outcome.OK.value

    in_virtual_time(go)
