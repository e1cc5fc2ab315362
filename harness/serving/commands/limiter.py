"""``sfusion limiter``: show, resize or remove the limiter of a Ray cluster.

Shows which clients hold permits and which wait for one. After a resize, permits that are out stay out, and waiters are
served as soon as there is room. Jobs that still use a limiter that was removed create a new one, which first learns
what they hold.

Exit code 0, or 3 if there is no such cluster or limiter, or if it does not answer within ten seconds.

Example: sfusion limiter --resize 32
"""

from __future__ import annotations

import logging
import os
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from typing import Annotated, Any

import typer

from sfusion.harness.commandline.declaring import command, option
from sfusion.harness.commandline.json_answer import is_stdout, write_json
from sfusion.harness.commandline.options import RAY_ADDRESS, Json
from sfusion.harness.errors import BadOption
from sfusion_tools.errors import LimiterUnreachable, import_extra
from sfusion_tools.limiter import ray_limiter
from sfusion_tools.limiter.messages import limiter_page


@command
def limiter(
    name: Annotated[str, option("Name of the limiter: `limiter_name` of the tool config.", "NAME")] = "rate-limiter",
    ray_address: Annotated[str, option(RAY_ADDRESS, "HOST:PORT|auto", envvar="RAY_ADDRESS")] = "auto",
    resize: Annotated[int | None, option("Set rate_limit: how many attempts may be in flight from now on.")] = None,
    remove: Annotated[bool, option("End the limiter.")] = False,
    metrics: Annotated[bool, option("Print a page that Prometheus can read instead of a table.")] = (False),
    json_file: Json = None,
) -> None:
    if (resize is not None) + remove + metrics + (json_file is not None) > 1:
        raise BadOption("--resize, --remove, --metrics and --json exclude each other")
    with _limiter(name, ray_address) as (ray, actor):
        if remove:
            ray_limiter.remove(name)
            typer.echo(f"limiter {name!r} removed")
            return
        ray_limiter.check_protocol(actor, name)
        if resize is not None:
            running = ray.get(actor.settings.remote())
            ray.get(actor.configure.remote(replace(running, rate_limit=resize)))
            typer.echo(f"limiter {name!r}: rate_limit {running.rate_limit} -> {resize}")
            return
        found = ray.get(actor.snapshot.remote())
    snapshot = asdict(found)
    write_json(json_file, snapshot)
    if metrics:
        typer.echo(limiter_page(name, found), nl=False)
    elif not is_stdout(json_file):
        for label, value in _rows(name, snapshot):
            typer.echo(f"{label:<14} {value}")


NO_CLUSTER = 3
_PATIENCE = 7.0
"""Seconds for connecting and for the answer."""


@contextmanager
def _limiter(name: str, address: str) -> Iterator[tuple[Any, Any]]:
    """Connect to the cluster; yield the module ray and the limiter's actor."""
    _check_reachable(address)
    ray = import_extra("ray", extra="ray", needed_by="sfusion limiter")
    with _patience(f"no answer from the Ray cluster at {address!r} within {_PATIENCE:g} s: is it still running?"):
        yield from _connected(ray, name, address)


def _check_reachable(address: str) -> None:
    """Fail at once where nothing listens, which Ray would try again and again."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdecimal():
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_PATIENCE / 2).close()
    except OSError as error:
        reason = error.strerror or error
        raise LimiterUnreachable(f"no Ray cluster at {address!r}: {reason}; start one or give --ray-address") from None


@contextmanager
def _patience(problem: str) -> Iterator[None]:
    """End this process after a while with one line: Ray waits for minutes, and then prints a stack of C++ frames."""
    sys.stderr.flush()
    stderr, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)

    def give_up() -> None:
        os.write(stderr, f"{problem}\n".encode())
        os._exit(NO_CLUSTER)

    timer = threading.Timer(_PATIENCE, give_up)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        os.dup2(stderr, 2)
        os.close(stderr)
        os.close(nowhere)


def _connected(ray: Any, name: str, address: str) -> Iterator[tuple[Any, Any]]:
    try:
        ray.init(address=address, namespace=ray_limiter.NAMESPACE, log_to_driver=False, logging_level=logging.ERROR)
    except (ConnectionError, RuntimeError, ValueError) as error:
        reason = str(error).partition("\n")[0]
        raise LimiterUnreachable(f"no Ray cluster at {address!r}: {reason}; start one or give --ray-address") from error
    try:
        actor = ray_limiter.find(name)
        if actor is None:
            raise LimiterUnreachable(
                f"this cluster has no limiter named {name!r}; the first tool that uses it creates it"
            )
        yield ray, actor
    finally:
        ray.shutdown()


def _rows(name: str, snapshot: dict[str, Any]) -> Iterator[tuple[str, object]]:
    narrowed = f", narrowed to {snapshot['width']}" if snapshot["width"] != snapshot["rate_limit"] else ""
    yield "limiter", name + (" (learning after a restart)" if snapshot["learning"] else "")
    yield "in use", f"{snapshot['in_use']} of {snapshot['rate_limit']}{narrowed}"
    yield "waiting", snapshot["waiting"]
    yield "lease", f"{snapshot['lease']:g} s"
    yield "per second", "no limit" if snapshot["per_second"] is None else f"{snapshot['per_second']:g}"
    yield "adaptive", "yes" if snapshot["adaptive"] else "no"
    for key in ("granted", "handed_on", "expired", "fenced", "cancelled", "dropped"):
        yield key.replace("_", " "), snapshot[key]
    if len(snapshot["shares"]) > 1:
        for share, state in sorted(snapshot["shares"].items()):
            state = f"weight {state['weight']:g}, holds {state['in_use']}, waits {state['waiting']}"
            yield f"share {share}" if share else "no share", state
    for client in sorted({*snapshot["holders"], *snapshot["waiters"]}):
        held, waits = snapshot["holders"].get(client, 0), snapshot["waiters"].get(client, 0)
        yield f"  {client}", f"holds {held}, waits {waits}"
