"""Runs rollouts: problems go through the fake engine, the real tool with its limiter, and a sandbox, into a dump."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager

from sfusion.fakes.sandbox import FakeSandbox
from sfusion.fakes.sglang import FakeSGLang, WordProblem, problems
from sfusion.harness.rollouts.counts import RolloutCounts
from sfusion.harness.rollouts.dump_writer import request_record, sample_record, sample_text, write_step
from sfusion.harness.rollouts.plan import RolloutPlan
from sfusion.harness.targets.proxying import proxy_in_front_of
from sfusion_tools.gsm8k import compute_score
from sfusion_tools.rollout import AsyncRolloutRequest, RolloutDriver, format_parser, run_batch
from sfusion_tools.rollout import AsyncRolloutRequestStateEnum as State
from sfusion_tools.sandbox_fusion_tools import SandboxFusionTool


async def run_rollouts(
    plan: RolloutPlan, on_update: Callable[[int, RolloutCounts, float], None] | None = None
) -> RolloutCounts:
    """Run every step of a plan and write its dump; return the counts of the whole run.

    ``on_update`` is called with the step, the counts so far and the seconds since the start when a request ends.
    """
    counts = RolloutCounts()
    started = asyncio.get_running_loop().time()
    everything = problems(plan.seed, plan.requests)
    async with _sandboxes(plan, everything) as urls:
        tool = SandboxFusionTool(
            {
                "sandbox_fusion_url": urls,
                "rate_limit": plan.rate_limit,
                "default_timeout": plan.timeout,
                "limiter": "local",
            }
        )
        try:
            for step in range(1, plan.steps + 1):
                batch = everything[(step - 1) * plan.requests_per_step : step * plan.requests_per_step]

                def ended(request: AsyncRolloutRequest, step: int = step) -> None:
                    counts.add(request)
                    if on_update is not None:
                        on_update(step, counts, asyncio.get_running_loop().time() - started)

                engine = FakeSGLang(
                    plan.policy,
                    format=plan.format,
                    tokenizer=plan.tokenizer,
                    latency=plan.latency,
                    seed=plan.seed,
                    step=step,
                )
                driver = RolloutDriver(engine, [tool], format_parser(plan.format))
                requests = [_request(plan, tool, problem, step, at) for at, problem in enumerate(batch)]
                await run_batch(
                    driver,
                    requests,
                    enough=plan.problems if plan.over_sample else None,
                    at_once=plan.at_once,
                    on_end=ended,
                )
                _dump(plan, step, list(zip(requests, batch, strict=True)), counts)
        finally:
            await tool.aclose()
    return counts


def _request(
    plan: RolloutPlan, tool: SandboxFusionTool, problem: WordProblem, step: int, at: int
) -> AsyncRolloutRequest:
    return AsyncRolloutRequest(
        request_id=f"{plan.seed}-{step}-{at}",
        batch_data_id=at,
        messages=problem.messages(),
        tool_schemas=[tool.tool_schema],
        tools_kwargs={tool.name: {"create_kwargs": {"ground_truth": problem.ground_truth}}},
        limits=plan.limits,
        processing_class=plan.tokenizer,
    )


def _dump(
    plan: RolloutPlan, step: int, pairs: list[tuple[AsyncRolloutRequest, WordProblem]], counts: RolloutCounts
) -> None:
    """Write the files of a step. With over-sampling, only completed requests become samples."""
    if plan.over_sample:
        pairs = [(request, problem) for request, problem in pairs if request.state is State.COMPLETED]
        pairs = pairs[: plan.problems]
    samples, requests = [], []
    for request, problem in pairs:
        score = compute_score(sample_text(request)[1], problem.ground_truth, method="strict")
        counts.scores.append(score)
        samples.append(sample_record(request, score, step))
        requests.append(request_record(request, problem=problem.id, ground_truth=problem.ground_truth))
    write_step(plan.out, step, samples, requests)


@asynccontextmanager
async def _sandboxes(plan: RolloutPlan, everything: Iterable[WordProblem]) -> AsyncIterator[list[str]]:
    """The URLs that calls go to: the given sandboxes (behind proxies if there are faults), or a fake started here."""
    if plan.sandboxes:
        async with AsyncExitStack() as proxies:
            proxied = [
                proxy_in_front_of(url, faults=plan.faults, seed=plan.seed) for url in plan.sandboxes if plan.faults
            ]
            yield [(await proxies.enter_async_context(proxy)).url for proxy in proxied] or list(plan.sandboxes)
        return
    scripts = []
    if plan.executor == "scripted":
        scripts = [{"exact": problem.code, "prints": f"{problem.prints}\n"} for problem in everything]
    async with FakeSandbox(executor=plan.executor, faults=plan.faults, seed=plan.seed, scripts=scripts) as sandbox:
        yield [sandbox.url]
