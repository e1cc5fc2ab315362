"""``sfusion doctor``: examine a sandbox before training uses it.

Reports what is wrong, what that does to training and what to change.

Exit code 0 if nothing breaks training, 1 if something does or there is no model to write, 2 if the
input is wrong, 3 if no sandbox was reached.

Example: sfusion doctor http://127.0.0.1:8080 --tools tools.yaml
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated

from typer import Argument

from sfusion_tools._version import __version__
from sfusion_tools.errors import InputError, near
from sfusion_tools.sandbox import LANGUAGES
from sfusion_tools.wording import counted

from ...atomic_files import write_file
from ...commandline.declaring import command, option
from ...commandline.exits import fail, say
from ...commandline.json_answer import text_stream, write_answer
from ...commandline.options import SANDBOX, WRITTEN, Json
from ...reports import Reports
from ...reports.files import check_file
from ...terminal import ProgressReporter
from ..targets import open_targets, read_target
from .context import Finding, Severity
from .examination import CHECKS, Check, Examination, Observer, examine
from .knee import model_file
from .mix import Mix, mix_of_files, mix_of_log
from .settings import SWEEP_SECONDS, Plan, SandboxSettings, settings_of_tools, settings_of_url

_STYLES = {Severity.BREAKS: "bold red", Severity.HURTS: "yellow", Severity.NOTE: "cyan"}
_LONG_SWEEP = 240.0
"""Seconds for a sweep with the user's own programs that is asked for (chosen: they take seconds
each, and there are up to four sweeps)."""
FINE = 0
BROKEN = 1
UNREACHED = 3


def exit_code(examinations: Sequence[Examination]) -> int:
    """0 if nothing breaks training, 1 if something does, 3 if no sandbox could be reached at
    all."""
    if examinations and all(examination.reached is False for examination in examinations):
        return UNREACHED
    return BROKEN if any(examination.breaks for examination in examinations) else FINE


def examinations_as_json(examinations: Sequence[Examination], code: int) -> str:
    document = {
        "sfusion": __version__,
        "exit_code": code,
        "sandboxes": [
            {
                "url": examination.settings.label,
                "from": examination.settings.source or None,
                "reached": examination.reached,
                "findings": [asdict(finding) for finding in ranked(examination.findings)],
                "examined": examination.examined,
                "not_examined": [
                    {"check": check, "why": why} for check, why in examination.not_examined
                ],
                "measured": examination.measured,
            }
            for examination in examinations
        ],
    }
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def ranked(findings: Sequence[Finding]) -> list[Finding]:
    """Sort by severity, the worst first."""
    order = list(Severity)
    return sorted(findings, key=lambda finding: order.index(finding.severity))


def doctor_headline(examinations: Sequence[Examination]) -> str:
    """The summary line."""
    counts = Counter(
        finding.severity for examination in examinations for finding in examination.findings
    )
    broken = counts[Severity.BREAKS]
    hurting = counts[Severity.HURTS]
    notes = counts[Severity.NOTE]
    parts = []
    if broken:
        parts.append(f"{broken} finding{'s break' if broken > 1 else ' breaks'} training")
    else:
        parts.append("nothing found that breaks training")
    if hurting:
        parts.append(f"{hurting} hurt{'' if hurting > 1 else 's'} it")
    if notes:
        parts.append(counted(notes, "note"))
    left = sum(len(examination.not_examined) for examination in examinations)
    return ", ".join(parts) + (f"; {counted(left, 'check')} not made" if left else "")


class DoctorReporter(ProgressReporter, Observer):
    """Prints a line for each check while it works, and the findings at the end."""

    def check_started(self, check: Check, number: int) -> None:
        self.progress(number - 1, check.name)

    def announce(self, text: str) -> None:
        self.print(f"        {text}", "dim")

    def check_ended(
        self, check: Check, number: int, found: Sequence[Finding], why_not: str
    ) -> None:
        style = "dim" if why_not else "green"
        if found:
            style = _STYLES[ranked(found)[0].severity]
        self.print(f"[{number:>2}/{self._total}] {check.name:<16} {_result(found, why_not)}", style)

    def stopped(self, left: Sequence[Check], why: str) -> None:
        if left:
            self.print(
                f"        not examined, because {why}: {', '.join(check.name for check in left)}",
                "dim",
            )

    def finish(self, examinations: Sequence[Examination]) -> None:
        """Print the findings, the worst first, and the headline."""
        for examination in examinations:
            self.print()
            if len(examinations) > 1:
                source = f" ({examination.settings.source})" if examination.settings.source else ""
                self.print(f"{examination.settings.label}{source}:", "bold")
            for finding in ranked(examination.findings):
                self.print(f"{finding.severity.value}: {finding.id}", _STYLES[finding.severity])
                texts = (
                    ("seen", finding.seen),
                    ("training", finding.training),
                    ("change", finding.change),
                )
                self.table(
                    [(f"  {label}", text) for label, text in texts], styles=["dim"] * len(texts)
                )
        self.print()
        self.print(
            doctor_headline(examinations),
            "bold red" if any(examination.breaks for examination in examinations) else "green",
        )


def _result(found: Sequence[Finding], why_not: str) -> str:
    if why_not:
        return f"not examined: {why_not}"
    return (
        ", ".join(f"{finding.severity.value}: {finding.id}" for finding in ranked(found)) or "fine"
    )


@dataclass(frozen=True)
class DoctorOptions:
    """The options of the command."""

    sandbox: Annotated[str | None, Argument(help="What to examine.", metavar=SANDBOX)] = None
    tools: Annotated[
        Path | None,
        option("Tool config (verl's YAML): examine its addresses, limits and language."),
    ] = None
    quick: Annotated[bool, option("Create no load: skip the burst and the sweep.")] = False
    sweep: Annotated[
        bool | None,
        option(
            "Measure throughput up to 64 calls at a time, or not at all. Default: up to 32 on this "
            "machine, up to 8 on another.",
            names="--sweep/--no-sweep",
        ),
    ] = None
    program: Annotated[
        list[Path] | None,
        option(
            "Measure throughput with this Python program, one like those of your training. Repeat "
            "for several.",
            "FILE",
        ),
    ] = None
    log: Annotated[
        Path | None,
        option(
            "Measure throughput with the programs of this event log, which needs `include: "
            "[code]`: long and short ones in the shares that they have there."
        ),
    ] = None
    from_container: Annotated[
        bool, option("Training runs in a container: judge the address from there.")
    ] = False
    packages: Annotated[
        str | None, option("Python packages that training needs, separated by commas.", "A,B")
    ] = None
    languages: Annotated[
        str | None, option("Languages that training needs, separated by commas.", "A,B")
    ] = None
    timeout: Annotated[float, option("Time to wait for an answer.", "SECONDS", min=0.1)] = 8.0
    model_out: Annotated[
        Path | None,
        option(
            "Write the measured behaviour under load as a server model, for `sfusion "
            "sweep --model`.",
            panel=WRITTEN,
        ),
    ] = None
    json: Json = None

    def plan(self) -> Plan:
        """Return what to examine, and for how long."""
        mix = _mix(self.program, self.log)
        is_longer = mix is not None and self.sweep
        return Plan(
            patience=self.timeout,
            connect=min(5.0, self.timeout),
            quick=self.quick,
            sweep=self.sweep,
            per_check=(_LONG_SWEEP if is_longer else 40.0) + 4 * self.timeout,
            sweep_seconds=_LONG_SWEEP / 8 if is_longer else SWEEP_SECONDS,
            from_container=self.from_container,
            packages=_names(self.packages),
            languages=_languages(self.languages),
            mix=mix,
        )


@command
def doctor(options: DoctorOptions) -> int:
    logging.getLogger("sfusion_tools").addHandler(
        logging.NullHandler()
    )  # the findings say it better
    _check_sweep(options)
    plan = options.plan()
    model_out = options.model_out
    Reports(json=options.json).check()
    check_file("--model-out", model_out)
    with _sandboxes(options.sandbox, options.tools) as sandboxes:
        if model_out is not None and len(sandboxes) != 1:
            fail(
                f"--model-out describes one sandbox, but there are {len(sandboxes)}; give "
                "the URL of one"
            )
        with DoctorReporter(text_stream(options.json), len(CHECKS), "examining") as shown:
            done = asyncio.run(_examine_all(sandboxes, plan, shown))
            shown.finish(done)
    code = exit_code(done)
    if model_out is not None and "server_model" not in done[0].measured:
        say(f"{model_out} was not written: the sweep measured nothing that a model can be made of")
        code = code or BROKEN
    elif model_out is not None:
        write_file(model_out, model_file(done[0].measured, done[0].settings.label))
    write_answer(options.json, examinations_as_json(done, code))
    return code


def _check_sweep(options: DoctorOptions) -> None:
    """Refuse what only the sweep uses if it is left out."""
    if options.quick and options.sweep:
        fail("--quick leaves out the sweep that --sweep asks for: give one of them")
    if not options.quick and options.sweep is not False:
        return
    left_out_by = "--quick" if options.quick else "--no-sweep"
    uses = {
        "--program": options.program,
        "--log": options.log,
        "--model-out": options.model_out,
    }
    for name, value in uses.items():
        if value:
            fail(f"{name} needs the sweep: leave out {left_out_by}")


async def _examine_all(
    sandboxes: list[SandboxSettings], plan: Plan, shown: DoctorReporter
) -> list[Examination]:
    done = []
    for settings in sandboxes:
        shown.print(
            f"examining {settings.label}" + (f" ({settings.source})" if settings.source else ""),
            "bold",
        )
        done.append(await examine(settings, plan, environ=os.environ, observer=shown))
    return done


@contextmanager
def _sandboxes(sandbox: str | None, tools: Path | None) -> Iterator[list[SandboxSettings]]:
    if sandbox is None and tools is None:
        fail("nothing to examine: give a URL, docker or --tools FILE")
    if sandbox == "fake":
        from ....fakes.sandbox import FakeSandbox

        with FakeSandbox(executor="python") as fake:
            yield _started(fake.url, tools)
    elif sandbox is not None and "://" not in sandbox:
        with open_targets([read_target(sandbox)], say=say) as opened:
            yield [started for real in opened for started in _started(real.url, tools)]
    else:
        yield _settings(sandbox, tools)


def _started(url: str, tools: Path | None) -> list[SandboxSettings]:
    return [replace(setting, started_here=True) for setting in _settings(f"{url}/run_code", tools)]


def _settings(url: str | None, tools: Path | None) -> list[SandboxSettings]:
    if tools is not None:
        return settings_of_tools(tools, url=url)
    assert url is not None
    return [settings_of_url(url)]


def _mix(files: Sequence[Path] | None, log: Path | None) -> Mix | None:
    if files and log is not None:
        fail("--program and --log are both programs to measure with: give one of them")
    try:
        if log is not None:
            return mix_of_log(log)
        return mix_of_files(files) if files else None
    except InputError as error:
        fail(f"{'--log' if log is not None else '--program'} {error}")


def _names(text: str | None) -> list[str] | None:
    return None if text is None else text.replace(",", " ").split()


def _languages(text: str | None) -> list[str] | None:
    names = _names(text)
    for name in names or ():
        if name not in LANGUAGES:
            fail(
                f"--languages: {name!r} is not a language of Sandbox Fusion; "
                f"{near(name, LANGUAGES)}"
            )
    return names
