"""Remove containers of runs that ended without removing them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sfusion.harness.real.targets.docker_engine import ContainerEngine, error_text
from sfusion.harness.real.targets.owner import LABEL, Owner


def remove_leftovers(engine: ContainerEngine, say: Callable[[str], None]) -> list[str]:
    """Remove every labelled container whose owner is gone, report it, and return their names.

    Containers without the label, of a living run, or of one that is not visible from here are left alone.
    """
    from docker.errors import APIError

    here = Owner.here()
    removed: list[str] = []
    with engine.reporting_errors("the containers cannot be listed"):
        found: list[dict[str, Any]] = engine.client.api.containers(all=True, filters={"label": LABEL})
    for one in found:
        name = one["Names"][0].lstrip("/") if one.get("Names") else one["Id"][:12]
        owner = Owner.read((one.get("Labels") or {}).get(LABEL, ""))
        alive = owner.is_alive(here, running=one.get("State") == "running") if owner is not None else None
        if alive is None:
            who = f"process {owner.pid} of {owner.host.partition(' ')[0]}" if owner else "an unknown process"
            say(
                f"left alone: container {name}, started by {who}, which is not visible from here; "
                f"remove it with docker rm -f {name}"
            )
        if alive is not False or owner is None:
            continue
        try:
            engine.client.api.remove_container(one["Id"], force=True, v=True)
        except APIError as error:
            if error.status_code not in (404, 409):  # another run is removing it
                say(f"could not remove container {name}, left by process {owner.pid}: {error_text(error)}")
            continue
        removed.append(name)
        say(f"removed container {name}, left by process {owner.pid}, which is gone")
    return removed
