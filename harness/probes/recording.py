"""Sending probes to a server for a recording or a comparison, with nothing of it left that must not be written down."""

from __future__ import annotations

import getpass
import os
import socket
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from sfusion.harness.probes.cassette import recording_lines, write_atomically
from sfusion.harness.probes.model import Probe
from sfusion.harness.probes.raw_http import ProbeAnswer, Server
from sfusion.harness.probes.scrubbing import Scrubber, secrets_of
from sfusion.harness.probes.sending import AT_ONCE, PATIENCE, Sender, Told


def scrubber_for(url: str, headers: Mapping[str, str] | None = None, probes: Sequence[Probe] = ()) -> Scrubber:
    """What is sent to the server, and what this machine and its user are called: the server may stand on it."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = ""  # a container may run as a number without a name
    host = socket.gethostname()
    return Scrubber.of(
        url=url,
        headers=headers,
        hosts=[host, host.partition(".")[0]],
        users=[user],
        paths=[str(Path.home()), os.getcwd()],
        environ=os.environ,
        also_secret=secrets_of(probes),
    )


async def ask(
    url: str,
    probes: Sequence[Probe],
    *,
    shown: str,
    headers: Mapping[str, str] | None = None,
    timeout: float = PATIENCE,
    at_once: int = AT_ONCE,
    told: Told = lambda _: None,
) -> list[ProbeAnswer]:
    """The answers of a server, as they came; raises Unreachable."""
    sender = Sender(Server.at(url, headers), shown, timeout, at_once)
    await sender.check()
    return await sender.send(probes, told)


def write_recording(
    path: Path, probes: Sequence[Probe], heard: Sequence[ProbeAnswer], *, target: str, known: Scrubber
) -> None:
    """Write a recording in one go, scrubbed."""
    now = datetime.now(UTC).isoformat(timespec="seconds")
    lines = recording_lines(probes, heard, target=target, recorded_at=now, scrubber=known)
    write_atomically(path, "".join(lines))
