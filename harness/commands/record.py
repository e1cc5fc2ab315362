"""``sfusion record``: what a real sandbox answers, kept in a file that the fake can serve."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def record(
    url: Annotated[
        str | None, typer.Argument(metavar="[URL]", help="Address of the sandbox, docker, or docker:IMAGE.")
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="File for the recording (JSON lines).")] = None,
    sandbox: Annotated[str | None, typer.Option(help="The same as URL, as other commands call it.")] = None,
    probes: Annotated[
        list[Path] | None, typer.Option(help="File or folder of own probes: added, or in place of those with their id.")
    ] = None,
    only: Annotated[list[str] | None, typer.Option("-k", help="Only probes with this in their id.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Leave out the slow probes.")] = False,
    header: Annotated[list[str] | None, typer.Option(help="Header for every request, such as 'X-Token: abc'.")] = None,
    timeout: Annotated[float, typer.Option(min=0.1, help="Seconds that one probe may take.")] = 60.0,
    force: Annotated[bool, typer.Option("--force", help="Replace the file if it is there.")] = False,
    show: Annotated[bool, typer.Option("--list", help="Show the probes and send nothing.")] = False,
) -> None:
    """Send the probe suite to a sandbox and keep its answers, without paths, hosts and secrets.

    Exit code 0: recorded; 2: the input is wrong; 3: the sandbox cannot be reached, is none, or went away. The file is
    written at the end and at once: when anything goes wrong, what was there before is untouched.
    """
    import asyncio

    from sfusion.harness.commands._exit import fail
    from sfusion.harness.commands._probing import list_probes, progress, read_headers, read_suite
    from sfusion.harness.commands._targets import read_targets, real_sandboxes
    from sfusion.harness.probes import Server, Unreachable
    from sfusion.harness.probes.recording import ask, scrubber_for, write_recording

    chosen = read_suite(probes or [], only or [], quick)
    if show:
        list_probes(chosen)
        return
    if (url is None) == (sandbox is None):
        fail("give one sandbox to record, as in: sfusion record http://127.0.0.1:8080 -o answers.jsonl")
    if out is None:
        fail("give the file for the recording with -o FILE")
    if out.is_dir():
        fail(f"{out} is a folder; give the name of a file in it")
    if out.exists() and not out.is_file():
        fail(f"{out} is no regular file; give the name of one")
    if out.exists() and not force:
        fail(f"{out} is there already; give another name, or --force to replace it")
    if not out.parent.is_dir():
        fail(f"there is no folder {out.parent}; make it first")
    headers = read_headers(header or [])
    typed = [url or sandbox or ""]
    name = str(read_targets(typed)[0])
    with real_sandboxes(typed, check=False) as (target,):
        server = Server.at(target.url, headers)
        left_out = sum(not server.takes(probe) for probe in chosen)
        chosen = [probe for probe in chosen if server.takes(probe)]
        try:
            with progress("recording", len(chosen)) as told:
                heard = asyncio.run(ask(target.url, chosen, shown=name, headers=headers, timeout=timeout, told=told))
        except Unreachable as error:
            fail(f"{error}; nothing was written", 3)
        except KeyboardInterrupt:
            fail("interrupted; nothing was written", 130)
        try:
            known = scrubber_for(target.url, headers, chosen)
            write_recording(out, chosen, heard, target=name, known=known)
        except OSError as error:
            fail(f"{out} cannot be written: {error.strerror or error}")
    typer.echo(f"{out}: {len(chosen)} answers of {name}")
    if left_out:
        typer.echo(f"{left_out} probes of raw bytes were left out: they cannot carry your header, prefix or key")
    typer.echo(f"serve them with: sfusion serve sandbox --executor recorded --cassette {out}")
