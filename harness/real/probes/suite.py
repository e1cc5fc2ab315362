"""The probes that are sent to a sandbox: YAML files beside this one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from sfusion.harness.commandline.keyword import read_keyword
from sfusion.harness.errors import BadProbes
from sfusion.harness.real.probes.model import Probe, ProbeRequest
from sfusion_tools.marked_yaml import read_marked

SUITE_VERSION = 1
"""Incremented when a bundled probe changes its request."""

_BUNDLED = Path(__file__).with_name("suite")


@lru_cache(maxsize=1)
def bundled_probes() -> Sequence[Probe]:
    """In a fixed order."""
    return tuple(probe for file in sorted(_BUNDLED.glob("*.yaml")) for probe in _read(file))


def chosen(probes: Sequence[Probe], *, keyword: str = "", quick: bool = False) -> list[Probe]:
    """Keep the probes whose id matches the expression of ``-k``, and drop the slow ones if ``quick``."""
    matches = read_keyword(keyword)
    found = [probe for probe in probes if matches(probe.id)]
    if not found:
        groups = {probe.group for probe in probes}
        raise BadProbes([f"-k {keyword!r} matches no probe; groups: {', '.join(sorted(groups))}"])
    left = [probe for probe in found if not (quick and probe.slow)]
    if not left:
        raise BadProbes(["no probe is left: all of these are slow, and --quick skips slow ones"])
    return left


def _read(file: Path) -> Iterator[Probe]:
    content: Any = read_marked(file).data
    for fields in content["probes"]:
        values = {**fields, "id": f"{file.stem}/{fields['id']}"}
        values |= {name: tuple(fields[name]) for name in ("varies", "needs") if name in fields}
        if "raw" not in fields:
            values["request"] = ProbeRequest(**_merged(content.get("defaults", {}), fields.get("request", {})))
        yield Probe(**values)


def _merged(defaults: dict[str, Any], request: dict[str, Any]) -> dict[str, Any]:
    """Merge a request into the file's defaults; JSON objects and headers are merged key by key."""
    merged = {**defaults, **request}
    if {"text", "base64"} & set(request) and "json" not in request:
        merged.pop("json", None)
    for name in ("json", "headers"):
        below, above = defaults.get(name), request.get(name)
        if isinstance(below, dict) and isinstance(above, dict):
            merged[name] = {**below, **above}
    return merged
