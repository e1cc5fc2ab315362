"""``sfusion serve sglang``: serve a fake sglang without a GPU.

It answers /generate, /v1/chat/completions, /v1/completions and others.

Example: sfusion serve sglang --policy misbehaving:0.3 --format hermes
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from ....fakes.faults import Rule
from ....fakes.sglang import FakeSGLang, FakeSGLangServer, Latency
from ....fakes.sglang.faults import load_engine_rules
from ...commandline.declaring import command, option
from ...errors import BadOption
from ...rollouts.policies import Policy, read_policy
from ..server_options import Port, ServingOptions, serve_until_interrupted

_LOAD = "How fast it is"


@dataclass(frozen=True, kw_only=True)
class EngineOptions(ServingOptions):
    """The options of the command."""

    port: Port = 30000
    format: Annotated[
        str, option("Tool-call format of the model; `none` leaves calls in the text.", "FORMAT")
    ] = "qwen25"
    policy: Policy = "gsm8k"
    reasoning_parser: Annotated[
        str | None,
        option("Return thinking separately: qwen3, deepseek-r1, glm45, gpt-oss, ...", "NAME"),
    ] = None
    step: Annotated[int, option("Training step; the misbehaving policy gets worse with it.")] = 0
    model: Annotated[
        str, option("Name of the served model.", "NAME", names="--served-model-name")
    ] = "fake-model"
    context_length: Annotated[
        int, option("Maximum tokens of prompt and answer together.", min=1)
    ] = 32768
    cache_report: Annotated[bool, option("Report cached tokens in the usage.")] = False
    first_token: Annotated[
        float, option("Time until the first token.", "SECONDS", _LOAD, min=0)
    ] = 0.0
    per_token: Annotated[float, option("Time for each further token.", "SECONDS", _LOAD, min=0)] = (
        0.0
    )
    load: Annotated[float, option("Slowdown per concurrent request.", panel=_LOAD, min=0)] = 0.0
    max_running: Annotated[
        int | None, option("Maximum concurrent requests.", panel=_LOAD, min=1)
    ] = None
    max_queued: Annotated[
        int | None, option("Maximum waiting requests; more get a 503.", panel=_LOAD, min=0)
    ] = None

    def load_rules(self, file: Path) -> list[Rule]:
        return load_engine_rules(file)


@command
def serve_sglang(options: EngineOptions) -> None:
    parser = None if options.format == "none" else options.format
    with options.keywords() as keywords:
        try:
            engine = FakeSGLang(
                read_policy(options.policy),
                format=parser or "qwen25",
                context_length=options.context_length,
                latency=Latency(options.first_token, options.per_token, load=options.load),
                max_running=options.max_running,
                max_queued=options.max_queued,
                seed=options.seed,
                step=options.step,
            )
            server = FakeSGLangServer(
                engine,
                tool_call_parser=parser,
                reasoning_parser=options.reasoning_parser,
                model=options.model,
                report_cache=options.cache_report,
                **keywords,
            )
        except ValueError as error:
            raise BadOption(str(error)) from error

        async def print_banner() -> None:
            typer.echo(f"fake sglang on {server.url} (OpenAI clients: {server.url}/v1)")
            about = (
                f"model {options.model}, format {options.format}, policy "
                f"{options.policy}, seed {options.seed}, "
            )
            typer.echo(f"{about}{options.fault_count(keywords)}")

        asyncio.run(serve_until_interrupted(server, keywords["token"], print_banner))
