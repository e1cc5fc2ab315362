"""Runs rollouts.

Problems go through the fake engine, the real tool with its limiter, and a sandbox, into a dump.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TextIO

from sfusion_tools.gsm8k_tool import compute_score
from sfusion_tools.rollout import (
    AsyncRolloutRequest,
    EndCause,
    RolloutDriver,
    RolloutLimits,
    format_parser,
    run_batch,
)
from sfusion_tools.rollout import AsyncRolloutRequestStateEnum as State
from sfusion_tools.sandbox_fusion_tools import SandboxFusionTool
from sfusion_tools.schemas import OpenAIFunctionToolSchema
from sfusion_tools.tokenizers import ByteTokenizer, Tokenizer

from ...fakes.faults import Rule
from ...fakes.sandbox import FakeSandbox
from ...fakes.sglang import FakeSGLang, Gsm8kSolver, Latency, Policy, WordProblem, problems
from ..core.dumps.writer import StepDump, request_record, sample_record, sample_text
from ..real.targets.proxying import proxy_in_front_of
from ..terminal import ProgressReporter


@dataclass
class RolloutCounts:
    """Requests, calls and outcomes of every request that has ended, and the scores of samples."""

    ended: int = 0
    failed: int = 0
    cancelled: int = 0
    calls: int = 0
    tool_errors: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    scores: list[float] = field(default_factory=list)
    first_failure: str | None = None

    def add(self, request: AsyncRolloutRequest) -> None:
        """Count a request that has ended."""
        self.ended += 1
        if request.ended_by is EndCause.CANCELLED:
            self.cancelled += 1
        elif request.state is State.FAILED:
            self.failed += 1
            self.first_failure = self.first_failure or request.failure
        self.calls += request.metrics.calls
        self.tool_errors += request.metrics.tool_errors
        self.outcomes += request.metrics.outcomes
        self.refused += request.metrics.refused

    @property
    def mean_score(self) -> float | None:
        """The mean score, or None before the first sample."""
        return sum(self.scores) / len(self.scores) if self.scores else None

    def outcome_text(self) -> str:
        """Outcome counts in one line, the most frequent first."""
        parts = [f"{name} {count}" for name, count in self.outcomes.most_common()]
        parts += [f"refused:{name} {count}" for name, count in self.refused.most_common()]
        if self.tool_errors:
            parts.append(f"tool raised {self.tool_errors}")
        if self.failed:
            parts.append(f"failed requests {self.failed}")
        if self.cancelled:
            parts.append(f"cancelled {self.cancelled}")
        return ", ".join(parts) or "no calls yet"


@dataclass(frozen=True)
class RolloutPlan:
    """GSM8K-like problems for the fake engine, the real tool and a sandbox."""

    out: Path
    problems: int = 64
    """Problems per step."""
    group: int = 1
    """Siblings per problem, each with its own id and seed; a policy must mark their calls to tell
    them apart."""
    steps: int = 1
    seed: int = 0
    format: str = "hermes"
    """The tool-call format that the model writes."""
    policy: Policy = field(default_factory=Gsm8kSolver)
    """What the model does. If it has a method ``learn``, that is called after each step with the
    lines of its dump."""
    sandboxes: tuple[str, ...] = ()
    """Addresses of real sandboxes, which share the calls; if empty, a fake one is started."""
    executor: str = "python"
    """What the fake sandbox does with programs: ``python`` runs them, ``scripted`` answers with
    what they print."""
    faults: tuple[Rule, ...] = ()
    """Fault rules for the fake, or for a proxy in front of each real sandbox."""
    rate_limit: int = 10
    timeout: float = 30.0
    at_once: int | None = None
    over_sample: float = 0.0
    """Extra requests to start, as a share of ``problems``; the slowest are cancelled once enough
    have completed."""
    limits: RolloutLimits = field(default_factory=RolloutLimits)
    latency: Latency = field(default_factory=Latency)
    tokenizer: Tokenizer = field(default_factory=ByteTokenizer)

    @property
    def requests_per_step(self) -> int:
        """The samples, plus those started only to be cancelled."""
        return self.group * (self.problems + math.ceil(self.problems * self.over_sample))

    @property
    def samples(self) -> int:
        """Samples per step."""
        return self.group * self.problems

    @property
    def requests(self) -> int:
        """Requests started in all steps together."""
        return self.steps * self.requests_per_step


class RolloutReporter(ProgressReporter):
    """Shows how far the rollouts are; in a build log, one line per tenth of them."""

    def __init__(self, out: TextIO, total: int) -> None:
        super().__init__(out, total, "rollouts")
        self._tenths = 0

    def update(self, step: int, counts: RolloutCounts, seconds: float) -> None:
        """Show the counts of a run that started ``seconds`` ago and is at ``step``."""
        rates = "–/s"
        if seconds > 0:
            rates = f"{counts.ended / seconds:.1f} requests/s, {counts.calls / seconds:.1f} calls/s"
        outcomes = counts.outcome_text()
        tenths = counts.ended * 10 // max(self._total, 1)
        line = ""
        if tenths > self._tenths:
            self._tenths = tenths
            line = f"step {step}: {counts.ended}/{self._total} requests, {rates}: {outcomes}"
        self.progress(counts.ended, f"step {step}  {rates}  {outcomes}", line=line)


async def run_rollouts(
    plan: RolloutPlan, on_update: Callable[[int, RolloutCounts, float], None] | None = None
) -> RolloutCounts:
    """Run every step of a plan and write its dump, sample by sample.

    Return the counts of the whole run. ``on_update`` is called with the step, the counts so far
    and the seconds since the start when a request ends.
    """
    counts = RolloutCounts()
    started = asyncio.get_running_loop().time()
    everything = problems(plan.seed, plan.requests // plan.group)
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
                batch = _batch(plan, step, everything)
                counts.scores += await _run_step(plan, step, batch, tool, partial(ended, step))
        finally:
            await tool.aclose()
    return counts


def _batch(plan: RolloutPlan, step: int, everything: Sequence[WordProblem]) -> list[WordProblem]:
    """Return the problems of a step, each as often as it has siblings."""
    each = plan.requests_per_step // plan.group
    batch: list[WordProblem] = []
    for problem in everything[(step - 1) * each : step * each]:
        batch += [problem] * plan.group
    return batch


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
        # Over-sampling drops those that failed.
        is_kept = request.state is State.COMPLETED or not plan.over_sample
        if is_kept and request.ended_by is not EndCause.CANCELLED:
            problem = batch[request.batch_data_id]
            score = compute_score(sample_text(request)[1], problem.ground_truth, method="strict")
            sample = sample_record(request, score, step)
            known = {"problem": problem.id, "ground_truth": problem.ground_truth}
            dump.add(request.batch_data_id, sample, request_record(request, **known))
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
        enough=plan.samples if plan.over_sample else None,
        at_once=plan.at_once,
        on_end=ended,
    )
    samples, requests = dump.finish(plan.samples)
    learn = getattr(plan.policy, "learn", None)
    if learn is not None:
        learn(samples, requests)
    return [sample["score"] for sample in samples]


def _request(
    plan: RolloutPlan, tool: SandboxFusionTool, problem: WordProblem, step: int, at: int
) -> AsyncRolloutRequest:
    create_kwargs = {"ground_truth": problem.ground_truth}
    group = None
    if plan.group > 1:
        group = f"{plan.seed}-{step}-{problem.id}"
        create_kwargs["group_id"] = group
    schema = tool.tool_schema
    if isinstance(plan.tokenizer, ByteTokenizer):
        # As in the sample of verl's design, which sets every field.
        schema = OpenAIFunctionToolSchema.model_validate(schema.model_dump())
    return AsyncRolloutRequest(
        request_id=f"{plan.seed}-{step}-{at}",
        batch_data_id=at,
        rollout_offset=at % plan.group,
        group_id=group,
        sampling_seed=None if group is None else at,
        messages=problem.messages(),
        tool_schemas=[schema],
        tools_kwargs={tool.name: {"create_kwargs": create_kwargs}},
        limits=plan.limits,
        processing_class=plan.tokenizer,
    )


@asynccontextmanager
async def _sandboxes(
    plan: RolloutPlan, everything: Iterable[WordProblem]
) -> AsyncIterator[list[str]]:
    """The URLs that calls go to.

    These are the given sandboxes (behind proxies if there are faults), or a fake started here.
    """
    if plan.sandboxes and not plan.faults:
        yield list(plan.sandboxes)
        return
    if plan.sandboxes:
        async with AsyncExitStack() as stack:
            urls = []
            for url in plan.sandboxes:
                proxy = proxy_in_front_of(url, faults=plan.faults, seed=plan.seed)
                await stack.enter_async_context(proxy)
                urls.append(proxy.url)
            yield urls
        return

    scripts = []
    if plan.executor == "scripted":
        scripts = [
            {"exact": problem.code, "prints": f"{problem.prints}\n"} for problem in everything
        ]
    async with FakeSandbox(
        executor=plan.executor, faults=plan.faults, seed=plan.seed, scripts=scripts
    ) as sandbox:
        yield [sandbox.url]
