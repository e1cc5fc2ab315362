"""``sfusion rollout``: multi-turn rollouts with the fake engine, dumped in verl's format."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from sfusion.harness.real.targets._targets import SANDBOX, is_real, real_sandboxes
from sfusion_tools.wording import counted


class SandboxExecutor(StrEnum):
    """Values of ``--sandbox-executor``."""

    PYTHON = "python"
    SCRIPTED = "scripted"


class CutSide(StrEnum):
    """Values of ``--tool-response-truncate-side``."""

    LEFT = "left"
    RIGHT = "right"
    MIDDLE = "middle"


def rollout(
    out: Annotated[Path, typer.Option("--out", help="Directory for the <step>.jsonl files.", metavar="DIR")],
    problems: Annotated[int, typer.Option(min=1, help="Samples per step.")] = 64,
    steps: Annotated[int, typer.Option(min=1, help="Number of steps, one file each.")] = 1,
    seed: Annotated[int, typer.Option(help="Seed of the problems and faults.")] = 0,
    format: Annotated[str, typer.Option("--format", help="Tool-call format of the model.")] = "hermes",
    policy: Annotated[
        str, typer.Option(help="The model: gsm8k, misbehaving[:RATE], say:TEXT, or script:FILE (YAML or JSON).")
    ] = "gsm8k",
    sandbox: Annotated[
        list[str] | None,
        typer.Option(help="The fake (default), a sandbox by address, or a container; repeatable.", metavar=SANDBOX),
    ] = None,
    sandbox_executor: Annotated[
        SandboxExecutor | None,
        typer.Option(
            help="The fake sandbox runs programs (python, the default) or only answers what they print (scripted). "
            "Required with script:FILE, whose code is that of its author."
        ),
    ] = None,
    faults: Annotated[Path | None, typer.Option(help="YAML file of fault rules for the sandbox, fake or real.")] = None,
    rate_limit: Annotated[int, typer.Option(min=1, help="Maximum number of sandbox requests in flight.")] = 10,
    timeout: Annotated[float, typer.Option(min=0.001, help="Time limit of a program in seconds.")] = 30.0,
    at_once: Annotated[int | None, typer.Option(min=1, help="Requests that run concurrently; default: all.")] = None,
    over_sample: Annotated[
        float, typer.Option(min=0, help="Start this share of extra requests; cancel the rest once enough completed.")
    ] = 0.0,
    tokenizer: Annotated[
        str, typer.Option(help="bytes (built in), or the directory of a Hugging Face tokenizer.")
    ] = "bytes",
    max_prompt_len: Annotated[int, typer.Option(help="Maximum number of prompt tokens.")] = 8192,
    max_response_len: Annotated[int, typer.Option(help="Maximum number of tokens after the prompt.")] = 16384,
    max_model_len: Annotated[int | None, typer.Option(help="Maximum number of tokens in total.")] = None,
    max_assistant_turns: Annotated[int, typer.Option(help="Maximum number of replies per request.")] = 8,
    max_parallel_calls: Annotated[int | None, typer.Option(help="Maximum number of calls executed per turn.")] = None,
    max_tool_response_length: Annotated[
        int | None, typer.Option(help="Maximum length of a tool's text in characters.")
    ] = None,
    tool_response_truncate_side: Annotated[
        CutSide, typer.Option(help="Which part of a longer text is cut (as in verl 0.8 and later).")
    ] = CutSide.MIDDLE,
    max_invalid_calls: Annotated[
        int | None, typer.Option(help="End a request after this many invalid calls in a row.")
    ] = None,
) -> None:
    """Run GSM8K-like problems end to end and dump input, output, score and step of each.

    Exit code 0 if no request failed, 1 if some did, 2 if the input is wrong, 3 if an extra or the sandbox is missing.
    """
    import asyncio
    import sys
    from contextlib import ExitStack
    from dataclasses import replace

    from sfusion.fakes.faults import load_rules
    from sfusion.harness.errors import HarnessError, Untrusted
    from sfusion.harness.rollouts import RolloutPlan, RolloutReporter, run_rollouts
    from sfusion.harness.serving.serve_sglang import read_policy
    from sfusion_tools.formats import get_format
    from sfusion_tools.rollout import RolloutLimits, TruncateSide
    from sfusion_tools.tokenizers import load_tokenizer

    if policy.startswith("script:") and sandbox_executor is None and not is_real(sandbox):
        raise Untrusted(
            [
                f"--policy {policy}: this would run the code of its calls on this machine; if you trust the file, add "
                "--sandbox-executor python, otherwise --sandbox-executor scripted"
            ]
        )
    plan = RolloutPlan(
        out=out,
        problems=problems,
        steps=steps,
        seed=seed,
        format=get_format(format).name,
        policy=read_policy(policy),
        executor=(sandbox_executor or SandboxExecutor.PYTHON).value,
        faults=tuple(load_rules(faults)) if faults is not None else (),
        rate_limit=rate_limit,
        timeout=timeout,
        at_once=at_once,
        over_sample=over_sample,
        limits=RolloutLimits(
            max_prompt_len=max_prompt_len,
            max_response_len=max_response_len,
            max_model_len=max_model_len,
            max_assistant_turns=max_assistant_turns,
            max_parallel_calls=max_parallel_calls,
            max_tool_response_length=max_tool_response_length,
            tool_response_truncate_side=TruncateSide(tool_response_truncate_side.value),
            max_consecutive_invalid_calls=max_invalid_calls,
        ),
        tokenizer=load_tokenizer(tokenizer),
    )
    try:
        out.mkdir(parents=True, exist_ok=True)
        with ExitStack() as stack:
            if is_real(sandbox):
                real = stack.enter_context(real_sandboxes(sandbox))
                plan = replace(plan, sandboxes=tuple(one.url for one in real))
            reporter = stack.enter_context(RolloutReporter(sys.stdout, plan.requests))
            counts = asyncio.run(run_rollouts(plan, reporter.update))
    except OSError as error:
        raise HarnessError(str(error)) from error
    mean = "none" if counts.mean_score is None else f"{counts.mean_score:.3f}"
    files = f"{out / '1.jsonl'}" if steps == 1 else f"{out / '1.jsonl'} to {steps}.jsonl"
    typer.echo(f"{counted(len(counts.scores), 'sample')} in {files}, mean score {mean}; calls: {counts.outcome_text()}")
    if counts.failed:
        typer.echo(f"{counted(counts.failed, 'request')} failed; the first reason: {counts.first_failure}", err=True)
        raise typer.Exit(1)
