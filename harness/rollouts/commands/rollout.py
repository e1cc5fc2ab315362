"""``sfusion rollout``: run multi-turn rollouts with the fake engine and dump them in verl's format.

GSM8K-like problems run end to end; input, output, score and step of each are written.

Exit code 0 if no request failed, 1 if some did, 2 if the input is wrong, 3 if an extra or the
sandbox is missing.

Example: sfusion rollout --out dumps --problems 16 --policy misbehaving:0.2 && sfusion view dumps
"""

from __future__ import annotations

import asyncio
import sys
from contextlib import ExitStack
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from sfusion_tools.formats import Format, get_format
from sfusion_tools.rollout import RolloutLimits
from sfusion_tools.rollout.guess import format_of
from sfusion_tools.tokenizers import Tokenizer, load_tokenizer
from sfusion_tools.wording import counted

from ....fakes.faults import load_rules
from ...commandline.declaring import command, option
from ...commandline.exits import say
from ...commandline.options import Faults, Sandboxes, Seed
from ...errors import HarnessError, Untrusted
from ...real.targets import open_targets, read_target
from ..policies import Policy, read_policy
from ..run import RolloutCounts, RolloutPlan, RolloutReporter, run_rollouts

_LIMITS = "Limits, as in verl"


class SandboxExecutor(StrEnum):
    """Values of ``--sandbox-executor``."""

    PYTHON = "python"
    SCRIPTED = "scripted"


@command
def rollout(
    out: Annotated[Path, option("Directory for the <step>.jsonl files.", "DIR")],
    problems: Annotated[int, option("Problems per step.", min=1)] = 64,
    group: Annotated[
        int, option("Samples per problem: siblings, as GRPO compares them.", min=1)
    ] = 1,
    steps: Annotated[int, option("Number of steps, one file each.", min=1)] = 1,
    seed: Seed = 0,
    format: Annotated[
        str | None,
        option(
            "Tool-call format of the model; default: that of the tokenizer's chat "
            "template, else hermes.",
            "FORMAT",
        ),
    ] = None,
    policy: Policy = "gsm8k",
    sandbox: Sandboxes = None,
    sandbox_executor: Annotated[
        SandboxExecutor | None,
        option(
            "The fake sandbox runs programs (python, the default) or only answers what they print "
            "(scripted). Required with script:FILE, whose code is that of its author."
        ),
    ] = None,
    faults: Faults = None,
    rate_limit: Annotated[int, option("Maximum number of sandbox requests in flight.", min=1)] = 10,
    timeout: Annotated[float, option("Time limit of a program.", "SECONDS", min=0.001)] = 30.0,
    over_sample: Annotated[
        float,
        option("Start this share of extra requests; cancel the rest once enough completed.", min=0),
    ] = 0.0,
    tokenizer: Annotated[
        str, option("bytes (built in), or the directory of a Hugging Face tokenizer.", "bytes|DIR")
    ] = "bytes",
    max_prompt_len: Annotated[
        int, option("Maximum number of prompt tokens.", panel=_LIMITS)
    ] = 8192,
    max_response_len: Annotated[
        int, option("Maximum number of tokens after the prompt.", panel=_LIMITS)
    ] = 16384,
    max_model_len: Annotated[
        int | None, option("Maximum number of tokens in total.", panel=_LIMITS)
    ] = None,
    max_assistant_turns: Annotated[
        int, option("Maximum number of replies per request.", panel=_LIMITS)
    ] = 8,
) -> int:
    real = sandbox or []
    if real == ["fake"]:
        real = []
    if policy.startswith("script:") and sandbox_executor is None and not real:
        raise Untrusted(
            [
                f"--policy {policy}: this would run the code of its calls on this machine; if you "
                "trust the file, add --sandbox-executor python, otherwise --sandbox-executor "
                "scripted"
            ]
        )
    loaded = load_tokenizer(tokenizer)
    plan = RolloutPlan(
        out=out,
        problems=problems,
        group=group,
        steps=steps,
        seed=seed,
        format=_format(format, loaded).name,
        policy=read_policy(policy, marks=group > 1),
        executor=(sandbox_executor or SandboxExecutor.PYTHON).value,
        faults=tuple(load_rules(faults)) if faults is not None else (),
        rate_limit=rate_limit,
        timeout=timeout,
        over_sample=over_sample,
        limits=RolloutLimits(
            max_prompt_len=max_prompt_len,
            max_response_len=max_response_len,
            max_model_len=max_model_len,
            max_assistant_turns=max_assistant_turns,
        ),
        tokenizer=loaded,
    )
    try:
        out.mkdir(parents=True, exist_ok=True)
        with ExitStack() as stack:
            if real:
                targets = [read_target(text) for text in real]
                opened = stack.enter_context(open_targets(targets, say=say))
                plan = replace(plan, sandboxes=tuple(target.url for target in opened))
            reporter = stack.enter_context(RolloutReporter(sys.stdout, plan.requests))
            counts = asyncio.run(run_rollouts(plan, reporter.update))
    except OSError as error:
        raise HarnessError(str(error)) from error
    _print_counts(counts, out, steps)
    return 1 if counts.failed else 0


def _print_counts(counts: RolloutCounts, out: Path, steps: int) -> None:
    samples = counted(len(counts.scores), "sample")
    files = str(out / "1.jsonl")
    if steps > 1:
        files += f" to {steps}.jsonl"
    mean = "none" if counts.mean_score is None else f"{counts.mean_score:.3f}"
    typer.echo(f"{samples} in {files}, mean score {mean}; calls: {counts.outcome_text()}")
    if counts.failed:
        failed = counted(counts.failed, "request")
        typer.echo(f"{failed} failed; the first reason: {counts.first_failure}", err=True)


def _format(name: str | None, tokenizer: Tokenizer) -> Format:
    """Return the format that was asked for, or else the chat template's."""
    if name:
        return get_format(name)
    if not getattr(tokenizer, "chat_template", None):
        return get_format("hermes")
    found = format_of(tokenizer)
    if found is None:
        raise HarnessError(
            "the tool-call format cannot be told from the chat template: no format that we have "
            "reads back the calls that it writes; name it with --format"
        )
    return found
