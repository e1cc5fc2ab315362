"""The rollout tests of verl's original design, with the tool, its limiter and a fake sandbox that
executes the code.

The names of the first four tests are verl's: ``rollout_req_creation``, ``over_size_case``,
``tool_call_basic_case`` and ``tool_call_batch_case``.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import pytest

from sfusion.fakes.sandbox import FakeSandbox
from sfusion.fakes.sglang import FakeSGLang, Policy, ScriptedPolicy, ScriptedTurn, ToolCall
from sfusion_tools.limiter.host import shared_host
from sfusion_tools.limiter.ray_limiter import LimiterChoice
from sfusion_tools.outcome import Outcome
from sfusion_tools.rollout import (
    AsyncRolloutRequest,
    AsyncRolloutRequestStateEnum,
    EndCause,
    FinishReasonTypeEnum,
    Message,
    RolloutDriver,
    format_parser,
    run_batch,
)
from sfusion_tools.sandbox_fusion_tools import SandboxFusionTool
from tests.sfusion_tools.rollout.helpers import TOKENIZER, roles
from tests.sfusion_tools.rollout.students import QUESTION, students

State = AsyncRolloutRequestStateEnum


@pytest.fixture
async def sandbox() -> AsyncIterator[FakeSandbox]:
    async with FakeSandbox(executor="python") as running:
        yield running


@pytest.fixture
async def tool(sandbox: FakeSandbox) -> AsyncIterator[SandboxFusionTool]:
    made = SandboxFusionTool(
        {
            "sandbox_fusion_url": sandbox.url,
            "rate_limit": 10,
            "limiter": "local",
            "limiter_name": uuid4().hex,
            "backoff_base": 0.01,
        }
    )
    yield made
    await made.aclose()


def driver(policy: Policy, tool: SandboxFusionTool, **sampling: Any) -> RolloutDriver:
    return RolloutDriver(
        FakeSGLang(policy, format="hermes"),
        [tool],
        format_parser("hermes"),
        sampling_params=sampling,
    )


def request(tool: SandboxFusionTool, **options: Any) -> AsyncRolloutRequest:
    return AsyncRolloutRequest(
        messages=[Message(role="user", content=QUESTION)],
        tool_schemas=[tool.tool_schema],
        tools_kwargs={tool.name: {"create_kwargs": {"ground_truth": "3"}}},
        **options,
    )


def check_finished(done: AsyncRolloutRequest) -> None:
    assert done.failure is None
    assert done.state is State.COMPLETED
    assert roles(done.messages) == ["user", "assistant", "tool", "assistant", "tool", "assistant"]
    assert [m.content for m in done.messages if m.role == "tool"] == ["3\n", "149\n"]
    assert "\\boxed{3}" in str(done.messages[-1].content)
    assert done.metrics.outcomes == {Outcome.OK.value: 2}


async def test_rollout_req_creation(tool: SandboxFusionTool) -> None:
    """Before it runs, a request has only its tools and its prompt."""
    made = request(tool, max_prompt_len=4096, max_response_len=4096, max_model_len=8192)
    assert made.state is State.PENDING
    assert [schema.function.name for schema in made.tool_schemas] == ["code_interpreter"]
    function = made.tool_schemas[0].function
    assert function.description == "A tool for executing code."
    assert function.parameters.required == ["code"]
    assert function.parameters.properties["code"].type == "string"
    assert made.tools_kwargs == {"code_interpreter": {"create_kwargs": {"ground_truth": "3"}}}
    assert made.messages == [Message(role="user", content=QUESTION)]
    assert '{"type": "function", "function": {"name": "code_interpreter"' in TOKENIZER.decode(
        made.prompt_ids
    )
    assert made.tool_rewards == {"code_interpreter": []}
    assert made.limits.max_model_len == 8192
    lengths = {
        len(row) for row in (made.input_ids, made.attention_mask, made.position_ids, made.loss_mask)
    }
    assert lengths == {len(made.prompt_ids)}
    assert made.response_ids == []


async def test_over_size_case(sandbox: FakeSandbox, tool: SandboxFusionTool) -> None:
    """A reply that does not fit ends the request by length, with nothing executed."""
    done = await driver(students(), tool).run(request(tool, max_response_len=40))
    assert done.state is State.COMPLETED
    assert (done.finish_reason, done.ended_by) == (FinishReasonTypeEnum.LENGTH, EndCause.LENGTH)
    assert roles(done.messages) == ["user", "assistant"]
    assert done.tool_rewards == done.reward_scores == {"code_interpreter": []}
    assert len(done.response_ids) == 40
    assert done.response_loss_mask == [1] * 40
    assert sandbox.ledger.arrived == 0


async def test_tool_call_basic_case(sandbox: FakeSandbox, tool: SandboxFusionTool) -> None:
    """152 students: two programs print 3 and 149, and the third reply is the answer."""
    done = await driver(students(), tool).run(request(tool))
    check_finished(done)
    assert done.metrics.assistant_turns == 3
    assert sandbox.ledger.finished == 2
    marked = zip(done.input_ids, done.loss_mask, strict=True)
    trained = TOKENIZER.decode([number for number, mark in marked if mark])
    assert "149\n<|im_end|>" not in trained
    assert trained.count("<|im_end|>") == 3


async def test_tool_call_batch_case(sandbox: FakeSandbox, tool: SandboxFusionTool) -> None:
    """Thirty such requests at once: all finish, and the limit holds."""
    batch = await run_batch(driver(students(), tool), [request(tool) for _ in range(30)])
    for done in batch:
        check_finished(done)
    assert len({done.request_id for done in batch}) == 30
    assert sandbox.ledger.finished == 60
    assert sandbox.ledger.peak_in_flight <= 10


async def test_over_sampling_releases_every_permit(
    tool: SandboxFusionTool, sandbox: FakeSandbox
) -> None:
    """When enough are done, stragglers hold nearly all permits; afterwards none is held or waited
    for."""
    slow = ScriptedTurn(
        "wait",
        (ToolCall("code_interpreter", {"code": "import time\ntime.sleep(600)"}),),
        prompt="slow",
    )
    quick = ScriptedTurn("Three.", prompt="152")
    batch = [request(tool) for _ in range(2)]
    batch += [
        AsyncRolloutRequest(
            messages=[Message(role="user", content="slow")], tool_schemas=[tool.tool_schema]
        )
        for _ in range(10)
    ]
    holding = asyncio.Event()

    class Gated:
        """Answers the quick requests once slow ones hold every permit."""

        def __init__(self) -> None:
            self.inner = FakeSGLang(ScriptedPolicy([slow, quick]), format="hermes")

        async def async_generate(
            self, *, input_ids: list[int], sampling_params: dict[str, Any]
        ) -> Any:
            if "152" in TOKENIZER.decode(input_ids):
                await holding.wait()
            return await self.inner.async_generate(
                input_ids=input_ids, sampling_params=sampling_params
            )

    def watch(event: dict[str, Any]) -> None:
        if event.get("event") == "started" and sandbox.ledger.executing >= 9:
            holding.set()

    sandbox.server.journal = watch
    ended = await run_batch(
        RolloutDriver(Gated(), [tool], format_parser("hermes")), batch, enough=2
    )
    assert [done.state for done in ended[:2]] == [State.COMPLETED] * 2
    assert {done.ended_by for done in ended[2:]} == {EndCause.CANCELLED}
    settings = tool.settings
    await LimiterChoice(settings.limits, kind="local", name=settings.limiter_name)().flush()
    left = shared_host(settings.limiter_name, settings.limits, apply=False).snapshot()
    assert (left.in_use, left.waiting) == (0, 0)
    assert left.expired == 0
    check_finished(await driver(students(), tool).run(request(tool)))


async def test_a_sandbox_that_fails_is_visible_in_the_metrics(
    tool: SandboxFusionTool, sandbox: FakeSandbox
) -> None:
    """They are counted separately, so that a trainer can leave them out."""
    sandbox.set_faults([{"name": "broken", "what": {"status": 500}}])
    policy = ScriptedPolicy(
        [ScriptedTurn("I count.", (ToolCall("code_interpreter", {"code": "print(3)"}),), turn=0)],
        otherwise="I give up.",
    )
    done = await driver(policy, tool).run(request(tool))
    assert done.state is State.COMPLETED
    assert done.metrics.outcomes == {Outcome.SANDBOX_ERROR.value: 1}
    assert done.metrics.infrastructure_failures == 1
    assert done.reward_scores == {"code_interpreter": None}
