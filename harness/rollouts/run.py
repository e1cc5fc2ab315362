"""Runs rollouts: problems go through the fake engine, the real tool with its limiter, and a sandbox, into a dump."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

from sfusion.fakes.sandbox import FakeSandbox
from sfusion.fakes.sglang import FakeSGLang, WordProblem, problems
from sfusion.harness.rollouts.counts import RolloutCounts
from sfusion.harness.rollouts.dump_writer import StepDump, request_record, sample_record, sample_text
from sfusion.harness.rollouts.plan import RolloutPlan
from sfusion.harness.targets.proxying import proxy_in_front_of
from sfusion_tools.gsm8k_tool import compute_score
from sfusion_tools.rollout import AsyncRolloutRequest, EndCause, RolloutDriver, format_parser, run_batch
from sfusion_tools.rollout import AsyncRolloutRequestStateEnum as State
from sfusion_tools.sandbox_fusion_tools import SandboxFusionTool


async def run_rollouts(
    plan: RolloutPlan, on_update: Callable[[int, RolloutCounts, float], None] | None = None
) -> RolloutCounts:
    """Run every step of a plan and write its dump, sample by sample; return the counts of the whole run.

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

        def ended(step: int, request: AsyncRolloutRequest) -> None:
            counts.add(request)
            if on_update is not None:
                on_update(step, counts, asyncio.get_running_loop().time() - started)

        try:
            for step in range(1, plan.steps + 1):
                batch = everything[(step - 1) * plan.requests_per_step : step * plan.requests_per_step]
                counts.scores += await _run_step(plan, step, batch, tool, partial(ended, step))
        finally:
            await tool.aclose()
    return counts


async def _run_step(
    plan: RolloutPlan,
    step: int,
    batch: Sequence[WordProblem],
    tool: SandboxFusionTool,
    on_end: Callable[[AsyncRolloutRequest], None],
) -> list[float]:
    """Run the requests of a step and dump each when it has ended; return the scores."""
    dump = StepDump(plan.out, step)

    def ended(request: AsyncRolloutRequest) -> None:
        if _is_sample(plan, request):
            _add(dump, request, batch[request.batch_data_id], step)
        on_end(request)

    engine = FakeSGLang(
        plan.policy,
        format=plan.format,
        tokenizer=plan.tokenizer,
        latency=plan.latency,
        seed=plan.seed,
        step=step,
    )
    await run_batch(
        RolloutDriver(engine, [tool], format_parser(plan.format)),
        [_request(plan, tool, problem, step, at) for at, problem in enumerate(batch)],
        enough=plan.problems if plan.over_sample else None,
        at_once=plan.at_once,
        on_end=ended,
    )
    return [sample["score"] for sample in dump.finish(plan.problems)]


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


def _is_sample(plan: RolloutPlan, request: AsyncRolloutRequest) -> bool:
    """Return whether a request that has ended is dumped. With over-sampling, only completed ones are."""
    return request.ended_by is not EndCause.CANCELLED and (not plan.over_sample or request.state is State.COMPLETED)


def _add(dump: StepDump, request: AsyncRolloutRequest, problem: WordProblem, step: int) -> None:
    score = compute_score(sample_text(request)[1], problem.ground_truth, method="strict")
    dump.add(
        request.batch_data_id,
        sample_record(request, score, step),
        request_record(request, problem=problem.id, ground_truth=problem.ground_truth),
    )


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
