"""``sfusion drift``: where the fake and a real sandbox answer differently."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sfusion.harness.drift import Side
    from sfusion.harness.probes import Probe


def drift(
    sandbox: Annotated[str | None, typer.Option(help="The real one: an address, docker, or docker:IMAGE.")] = None,
    cassette: Annotated[Path | None, typer.Option(help="A recording of the real one instead.")] = None,
    against: Annotated[str | None, typer.Option(help="Another real one in the place of the fake.")] = None,
    executor: Annotated[
        str, typer.Option(help="What the fake runs code with: python, or scripted (then programs are not compared).")
    ] = "python",
    profile: Annotated[
        str, typer.Option(help="Which server the fake is: 2026-07, 2025-06, or auto (told by the real one's answers).")
    ] = "auto",
    probes: Annotated[
        list[Path] | None, typer.Option(help="File or folder of own probes: added, or in place of those with their id.")
    ] = None,
    only: Annotated[list[str] | None, typer.Option("-k", help="Only probes with this in their id.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Leave out the slow probes.")] = False,
    header: Annotated[list[str] | None, typer.Option(help="Header for every request to the real one.")] = None,
    timeout: Annotated[float, typer.Option(min=0.1, help="Seconds that one probe may take.")] = 60.0,
    accept: Annotated[Path | None, typer.Option(help="YAML list of known differences: probe, place, reason.")] = None,
    json: Annotated[Path | None, typer.Option(help="File for everything as JSON.")] = None,
    summary: Annotated[
        Path | None, typer.Option("--summary", "--markdown", help="File for Markdown, as for a pull request.")
    ] = None,
    show: Annotated[bool, typer.Option("--list", help="Show the probes and send nothing.")] = False,
) -> None:
    """Send the probe suite to the fake and to a real sandbox, and grade what they answer differently.

    Exit code 0: nothing that would break a client; 1: something would; 2: the input is wrong; 3: a server cannot be
    reached, or is no sandbox.
    """
    from sfusion.fakes.sandbox import EXECUTORS, PROFILES, SandboxSetupError
    from sfusion.harness.commands._exit import fail
    from sfusion.harness.commands._probing import list_probes, read_headers, read_suite
    from sfusion.harness.commands._targets import read_targets
    from sfusion.harness.drift import as_json, as_markdown, judge, print_report, read_acceptances
    from sfusion.harness.probes import BadProbes, Unreachable
    from sfusion.harness.reports import Reports
    from sfusion.harness.targets import FakeTarget
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
    if problem := Reports(json=json, summary=summary).check():
        fail(problem)
    if against is not None and isinstance(read_targets([against], option="--against")[0], FakeTarget):
        fail("--against: fake is no real sandbox, and what is compared with when --against is left out")
    try:
        accepted = read_acceptances(accept) if accept is not None else []
        right = _real(sandbox, cassette, chosen, headers, timeout)
        notes: list[str] = []
        if against is not None:
            left = _real(against, None, chosen, headers, timeout)
        else:
            left = _fake(chosen, executor, profile, right, timeout, notes)
    except BadProbes as error:
        fail(str(error))
    except SandboxSetupError as error:
        fail(str(error))
    except Unreachable as error:
        fail(str(error), 3)
    except KeyboardInterrupt:
        fail("interrupted", 130)
    report = judge(chosen, left, right, accepted, notes)
    print_report(report, sys.stdout)
    for file, text in ((json, as_json), (summary, as_markdown)):
        if file is not None:
            try:
                file.write_text(text(report), encoding="utf-8")
            except OSError as error:
                fail(f"{file} cannot be written: {error.strerror or error}")
    if not report.compared:
        fail("nothing could be compared, so nothing is known: see above why")
    raise typer.Exit(1 if report.breaking else 0)


def _real(
    sandbox: str | None, cassette: Path | None, probes: Sequence[Probe], headers: Mapping[str, str], timeout: float
) -> Side:
    import asyncio

    from sfusion.harness.commands._probing import progress
    from sfusion.harness.commands._targets import read_targets, real_sandboxes
    from sfusion.harness.drift import live_side, recorded_side
    from sfusion.harness.probes import read_recording

    if cassette is not None:
        return recorded_side(read_recording(cassette), probes, name=cassette.name)
    typed = [sandbox or ""]
    name = str(read_targets(typed)[0])
    with real_sandboxes(typed, check=False) as (target,), progress(name, len(probes)) as told:
        return asyncio.run(live_side(target.url, probes, name=name, headers=headers, timeout=timeout, told=told))


def _fake(probes: Sequence[Probe], executor: str, profile: str, real: Side, timeout: float, notes: list[str]) -> Side:
    import asyncio

    from sfusion.harness.commands._probing import progress
    from sfusion.harness.drift import fake_side, profile_of

    if profile == "auto":
        told_by_answers = profile_of(real.answers)
        profile = told_by_answers or "2026-07"
        why = "as its memory limits tell" if told_by_answers else "as its answers do not tell which it is"
        notes.append(f"the fake has profile {profile}, {why}; --profile says otherwise")
    with progress(f"fake {profile}", len(probes)) as told:
        return asyncio.run(
            fake_side(
                probes,
                executor=executor,
                profile=profile,  # type: ignore[arg-type] # checked above, with a sentence for the user
                timeout=timeout,
                told=told,
            )
        )
