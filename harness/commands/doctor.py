"""``sfusion doctor``: is this sandbox what your training config thinks it is?"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sfusion.harness.commands._exit import fail
from sfusion.harness.commands._targets import SANDBOX, real_sandboxes

if TYPE_CHECKING:
    from sfusion.harness.doctor import Examination, Plan, Subject
    from sfusion.harness.doctor.report import LiveReporter, PlainReporter


def doctor(
    url: Annotated[str | None, typer.Argument(help="Address of the sandbox.", metavar="URL")] = None,
    tools: Annotated[
        Path | None, typer.Option(help="Tool config (verl's YAML): its addresses, limits and language are examined.")
    ] = None,
    sandbox: Annotated[str | None, typer.Option(help="What to examine instead of an address.", metavar=SANDBOX)] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Leave out the burst and the sweep: no load.")] = False,
    sweep: Annotated[
        bool | None,
        typer.Option(
            "--sweep/--no-sweep", help="Measure throughput far, or not at all; elsewhere than here it is short."
        ),
    ] = None,
    long: Annotated[bool, typer.Option("--long", help="Also run one program for default_timeout seconds.")] = False,
    from_container: Annotated[
        bool, typer.Option("--from-container", help="Training runs in a container: judge the address from there.")
    ] = False,
    packages: Annotated[
        str | None, typer.Option(help="Python packages that training needs, with commas.", metavar="A,B")
    ] = None,
    languages: Annotated[
        str | None, typer.Option(help="Languages that training needs, with commas.", metavar="A,B")
    ] = None,
    patience: Annotated[float, typer.Option(min=0.1, help="Seconds that an answer may take.")] = 8.0,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write the report as JSON to this file; - is stdout.", metavar="FILE")
    ] = None,
) -> None:
    """Examine a sandbox: what it does to training, and what to change.

    Exit code 0: nothing found that breaks training; 1: something was; 2: the input is wrong; 3: no sandbox reached.
    """
    import asyncio
    import logging
    import sys

    from sfusion.harness.doctor import CHECKS, Plan
    from sfusion.harness.doctor.report import as_json, exit_code, reporter, write_json
    from sfusion.harness.reports import Reports

    logging.getLogger("sfusion_tools").addHandler(logging.NullHandler())  # the findings say it, and where it belongs
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
    )
    to_stdout = json_file is not None and str(json_file) == "-"
    if not to_stdout and (problem := Reports(json=json_file).check()):
        fail(f"doctor: {problem}")
    with _subjects(url, tools, sandbox) as subjects:
        if long:
            plan = _with_room(plan, subjects)
        with reporter(sys.stderr if to_stdout else sys.stdout, len(CHECKS)) as shown:
            try:
                done = asyncio.run(_examine_all(subjects, plan, shown))
            except KeyboardInterrupt:
                fail("doctor: interrupted; nothing was left running", 130)
            shown.finish(done)
    if to_stdout:
        typer.echo(as_json(done), nl=False)
    elif json_file is not None:
        try:
            write_json(json_file, done)
        except OSError as error:
            fail(f"doctor: --json {json_file} cannot be written: {error.strerror or error}", 2)
    raise typer.Exit(exit_code(done))


async def _examine_all(subjects: list[Subject], plan: Plan, shown: PlainReporter | LiveReporter) -> list[Examination]:
    import os

    from sfusion.harness.doctor import examine

    done = []
    for subject in subjects:
        shown.opens(subject.label + (f" ({subject.source})" if subject.source else ""))
        done.append(await examine(subject, plan, environ=os.environ, listener=shown))
    return done


@contextmanager
def _subjects(url: str | None, tools: Path | None, sandbox: str | None) -> Iterator[list[Subject]]:
    """Who is to be examined; ends the command with 2 when that is unclear, with 3 when it cannot be started."""
    if url is not None and sandbox is not None:
        fail("doctor: give either a URL or --sandbox, not both")
    if url is None and tools is None and sandbox is None:
        fail("doctor: say what to examine: a URL, --tools FILE or --sandbox docker")
    if sandbox == "fake":
        from sfusion.fakes.sandbox import FakeSandbox

        with FakeSandbox(executor="python") as fake:
            yield _started(fake.url, tools)
    elif sandbox is not None and "://" not in sandbox:
        with real_sandboxes([sandbox]) as opened:
            yield [one for real in opened for one in _started(real.url, tools)]
    else:
        yield _read(url if url is not None else sandbox, tools)


def _started(url: str, tools: Path | None) -> list[Subject]:
    from dataclasses import replace

    return [replace(one, started_here=True) for one in _read(f"{url}/run_code", tools)]


def _read(url: str | None, tools: Path | None) -> list[Subject]:
    from sfusion.harness.doctor import of_tools, of_url
    from sfusion_tools.errors import ConfigError

    try:
        if tools is not None:
            return of_tools(tools, url=url)
        assert url is not None
        return [of_url(url)]
    except ConfigError as error:
        fail(f"doctor: {error}")


def _names(text: str | None) -> list[str] | None:
    return None if text is None else [name for name in text.replace(",", " ").split() if name]


def _languages(text: str | None) -> list[str] | None:
    from sfusion_tools.errors import near
    from sfusion_tools.sandbox import LANGUAGES

    names = _names(text)
    for name in names or ():
        if name not in LANGUAGES:
            fail(f"doctor: --languages: {name!r} is not a language of Sandbox Fusion; {near(name, LANGUAGES)}")
    return names


def _with_room(plan: Plan, subjects: list[Subject]) -> Plan:
    """A check may take as long as the longest program that it runs."""
    from dataclasses import replace

    return replace(plan, per_check=plan.per_check + max(subject.default_timeout for subject in subjects))
