"""``sfusion drift``: where do the fake and a real sandbox differ?"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sfusion.harness.commandline.exits import fail
from sfusion.harness.commandline.json_answer import JsonFile, is_stdout, write_answer
from sfusion.harness.real.drift._probing import (
    ListProbes,
    Only,
    OwnProbes,
    Quick,
    Timeout,
    list_probes,
    progress,
    read_suite,
)
from sfusion.harness.real.targets._targets import read_targets, real_sandboxes
from sfusion.harness.serving._headers import read_headers

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sfusion.harness.real.drift import ServerAnswers
    from sfusion.harness.real.probes import Probe


def drift(
    sandbox: Annotated[str | None, typer.Option(help="The real one: an address, docker, or docker:IMAGE.")] = None,
    cassette: Annotated[Path | None, typer.Option(help="A recording of the real one instead.")] = None,
    against: Annotated[str | None, typer.Option(help="Compare with another real sandbox instead of the fake.")] = None,
    executor: Annotated[
        str, typer.Option(help="How the fake runs code: python, or scripted (then programs are not compared).")
    ] = "python",
    profile: Annotated[
        str, typer.Option(help="Which server the fake plays: 2026-07, 2025-06, or auto (from the real one's answers).")
    ] = "auto",
    probes: OwnProbes = None,
    only: Only = None,
    quick: Quick = False,
    header: Annotated[list[str] | None, typer.Option(help="Header for every request to the real one.")] = None,
    timeout: Timeout = 60.0,
    accept: Annotated[Path | None, typer.Option(help="YAML list of known differences: probe, place, reason.")] = None,
    json: JsonFile = None,
    summary: Annotated[
        Path | None, typer.Option("--summary", "--markdown", help="Write a Markdown summary to this file.")
    ] = None,
    show: ListProbes = False,
) -> None:
    """Send the probe suite to the fake and to a real sandbox, and grade the differences in their answers.

    Exit code 0 if no difference would break a client, 1 if one would, 2 if the input is wrong, 3 if a server cannot
    be reached or is not a sandbox.
    """
    from sfusion.fakes.sandbox import EXECUTORS, PROFILES
    from sfusion.harness.atomic_files import write_file
    from sfusion.harness.real.drift import as_json, as_markdown, compare_answers, print_report, read_acceptances
    from sfusion.harness.real.targets import FakeTarget
    from sfusion.harness.reports import Reports
    from sfusion_tools.errors import near

    chosen = read_suite(probes or [], only or [], quick)
    if show:
        list_probes(chosen)
        return
    if (sandbox is None) == (cassette is None):
        fail("give one real sandbox: --sandbox URL, --sandbox docker, or --cassette FILE")
    if profile not in (*PROFILES, "auto"):
        fail(f"--profile {profile!r} is not known; {near(profile, (*PROFILES, 'auto'))}")
    runners = [name for name in EXECUTORS if name != "recorded"]
    if executor not in runners:
        fail(f"--executor {executor!r} cannot be compared; {near(executor, runners)}")
    headers = read_headers(header or [])
    Reports(json=None if is_stdout(json) else json, summary=summary).check()
    if against is not None and isinstance(read_targets([against])[0], FakeTarget):
        fail("--against: fake is not a real sandbox; leave --against out to compare with the fake")
    accepted = read_acceptances(accept) if accept is not None else []
    right = _real(sandbox, cassette, chosen, headers, timeout)
    notes: list[str] = []
    if against is not None:
        left = _real(against, None, chosen, headers, timeout)
    else:
        left = _fake(chosen, executor, profile, right, timeout, notes)
    report = compare_answers(chosen, left, right, accepted, notes)
    print_report(report, sys.stderr if is_stdout(json) else sys.stdout)
    if json is not None:
        write_answer(json, as_json(report))
    if summary is not None:
        write_file(summary, as_markdown(report))
    if not report.compared:
        fail("no probe could be compared; the reasons are listed above")
    raise typer.Exit(1 if report.breaking else 0)


def _real(
    sandbox: str | None, cassette: Path | None, probes: Sequence[Probe], headers: Mapping[str, str], timeout: float
) -> ServerAnswers:
    import asyncio

    from sfusion.harness.real.drift import live_answers, recorded_answers
    from sfusion.harness.real.probes import read_recording

    if cassette is not None:
        return recorded_answers(read_recording(cassette), probes, name=cassette.name)
    typed = [sandbox or ""]
    name = str(read_targets(typed)[0])
    with real_sandboxes(typed, check=False) as (target,), progress(name, len(probes)) as advance:
        return asyncio.run(
            live_answers(target.url, probes, name=name, headers=headers, timeout=timeout, on_answer=advance)
        )


def _fake(
    probes: Sequence[Probe], executor: str, profile: str, real: ServerAnswers, timeout: float, notes: list[str]
) -> ServerAnswers:
    import asyncio

    from sfusion.harness.real.drift import fake_answers, profile_of

    if profile == "auto":
        detected = profile_of(real.answers)
        profile = detected or "2026-07"
        why = "detected by its memory limits" if detected else "the default, as the answers do not show which it is"
        notes.append(f"the fake plays profile {profile} ({why}); --profile overrides it")
    with progress(f"fake {profile}", len(probes)) as advance:
        return asyncio.run(
            fake_answers(
                probes,
                executor=executor,
                profile=profile,  # type: ignore[arg-type] # checked above, with a sentence for the user
                timeout=timeout,
                on_answer=advance,
            )
        )
