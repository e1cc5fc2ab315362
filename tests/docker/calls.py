"""Calls to a sandbox and to the engine."""

from __future__ import annotations

import json
import os
import urllib.request
from typing import Any

from sfusion.harness.real.targets.docker_engine import ContainerEngine
from sfusion.harness.real.targets.owner import LABEL, Owner
from tests.ray.processes import descendants


def run_code(url: str, code: str, language: str = "python") -> str:
    """Run a program and return its output."""
    body = json.dumps({"code": code, "language": language}).encode()
    request = urllib.request.Request(f"{url}/run_code", body, {"content-type": "application/json"})
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(
        request, timeout=30
    ) as answer:
        result: dict[str, Any] = json.load(answer)
    assert result["status"] == "Success", result
    return str(result["run_result"]["stdout"])


def containers(engine: ContainerEngine) -> set[str]:
    """The names of all containers that sfusion started, except those of a living process that is
    not ours."""
    found = engine.client.api.containers(all=True, filters={"label": LABEL, "name": "^/sfusion-"})
    ours = {os.getpid(), *descendants(os.getpid())}
    return {
        name.lstrip("/") for one in found if not _is_of_others(one, ours) for name in one["Names"]
    }


def _is_of_others(container: dict[str, Any], ours: set[int]) -> bool:
    owner = Owner.read(container["Labels"][LABEL])
    alive = owner is not None and owner.is_alive(
        Owner.here(), running=container["State"] == "running"
    )
    return bool(alive and owner and owner.pid not in ours)
