"""Known differences: a YAML file that lists them, each with the reason why it is acceptable."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from sfusion.harness.real.drift.comparing import Difference
from sfusion.harness.real.probes import BadProbes
from sfusion_tools.errors import YamlError, near
from sfusion_tools.marked_yaml import read_marked


class _Entry(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    probe: str
    place: str = "*"
    reason: str


@dataclass(frozen=True)
class Acceptance:
    """A pattern for differences that are acceptable. Both patterns take ``*`` and ``?``."""

    probe: str
    place: str
    reason: str
    where: str = ""

    def covers(self, difference: Difference) -> bool:
        # Square brackets are indexes here, not character sets.
        place = self.place.replace("[", "[[]")
        return fnmatchcase(difference.probe, self.probe) and fnmatchcase(difference.place, place)


def read_acceptances(path: Path) -> list[Acceptance]:
    """Raises BadProbes with file and line of every problem."""
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
            problems.append(f"{place}: an entry must be a mapping of probe, place and reason; found {entry!r}")
            continue
        try:
            read = _Entry(**{str(key): value for key, value in entry.items()})
        except ValidationError as error:
            for one in error.errors():
                name = str(one["loc"][0]) if one["loc"] else ""
                problem = near(name, _Entry.model_fields) if one["type"] == "extra_forbidden" else one["msg"]
                problems.append(f"{place}: {name}: {problem}")
            continue
        if len(read.reason.split()) < 2:
            problems.append(f"{place}: reason: say in a few words why the difference is acceptable")
        found.append(Acceptance(read.probe, read.place, read.reason, str(place)))
    if problems:
        raise BadProbes(problems)
    return found
