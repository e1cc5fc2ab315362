"""``sfusion doctor``: is this sandbox what your training config expects?"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sfusion.harness.commandline.exits import fail
from sfusion.harness.commandline.json_answer import JsonFile, is_stdout, write_answer
from sfusion.harness.real.targets._targets import SANDBOX, real_sandboxes

if TYPE_CHECKING:
    from sfusion.harness.real.doctor import Examination, Plan, SandboxSettings
    from sfusion.harness.real.doctor.report import DoctorReporter


def doctor(
    url: Annotated[str | None, typer.Argument(help="Address of the sandbox.", metavar="URL")] = None,
    tools: Annotated[
        Path | None, typer.Option(help="Tool config (verl's YAML): examine its addresses, limits and language.")
    ] = None,
    sandbox: Annotated[str | None, typer.Option(help="What to examine instead of an address.", metavar=SANDBOX)] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Create no load: skip the burst and the sweep.")] = False,
    sweep: Annotated[
        bool | None,
        typer.Option(
            "--sweep/--no-sweep",
            help="Measure throughput up to 64 calls at a time, or not at all. Default: up to 32 on this machine, "
            "up to 8 on another.",
        ),
    ] = None,
    program: Annotated[
        Path | None,
        typer.Option(help="Measure throughput with this Python program, one like those of your training."),
    ] = None,
    long: Annotated[bool, typer.Option("--long", help="Also run one program for default_timeout seconds.")] = False,
    from_container: Annotated[
        bool, typer.Option("--from-container", help="Training runs in a container: judge the address from there.")
    ] = False,
    packages: Annotated[
        str | None, typer.Option(help="Python packages that training needs, separated by commas.", metavar="A,B")
    ] = None,
    languages: Annotated[
        str | None, typer.Option(help="Languages that training needs, separated by commas.", metavar="A,B")
    ] = None,
    patience: Annotated[float, typer.Option(min=0.1, help="Seconds to wait for an answer.")] = 8.0,
    model_out: Annotated[
        Path | None,
        typer.Option(help="Write the measured behaviour under load as a server model, for `sfusion sweep --model`."),
    ] = None,
    json_file: JsonFile = None,
) -> None:
    """Examine a sandbox before training uses it: what is wrong, what that does to training, what to change.

    Exit code 0 if nothing breaks training, 1 if something does, 2 if the input is wrong, 3 if no sandbox was reached.
    """
    import asyncio
    import logging
    import sys

    from sfusion.harness.real.doctor import CHECKS, Plan
    from sfusion.harness.real.doctor.report import DoctorReporter, examinations_as_json, exit_code
    from sfusion.harness.reports.files import check_file

    logging.getLogger("sfusion_tools").addHandler(logging.NullHandler())  # the findings say it better
    plan = Plan(
        patience=patience,
        connect=min(5.0, patience),
        quick=quick,
        sweep=sweep,
        long=long,
        per_check=40.0 + 4 * patience,
        from_container=from_container,
        packages=_names(packages),
        languages=_languages(languages),
        program=_program(program),
    )
    to_stdout = is_stdout(json_file)
    if model_out is not None and (quick or sweep is False):
        fail("--model-out needs the sweep: leave out --quick and --no-sweep")
    check_file("--json", None if to_stdout else json_file)
    check_file("--model-out", model_out)
    with _sandboxes(url, tools, sandbox) as sandboxes:
        if model_out is not None and len(sandboxes) != 1:
            fail(f"--model-out describes one sandbox, but there are {len(sandboxes)}; give the URL of one")
        if long:
            plan = _with_time_for(plan, sandboxes)
        with DoctorReporter(sys.stderr if to_stdout else sys.stdout, len(CHECKS)) as shown:
            done = asyncio.run(_examine_all(sandboxes, plan, shown))
            shown.finish(done)
    if json_file is not None:
        write_answer(json_file, examinations_as_json(done))
    if model_out is not None and not write_model(model_out, done[0]):
        fail(f"{model_out} was not written: the sweep measured nothing that a model could be made of", 3)
    raise typer.Exit(exit_code(done))


def write_model(file: Path, one: Examination) -> bool:
    """Write the server model that an examination measured; return False if it measured none."""
    from sfusion.harness.atomic_files import write_file
    from sfusion.harness.real.doctor.knee import FittedModel, Point, model_file
    from sfusion_tools._version import __version__

    found = one.measured.get("server_model")
    if found is None:
        return False
    points = [Point(**point) for point in one.measured["sweep"]]
    fitted = FittedModel(found["model"], tuple(found["reasons"]))
    text = model_file(fitted, points, label=one.settings.label, programs=found["programs"], version=__version__)
    write_file(file, text)
    return True


async def _examine_all(sandboxes: list[SandboxSettings], plan: Plan, shown: DoctorReporter) -> list[Examination]:
    import os

    from sfusion.harness.real.doctor import examine

    done = []
    for settings in sandboxes:
        shown.sandbox_started(settings.label + (f" ({settings.source})" if settings.source else ""))
        done.append(await examine(settings, plan, environ=os.environ, observer=shown))
    return done


@contextmanager
def _sandboxes(url: str | None, tools: Path | None, sandbox: str | None) -> Iterator[list[SandboxSettings]]:
    if url is not None and sandbox is not None:
        fail("give either a URL or --sandbox, not both")
    if url is None and tools is None and sandbox is None:
        fail("nothing to examine: give a URL, --tools FILE or --sandbox docker")
    if sandbox == "fake":
        from sfusion.fakes.sandbox import FakeSandbox

        with FakeSandbox(executor="python") as fake:
            yield _started(fake.url, tools)
    elif sandbox is not None and "://" not in sandbox:
        with real_sandboxes([sandbox]) as opened:
            yield [one for real in opened for one in _started(real.url, tools)]
    else:
        yield _settings(url if url is not None else sandbox, tools)


def _started(url: str, tools: Path | None) -> list[SandboxSettings]:
    from dataclasses import replace

    return [replace(one, started_here=True) for one in _settings(f"{url}/run_code", tools)]


def _settings(url: str | None, tools: Path | None) -> list[SandboxSettings]:
    from sfusion.harness.real.doctor import settings_of_tools, settings_of_url

    if tools is not None:
        return settings_of_tools(tools, url=url)
    assert url is not None
    return [settings_of_url(url)]


def _program(path: Path | None) -> str | None:
    from sfusion_tools.bounded_input import decoded, read_bounded
    from sfusion_tools.errors import InputError

    if path is None:
        return None
    try:
        return decoded(read_bounded(path, 1_000_000), path)
    except InputError as error:
        fail(f"--program {error}")


def _names(text: str | None) -> list[str] | None:
    return None if text is None else text.replace(",", " ").split()


def _languages(text: str | None) -> list[str] | None:
    from sfusion_tools.errors import near
    from sfusion_tools.sandbox import LANGUAGES

    names = _names(text)
    for name in names or ():
        if name not in LANGUAGES:
            fail(f"--languages: {name!r} is not a language of Sandbox Fusion; {near(name, LANGUAGES)}")
    return names


def _with_time_for(plan: Plan, sandboxes: list[SandboxSettings]) -> Plan:
    """Let a check take as long as the longest program that it runs."""
    from dataclasses import replace

    return replace(plan, per_check=plan.per_check + max(one.default_timeout for one in sandboxes))
