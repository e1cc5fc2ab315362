"""Asking a sandbox, and the engine about it."""

from __future__ import annotations

import json
import urllib.request
from typing import Any

from sfusion.harness.targets.engine import ContainerEngine
from sfusion.harness.targets.owner import LABEL


def run_code(url: str, code: str, language: str = "python") -> str:
    """What a program prints there."""
    body = json.dumps({"code": code, "language": language}).encode()
    request = urllib.request.Request(f"{url}/run_code", body, {"content-type": "application/json"})
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=30) as answer:
        told: dict[str, Any] = json.load(answer)
    assert told["status"] == "Success", told
    return str(told["run_result"]["stdout"])


def containers(engine: ContainerEngine) -> set[str]:
    """The names of all labelled containers."""
    found = engine.client.api.containers(all=True, filters={"label": LABEL})
    return {name.lstrip("/") for one in found for name in one["Names"]}
