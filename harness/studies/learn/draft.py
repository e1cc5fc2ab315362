"""Writes what was learned as a scenario, with a comment for each number that says where it comes
from."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Mapping
from operator import attrgetter
from typing import Any

import yaml

from sfusion_tools.wording import counted

from ....fakes.fields import LearnedFrom
from ...lab.scenarios.base import Data, ScenarioPart, declared
from ...lab.scenarios.parts import ClusterPart, LoadPart
from ...lab.scenarios.program import ENDLESS
from .distributions import rounded
from .failures import FailureFit
from .learned import Learned
from .sandbox_fit import SandboxFit

_LONGEST = 10_000_000
"""Seconds of the horizon of a learned scenario, at most (chosen)."""
OVERHEAD = "overhead"
"""The name of the rule that stands for what the server adds to programs."""
_ALWAYS = ("calls", "concurrency")
"""Fields that are written although they have their default: a reader looks for them."""


def scenario_text(learned: Learned, name: str, origin: str) -> str:
    """Return the YAML of a scenario; ``origin`` says what it was learned from."""
    return _Draft(learned).text(name, origin)


class _Draft:
    def __init__(self, learned: Learned) -> None:
        self._learned = learned
        self._notes: dict[Path, str] = {}

    def text(self, name: str, origin: str) -> str:
        learned = self._learned
        data: Data = {
            "scenario": name,
            "about": f"Behaves like {origin}. {self._main_cause}",
            "worlds": ["sim"],
            "seed": 0,
        }
        if cluster := self._part(ClusterPart):
            data["cluster"] = cluster
            self._notes["cluster",] = f"{learned.workers} processes made calls"
        data["tools"] = {key: value for key, (value, _) in learned.client.items()}
        self._notes |= {("tools", key): why for key, (_, why) in learned.client.items()}
        sandbox = self._sandbox()
        if sandbox:
            data["sandbox"] = sandbox
        data["load"] = self._load()
        events = self._events()
        if events:
            data["events"] = events
        observed = self._observed
        if observed:
            data["observed"] = observed
            self._notes["observed",] = "`sfusion sweep` recommends nothing beyond this"
        data["horizon"] = self._horizon
        data["promises"] = ["every_call_ends_once", *self._outcomes()]
        head = f"Learned by `sfusion learn` from {origin}."
        if learned.remarks:
            head += f" Note: {'; '.join(learned.remarks)}."
        return "\n".join([*_comment(head, ""), *_mapping(data, self._notes, (), "")]) + "\n"

    @property
    def _observed(self) -> Data:
        """How far the log reaches."""
        known = self._learned.knowledge
        observed: Data = {}
        if known.unknown or known.most is not None:
            observed["rate_limit"] = [known.least, known.most]
        if not known.tells_of_more_callers:
            observed["callers"] = max(self._learned.load.concurrency, self._learned.peak)
        if known.is_compared:
            observed["compared"] = True
        if known.unknown:
            observed["unknown"] = known.unknown
        if self._learned.processes > 1:
            observed["processes"] = self._learned.processes
        if any(own.overhead is not None for own in self._learned.sandboxes):
            observed["server_time"] = [OVERHEAD]
        return observed

    @property
    def _main_cause(self) -> str:
        learned = self._learned
        if learned.causes:
            return f"Main cause: {learned.causes[0].says}."
        if not learned.figures.is_enough:
            return "Too few calls to judge it by."
        if learned.figures.failures:
            return f"{learned.figures.failures}; the log does not show why."
        return "Nothing was wrong."

    @property
    def _horizon(self) -> int:
        return min(max(3600, math.ceil(4 * self._learned.span)), _LONGEST)

    def _sandbox(self) -> Data:
        sandboxes = self._learned.sandboxes
        if len(sandboxes) == 1:
            return self._one(sandboxes[0], ("sandbox",))
        part: Data = {"instances": len(sandboxes)}
        names = ", ".join(
            f"sandbox-{number} is {sandbox.label or 'one without a name'}"
            for number, sandbox in enumerate(sandboxes[:8], 1)
        )
        self._notes["sandbox", "instances"] = names + (", ..." if len(sandboxes) > 8 else "")
        each: Data = {}
        for number, sandbox in enumerate(sandboxes, 1):
            own = self._one(sandbox, ("sandbox", "each", f"sandbox-{number}"))
            if own:
                each[f"sandbox-{number}"] = own
        return {**part, "each": each} if each else part

    def _one(self, sandbox: SandboxFit, path: Path) -> Data:
        part: Data = {}
        model: Data = {}
        why: list[str] = []
        if sandbox.quota is not None:
            model |= sandbox.quota.model
            why.append(f"{sandbox.quota.says}: {sandbox.quota.evidence}")
        if sandbox.slowness.model:
            model = {"kind": "unbounded", **sandbox.slowness.model, **model}
            why.append(f"{sandbox.slowness.says}: {sandbox.slowness.evidence}")
        if model:
            part["model"] = model
            self._notes[*path, "model"] = "; ".join(why)
        rules = self._rules(sandbox)
        if rules:
            names: dict[str, int] = {}
            for rule, _ in rules:  # a rule's name is part of its draws
                names[rule["name"]] = names.get(rule["name"], 0) + 1
                if names[rule["name"]] > 1:
                    rule["name"] += f"-{names[rule['name']]}"
            part["faults"] = [rule for rule, _ in rules]
            self._notes |= {(*path, "faults", place): why for place, (_, why) in enumerate(rules)}
        return part

    def _rules(self, sandbox: SandboxFit) -> list[tuple[Data, str]]:
        """Return the fault rules of a sandbox, each with where it comes from."""
        rules: list[tuple[Data, str]] = []
        slow = sandbox.slowness
        if slow.what:
            if slow.between is not None:
                between = (slow.between[0], min(slow.between[1], self._horizon))
            else:
                between = None
            rules.append((_rule(slow.kind, slow.what, between), f"{slow.says}: {slow.evidence}"))
        if sandbox.overhead is not None:
            what = {"delay": sandbox.overhead.delay.yaml}
            rules.append((_rule(OVERHEAD, what), sandbox.overhead.says))
        if sandbox.slower is not None:
            why_slow = f"slower than the other sandboxes: {sandbox.slower}"
            rules.append(({"name": "slow", "what": {"delay": sandbox.slower.yaml}}, why_slow))
        for failure in sandbox.failures:
            if failure.what:
                rules.append((_failure_rule(failure), f"{failure.says}: {failure.evidence}"))
        return rules

    def _part(self, model: type[ScenarioPart]) -> Data:
        """Return the fields of a part that say what they are learned from."""
        part = {}
        for name, field in model.model_fields.items():
            if (source := declared(field.metadata, LearnedFrom)) is not None:
                value = attrgetter(source.of)(self._learned)
                if value is not None and (value != field.default or name in _ALWAYS):
                    part[name] = value
        return part

    def _load(self) -> Data:
        learned = self._learned
        load = self._learned.load
        part = self._part(LoadPart)
        if learned.span:
            self._notes["load", "calls"] = (
                f"{counted(learned.figures.calls, 'call')} in {learned.span:.4g} s"
            )
        self._notes["load", "concurrency"] = f"{load.says}: {load.evidence}"
        if load.think is not None:
            self._notes["load", "think"] = (
                "each caller makes one call, at any time of the log"
                if load.kind == "open"
                else "so that as many of them are under way on average as in the log"
            )
        if learned.cancel is not None:
            cancelled, after = learned.cancel
            part["cancel"] = {"share": rounded(cancelled), "after": after.yaml}
            count = learned.figures.outcomes.get("cancelled", 0)
            self._notes["load", "cancel"] = f"{counted(count, 'call')} cancelled; after: {after}"
        programs = []
        for place, program in enumerate(learned.programs):
            keys = dict(program.keys)
            if program.seconds is not None:
                keys = {"seconds": program.seconds.yaml, **keys}
            elif program.outcome == "program_timeout":
                keys = {"seconds": ENDLESS, **keys}
            share = {"share": max(program.share, 1)} if len(learned.programs) > 1 else {}
            programs.append({**share, **keys})
            self._notes["load", "program", place] = program.why
        part["program"] = programs
        return part

    def _events(self) -> list[Data]:
        events: list[Data] = []
        several = len(self._learned.sandboxes) > 1
        for number, sandbox in enumerate(self._learned.sandboxes, 1):
            target = f"sandbox-{number}" if several else "sandbox"
            for failure in sandbox.failures:
                if failure.kind in ("crash", "wedge") and failure.between is not None:
                    start, end = failure.between
                    self._notes["events", len(events)] = f"{failure.says}: {failure.evidence}"
                    lasts = {"seconds": rounded(end - start)} if end < math.inf else {}
                    at = rounded(max(start, 0.0))
                    events.append({"at": at, failure.kind: target, **lasts, "may_not_strike": True})
        return events

    def _outcomes(self) -> list[Data]:
        figures = self._learned.figures
        if not figures.outcomes:
            return []
        bounds: dict[str, str] = {}
        for outcome in figures.outcomes:
            percent = 100 * figures.share(outcome)
            points = figures.points(outcome)
            least = math.floor(percent - points)
            highest = math.ceil(percent + points)
            if outcome == "ok":
                bounds[outcome] = f"at least {least}%" if least > 0 else "any"
            else:
                bounds[outcome] = f"at most {highest}%" if highest < 100 else "any"
        ended = ", ".join(f"{name} {count:,}" for name, count in figures.outcomes.items())
        most = max(map(figures.points, figures.outcomes))
        self._notes["promises", 1] = (
            f"in the log: {ended}; up to {most:.2g} points more or less are allowed"
        )
        return [{"outcomes": bounds}]


def _rule(
    name: str, what: Data, between: tuple[float, float] | None = None, **conditions: Any
) -> Data:
    rule: Data = {"name": name.replace("_", "-")}
    if between is not None:
        low = rounded(between[0])
        rule["between"] = [low, max(rounded(between[1]), rounded(low + 0.001 + 0.001 * low))]
    return {**rule, **conditions, "what": what, "may_not_strike": True}


def _failure_rule(failure: FailureFit) -> Data:
    ending, status = failure.family
    conditions: Data = {}
    if failure.after is not None:
        conditions = {"after": failure.after, "times": failure.failed}
    if failure.rate < 1:
        conditions["probability"] = float(f"{failure.rate:.4g}")
    if failure.phase is not None:
        conditions["phase"] = failure.phase
    name = f"status-{status}" if ending == "status" else ending
    return _rule(name, failure.what, failure.between, **conditions)


Path = tuple[str | int, ...]
_WIDTH = 116
"""Columns of the YAML (chosen)."""


def _mapping(
    data: Mapping[str, Any], notes: Mapping[Path, str], path: Path, indent: str
) -> Iterator[str]:
    """Write a mapping; what has a note, or contains something that has one, gets lines of its
    own."""
    for key, value in data.items():
        here = (*path, key)
        yield from _comment(notes.get(here, ""), indent)
        if isinstance(value, str) and len(value) > 80:
            yield f"{indent}{key}: >-"
            yield from textwrap.wrap(
                value, _WIDTH, initial_indent=f"{indent}  ", subsequent_indent=f"{indent}  "
            )
        elif isinstance(value, dict) and _has_notes(notes, here):
            yield f"{indent}{key}:"
            yield from _mapping(value, notes, here, indent + "  ")
        elif isinstance(value, list) and (
            _has_notes(notes, here) or any(isinstance(item, dict) for item in value)
        ):
            yield f"{indent}{key}:"
            for place, item in enumerate(value):
                yield from _comment(notes.get((*here, place), ""), indent + "  ")
                yield f"{indent}  - {_flow(item)}"
        else:
            yield f"{indent}{key}: {_flow(value)}"


def _has_notes(notes: Mapping[Path, str], path: Path) -> bool:
    return any(len(note) > len(path) and note[: len(path)] == path for note in notes)


def _flow(value: Any) -> str:
    text = yaml.safe_dump(
        value, default_flow_style=True, width=10**9, sort_keys=False, allow_unicode=True
    )
    return text.removesuffix("\n").removesuffix("\n...")


def _comment(text: str, indent: str) -> list[str]:
    clean = "".join(letter if letter.isprintable() else " " for letter in text)
    return textwrap.wrap(
        clean, _WIDTH, initial_indent=f"{indent}# ", subsequent_indent=f"{indent}# "
    )
