"""``sfusion limiter``: show, resize or remove the limiter of a Ray cluster.

Shows which clients hold permits and which wait for one. After a resize, permits that are out stay
out, and waiters are served as soon as there is room. If jobs still use a removed limiter, they
create a new one, which first learns which permits they hold. With --machine, show or resize the
limiter of this machine instead, and the processes that hold its permits.

Exit code 0, or 3 if there is no such cluster or limiter, or if it does not answer within ten
seconds.

Example: sfusion limiter --resize 32
"""

from __future__ import annotations

import logging
import os
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from sfusion_tools.errors import LimiterUnreachable, import_extra
from sfusion_tools.limiter import ray_limiter
from sfusion_tools.limiter.machine import machine_slots
from sfusion_tools.limiter.messages import Snapshot
from sfusion_tools.limiter.metrics import limiter_page
from sfusion_tools.limiter.slots import MachineState

from ...commandline.declaring import command, option
from ...commandline.json_answer import is_stdout, write_json
from ...commandline.options import RAY_ADDRESS, Json
from ...errors import BadOption


@command
def limiter(
    name: Annotated[
        str, option("Name of the limiter: `limiter_name` of the tool config.", "NAME")
    ] = "rate-limiter",
    machine: Annotated[
        bool, option("The limiter of this machine (`limiter: host`), not a cluster's.")
    ] = False,
    ray_address: Annotated[
        str, option(RAY_ADDRESS, "HOST:PORT|auto", envvar="RAY_ADDRESS")
    ] = "auto",
    resize: Annotated[
        int | None, option("Set rate_limit: how many attempts may be in flight from now on.")
    ] = None,
    remove: Annotated[bool, option("End the limiter.")] = False,
    metrics: Annotated[
        bool, option("Print a page that Prometheus can read instead of a table.")
    ] = (False),
    json_file: Json = None,
) -> None:
    if (resize is not None) + remove + metrics + (json_file is not None) > 1:
        raise BadOption("--resize, --remove, --metrics and --json exclude each other")
    if machine and remove:
        raise BadOption(
            "--machine --remove: the limiter of a machine ends with the last process that uses it"
        )
    found: Snapshot | MachineState | None
    if machine:
        found = _of_this_machine(name, resize)
    else:
        found = _of_cluster(name, ray_address, resize, remove=remove)
    if found is None:
        return
    write_json(json_file, asdict(found))
    if metrics:
        typer.echo(limiter_page(name, found), nl=False)
    elif not is_stdout(json_file):
        rows = _rows(name, found) if isinstance(found, Snapshot) else _machine_rows(name, found)
        for label, value in rows:
            typer.echo(f"{label:<14} {value}")


NO_CLUSTER = 3
_PATIENCE = 9.0
"""Seconds from the start of this process until an answer. Chosen: longer than Ray needs."""
_LEAST = 4.0
"""Seconds for connecting and answering in any case, however long the start took. Chosen."""


def _of_this_machine(name: str, resize: int | None) -> MachineState | None:
    """Return the state of the machine's limiter; None if it was resized."""
    slots = machine_slots(name)
    if resize is None:
        state = slots.state()
        if state is not None:
            return state
    else:
        before = slots.resize(resize)
        if before is not None:
            typer.echo(f"limiter {name!r}: rate_limit {before} -> {resize}")
            return None
    raise LimiterUnreachable(
        f"no process of this machine uses a limiter named {name!r}; the first tool with "
        "`limiter: host` makes it"
    )


def _of_cluster(name: str, address: str, resize: int | None, *, remove: bool) -> Snapshot | None:
    """Return the state of the cluster's limiter; None if it was resized or removed."""
    _check_reachable(address)
    ray = import_extra("ray", extra="ray", needed_by="sfusion limiter")
    left = max(_PATIENCE - _age(), _LEAST)
    with _patience(
        left,
        f"no answer from the Ray cluster at {address!r} within {left:.2g} s: is it still running?",
    ):
        _connect(ray, address)
        try:
            actor = ray_limiter.find(name)
            if actor is None:
                raise LimiterUnreachable(
                    f"this cluster has no limiter named {name!r}; the first tool that uses "
                    "it creates it"
                )
            if remove:
                ray_limiter.remove(name)
                typer.echo(f"limiter {name!r} removed")
                return None
            ray_limiter.check_protocol(actor, name)
            if resize is None:
                return ray.get(actor.snapshot.remote())  # type: ignore[no-any-return]
            running = ray.get(actor.settings.remote())
            ray.get(actor.configure.remote(replace(running, rate_limit=resize)))
            typer.echo(f"limiter {name!r}: rate_limit {running.rate_limit} -> {resize}")
            return None
        finally:
            ray.shutdown()


def _check_reachable(address: str) -> None:
    """Fail at once where nothing listens, which Ray would try again and again, after it was
    imported."""
    if address == "auto":
        with suppress(OSError):  # where Ray looks for the cluster of this machine
            address = (
                Path(os.environ.get("RAY_TMPDIR", "/tmp"), "ray", "ray_current_cluster")
                .read_text()
                .strip()
            )
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdecimal():
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_PATIENCE / 3).close()
    except OSError as error:
        reason = error.strerror or error
        raise LimiterUnreachable(
            f"no Ray cluster at {address!r}: {reason}; start one or give --ray-address"
        ) from None


@contextmanager
def _patience(seconds: float, problem: str) -> Iterator[None]:
    """End this process after a while with one line: Ray waits for minutes, and then prints a stack
    of C++ frames."""
    sys.stderr.flush()
    stderr = os.dup(2)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)

    def give_up() -> None:
        os.write(stderr, f"{problem}\n".encode())
        os._exit(NO_CLUSTER)

    timer = threading.Timer(seconds, give_up)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        os.dup2(stderr, 2)
        os.close(stderr)
        os.close(nowhere)


def _age() -> float:
    """Seconds since this process began; 0 where the system does not tell."""
    try:
        began = int(
            Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19]
        ) / os.sysconf("SC_CLK_TCK")
    except OSError:
        return 0.0
    return time.clock_gettime(time.CLOCK_BOOTTIME) - began


def _connect(ray: Any, address: str) -> None:
    try:
        ray.init(
            address=address,
            namespace=ray_limiter.NAMESPACE,
            log_to_driver=False,
            logging_level=logging.ERROR,
        )
    except (ConnectionError, RuntimeError, ValueError) as error:
        reason = str(error).partition("\n")[0]
        raise LimiterUnreachable(
            f"no Ray cluster at {address!r}: {reason}; start one or give --ray-address"
        ) from error


def _rows(name: str, snapshot: Snapshot) -> Iterator[tuple[str, object]]:
    """Yield the lines about a cluster's limiter, as label and value."""
    yield "limiter", name + (" (learning after a restart)" if snapshot.learning else "")
    yield "in use", _in_use(snapshot)
    yield "waiting", snapshot.waiting
    yield "lease", f"{snapshot.lease:g} s"
    yield "per second", _per_second(snapshot)
    yield "adaptive", "yes" if snapshot.adaptive else "no"
    for key in ("granted", "handed_on", "expired", "fenced", "cancelled", "dropped"):
        yield key.replace("_", " "), getattr(snapshot, key)
    if len(snapshot.shares) > 1:
        for share, state in sorted(snapshot.shares.items()):
            label = f"share {share}" if share else "no share"
            yield label, f"holds {state.in_use}, waits {state.waiting}"
    for client in sorted({*snapshot.holders, *snapshot.waiters}):
        held = snapshot.holders.get(client, 0)
        waits = snapshot.waiters.get(client, 0)
        yield f"  {client}", f"holds {held}, waits {waits}"


def _machine_rows(name: str, state: MachineState) -> Iterator[tuple[str, object]]:
    """Yield the lines about the limiter of this machine, as label and value."""
    yield "limiter", name
    yield "in use", _in_use(state)
    yield "waiting", "yes" if state.waiting else "no"
    yield "per second", _per_second(state)
    yield "adaptive", "yes" if state.adaptive else "no"
    for process, held in sorted(state.holders.items()):
        yield f"  process {process}", f"holds {held}"


def _in_use(state: Snapshot | MachineState) -> str:
    in_use = f"{state.in_use} of {state.rate_limit}"
    if state.width != state.rate_limit:
        in_use += f", narrowed to {state.width}"
    return in_use


def _per_second(state: Snapshot | MachineState) -> str:
    return "no limit" if state.per_second is None else f"{state.per_second:g}"
