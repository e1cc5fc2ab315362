"""The proof of the trial: right tools are not accused, and mistakes, named or drawn, are caught."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, get_args

from sfusion.harness.lab.single_calls.suite import SuiteFacts
from sfusion.harness.trial.trial import (
    bundled_scenes,
    check_journals,
    judge,
    play_in_sim,
    wording_table,
)
from sfusion_tools.sandbox.tool import SandboxFusionTool
from tests.proof.changes import CHANGES
from tests.proof.mistake import UNSEEN
from tests.proof.mistakes import MISTAKES
from tests.proof.mutations import drawn
from tests.proof.planted import PLANTED
from tests.proof.right_tools import RIGHT_TOOLS
from tests.proof.tool_client import ToolClient
from tests.proof.wall_tools import WALL_MISTAKES, WALL_TOOLS
from tests.reference_tool import GoodTool

Kind = Literal[
    "right tool", "on the wall clock", "wrong on it", "named", "change", "planted", "drawn"
]
KINDS: tuple[Kind, ...] = get_args(Kind)
HEAD = (
    "",
    "on trial",
    "accused",
    "caught by facts",
    "by the kept wordings",
    "not caught",
    "altered nothing",
)
SEEDS = 5
RIGHT: tuple[Kind, ...] = ("right tool", "on the wall clock")
"""What must not be accused."""
_SCORES_NOTHING = (
    "a tool that gives every end 0.0 scores nothing, as verl's BaseTool: a scenario knows its score"
)
SURVIVE = {
    "calc_reward zero": _SCORES_NOTHING,
    "retry_after endless": (
        "a call that is asked to wait for longer than it has left gives up: that is right"
    ),
    "step nothing is sent": (
        "virtual time cannot tell it from I/O in threads: unknown; the wall clock catches it"
    ),
}
"""Drawn mutations that are not caught, and why."""


_NO_FACT = "not a mistake of every client: a scenario has to say what it wants"
_OUTSIDE = (
    "a trial has one client in one process: a cluster's queue, a pace, rollouts and "
    "trainings are for scenarios"
)
UNSEEN_CHANGES = {
    **dict.fromkeys(
        (
            "retries-nothing",
            "retries-not-found",
            "comes-back-in-step",
            "closes-every-connection",
            "keeps-dead-connections",
            "shows-everything",
            "tells-verl-nothing",
        ),
        _NO_FACT,
    ),
    **dict.fromkeys(
        (
            "serves-the-last-first",
            "loses-a-release",
            "bucket-gives-one-too-many",
            "never-resumes",
            "loses-a-mask",
            "forgets-lost-calls",
            "forgets-lost-calls-in-the-baseline",
        ),
        _OUTSIDE,
    ),
    "scores-outages": _SCORES_NOTHING,
}
"""Changes to our own stack that a trial does not catch, and why."""


@dataclass(frozen=True)
class TrialCase:
    """One trial of the proof."""

    kind: Kind
    name: str
    seed: int = 0
    states: bool = True


@dataclass(frozen=True)
class TrialRow:
    case: TrialCase
    caught_by: tuple[str, ...]
    """Checks that broke, by facts alone."""
    sentence: str = ""
    snapshot: bool = False
    """It differs from the kept wordings of the right tool."""
    applied: bool = True
    """The mutation did something at least once."""

    @property
    def state(self) -> str:
        if not self.applied:
            return "altered nothing"
        if self.case.kind in RIGHT:
            return "accused" if self.caught_by else "not accused"
        return (
            "caught by facts"
            if self.caught_by
            else "by the kept wordings"
            if self.snapshot
            else "not caught"
        )

    @property
    def reason(self) -> str:
        """Return why it is right that this is not caught."""
        if self.state != "not caught":
            return ""
        name = self.case.name
        return (SURVIVE | UNSEEN_CHANGES).get(name, _NO_FACT if name in UNSEEN else "")

    @property
    def fine(self) -> bool:
        return self.state not in ("accused", "not caught") or bool(self.reason)


def counts(rows: Iterable[TrialRow]) -> list[tuple[str, ...]]:
    """Return a line of the table for each kind."""
    met = Counter((row.case.kind, row.state) for row in rows)
    totals = Counter(kind for kind, _ in met.elements())
    return [
        (kind, str(totals[kind]), *(str(met[kind, state]) for state in HEAD[2:]))
        for kind in KINDS
        if totals[kind]
    ]


def cases(
    kinds: Iterable[Kind] = KINDS, keyword: Callable[[str], bool] = lambda name: True
) -> Iterator[TrialCase]:
    """Yield the trials of these kinds whose name matches."""
    names: dict[Kind, Any] = {
        "right tool": [*RIGHT_TOOLS, OWN],
        "on the wall clock": WALL_TOOLS,
        "wrong on it": WALL_MISTAKES,
        "named": MISTAKES,
        "change": CHANGES,
        "planted": PLANTED,
        "drawn": _drawn(),
    }
    for kind in kinds:
        for name in names[kind]:
            if keyword(name):
                seeds = range(SEEDS) if kind in RIGHT else (0,)
                yield from (TrialCase(kind, name, seed) for seed in seeds)
                if kind == "right tool" and name != OWN:
                    yield TrialCase(kind, name, states=False)


OWN = "own tool"
_NUMBERS = itertools.count(1)


class OwnTool(SandboxFusionTool):
    """Our own tool with the config of the proof's tools."""

    def __init__(self, config: dict[str, Any], tool_schema: Any = None) -> None:
        known = {key: value for key, value in config.items() if key != "states_outcomes"}
        # Calls of other tests must not count against its limit, nor those of other scenes.
        own = {
            "limiter": "local",
            "limiter_name": f"proof-{next(_NUMBERS)}",
            "languages": ["cpp", "go"],
        }
        super().__init__({**known, **own}, tool_schema)


@cache
def _drawn() -> dict[str, Any]:
    return {one.name: one for one in drawn()}


@cache
def _accepted(tool: Any, states: bool) -> dict[str, list[str]]:
    played = play_in_sim(bundled_scenes(), lambda: ToolClient(tool, states_outcomes=states))
    return wording_table(SuiteFacts(played.journals))


def _judged_on_the_wall(case: TrialCase, tool: Any, scenes: str) -> TrialRow:
    verdicts = judge(tool, seed=case.seed, scenes=scenes).verdicts
    broken = [verdict for verdict in verdicts if verdict.state == "broken"]
    promises = tuple(verdict.promise for verdict in broken)
    return TrialRow(case, promises, "".join(verdict.sentence for verdict in broken[:1]))


def judged(case: TrialCase, scene: str = "") -> TrialRow:
    """Play one trial, or one scene of it, in any process."""
    tool: Any
    match case.kind:
        case "on the wall clock":
            return _judged_on_the_wall(case, WALL_TOOLS[case.name], "")
        case "wrong on it":
            return _judged_on_the_wall(case, *WALL_MISTAKES[case.name])
        case "right tool":
            tool = OwnTool if case.name == OWN else RIGHT_TOOLS[case.name]
        case "named":
            tool = MISTAKES[case.name].tool
        case "change":
            tool = OwnTool
        case "planted":
            tool = PLANTED[case.name]
        case "drawn":
            tool = _drawn()[case.name].tool
    right = OwnTool if case.kind == "change" else GoodTool
    accepted = None if case.kind == "right tool" or scene else _accepted(right, case.states)
    scenes = bundled_scenes(case.seed)
    if scene:
        scenes = [one for one in scenes if one.scenario == f"judge-{scene}"]
    with CHANGES[case.name].applied() if case.kind == "change" else nullcontext():
        played = play_in_sim(scenes, lambda: ToolClient(tool, states_outcomes=case.states))
    verdicts = [one for one in check_journals(played.journals, accepted) if one.state == "broken"]
    facts = [one for one in verdicts if one.promise != "wordings_accepted"]
    applied = case.kind != "drawn" or _drawn()[case.name].past.changed > 0
    names = tuple(dict.fromkeys(one.promise for one in facts))
    return TrialRow(
        case, names, facts[0].sentence if facts else "", len(facts) < len(verdicts), applied
    )
