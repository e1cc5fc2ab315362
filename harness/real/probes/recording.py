"""Ask a server all probes, for a recording or a comparison, and scrub what must not be written down."""

from __future__ import annotations

import getpass
import os
import socket
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from sfusion.harness.atomic_files import write_file
from sfusion.harness.real.probes.cassette import recording_lines
from sfusion.harness.real.probes.model import Probe
from sfusion.harness.real.probes.raw_http import ProbeAnswer, Server
from sfusion.harness.real.probes.scrubbing import Scrubber, secrets_of
from sfusion.harness.real.probes.sending import AT_ONCE, PATIENCE, OnAnswer, Sender


def scrubber_for(url: str, headers: Mapping[str, str] | None = None, probes: Sequence[Probe] = ()) -> Scrubber:
    """Scrub what is sent to the server, and the names of this machine and its user: the server may run on it."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = ""  # in a container, the user id may have no name
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
    on_answer: OnAnswer = lambda _: None,
) -> list[ProbeAnswer]:
    """Return the server's answers unscrubbed; raises Unreachable."""
    sender = Sender(Server.at(url, headers), shown, timeout, at_once)
    await sender.check()
    return await sender.send(probes, on_answer)


def write_recording(
    path: Path, probes: Sequence[Probe], answers: Sequence[ProbeAnswer], *, target: str, scrubber: Scrubber
) -> None:
    """Write a scrubbed recording, atomically; raises CannotWrite."""
    now = datetime.now(UTC).isoformat(timespec="seconds")
    lines = recording_lines(probes, answers, target=target, recorded_at=now, scrubber=scrubber)
    write_file(path, lines)
