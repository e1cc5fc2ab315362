"""Calls to a sandbox and to the engine."""

from __future__ import annotations

import json
import urllib.request
from typing import Any

from sfusion.harness.targets.docker_engine import ContainerEngine
from sfusion.harness.targets.owner import LABEL


def run_code(url: str, code: str, language: str = "python") -> str:
    """Run a program and return its output."""
    body = json.dumps({"code": code, "language": language}).encode()
    request = urllib.request.Request(f"{url}/run_code", body, {"content-type": "application/json"})
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=30) as answer:
        result: dict[str, Any] = json.load(answer)
    assert result["status"] == "Success", result
    return str(result["run_result"]["stdout"])


def containers(engine: ContainerEngine) -> set[str]:
    """The names of all containers that sfusion started."""
    found = engine.client.api.containers(all=True, filters={"label": LABEL})
    return {name.lstrip("/") for one in found for name in one["Names"]}
