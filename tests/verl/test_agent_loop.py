"""Complete conversations in verl's agent loop, with its parser, turns and masks, and our tool."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from verl.experimental.agent_loop.agent_loop import AgentLoopOutput

from sfusion.fakes.sandbox import FakeSandbox
from sfusion.fakes.sglang import (
    Gsm8kSolver,
    Policy,
    ScriptedPolicy,
    ScriptedTurn,
    ToolCall,
    problems,
)
from tests.sfusion_tools.rollout.students import QUESTION, students
from tests.verl.engine import Engine
from tests.verl.releases import LENGTH, make_loop, trainer_config
from tests.verl.tools import quick, write_tools


class Played:
    """A finished conversation."""

    def __init__(self, output: AgentLoopOutput, engine: Engine, tokenizer: Any) -> None:
        self.output = output
        self.prompts = engine.prompts
        marked = list(zip(output.response_ids, output.response_mask, strict=True))
        self.generated = tokenizer.decode([token for token, own in marked if own])
        self.tool_text = tokenizer.decode([token for token, own in marked if not own])

    @property
    def counts(self) -> dict[str, Any]:
        """The counts of outcomes that reach the trainer, without the times that vary."""
        told = self.output.extra_fields["extras"]["sfusion"]
        assert all(
            len(told[name]) == told["calls"] for name in ("total_s", "permit_wait_s", "backoff_s")
        )
        return {name: told[name] for name in ("calls", "infrastructure", "outcomes", "attempts")}


@pytest.fixture
def play(model: Path, tmp_path: Path) -> Any:
    """Return a function that runs a conversation to its end."""

    async def played(
        sandbox: FakeSandbox,
        policy: Policy,
        messages: list[dict[str, str]],
        multi_turn: dict[str, Any] | None = None,
        **config: Any,
    ) -> Played:
        file = write_tools(
            tmp_path / "tools.yaml", quick(sandbox.url, memory_limit_mb=-1, **config)
        )
        engine = Engine(model, policy)
        loop = make_loop(trainer_config(model, file, **(multi_turn or {})), engine)
        output = await loop.run({"temperature": 1.0}, raw_prompt=messages)
        return Played(output, engine, loop.tokenizer)

    return played


def asking(question: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": question}]


def calling(*codes: str) -> ScriptedTurn:
    return ScriptedTurn(
        calls=tuple(ToolCall("code_interpreter", {"code": code}) for code in codes), turn=0
    )


async def test_a_conversation_of_several_turns_executes_its_programs(play: Any) -> None:
    """The model answers only after it has read 3 and 149, so both programs were executed."""
    async with FakeSandbox(executor="python") as sandbox:
        played = await play(sandbox, students(), asking(QUESTION))
        assert sandbox.ledger.started == 2
    output = played.output
    assert output.num_turns == 6
    assert len(output.response_ids) == len(output.response_mask) < LENGTH
    assert played.generated.endswith("\\boxed{3}</answer><|im_end|>")
    assert played.generated.count("<tool_call>") == 2
    assert "149\n" in played.tool_text
    assert "<tool_call>" not in played.tool_text, "only what the model generated is trained on"
    assert played.counts == {
        "calls": 2,
        "infrastructure": 0,
        "outcomes": ["ok", "ok"],
        "attempts": [1, 1],
    }
    assert output.extra_fields["tool_rewards"] == []
    assert output.metrics.tool_calls > 0


@pytest.mark.parametrize("number", range(4))
async def test_word_problems_are_solved_with_the_tool(play: Any, number: int) -> None:
    problem = problems(seed=1, count=4)[number]
    async with FakeSandbox(executor="python") as sandbox:
        played = await play(sandbox, Gsm8kSolver(), problem.messages(), default_timeout=10)
    assert played.counts["outcomes"][-1] == "ok"
    assert problem.ground_truth in played.generated.replace(",", "")


async def test_the_model_reads_that_the_sandbox_failed_and_continues(play: Any) -> None:
    script = ScriptedPolicy(
        [
            calling("print(1)  # sfusion:call=a"),
            ScriptedTurn(
                say="The sandbox is down, so I think.",
                tool_result="This is not output of a program",
            ),
            ScriptedTurn(say="I was fooled.", tool_result="."),
        ]
    )
    async with FakeSandbox(faults=[{"what": {"status": 503}}]) as sandbox:
        played = await play(sandbox, script, asking("?"))
    assert played.generated.endswith("The sandbox is down, so I think.<|im_end|>")
    assert "no stdout here" not in played.tool_text
    assert played.counts == {
        "calls": 1,
        "infrastructure": 1,
        "outcomes": ["sandbox_error"],
        "attempts": [6],
    }
    assert played.output.extra_fields["tool_rewards"] == []


async def test_invalid_calls_do_not_end_the_conversation(play: Any) -> None:
    script = ScriptedPolicy(
        [
            ScriptedTurn(
                say=(
                    '<tool_call>\n{"name": "code_interpreter", "arguments": '
                    '["print(1)"]}\n</tool_call>'
                ),
                turn=0,
            ),
            ScriptedTurn(
                calls=(
                    ToolCall(
                        "code_interpreter", {"code": 'print(1)  # sfusion:call=a prints="one"'}
                    ),
                ),
                tool_result="must be a JSON object, found a list",
            ),
            ScriptedTurn(say="Done.", tool_result="^one$"),
        ]
    )
    async with FakeSandbox() as sandbox:
        played = await play(sandbox, script, asking("?"))
    assert played.generated.endswith("Done.<|im_end|>")
    assert played.counts == {
        "calls": 2,
        "infrastructure": 0,
        "outcomes": ["bad_arguments", "ok"],
        "attempts": [0, 1],
    }


@pytest.mark.parametrize("allowed", [1, 2])
async def test_verl_executes_only_the_first_calls_of_a_turn(play: Any, allowed: int) -> None:
    """``max_parallel_calls`` is 1 by default; further calls are dropped silently."""
    script = ScriptedPolicy(
        [
            calling(
                *(
                    f'print({n})  # sfusion:call={n} seconds=20ms prints="result {n}"'
                    for n in (1, 2)
                )
            ),
            ScriptedTurn(say="Enough.", tool_result="result"),
        ]
    )
    async with FakeSandbox() as sandbox:
        played = await play(sandbox, script, asking("?"), {"max_parallel_calls": allowed})
        assert sandbox.ledger.arrived == sandbox.ledger.peak_in_flight == allowed
    assert played.tool_text.count("result") == allowed == played.counts["calls"]


async def test_the_tool_messages_in_the_output_are_those_the_model_read(play: Any) -> None:
    async with FakeSandbox() as sandbox:
        script = ScriptedPolicy(
            [
                calling('1  # sfusion:call=a prints="umlauts äöü, 数 and 🙂\\n"'),
                ScriptedTurn(say="Ok."),
            ]
        )
        played = await play(sandbox, script, asking("?"))
    assert "umlauts äöü, 数 and 🙂" in played.tool_text
    assert played.prompts[-1].endswith("<|im_start|>assistant\n")
    assert played.tool_text.strip() in played.prompts[-1]
