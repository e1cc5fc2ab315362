"""``sfusion rollout``: multi-turn rollouts with the fake engine, dumped as training dumps them."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from sfusion.harness.commands._targets import SANDBOX, is_real, real_sandboxes


class SandboxExecutor(StrEnum):
    """How the fake sandbox runs programs."""

    PYTHON = "python"
    SCRIPTED = "scripted"


class Side(StrEnum):
    """The side of a tool's text that is cut away."""

    LEFT = "left"
    RIGHT = "right"
    MIDDLE = "middle"


def rollout(
    out: Annotated[Path, typer.Option("--out", help="Directory to dump <step>.jsonl to.", metavar="DIR")],
    problems: Annotated[int, typer.Option(min=1, help="Samples of each step.")] = 64,
    steps: Annotated[int, typer.Option(min=1, help="Steps to run, one file each.")] = 1,
    seed: Annotated[int, typer.Option(help="Seed of problems and faults.")] = 0,
    format: Annotated[str, typer.Option("--format", help="Tool-call format of the model.")] = "hermes",
    policy: Annotated[
        str, typer.Option(help="The model: gsm8k, misbehaving[:RATE], say:TEXT, or script:FILE (YAML or JSON).")
    ] = "gsm8k",
    sandbox: Annotated[
        list[str] | None,
        typer.Option(
            help="The fake (default), the address of a sandbox, or a container; may be repeated.", metavar=SANDBOX
        ),
    ] = None,
    sandbox_executor: Annotated[
        SandboxExecutor,
        typer.Option(help="What the fake does with programs: python runs them, scripted knows what they print."),
    ] = SandboxExecutor.PYTHON,
    faults: Annotated[Path | None, typer.Option(help="YAML file of fault rules for the sandbox, fake or real.")] = None,
    rate_limit: Annotated[int, typer.Option(min=1, help="Sandbox requests in flight at once.")] = 10,
    timeout: Annotated[float, typer.Option(min=0.001, help="Seconds that a program may run.")] = 30.0,
    at_once: Annotated[int | None, typer.Option(min=1, help="Requests running at once; all by default.")] = None,
    over_sample: Annotated[
        float, typer.Option(min=0, help="Start this share more; cancel the rest when enough are done.")
    ] = 0.0,
    tokenizer: Annotated[
        str, typer.Option(help="bytes (built in), or the directory of a Hugging Face tokenizer.")
    ] = "bytes",
    max_prompt_len: Annotated[int, typer.Option(help="Tokens of a prompt, at most.")] = 8192,
    max_response_len: Annotated[int, typer.Option(help="Tokens behind the prompt, at most.")] = 16384,
    max_model_len: Annotated[int | None, typer.Option(help="Tokens of both together, at most.")] = None,
    max_assistant_turns: Annotated[int, typer.Option(help="Replies of a request, at most.")] = 8,
    max_parallel_calls: Annotated[int | None, typer.Option(help="Calls executed per turn, at most.")] = None,
    max_tool_response_length: Annotated[int | None, typer.Option(help="Characters kept of a tool's text.")] = None,
    tool_response_truncate_side: Annotated[
        Side, typer.Option(help="Side that is cut away (verl 0.8 and later).")
    ] = Side.MIDDLE,
    max_invalid_calls: Annotated[int | None, typer.Option(help="Invalid calls in a row that end a request.")] = None,
) -> None:
    """Run GSM8K-like problems end to end and dump them: input, output, score, step."""
    import asyncio
    from contextlib import ExitStack
    from dataclasses import replace

    from rich.console import Console

    from sfusion.fakes.faults import FaultError, load_rules
    from sfusion.fakes.sandbox import SandboxSetupError
    from sfusion.fakes.sglang import FakeSGLangError
    from sfusion.harness.commands.serve_sglang import read_policy
    from sfusion.harness.rollouts import RolloutPlan, reporter, run_rollouts
    from sfusion_tools.errors import ConfigError, MissingExtra
    from sfusion_tools.formats import get_format
    from sfusion_tools.rollout import RolloutLimits, TruncateSide
    from sfusion_tools.tokenizers import TokenizerError, load_tokenizer

    try:
        plan = RolloutPlan(
            out=out,
            problems=problems,
            steps=steps,
            seed=seed,
            format=get_format(format).name,
            policy=read_policy(policy),
            executor=sandbox_executor.value,
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
    except MissingExtra as error:
        _fail(str(error), 3)
    except (FakeSGLangError, FaultError, TokenizerError, ValueError) as error:
        _fail(str(error), 2)
    try:
        out.mkdir(parents=True, exist_ok=True)
        with ExitStack() as opened:
            if is_real(sandbox):
                real = opened.enter_context(real_sandboxes(sandbox))
                plan = replace(plan, sandboxes=tuple(one.url for one in real))
            with reporter(Console()) as shown:
                tally = asyncio.run(run_rollouts(plan, shown))
    except (ConfigError, OSError, SandboxSetupError) as error:
        _fail(str(error), 2)
    mean = "none" if tally.mean_score is None else f"{tally.mean_score:.3f}"
    files = f"{out / '1.jsonl'}" if steps == 1 else f"{out / '1.jsonl'} to {steps}.jsonl"
    typer.echo(f"{len(tally.scores)} samples in {files}, mean score {mean}; calls: {tally.outcome_text()}")
    if tally.failed:
        typer.echo(f"{tally.failed} requests failed, the first one because: {tally.first_failure}", err=True)
        raise typer.Exit(1)


def _fail(why: str, code: int) -> NoReturn:
    typer.echo(f"sfusion rollout: {why}", err=True)
    raise typer.Exit(code)
