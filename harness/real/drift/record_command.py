"""``sfusion record``: keep what a real sandbox answers in a file that the fake can serve."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sfusion.harness.commandline.exits import fail
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
from sfusion_tools.wording import counted


def record(
    url: Annotated[
        str | None, typer.Argument(metavar="URL", help="Address of the sandbox, docker, or docker:IMAGE.")
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="File for the recording (JSON lines).")] = None,
    sandbox: Annotated[str | None, typer.Option(help="The same as URL, named as in other commands.")] = None,
    probes: OwnProbes = None,
    only: Only = None,
    quick: Quick = False,
    header: Annotated[list[str] | None, typer.Option(help="Header for every request, such as 'X-Token: abc'.")] = None,
    timeout: Timeout = 60.0,
    force: Annotated[bool, typer.Option("--force", help="Replace the file if it exists.")] = False,
    show: ListProbes = False,
) -> None:
    """Send the probe suite to a sandbox and keep its answers, without paths, hosts and secrets.

    Exit code 0 if recorded, 2 if the input is wrong, 3 if the sandbox cannot be reached, is not a sandbox, or stops
    answering. The file is written all at once at the end; if anything goes wrong, an existing file is left untouched.
    """
    import asyncio

    from sfusion.harness.real.probes import Server, Unreachable
    from sfusion.harness.real.probes.sending import ask, scrubber_for, write_recording

    chosen = read_suite(probes or [], only or [], quick)
    if show:
        list_probes(chosen)
        return
    if (url is None) == (sandbox is None):
        fail("give one sandbox to record, as in: sfusion record http://127.0.0.1:8080 -o answers.jsonl")
    if out is None:
        fail("name the file for the recording with -o FILE")
    if out.is_dir():
        fail(f"{out} is a folder; give the name of a file in it")
    if out.exists() and not out.is_file():
        fail(f"{out} is not a regular file; give another name")
    if out.exists() and not force:
        fail(f"{out} already exists; give another name, or --force to replace it")
    if not out.parent.is_dir():
        fail(f"there is no folder {out.parent}; create it first")
    headers = read_headers(header or [])
    typed = [url or sandbox or ""]
    name = str(read_targets(typed)[0])
    try:
        with real_sandboxes(typed, check=False) as (target,):
            server = Server.at(target.url, headers)
            sent = [probe for probe in chosen if server.can_send(probe)]
            with progress("recording", len(sent)) as advance:
                answers = asyncio.run(
                    ask(target.url, sent, shown=name, headers=headers, timeout=timeout, on_answer=advance)
                )
            scrubber = scrubber_for(target.url, headers, sent)
    except Unreachable as error:
        fail(f"{error}; nothing was written", error.exit_code)
    except KeyboardInterrupt:
        fail("interrupted; nothing was written", 130)
    write_recording(out, sent, answers, target=name, scrubber=scrubber)
    typer.echo(f"{out}: {counted(len(sent), 'answer')} of {name}")
    if raw := len(chosen) - len(sent):
        typer.echo(f"left out {counted(raw, 'raw-byte probe')}, which cannot carry your header, prefix or key")
    typer.echo(f"serve them with: sfusion serve sandbox --executor recorded --cassette {out}")
