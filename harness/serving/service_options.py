"""The options of fakes whose sandboxes have a life cycle, and how such a fake is run."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from sfusion_tools.errors import YamlError
from sfusion_tools.marked_yaml import parse_marked, read_marked

from ...fakes.faults import Rule, load_rules
from ...fakes.faults.lifecycle import LIFECYCLE_KINDS, lifecycle_rules
from ...fakes.hosting.service import SandboxService
from ..commandline.declaring import option
from ..errors import BadOption
from .server_options import ServingOptions, refuse_readable, serve_until_interrupted


@dataclass(frozen=True, kw_only=True)
class ServiceOptions(ServingOptions):
    """The options of every such command."""

    model: Annotated[
        str | None,
        option(
            "How sandboxes live and die, as in '{boot: 2s, live: 16, ttl: 10m, dies: 0.02}'.",
            "YAML",
        ),
    ] = None
    executor: Annotated[
        str,
        option(
            "What answers commands: python (really runs them), scripted (runs nothing, they "
            "succeed), none (runs nothing, a command without a script fails).",
            "python|scripted|none",
        ),
    ] = "none"
    scripts: Annotated[
        Path | None,
        option("YAML list of scripts for the executors none and scripted: pattern, prints, ..."),
    ] = None

    @contextmanager
    def keywords(self) -> Iterator[dict[str, Any]]:
        with super().keywords() as keywords:
            yield {
                **keywords,
                "model": self._model(),
                "executor": self.executor,
                "scripts": self._scripts(),
            }

    def load_rules(self, file: Path) -> list[Rule]:
        return lifecycle_rules(load_rules(file, kinds=LIFECYCLE_KINDS), where=str(file))

    def _model(self) -> Any:
        if self.model is None:
            return None
        try:
            return parse_marked(self.model, "--model").data
        except YamlError as error:
            raise BadOption(f"{error}; found {self.model!r:.200}") from error

    def _scripts(self) -> list[Any]:
        if self.scripts is None:
            return []
        try:
            data = read_marked(self.scripts).data
        except YamlError as error:
            raise BadOption(f"--scripts {error}") from None
        if not isinstance(data, list):
            raise BadOption(f"--scripts {self.scripts}: expected a list of scripts")
        return data


def serve_service(kind: type[SandboxService], title: str, options: ServiceOptions) -> None:
    """Run a fake until it is interrupted; first say with which variables an SDK talks to it."""
    with options.keywords() as keywords:
        service = kind(**keywords)

        async def print_banner() -> None:
            await refuse_readable(service.executor, options.token_file)
            typer.echo(f"fake {title} on {service.url}")
            for name, value in service.environment.items():
                typer.echo(f"export {name}={value}")
            runs = "REALLY RUNS" if service.executor.runs_code else "does not run"
            typer.echo(
                f"executor {service.executor_name} ({runs} the commands it is sent), "
                f"{options.fault_count(keywords)}, seed {options.seed}"
            )
            typer.echo(f"sandboxes: {service.url}/__sfusion/sandboxes")

        asyncio.run(serve_until_interrupted(service, keywords["token"], print_banner))
