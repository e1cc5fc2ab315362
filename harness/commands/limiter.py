"""``sfusion limiter``: see, resize or remove the limiter of a Ray cluster."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from typing import Annotated, Any, NoReturn

import typer

app = typer.Typer(no_args_is_help=True, help="See, resize or remove the limiter of a Ray cluster.")

Name = Annotated[str, typer.Option("--name", help="Name of the limiter, `limiter_name` of the tool config.")]
Address = Annotated[
    str, typer.Option("--address", envvar="RAY_ADDRESS", help="Address of the cluster; auto is the one running here.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")]


@app.command()
def show(name: Name = "rate-limiter", address: Address = "auto", as_json: AsJson = False) -> None:
    """Print who holds permits of the limiter and who waits for one."""
    with _limiter(name, address) as (ray, actor):
        snapshot = asdict(ray.get(actor.snapshot.remote()))
    if as_json:
        typer.echo(json.dumps(snapshot, indent=2))
        return
    for label, value in _rows(name, snapshot):
        typer.echo(f"{label:<14} {value}")


@app.command()
def resize(
    rate_limit: Annotated[int, typer.Argument(help="How many attempts may be in flight from now on.")],
    name: Name = "rate-limiter",
    address: Address = "auto",
) -> None:
    """Set another rate_limit. Permits already out stay out; those who wait are served as soon as there is room."""
    from sfusion_tools.errors import ConfigError

    with _limiter(name, address) as (ray, actor):
        running = ray.get(actor.settings.remote())
        try:
            wanted = replace(running, rate_limit=rate_limit)
        except ConfigError as error:
            _fail(str(error), code=2)
        ray.get(actor.configure.remote(wanted))
    typer.echo(f"limiter {name!r}: rate_limit {running.rate_limit} -> {rate_limit}")


@app.command()
def remove(name: Name = "rate-limiter", address: Address = "auto") -> None:
    """End the limiter. Jobs that still use it make a new one, which first learns what they hold."""
    with _limiter(name, address):
        from sfusion_tools.limiter.ray_actor import remove as remove_limiter

        remove_limiter(name)
    typer.echo(f"limiter {name!r} removed")


@contextmanager
def _limiter(name: str, address: str) -> Iterator[tuple[Any, Any]]:
    """Ray, connected, and the limiter's actor; ends the program with a clear sentence when either is missing."""
    import logging

    import ray

    try:
        ray.init(address=address, namespace="sfusion", log_to_driver=False, logging_level=logging.ERROR)
    except (ConnectionError, RuntimeError, ValueError) as error:
        _fail(f"no Ray cluster at {address!r}: {str(error).partition(chr(10))[0]}; start one or give --address", code=3)
    try:
        from sfusion_tools.limiter.ray_actor import find

        actor = find(name)
        if actor is None:
            _fail(f"this cluster has no limiter named {name!r}; it is made by the first tool that uses it", code=3)
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
    for client in sorted({*snapshot["holders"], *snapshot["waiters"]}):
        held, waits = snapshot["holders"].get(client, 0), snapshot["waiters"].get(client, 0)
        yield f"  {client}", f"holds {held}, waits {waits}"


def _fail(message: str, *, code: int) -> NoReturn:
    typer.echo(f"sfusion limiter: {message}", err=True)
    raise typer.Exit(code)
