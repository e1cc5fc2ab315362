"""A trial from a target to its result: which stage plays it, what was found, and what of that is
accepted."""

from __future__ import annotations

import gc
import json
import re
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, Literal

from sfusion_tools.wording import counted

from ..atomic_files import write_file
from ..commandline.keyword import read_keyword
from ..core.journal import Journal
from ..core.run_events import RunEvents
from ..core.verdict import How, Verdict
from ..errors import BadOption
from ..lab.client import PARAMETERS, TrialClient
from ..lab.promises.registry import OF_SINGLE_CALLS, check_run
from ..lab.promises.single_told import wordings_to_read
from ..lab.runs.clients import client_tools
from ..lab.runs.runner import RunResult
from ..lab.runs.tasks import Task
from ..lab.scenarios.model import Scenario
from ..lab.scenarios.reading import JUDGED, bundled_folder, in_folder, read_scenarios
from ..lab.shapes import Shape, shape_of
from ..lab.shapes.as_tool import TARGET_TOOL
from ..lab.single_calls.calls import SuiteFacts
from ..lab.worlds.clients import run_in_sim
from ..lab.worlds.clients_wall import WallTrial

TrialWorld = Literal["sim", "wall"]
_VARIES = re.compile(r"\b0x[0-9a-f]+|\b[1-6]\d{4}\b")
"""Addresses of objects and ports of sandboxes, which differ from run to run."""
_WIRE_ALONE = ("deadline_honoured", "retry_after_honoured", "no_secret_leaked")
"""The promises that need no more than requests."""
_ORDER = ("broken", "accepted", "held", "unknown", "not_applicable")
_CAUSES = ("sent_as_asked", "programs_waited_for")
"""What they find explains what others find, so they come first."""


def _in_words(state: str) -> str:
    """Return a state as people read it."""
    return state.replace("_", " ")


@dataclass(frozen=True)
class TrialResult:
    """What a trial found about a client."""

    name: str
    about: str
    """What it is, in a few words."""
    world: TrialWorld
    why: str
    """Why it was not played in virtual time; empty if it was."""
    seed: int
    seconds: float
    """Real seconds that it took."""
    calls: int
    requests: int
    verdicts: Sequence[Verdict]
    wordings: Mapping[str, Sequence[str]]
    left_out: Mapping[str, str] = field(default_factory=dict)
    """Scenes that were not played, or not to their end, with the reason."""
    accepted: frozenset[How] = frozenset()
    """Findings that a baseline accepts."""
    changes: Sequence[str] = ()
    """What the baseline accepts and this trial did not find."""
    runs: Sequence[RunResult] = ()
    """Each scene as a run of its own."""

    def state_of(self, one: Verdict) -> str:
        return "accepted" if one.state == "broken" and one.how in self.accepted else one.state

    @property
    def counts(self) -> Counter[str]:
        return Counter(map(self.state_of, self.verdicts))

    @property
    def ok(self) -> bool:
        """Is nothing broken but what is accepted, and was anything judged at all?"""
        return (
            not self.counts["broken"]
            and not self.changes
            and bool(self.counts["held"] + self.counts["accepted"])
        )

    @property
    def headline(self) -> str:
        counts = self.counts
        found = [state for state in _ORDER if counts[state]]
        return ", ".join(f"{counts[state]} {_in_words(state)}" for state in found)

    @property
    def played(self) -> str:
        """Return where and how it was played, as a sentence."""
        where = f"on the wall clock ({self.why})" if self.world == "wall" else "in virtual time"
        sizes = (
            f"{counted(self.calls, 'call')}, {counted(self.requests, 'request')}, "
            f"{self.seconds:.1f} s"
        )
        return f"Played {where}: {sizes}, seed {self.seed}."

    def rows(self) -> list[tuple[str, str, str]]:
        """Return state, check and sentence of every verdict, broken ones first."""
        found = list(
            dict.fromkeys((self.state_of(one), one.promise, one.sentence) for one in self.verdicts)
        )
        return sorted(
            found,
            key=lambda row: (_ORDER.index(row[0]), row[0] == "broken" and row[1] not in _CAUSES),
        )

    def table(self) -> str:
        """Return everything as text: what was judged, the verdicts, the wordings."""
        rows = [(_in_words(state), promise, sentence) for state, promise, sentence in self.rows()]
        widest_state = max((len(state) for state, _, _ in rows), default=0)
        widest_name = max((len(promise) for _, promise, _ in rows), default=0)
        lines = [f"{self.name}: {self.about}", self.played, ""]
        for state, promise, sentence in rows:
            lines.append(f"  {state:<{widest_state}}  {promise:<{widest_name}}  {sentence}")
        lines += [f"  {'changed':<{widest_state}}  {text}" for text in self.changes]
        if self.left_out:
            lines += [
                "",
                "Not played:",
                *(f"  {name}: {why}" for name, why in self.left_out.items()),
            ]
        if self.wordings:
            lines += ["", "Wordings to read once (without the output of programs):"]
            for end, texts in self.wordings.items():
                lines += [
                    f"  {end if not number else '':<16}  {text!r:.160}"
                    for number, text in enumerate(texts[:6])
                ]
        return "\n".join([*lines, "", f"{self.headline}."])

    def as_dict(self) -> dict[str, Any]:
        return {
            "trial": 1,
            "target": self.name,
            **{
                key: getattr(self, key)
                for key in ("about", "world", "why", "seed", "calls", "requests", "ok")
            },
            "seconds": round(self.seconds, 3),
            "verdicts": [{**one.as_dict(), "state": self.state_of(one)} for one in self.verdicts],
            "wordings": {end: list(texts) for end, texts in self.wordings.items()},
            "left_out": dict(self.left_out),
            "changes": list(self.changes),
        }


def judge(
    target: Any = None,
    *,
    command: Sequence[str] = (),
    env: str | None = None,
    attribute: str | None = None,
    world: TrialWorld | None = None,
    seed: int = 0,
    scenes: str = "",
    baseline: Path | None = None,
) -> TrialResult:
    """Try a client and return what was found.

    ``target`` is a function, a class, ``module:name``, ``file.py:name`` or a tool config;
    ``command`` runs another program instead. ``env`` and ``attribute`` name the environment
    variable, or the attribute of the target's module, that holds the address. ``world`` overrides
    the choice of the clock, ``scenes`` (an expression of names, as pytest's -k) plays a part of the
    scenarios. Raises BadOption for what cannot be judged.
    """
    known = None if baseline is None else _read_baseline(baseline)
    shape = shape_of(target, env=env, attribute=attribute, command=tuple(command))
    named = {"target": shape.name, "command": list(command), "env": env, "attribute": attribute}
    if command:
        del named["target"]
    began = time.monotonic()
    chosen = choose_scenes(
        seed, shape, {key: value for key, value in named.items() if value}, scenes
    )
    played = play_scenes(shape, world, chosen)
    facts = SuiteFacts(played.journals)
    if known is not None:
        facts.accepted = {end: _Read(texts) for end, texts in known[1].items()}
    verdicts = check_facts(facts)
    if not shape.takes:
        verdicts = [one if one.promise in _WIRE_ALONE else _unseen(one) for one in verdicts]
    return TrialResult(
        name=shape.name,
        about=shape.about,
        world=played.world,
        why=played.why,
        seed=seed,
        seconds=time.monotonic() - began,
        calls=len(facts.calls),
        requests=sum(len(run.requests) for run in facts.runs),
        verdicts=verdicts,
        wordings=_to_read(facts),
        left_out=_left_out(shape, played, facts),
        accepted=frozenset() if known is None else known[0],
        changes=() if known is None else _gone(known[0], verdicts),
        runs=_runs(played, facts),
    )


def check_facts(facts: SuiteFacts) -> list[Verdict]:
    """Return the verdicts of all promises on single calls: a broken one for each way to fail, else
    held, unknown or not applicable."""
    places = {id(event): run.name for run in facts.runs for event in run.journal.events}
    verdicts = [verdict for promise in OF_SINGLE_CALLS for verdict in promise.check_calls(facts)]
    return [_placed(verdict, places) for verdict in verdicts]


def _placed(verdict: Verdict, places: Mapping[int, str]) -> Verdict:
    """Say of each event of the evidence in which run it is."""
    evidence = [{"scenario": places.get(id(event), ""), **event} for event in verdict.evidence]
    return replace(verdict, evidence=evidence)


def check_journals(
    journals: Iterable[Journal], accepted: Mapping[str, Collection[str]] | None = None
) -> list[Verdict]:
    """Judge the runs of one trial together.

    ``accepted`` are the wordings per end that somebody has read and found true.
    """
    facts = SuiteFacts(journals)
    facts.accepted = accepted
    return check_facts(facts)


def wording_table(facts: SuiteFacts) -> dict[str, list[str]]:
    """Return the wordings per end, for a person to read once: no promise can see that plain words
    lie."""
    return {end: sorted(met) for end, met in sorted(wordings_to_read(facts).items())}


def _to_read(facts: SuiteFacts) -> dict[str, list[str]]:
    """Return the wordings without what differs from run to run."""
    table = wording_table(facts)
    return {end: sorted({_VARIES.sub("·", text) for text in texts}) for end, texts in table.items()}


def _left_out(shape: Shape, played: PlayedScenes, facts: SuiteFacts) -> dict[str, str]:
    found = dict(played.left_out)
    found |= {run.name: run.broken_off for run in facts.runs if run.broken_off}
    if shape.takes and (lacking := sorted(PARAMETERS - shape.takes)):
        found["parameters"] = (
            f"this client has no parameter for, or never sends, {', '.join(lacking)}"
        )
    return found


def _runs(played: PlayedScenes, facts: SuiteFacts) -> list[RunResult]:
    """Return each run with its own verdicts, as ``sfusion run`` would judge it."""
    results = []
    for scenario, journal in zip(played.scenarios, played.journals, strict=True):
        verdicts, implied = check_run(RunEvents(journal), scenario.promises)
        task = Task(scenario, played.world)
        took = played.seconds.get(scenario.scenario, 0.0)
        results.append(RunResult(task, journal, verdicts, took, implied=implied))
    return results


def _unseen(one: Verdict) -> Verdict:
    return Verdict(
        one.promise,
        "unknown",
        "the command does not speak the protocol: only its requests are judged",
    )


# -- choosing and playing --

_ORDER_OF_SCENES = (
    "programs", "bounds", "failures", "dates", "down", "limit", "backing-off", "together",
    "instances", "cancelled", "patience", "sandboxes", "clock", "idle", "tests",
)  # fmt: skip
"""The most telling first: on a wall clock there may be no time for the last ones."""


def bundled_scenes(seed: int = 0) -> list[Scenario]:
    """Return the scenarios that every client is judged by, in the order in which they are
    played."""
    files = {
        file.stem.removeprefix("judge-"): file for file in in_folder(bundled_folder() / JUDGED)
    }
    others = [name for name in files if name not in _ORDER_OF_SCENES]
    found = []
    for name in (*_ORDER_OF_SCENES, *others):
        scenario = _read_scene(files[name])
        changes: dict[str, Any] = {"seed": seed}
        if scenario.schedule is not None:
            changes["schedule"] = {"random": seed}
        found.append(scenario.changed(**changes))
    return found


@cache
def _read_scene(file: Path) -> Scenario:
    return read_scenarios(file)[0]


def choose_scenes(
    seed: int, shape: Shape, target: Mapping[str, Any], keyword: str = ""
) -> list[Scenario]:
    """Return the scenarios that were chosen, played by this target; of a reward function those with
    tests."""
    scenes = bundled_scenes(seed)
    if "tests" in shape.takes:
        scenes = [one for one in scenes if one.load is not None and "tests" in one.load.needs]
    matches = read_keyword(keyword)
    kept = [one for one in scenes if matches(one.scenario)]
    if not kept:
        names = ", ".join(one.scenario for one in scenes)
        raise BadOption(f"-k: no scene matches; there are {names}")
    tool = {"class_name": TARGET_TOOL, "config": dict(target)}
    return [one.changed(tools=client_tools(tool, one)) for one in kept]


@dataclass
class PlayedScenes:
    """The runs of a trial."""

    world: TrialWorld = "sim"
    why: str = ""
    """Why they were not played in virtual time; empty if they were."""
    scenarios: list[Scenario] = field(default_factory=list)
    journals: list[Journal] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    """Scenes that were not played, with the reason."""
    unobserved: bool = False
    """No request came over the event loop."""

    def add(self, scenario: Scenario, journal: Journal, seconds: float = 0.0) -> None:
        self.scenarios.append(scenario)
        self.journals.append(journal)
        self.seconds[scenario.scenario] = seconds


def play_scenes(
    shape: Shape, world: TrialWorld | None, scenarios: Sequence[Scenario]
) -> PlayedScenes:
    """Play a client where it can be played: in virtual time, else on the wall clock."""
    why = shape.wall or ("asked for" if world == "wall" else "")
    if world == "sim" and shape.wall:
        raise BadOption(f"--world sim: {shape.name} cannot be played there: {shape.wall}")
    gc.collect()  # what other clients of this process left behind is not this one's
    if not why:
        played = play_in_sim(scenarios, shape.make)
        if not played.unobserved or world == "sim":
            return played
        why = "its requests do not go over the event loop"
    played = PlayedScenes("wall", why)
    trial = WallTrial(shape)
    for scenario, journal in trial.play(scenarios):
        played.add(scenario, journal)
    played.left_out = trial.left_out
    return played


def play_in_sim(
    scenarios: Iterable[Scenario], make_client: Callable[[], TrialClient]
) -> PlayedScenes:
    """Play all scenarios for which the client takes what they need, each with a client of its
    own."""
    played = PlayedScenes()
    takes = make_client().takes
    for scenario in scenarios:
        assert scenario.load is not None
        if lacking := set(scenario.load.needs) - takes:
            played.left_out[scenario.scenario] = ", ".join(sorted(lacking))
            continue
        began = time.monotonic()
        journal = run_in_sim(scenario, make_client)
        played.add(scenario, journal, time.monotonic() - began)
        if len(played.journals) == 1 and SuiteFacts([journal]).unobserved:
            played.unobserved = True
            break
    return played


# -- the baseline --


def write_baseline(file: Path, result: TrialResult) -> None:
    """Accept everything that a trial found."""
    accepted = [
        one.how.as_dict() | {"details": {}} for one in result.verdicts if one.state == "broken"
    ]
    wordings = {end: list(texts) for end, texts in result.wordings.items()}
    write_file(
        file,
        json.dumps({"baseline": 1, "accepted": accepted, "wordings": wordings}, indent=2) + "\n",
    )


def _read_baseline(file: Path) -> tuple[frozenset[How], dict[str, list[str]]]:
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
        if not isinstance(data, dict) or data.get("baseline") != 1:
            raise ValueError("expected a mapping with `baseline: 1`")
        return frozenset(map(How.from_dict, data["accepted"])), dict(data.get("wordings") or {})
    except FileNotFoundError:
        raise BadOption(
            f"--baseline {file}: there is no such file; write one with --update"
        ) from None
    except (KeyError, ValueError) as error:
        raise BadOption(
            f"--baseline {file}: is not a baseline: {error}; write one with --update"
        ) from None


def _gone(accepted: frozenset[How], verdicts: Sequence[Verdict]) -> list[str]:
    """Return what the baseline accepts and this trial did not find."""
    gone = accepted - {one.how for one in verdicts if one.state == "broken"}
    return [
        f"{one.promise} {one.kind}: accepted, but not found any more; --update removes it"
        for one in sorted(gone, key=str)
    ]


class _Read(frozenset[str]):
    """Wordings that somebody has read; what differs from run to run does not count."""

    def __contains__(self, wording: object) -> bool:
        return super().__contains__(_VARIES.sub("·", str(wording)))
