"""Containers of runs that did not live to remove them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sfusion.harness.targets.engine import ContainerEngine, told
from sfusion.harness.targets.owner import LABEL, Owner


def remove_leftovers(engine: ContainerEngine, say: Callable[[str], None]) -> list[str]:
    """Remove every labelled container whose owner is gone, say so, and give their names.

    Containers without the label, of a living run, or of one that cannot be seen from here are left alone.
    """
    from docker.errors import APIError

    here = Owner.here()
    removed: list[str] = []
    with engine.reporting_errors("leftovers cannot be looked for"):
        found: list[dict[str, Any]] = engine.client.api.containers(all=True, filters={"label": LABEL})
    for one in found:
        name = one["Names"][0].lstrip("/") if one.get("Names") else one["Id"][:12]
        owner = Owner.read((one.get("Labels") or {}).get(LABEL, ""))
        alive = owner.is_alive(here, running=one.get("State") == "running") if owner is not None else None
        if alive is None:
            who = f"process {owner.pid} of {owner.host.partition(' ')[0]}" if owner else "nobody knows who"
            say(f"left alone: container {name}, started by {who}, which cannot be seen from here; docker rm -f {name}")
        if alive is not False or owner is None:
            continue
        try:
            engine.client.api.remove_container(one["Id"], force=True, v=True)
        except APIError as error:
            if error.status_code not in (404, 409):  # another run removes it at the same time
                say(f"could not remove container {name}, left by process {owner.pid}: {told(error)}")
            continue
        removed.append(name)
        say(f"removed container {name}, left by process {owner.pid}, which is gone")
    return removed
