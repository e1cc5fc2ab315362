"""Compare the answers of two servers: what differs, how badly, what is accepted, and what could not be compared."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from sfusion.harness.errors import BadProbes
from sfusion.harness.real.drift.comparing import Difference, compare
from sfusion.harness.real.drift.grading import GRADES, Grade, GradingRule, rule_for
from sfusion.harness.real.probes.model import Probe
from sfusion.harness.real.probes.raw_http import ProbeAnswer
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


@dataclass(frozen=True)
class ServerAnswers:
    name: str
    answers: Mapping[str, ProbeAnswer]
    """By probe id."""
    not_comparable: Mapping[str, str] = field(default_factory=dict)
    """By probe id, why its answer cannot be compared."""


@dataclass(frozen=True)
class DriftFinding:
    """A difference, the rule that grades it, and the reason why it is accepted, if it is."""

    difference: Difference
    rule: GradingRule
    accepted: str | None = None

    @property
    def grade(self) -> Grade:
        return self.rule.grade


@dataclass(frozen=True)
class DriftReport:
    left: str
    right: str
    compared: int
    findings: tuple[DriftFinding, ...] = ()
    not_comparable: tuple[tuple[str, str], ...] = ()
    """Probe ids with the reason."""
    unused: tuple[Acceptance, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def open(self) -> list[DriftFinding]:
        """The differences that are not accepted, the worst first, otherwise in the order of the probes."""
        found = [finding for finding in self.findings if finding.accepted is None]
        return sorted(found, key=lambda finding: GRADES.index(finding.grade))

    def count(self, grade: Grade) -> int:
        """Count the open differences of a grade."""
        return sum(finding.grade == grade for finding in self.open)

    @property
    def breaking(self) -> bool:
        """Would an open difference make a client behave differently?"""
        return self.count("breaking") > 0


def compare_answers(
    probes: Sequence[Probe],
    left: ServerAnswers,
    right: ServerAnswers,
    accepted: Sequence[Acceptance] = (),
    notes: Sequence[str] = (),
) -> DriftReport:
    findings: list[DriftFinding] = []
    not_comparable: list[tuple[str, str]] = []
    used: list[Acceptance | None] = []
    compared = 0
    for probe in probes:
        if why := _why_not_comparable(probe, left, right):
            not_comparable.append((probe.id, why))
            continue
        compared += 1
        for difference in compare(probe, left.answers[probe.id], right.answers[probe.id]):
            acceptance = next((one for one in accepted if one.covers(difference)), None)
            used.append(acceptance)
            reason = acceptance.reason if acceptance is not None else None
            findings.append(DriftFinding(difference, rule_for(difference, racy=probe.racy), reason))
    unused = tuple(one for one in accepted if one not in used)
    return DriftReport(left.name, right.name, compared, tuple(findings), tuple(not_comparable), unused, tuple(notes))


def _why_not_comparable(probe: Probe, left: ServerAnswers, right: ServerAnswers) -> str:
    for side in (left, right):
        if probe.id in side.not_comparable:
            return side.not_comparable[probe.id]
        if probe.id not in side.answers:
            return f"{side.name} was not asked"
    lacks = [lacking(probe, side.answers[probe.id]) for side in (left, right)]
    for side, lack, other in ((left, lacks[0], lacks[1]), (right, lacks[1], lacks[0])):
        if lack and not other:
            return f"{side.name} has no {lack}"
    return ""


def lacking(probe: Probe, answer: ProbeAnswer) -> str:
    """Return the command or module that the probe needs and that is missing according to the answer."""
    if not probe.needs or answer.failure:
        return ""
    texts = "\n".join(_texts(answer.json()))
    for need in probe.needs:
        name = re.escape(need)
        if re.search(rf"(?m)(?:^|[\s:/]){name}: (?:command )?not found|No module named ['\"]{name}", texts):
            return need
    return ""


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for one in value.values() if isinstance(value, dict) else value:
            yield from _texts(one)
