"""``sfusion limiter``: inspect, resize or remove the limiter of a Ray cluster."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from typing import Annotated, Any

import typer

app = typer.Typer(no_args_is_help=True, help="Inspect, resize or remove the limiter of a Ray cluster.")

Name = Annotated[str, typer.Option("--name", help="Name of the limiter: `limiter_name` of the tool config.")]
Address = Annotated[
    str, typer.Option("--address", envvar="RAY_ADDRESS", help="Address of the cluster; auto is the one running here.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")]
AsMetrics = Annotated[bool, typer.Option("--metrics", help="Print a page that Prometheus can read instead of a table.")]


@app.command()
def show(
    name: Name = "rate-limiter", address: Address = "auto", as_json: AsJson = False, metrics: AsMetrics = False
) -> None:
    """Print which clients hold permits and which wait for one."""
    if as_json and metrics:
        raise typer.BadParameter("--json and --metrics exclude each other")
    with _limiter(name, address) as (ray, actor):
        _check_protocol(actor, name)
        found = ray.get(actor.snapshot.remote())
    if metrics:
        from sfusion_tools.limiter.messages import limiter_page

        typer.echo(limiter_page(name, found), nl=False)
        return
    snapshot = asdict(found)
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
    """Change rate_limit. Permits that are out stay out; waiters are served as soon as there is room."""
    with _limiter(name, address) as (ray, actor):
        _check_protocol(actor, name)
        running = ray.get(actor.settings.remote())
        ray.get(actor.configure.remote(replace(running, rate_limit=rate_limit)))
    typer.echo(f"limiter {name!r}: rate_limit {running.rate_limit} -> {rate_limit}")


@app.command()
def remove(name: Name = "rate-limiter", address: Address = "auto") -> None:
    """End the limiter. Jobs that still use it create a new one, which first learns what they hold."""
    with _limiter(name, address):
        from sfusion_tools.limiter.ray_limiter import remove as remove_limiter

        remove_limiter(name)
    typer.echo(f"limiter {name!r} removed")


def _check_protocol(actor: Any, name: str) -> None:
    from sfusion_tools.limiter.ray_limiter import check_protocol

    check_protocol(actor, name)


@contextmanager
def _limiter(name: str, address: str) -> Iterator[tuple[Any, Any]]:
    """Connect to the cluster; yield the module ray and the limiter's actor."""
    from sfusion_tools.errors import LimiterUnreachable, import_extra
    from sfusion_tools.limiter.ray_limiter import NAMESPACE, find

    ray = import_extra("ray", extra="ray", needed_by="sfusion limiter")
    try:
        ray.init(address=address, namespace=NAMESPACE, log_to_driver=False, logging_level=logging.ERROR)
    except (ConnectionError, RuntimeError, ValueError) as error:
        reason = str(error).partition("\n")[0]
        raise LimiterUnreachable(f"no Ray cluster at {address!r}: {reason}; start one or give --address") from error
    try:
        actor = find(name)
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
