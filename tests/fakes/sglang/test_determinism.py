"""Text, ids, log probabilities and times are functions of the seed and the question."""

from __future__ import annotations

import asyncio
import hashlib
import json
from typing import Any

from sfusion.fakes.sglang import (
    FakeSGLang,
    FakeSGLangServer,
    Gsm8kSolver,
    Latency,
    Misbehaving,
    problems,
)
from sfusion.harness.lab.worlds.virtual_time import run_virtually
from sfusion_tools.tokenizers import ByteTokenizer
from tests.fakes.sglang.client import CODE_TOOL, chat


async def rollout(seed: int, order: int = 1) -> dict[str, Any]:
    """Run the first turns of some problems concurrently."""
    tokenizer = ByteTokenizer()
    engine = FakeSGLang(
        Gsm8kSolver(marks=True),
        latency=Latency(first_token=0.5, per_token=0.01),
        seed=seed,
    )

    async def one(problem: Any) -> Any:
        ids = tokenizer.apply_chat_template(problem.messages(), add_generation_prompt=True)
        answer = await engine.async_generate(
            input_ids=ids,
            sampling_params={"max_new_tokens": 4000},
            return_logprob=True,
            rid=problem.id,
        )
        answer["meta_info"].pop(
            "cached_tokens"
        )  # what is cached depends on who came before, in sglang too
        answer["meta_info"].pop("e2e_latency")
        return answer

    made = problems(seed, 12)[::order]
    answers = await asyncio.gather(*map(one, made))
    return {problem.id: answer for problem, answer in zip(made, answers, strict=True)}


async def timed(seed: int) -> tuple[list[Any], float]:
    """The same with times, which depend on load and cache and therefore on the order of
    requests."""
    engine = FakeSGLang(
        Gsm8kSolver(), latency=Latency(first_token=0.5, per_token=0.01, load=0.1), seed=seed
    )
    answers = await asyncio.gather(
        *(engine.async_generate(problem.question) for problem in problems(seed, 12))
    )
    return answers, asyncio.get_running_loop().time()


def digest(response: Any) -> str:
    return hashlib.sha256(json.dumps(response, sort_keys=True).encode()).hexdigest()


def test_two_runs_with_the_same_seed_are_identical() -> None:
    assert digest(run_virtually(rollout(4))) == digest(run_virtually(rollout(4)))
    assert digest(run_virtually(timed(4))) == digest(run_virtually(timed(4)))


def test_answers_do_not_depend_on_the_order_of_requests() -> None:
    assert digest(run_virtually(rollout(4, order=1))) == digest(run_virtually(rollout(4, order=-1)))


def test_another_seed_gives_another_run() -> None:
    assert digest(run_virtually(rollout(4))) != digest(run_virtually(rollout(5)))


async def test_the_seed_of_a_request_changes_what_a_policy_draws_and_repeats_it() -> None:
    john = problems(0, 1)[0]

    async def texts(server: FakeSGLangServer, seeds: Any) -> list[str]:
        answers = [
            (
                await chat(
                    server.url,
                    messages=john.messages(),
                    tools=[CODE_TOOL],
                    tool_choice="none",
                    seed=seed,
                )
            ).json
            for seed in seeds
        ]
        return [answer["choices"][0]["message"]["content"] for answer in answers]

    async with FakeSGLangServer(Misbehaving(rate=0.5)) as server:
        first, again = await texts(server, range(20)), await texts(server, reversed(range(20)))
        unseeded = await texts(server, [None, None])
    assert first == again[::-1]
    assert len(set(first)) > 5
    assert len(set(unseeded)) == 1
    async with FakeSGLangServer(Misbehaving(rate=0.5), seed=1) as server:
        assert await texts(server, range(20)) != first
