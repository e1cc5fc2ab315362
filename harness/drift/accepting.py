"""Known differences: a YAML file of those that were looked at, each with the reason why it may stay."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from sfusion.harness.drift.difference import Difference
from sfusion.harness.probes import BadProbes
from sfusion_tools.errors import YamlError, near
from sfusion_tools.marked_yaml import read_marked


class _Entry(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    probe: str
    place: str = "*"
    reason: str


@dataclass(frozen=True)
class Acceptance:
    """Differences that may stay."""

    probe: str
    place: str
    reason: str
    where: str = ""

    def covers(self, difference: Difference) -> bool:
        """Is it about this difference? Both patterns take ``*`` and ``?``."""
        # Square brackets are indexes here, not sets of letters.
        place = self.place.replace("[", "[[]")
        return fnmatchcase(difference.probe, self.probe) and fnmatchcase(difference.place, place)


def read_acceptances(path: Path) -> list[Acceptance]:
    """Read the file; every problem is told with its line."""
    try:
        marked = read_marked(path)
    except YamlError as error:
        raise BadProbes(error.problems) from None
    if not isinstance(marked.data, list):
        raise BadProbes([f"{path}:1: expected a list such as - {{probe: memory/*, place: body.status, reason: WHY}}"])
    found: list[Acceptance] = []
    problems: list[str] = []
    for number, entry in enumerate(marked.data):
        place = marked.place((number,))
        if not isinstance(entry, dict):
            problems.append(f"{place}: an entry is a mapping of probe, place and reason, found {entry!r}")
            continue
        try:
            read = _Entry(**{str(key): value for key, value in entry.items()})
        except ValidationError as error:
            for one in error.errors():
                name = str(one["loc"][0]) if one["loc"] else ""
                said = near(name, _Entry.model_fields) if one["type"] == "extra_forbidden" else one["msg"]
                problems.append(f"{place}: {name}: {said}")
            continue
        if len(read.reason.split()) < 2:
            problems.append(f"{place}: reason: say in a few words why the difference may stay")
        found.append(Acceptance(read.probe, read.place, read.reason, str(place)))
    if problems:
        raise BadProbes(problems)
    return found
