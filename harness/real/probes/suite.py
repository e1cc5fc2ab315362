"""Read probe files, bundled or the user's, with errors that name file and line."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from sfusion.harness.commandline.keyword import read_keyword
from sfusion.harness.errors import BadProbes
from sfusion.harness.real.probes.model import Probe, ProbeRequest
from sfusion_tools.errors import YamlError, near
from sfusion_tools.marked_yaml import Marked, Path_, read_marked

SUITE_VERSION = 1
"""Incremented when a bundled probe changes its request."""

_BUNDLED = Path(__file__).with_name("suite")
_PLACES = ("body", "header", "status")


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    about: Annotated[str, StringConstraints(min_length=10)]
    defaults: dict[str, Any] = Field(default_factory=dict)
    probes: list[dict[str, Any]]


_MODELS: dict[str, type[BaseModel]] = {model.__name__: model for model in (_File, Probe, ProbeRequest)}


@lru_cache(maxsize=1)
def bundled_probes() -> Sequence[Probe]:
    """In a fixed order."""
    return tuple(read_probes([_BUNDLED]))


def read_probes(paths: Iterable[Path]) -> list[Probe]:
    """Read files and folders in the order of file names; raises BadProbes with every problem at once."""
    problems: list[str] = []
    probes: dict[str, Probe] = {}
    for file in _files(paths, problems):
        for probe in _read(file, problems):
            if probe.id in probes:
                problems.append(f"{file}:1: there are two probes {probe.id!r}; ids must be unique")
            probes[probe.id] = probe
    if problems:
        raise BadProbes(problems)
    return list(probes.values())


def suite_with(own: Sequence[Probe]) -> list[Probe]:
    """Add probes to the bundled ones; one with the id of a bundled probe replaces it."""
    probes = {probe.id: probe for probe in bundled_probes()}
    probes.update({probe.id: probe for probe in own})
    return list(probes.values())


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


def _files(paths: Iterable[Path], problems: list[str]) -> list[Path]:
    found: list[Path] = []
    for path in paths:
        inside = sorted(path.glob("*.yaml")) if path.is_dir() else [path]
        if not inside:
            problems.append(f"{path}:1: the folder contains no *.yaml file")
        found += inside
    return found


def _read(file: Path, problems: list[str]) -> list[Probe]:
    try:
        marked = read_marked(file)
    except YamlError as error:
        problems += error.problems
        return []
    if not isinstance(marked.data, dict):
        problems.append(f"{marked.place(())}: a probe file must be a mapping with about, defaults and probes")
        return []
    try:
        content = _File(**marked.data)
    except (ValidationError, TypeError) as error:
        problems += _describe(error, marked, ())
        return []
    probes = []
    for number, fields in enumerate(content.probes):
        here: Path_ = ("probes", number)
        try:
            probes.append(_probe(file.stem, content.defaults, fields))
        except (ValidationError, TypeError, ValueError) as error:
            problems += _describe(error, marked, here)
    return probes


def _probe(group: str, defaults: dict[str, Any], fields: dict[str, Any]) -> Probe:
    name = fields.get("id")
    if not isinstance(name, str) or not name:
        raise ValueError("a probe needs an id, a short word such as `exit-3`")
    values: dict[str, Any] = {**fields, "id": f"{group}/{name}"}
    for listed in ("varies", "needs"):
        if isinstance(values.get(listed), list):
            values[listed] = tuple(values[listed])
    for place in values.get("varies", ()):
        if not isinstance(place, str) or place.partition(".")[0].partition("[")[0] not in _PLACES:
            raise ValueError(f"varies names {place!r}; a place must begin with body, header or status")
    if "raw" not in values:
        values["request"] = ProbeRequest(**_merged(defaults, fields.get("request", {})))
    return Probe(**values)


def _merged(defaults: dict[str, Any], request: Any) -> dict[str, Any]:
    """Merge a request into the file's defaults; JSON objects and headers are merged key by key."""
    if not isinstance(request, dict):
        raise ValueError("request must be a mapping of method, path, headers and json, text or base64")
    merged = {**defaults, **request}
    if {"text", "base64"} & set(request) and "json" not in request:
        merged.pop("json", None)
    for name in ("json", "headers"):
        below, above = defaults.get(name), request.get(name)
        if isinstance(below, dict) and isinstance(above, dict):
            merged[name] = {**below, **above}
    return merged


def _describe(error: Exception, marked: Marked, path: Path_) -> list[str]:
    name = _named(marked, path)
    if not isinstance(error, ValidationError):
        return [f"{marked.place(path)}: {name}{error}"]
    lines = []
    for one in error.errors():
        place = tuple(part for part in one["loc"] if isinstance(part, str | int))
        last = str(place[-1]) if place else ""
        problem = one["msg"].removeprefix("Value error, ")
        if one["type"] == "extra_forbidden":
            fields = _MODELS[error.title].model_fields
            problem = f"unknown key; {near(last, [field.alias or key for key, field in fields.items()])}"
        elif last == "about":
            problem = "about must be one sentence of 15 to 160 characters, from a capital letter to a full stop"
        elif one["type"] == "missing":
            problem = "is missing"
        inner = ("request", *place) if error.title == "ProbeRequest" else place
        lines.append(f"{marked.place((*path, *inner))}: {name}{'.'.join(map(str, place))}: {problem}")
    return lines


def _named(marked: Marked, path: Path_) -> str:
    if len(path) < 2:
        return ""
    fields = marked.data["probes"][path[1]]
    return f"probe {fields['id']!r}: " if isinstance(fields.get("id"), str) else f"probe number {int(path[1]) + 1}: "
