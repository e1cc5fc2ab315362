"""Runs a plan: problems through the fake engine, the real tool, its limiter and a sandbox, into dumps."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager

from sfusion.fakes.sandbox import FakeSandbox
from sfusion.fakes.sglang import FakeSGLang, WordProblem, problems
from sfusion.harness.rollouts.dump import request_record, sample_record, sample_text, write_step
from sfusion.harness.rollouts.plan import RolloutPlan
from sfusion.harness.rollouts.progress import Reporter, Silent
from sfusion.harness.rollouts.tally import Tally
from sfusion.harness.targets.proxying import proxy_before
from sfusion_tools.gsm8k import compute_score
from sfusion_tools.rollout import AsyncRolloutRequest, RolloutDriver, format_parser, run_batch
from sfusion_tools.rollout import AsyncRolloutRequestStateEnum as State
from sfusion_tools.sandbox_fusion_tools import SandboxFusionTool


async def run_rollouts(plan: RolloutPlan, reporter: Reporter | None = None) -> Tally:
    """Run every step of a plan and write its dump; the counts of the whole run."""
    reporter = reporter or Silent()
    tally = Tally(total=plan.steps * plan.started)
    began = asyncio.get_running_loop().time()
    everything = problems(plan.seed, plan.steps * plan.started)
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
                batch = everything[(step - 1) * plan.started : step * plan.started]

                def ended(request: AsyncRolloutRequest, step: int = step) -> None:
                    tally.add(request)
                    reporter.update(step, tally, asyncio.get_running_loop().time() - began)

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
                _dump(plan, step, list(zip(requests, batch, strict=True)), tally)
        finally:
            await tool.aclose()
    return tally


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


def _dump(plan: RolloutPlan, step: int, pairs: list[tuple[AsyncRolloutRequest, WordProblem]], tally: Tally) -> None:
    """Write a step: what was over-sampled and cancelled is no sample."""
    if plan.over_sample:
        pairs = [(request, problem) for request, problem in pairs if request.state is State.COMPLETED]
        pairs = pairs[: plan.problems]
    samples, requests = [], []
    for request, problem in pairs:
        score = compute_score(sample_text(request)[1], problem.ground_truth, method="strict")
        tally.scores.append(score)
        samples.append(sample_record(request, score, step))
        requests.append(request_record(request, problem=problem.id, ground_truth=problem.ground_truth))
    write_step(plan.out, step, samples, requests)


@asynccontextmanager
async def _sandboxes(plan: RolloutPlan, everything: Iterable[WordProblem]) -> AsyncIterator[list[str]]:
    """Where calls go: to the given sandboxes, through proxies if there are faults, or to a fake that lives as long."""
    if plan.sandboxes:
        async with AsyncExitStack() as proxies:
            before = [proxy_before(url, faults=plan.faults, seed=plan.seed) for url in plan.sandboxes if plan.faults]
            yield [(await proxies.enter_async_context(proxy)).url for proxy in before] or list(plan.sandboxes)
        return
    scripts = []
    if plan.executor == "scripted":
        scripts = [{"pattern": re.escape(problem.code), "prints": f"{problem.prints}\n"} for problem in everything]
    async with FakeSandbox(executor=plan.executor, faults=plan.faults, seed=plan.seed, scripts=scripts) as sandbox:
        yield [sandbox.url]
