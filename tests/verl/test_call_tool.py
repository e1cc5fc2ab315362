"""One call through verl's `ToolAgentLoop._call_tool`: what the model and the trainer get."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from verl.experimental.agent_loop.tool_agent_loop import AgentData, ToolAgentLoop
from verl.experimental.agent_loop.tool_parser import FunctionCall
from verl.tools.schemas import ToolResponse

from sfusion.fakes.sandbox import FakeSandbox
from sfusion_tools.errors import GuardTripped
from sfusion_tools.limiter.host import shared_host
from tests.ports import closed_port
from tests.sfusion_tools.sandbox.helpers import until
from tests.verl.releases import NEW, agent_data, make_loop, trainer_config
from tests.verl.tools import quick, write_tools

NO_OUTPUT = (
    "[code_interpreter] This is not output of a program: the sandbox failed, not your code ("
)

Make = Callable[..., ToolAgentLoop]


@pytest.fixture
def make(model: Path, tmp_path: Path) -> Make:
    """Return a function that makes verl's agent loop with our tool; keywords are keys of the tool
    config."""

    def loop_for(
        url: str, multi_turn: dict[str, Any] | None = None, **config: Any
    ) -> ToolAgentLoop:
        file = write_tools(tmp_path / "tools.yaml", quick(url, **config))
        return make_loop(trainer_config(model, file, **(multi_turn or {})))

    return loop_for


def watch_releases(loop: ToolAgentLoop) -> list[str]:
    """Return a list that collects the ids released from now on."""
    (tool,) = loop.tools.values()
    released: list[str] = []
    inner = tool.release

    async def release(instance_id: str, **kwargs: Any) -> None:
        await inner(instance_id, **kwargs)
        released.append(instance_id)

    tool.release = release
    return released


async def call(
    loop: ToolAgentLoop,
    arguments: Any,
    name: str = "code_interpreter",
    data: AgentData | None = None,
) -> tuple[str, float | None, dict[str, Any]]:
    """Return text, reward and metrics of one call; arguments given as text are passed unchanged."""
    written = arguments if isinstance(arguments, str) else json.dumps(arguments)
    data = data or agent_data()
    response, reward, metrics = await loop._call_tool(
        FunctionCall(name=name, arguments=written), data.tools_kwargs, data
    )
    assert type(response) is ToolResponse, "verl's own"
    assert (response.image, response.video) == (None, None)
    return response.text, reward, metrics


def printing(text: str = "3\n", **hints: Any) -> dict[str, str]:
    """Return arguments whose program prints a text in the fake sandbox."""
    more = " ".join(f"{key}={json.dumps(value)}" for key, value in hints.items())
    return {"code": f"…  # sfusion:call=a prints={json.dumps(text)} {more}"}


async def test_the_model_reads_what_its_program_printed(make: Make) -> None:
    async with FakeSandbox() as sandbox:
        loop, data = make(f"{sandbox.url}/run_code"), agent_data()
        released = watch_releases(loop)
        text, reward, metrics = await call(loop, printing(), data=data)
    assert (text, reward) == ("3\n", None)
    assert (metrics["outcome"], metrics["infrastructure"], metrics["attempts"]) == ("ok", False, 1)
    assert len(released) == 1
    counts = data.extra_fields["extras"]["sfusion"]
    assert (counts["calls"], counts["infrastructure"], counts["outcomes"]) == (1, 0, ["ok"])


@pytest.mark.parametrize(
    ("hints", "outcome", "says"),
    [
        ({"exit": 3}, "program_error", "3\n[The program exited with code 3.]"),
        ({"exit": 1, "errors": "ValueError: no\n"}, "program_error", "3\nValueError: no\n"),
        (
            {"seconds": 9, "early": "half"},
            "program_timeout",
            "half\n[The program timed out after 0.05 s; ",
        ),
    ],
    ids=["exit code", "stderr", "timeout"],
)
async def test_outcomes_of_the_program_are_not_infrastructure(
    make: Make, hints: dict[str, Any], outcome: str, says: str
) -> None:
    async with FakeSandbox() as sandbox:
        loop, data = make(sandbox.url, default_timeout=0.05), agent_data()
        text, reward, metrics = await call(loop, printing(**hints), data=data)
    assert text.startswith(says)
    assert reward is None
    assert (metrics["outcome"], metrics["infrastructure"]) == (outcome, False)
    assert data.extra_fields["extras"]["sfusion"]["infrastructure"] == 0


FAILURES = {
    "429 for ever": ({"what": {"status": 429}}, "throttled", 6, "it is too busy"),
    "500": ({"what": {"status": 500}}, "sandbox_error", 6, "it failed by itself"),
    "502 for ever": ({"what": {"status": 502}}, "sandbox_error", 6, "it failed by itself"),
    "503 for ever": ({"what": {"status": 503}}, "sandbox_error", 6, "it failed by itself"),
    "504 for ever": ({"what": {"status": 504}}, "sandbox_error", 6, "it failed by itself"),
    "reset": ({"what": "reset"}, "unreachable", 6, "it could not be reached"),
    "reset after the code ran": (
        {"phase": "after", "what": "reset"},
        "unreachable",
        6,
        "may have run",
    ),
    "no JSON": ({"what": {"malformed": "json"}}, "bad_response", 6, "could not be understood"),
    "SandboxError": ({"what": {"sandbox_error": "no memory"}}, "sandbox_error", 6, "no memory"),
    "hangs": ({"what": "hang"}, "transport_timeout", 1, "it did not answer in time"),
}


@pytest.mark.parametrize("name", FAILURES)
async def test_no_failure_of_the_sandbox_looks_like_output(make: Make, name: str) -> None:
    """From verl's own tool the model read ``no stdout here`` for all of these, and the trainer got
    nothing."""
    fault, outcome, attempts, says = FAILURES[name]
    config = {"call_deadline": 0.3} if name == "hangs" else {}
    async with FakeSandbox(faults=[fault]) as sandbox:
        loop, data = make(sandbox.url, **config), agent_data()
        released = watch_releases(loop)
        text, reward, metrics = await call(loop, printing(), data=data)
    assert text.startswith(NO_OUTPUT)
    assert says in text
    assert "no stdout here" not in text
    assert "truncated" not in text, "the message fits into verl's default of 256 characters"
    assert reward is None, "a reward of 0 would be trained on"
    assert (metrics["outcome"], metrics["infrastructure"], metrics["attempts"]) == (
        outcome,
        True,
        attempts,
    )
    counts = data.extra_fields["extras"]["sfusion"]
    assert (counts["calls"], counts["infrastructure"], counts["outcomes"]) == (1, 1, [outcome])
    assert len(released) == 1


async def test_the_model_reads_that_the_sandbox_is_down(make: Make) -> None:
    text, reward, metrics = await call(make(f"http://127.0.0.1:{closed_port()}"), printing())
    assert text.startswith(NO_OUTPUT)
    assert text.endswith("The code did not run.")
    assert reward is None
    assert (metrics["outcome"], metrics["possible_executions"]) == ("unreachable", 0)


async def test_a_tripped_guard_stops_the_job(make: Make) -> None:
    """verl shows every Exception of a tool to the model and goes on; this one gets through."""
    loop = make(f"http://127.0.0.1:{closed_port()}", guard={"window": 3, "then": "fail"})
    released = watch_releases(loop)
    for _ in range(2):
        assert (await call(loop, printing()))[2]["outcome"] == "unreachable"
    with pytest.raises(GuardTripped, match="3 of the last 3 calls"):
        await call(loop, printing())
    assert len(released) == 3


@pytest.mark.parametrize("status", [429, 502, 503, 504])
async def test_temporary_overload_is_invisible_to_the_model(make: Make, status: int) -> None:
    async with FakeSandbox(faults=[{"first_attempts": 4, "what": {"status": status}}]) as sandbox:
        text, reward, metrics = await call(make(sandbox.url), printing())
    assert (text, reward) == ("3\n", None)
    assert (metrics["outcome"], metrics["attempts"], metrics["infrastructure"]) == ("ok", 5, False)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([{"code": "print(1)"}], "found a list"),
        ('"print(1)"', "found a string"),
        ("null", "found null"),
        ("7", "found a number"),
        ({}, "`code` is missing, found no arguments"),
        ({"cmd": "ls"}, "`code` is missing, found only 'cmd'"),
        ({"code": ["print(1)"]}, "`code` must be a string, found a list"),
        ({"code": "1", "timeout": "soon"}, "`timeout` must be a number of seconds"),
        ({"code": "1", "language": "pyton"}, "did you mean 'python'?"),
    ],
    ids=str,
)
async def test_bad_arguments_are_answered_and_nothing_is_sent(
    make: Make, arguments: Any, says: str
) -> None:
    async with FakeSandbox() as sandbox:
        loop = make(sandbox.url, multi_turn={"max_tool_response_length": 1000})
        released = watch_releases(loop)
        text, reward, metrics = await call(loop, arguments)
        assert sandbox.ledger.arrived == 0
    assert text.startswith("[code_interpreter] The call was refused and nothing was run: ")
    assert says in text
    assert (reward, metrics["outcome"], metrics["infrastructure"]) == (None, "bad_arguments", False)
    assert len(released) == 1


async def test_verl_itself_answers_invalid_json_and_unknown_tools_with_reward_zero(
    make: Make,
) -> None:
    """Such calls never reach a tool, so our tool cannot answer or count them."""
    async with FakeSandbox() as sandbox:
        loop, data = make(sandbox.url), agent_data()
        broken = await call(loop, '{"code": "print(1)', data=data)
        unknown = await call(loop, {"code": "1"}, name="python", data=data)
        assert sandbox.ledger.arrived == 0
    assert broken[1:] == unknown[1:] == (0.0, {})
    assert data.extra_fields == {}
    start = (
        "Invalid JSON in arguments for 'code_interpreter': "
        if NEW
        else "Error when executing tool: "
    )
    assert broken[0].startswith(start)
    assert unknown[0] == (
        "Unknown function 'python'. Available tools: ['code_interpreter']"
        if NEW
        else "Error when executing tool: 'python'"
    )


HEAD, TAIL = "abcdefghij", "zyxwvutsrq"


@pytest.mark.parametrize("side", ["left", "middle", "right"])
async def test_verl_cuts_long_output_on_the_side_that_the_release_defines(
    make: Make, side: str
) -> None:
    """``left`` keeps the beginning up to 0.7.1 and the end since 0.8; the default ``middle`` did
    not change."""
    output = HEAD + "-" * 500 + TAIL
    async with FakeSandbox() as sandbox:
        limits = {"max_tool_response_length": 20, "tool_response_truncate_side": side}
        text, _, metrics = await call(make(sandbox.url, multi_turn=limits), printing(output))
    kept_head, kept_tail = HEAD + "-" * 10 + "...(truncated)", "(truncated)..." + "-" * 10 + TAIL
    wanted = {
        "left": kept_tail if NEW else kept_head,
        "middle": f"{HEAD}...(truncated)...{TAIL}",
        "right": kept_head if NEW else kept_tail,
    }
    assert text == wanted[side]
    assert metrics["outcome"] == "ok"


@pytest.mark.parametrize(("length", "whole"), [(255, True), (256, True), (257, False)])
async def test_by_default_verl_shows_256_characters(make: Make, length: int, whole: bool) -> None:
    async with FakeSandbox() as sandbox:
        text, _, _ = await call(make(sandbox.url), printing("x" * length))
    assert text == ("x" * length if whole else "x" * 128 + "...(truncated)..." + "x" * 128)


async def test_our_own_cut_comes_first_and_marks_what_is_missing(make: Make) -> None:
    async with FakeSandbox() as sandbox:
        loop = make(
            sandbox.url, multi_turn={"max_tool_response_length": 1000}, max_output_chars=100
        )
        text, _, _ = await call(loop, printing(HEAD + "-" * 5000 + TAIL))
    assert text.startswith(HEAD)
    assert text.endswith(TAIL)
    assert "characters cut" in text
    assert "truncated" not in text


async def test_a_cancelled_call_frees_its_permit_and_is_released(make: Make) -> None:
    async with FakeSandbox() as sandbox:
        loop = make(sandbox.url, rate_limit=1, limiter_name="cancelled")
        released = watch_releases(loop)
        task = asyncio.create_task(call(loop, printing(seconds=20)))
        await until(lambda: sandbox.ledger.started == 1)
        (tool,) = loop.tools.values()
        host = shared_host("cancelled", tool.settings.limits, apply=False)
        assert host.snapshot().in_use == 1
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert len(released) == 1
        # There is only one permit: the next call gets it at once, or would wait for 20 s.
        text, _, _ = await call(loop, {"code": '1  # sfusion:call=b prints="next"'})
    assert text == "next"


async def test_create_kwargs_reach_the_tool_and_may_be_null(make: Make) -> None:
    async with FakeSandbox() as sandbox:
        loop = make(sandbox.url)
        (tool,) = loop.tools.values()
        seen: list[Any] = []
        inner = tool.execute

        async def execute(instance_id: str, parameters: Any, **kwargs: Any) -> Any:
            answer = await inner(instance_id, parameters, **kwargs)
            seen.append(await tool.calc_reward(instance_id))
            return answer

        tool.execute = execute
        for given in ({"create_kwargs": {"ground_truth": "3"}}, {"create_kwargs": None}, {}):
            await call(loop, printing(), data=agent_data(code_interpreter=given))
    assert seen == [1.0, [], []]


async def test_many_trajectories_share_the_limit_and_connections(make: Make) -> None:
    async with FakeSandbox() as sandbox:
        loops = [make(sandbox.url, rate_limit=4, limiter_name="many") for _ in range(16)]
        answers = await asyncio.gather(
            *(
                call(loop, {"code": f'1  # sfusion:call={n} seconds=5ms prints="{n}"'})
                for n, loop in enumerate(loops)
            )
        )
        assert [text for text, _, _ in answers] == [str(n) for n in range(16)]
        assert sandbox.ledger.peak_in_flight == 4
        assert sandbox.ledger.snapshot()["connections"] <= 4, (
            "0.7 makes new tools for every trajectory"
        )
