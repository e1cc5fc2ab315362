"""A trial, from a target to its result.

It chooses the scenes that fit the target, plays them in virtual time or on the wall clock, judges
what happened, and sets aside what a baseline accepts.
"""

from __future__ import annotations

import gc
import json
import re
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from sfusion_tools.wording import counted

from ..atomic_files import write_file
from ..commandline.keyword import read_keyword
from ..core.journal import Journal
from ..core.run_events import RunEvents
from ..core.verdict import How, Verdict
from ..errors import BadOption
from ..lab.client import EPISODE, PARAMETERS, TrialClient
from ..lab.promises.registry import OF_SINGLE_CALLS, check_run
from ..lab.promises.single_call_results import wordings_to_read
from ..lab.runs.clients import client_tools
from ..lab.runs.runner import RunResult
from ..lab.runs.tasks import Task
from ..lab.scenarios.episodes import Face
from ..lab.scenarios.model import Scenario
from ..lab.scenarios.reading import JUDGED, bundled_folder, in_folder, read_scenarios
from ..lab.shapes import Shape, shape_of
from ..lab.shapes.as_tool import TARGET_TOOL
from ..lab.single_calls.suite import SuiteFacts
from ..lab.worlds.clients import run_in_sim
from ..lab.worlds.clients_wall import WallTrial
from .applying import without_absent
from .episodes import judge_episodes
from .meaning import grade_of, meanings_of, meanings_of_findings
from .result import TrialResult, TrialWorld

_VARIES = re.compile(r"\b0x[0-9a-f]+|\b[1-6]\d{4}\b")
"""Addresses of objects and ports of sandboxes, which differ from run to run."""
_ONLY_REQUESTS = "the command does not speak the protocol: only its requests are judged"
_WIRE_ALONE = ("deadline_honoured", "retry_after_honoured", "no_secret_leaked")
"""The promises that need no more than requests."""

FIRST_CALL = "a first call"
"""The step before the scenes, which may take as long as a client that is silent."""
_PART = "with -k, what it accepts and was not found is not reported: it may be of other scenes"


def judge(
    target: Any = None,
    *,
    command: Sequence[str] = (),
    env: str | None = None,
    attribute: str | None = None,
    world: TrialWorld | None = None,
    seed: int = 0,
    scenes: str = "",
    face: Face | None = None,
    baseline: Path | None = None,
    tell: Callable[[str], None] = lambda step: None,
) -> TrialResult:
    """Try a client and return what was found.

    ``target`` is a function, a class, ``module:name``, ``file.py:name`` or a tool config;
    ``command`` runs another program instead. ``env`` and ``attribute`` name the environment
    variable, or the attribute of the target's module, that holds the address. ``world`` overrides
    the choice of the clock, ``face`` names the service of a client of episodes, ``scenes`` (an
    expression of names, as pytest's -k) plays a part of the scenarios, ``tell`` is called with each
    step before it is made. Raises BadOption for what cannot be judged.
    """
    known = None if baseline is None else Baseline.read(baseline)
    tell(FIRST_CALL)
    shape = shape_of(target, env=env, attribute=attribute, command=tuple(command))
    if EPISODE in shape.takes:
        found = judge_episodes(shape, face=face, world=world, seed=seed, scenes=scenes, tell=tell)
        return found if known is None else _with_baseline(found, known, scenes)
    if face is not None:
        raise BadOption(f"--face: {shape.name} does not play whole episodes")
    played_by = {"command": list(command)} if command else {"target": shape.name}
    named = {**played_by, "env": env, "attribute": attribute}
    given = {key: value for key, value in named.items() if value}
    began = time.monotonic()
    chosen = choose_scenes(seed, shape, given, scenes)
    played = play_scenes(shape, world, chosen, tell)
    facts = SuiteFacts(played.journals)
    if not facts.runs:
        facts.takes = shape.takes
    if known is not None:
        facts.accepted = known.wordings
    verdicts = [without_absent(verdict, facts) for verdict in check_facts(facts)]
    if not shape.takes:
        verdicts = [_of_silent_command(verdict) for verdict in verdicts]
    accepted = _accepted(known, verdicts, scenes)
    missing = left_out(shape, played, facts)
    if known is not None and scenes:
        missing["baseline"] = _PART
    return TrialResult(
        name=shape.name,
        about=shape.about,
        world=played.world,
        why=played.why,
        seed=seed,
        seconds=time.monotonic() - began,
        calls=len(facts.calls) + len(facts.estimates),
        requests=sum(len(run.requests) for run in facts.runs),
        verdicts=verdicts,
        meanings=meanings_of(facts, _news(verdicts, accepted)),
        grade=grade_of(facts),
        wordings=_to_read(facts),
        left_out=missing,
        accepted=accepted,
        changes=_gone(known, verdicts, scenes),
        runs=_runs(played, facts),
        place=shape.place,
    )


def _with_baseline(found: TrialResult, known: Baseline, scenes: str) -> TrialResult:
    """Set aside what a baseline accepts."""
    accepted = _accepted(known, found.verdicts, scenes)
    return replace(
        found,
        accepted=accepted,
        meanings=meanings_of_findings(_news(found.verdicts, accepted)),
        changes=_gone(known, found.verdicts, scenes),
        left_out={**found.left_out, "baseline": _PART} if scenes else found.left_out,
    )


def _accepted(known: Baseline | None, verdicts: Sequence[Verdict], scenes: str) -> frozenset[How]:
    """Return the ways to fail that a baseline accepts; with -k also parts of them."""
    if known is None:
        return frozenset()
    return known.findings | known.parts_of_accepted(verdicts) if scenes else known.findings


def _news(verdicts: Sequence[Verdict], accepted: frozenset[How]) -> list[Verdict]:
    broken = [verdict for verdict in verdicts if verdict.state == "broken"]
    return [verdict for verdict in broken if verdict.how not in accepted]


def _gone(known: Baseline | None, verdicts: Sequence[Verdict], scenes: str) -> list[str]:
    """Return what a baseline accepts and a whole trial did not find."""
    return [] if known is None or scenes else known.gone(verdicts)


def check_facts(facts: SuiteFacts) -> list[Verdict]:
    """Return the verdicts of all promises on single calls: a broken one for each way to fail, else
    held, unknown or not applicable."""
    places = {id(event): run.name for run in facts.runs for event in run.journal.events}
    of_estimators = bool(facts.estimates)
    verdicts: list[Verdict] = []
    for promise in OF_SINGLE_CALLS:
        if ("groups" in promise.takes) == of_estimators:
            verdicts += promise.check_calls(facts)
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


def left_out(shape: Shape, played: PlayedScenes, facts: SuiteFacts) -> dict[str, str]:
    """Return what was not played, or not judged, with the reason."""
    if "groups" in shape.takes:
        return {name: _why_not_declared(shape, name) for name in played.left_out}
    found = dict(played.left_out)
    found |= {run.name: run.broken_off for run in facts.runs if run.broken_off}
    lags = [call.lag for call in facts if call.lagged]
    if lags:
        found["this machine"] = (
            f"it stopped for up to {max(lags):.1f} s of the client's time: "
            f"{counted(len(lags), 'call')} that took too long because of that "
            f"{'is' if len(lags) == 1 else 'are'} not judged; play again when it is idle"
        )
    if not shape.takes:
        found["most checks"] = _ONLY_REQUESTS
    if shape.takes and (lacking := sorted(PARAMETERS - shape.takes)):
        found["parameters"] = (
            f"this client has no parameter for, or never sends, {', '.join(lacking)}"
        )
    return found


def _why_not_declared(shape: Shape, scene: str) -> str:
    """Return why a loss was not declared to an estimator in the way of a scene."""
    if scene.endswith("mask"):
        return "it has no parameter for a mask"
    return "a loss is declared by its mask" if "mask" in shape.takes else "its rewards are numbers"


def _runs(played: PlayedScenes, facts: SuiteFacts) -> list[RunResult]:
    """Return each run with its own verdicts, as ``sfusion run`` would judge it."""
    results = []
    for scenario, journal in zip(played.scenarios, played.journals, strict=True):
        verdicts, implied = check_run(RunEvents(journal), scenario.promises)
        task = Task(scenario, played.world)
        took = played.seconds.get(scenario.scenario, 0.0)
        results.append(RunResult(task, journal, verdicts, took, implied=implied))
    return results


def _of_silent_command(verdict: Verdict) -> Verdict:
    """Return what is known of a command that answers no lines: only its requests are judged."""
    if verdict.promise in _WIRE_ALONE:
        return verdict
    return Verdict(verdict.promise, "not_applicable", _ONLY_REQUESTS)


# -- choosing and playing --

_ORDER_OF_SCENES = (
    "programs", "bounds", "failures", "dates", "down", "limit", "wide", "backing-off", "together",
    "instances", "cancelled", "patience", "sandboxes", "clock", "idle", "tests",
    "batches", "comparisons", "leaks",
    "lost-by-mask", "lost-by-nan", "lost-by-none", "lost-by-dropped",
)  # fmt: skip
"""The most telling first: on a wall clock there may be no time for the last ones."""


_OF_EPISODES = "judge-episode-"
"""The names of scenes for clients that play whole episodes begin with it."""


def bundled_scenes(seed: int = 0) -> list[Scenario]:
    """Return the scenarios that every client is judged by, in the order in which they are
    played."""
    folder = in_folder(bundled_folder() / JUDGED)
    folder = [file for file in folder if not file.stem.startswith(_OF_EPISODES)]
    files = {file.stem.removeprefix("judge-"): file for file in folder}
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
    scenes = [scene for scene in bundled_scenes(seed) if _is_for(scene, shape)]
    matches = read_keyword(keyword)
    kept = [scene for scene in scenes if matches(scene.scenario)]
    if not kept:
        names = ", ".join(scene.scenario for scene in scenes)
        raise BadOption(f"-k: no scene matches; there are {names}")
    tool = {"class_name": TARGET_TOOL, "config": dict(target)}
    return [scene.changed(tools=client_tools(tool, scene)) for scene in kept]


def _is_for(scenario: Scenario, shape: Shape) -> bool:
    """Is a scene for clients of this shape: programs, tests of a reward function, or groups?"""
    assert scenario.load is not None
    needs = scenario.load.needs
    if "groups" in shape.takes or "groups" in needs:
        return "groups" in shape.takes and "groups" in needs
    if "batch" in needs:
        return "batch" in shape.takes
    return "tests" in needs or "tests" not in shape.takes


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
    shape: Shape,
    world: TrialWorld | None,
    scenarios: Sequence[Scenario],
    tell: Callable[[str], None] = lambda step: None,
) -> PlayedScenes:
    """Play a client where it can be played: in virtual time, else on the wall clock.

    ``tell`` is called with the names of scenarios before they are played.
    """
    why = shape.wall or ("asked for" if world == "wall" else "")
    if world == "sim" and shape.wall:
        raise BadOption(f"--world sim: {shape.name} cannot be played there: {shape.wall}")
    gc.collect()  # what other clients of this process left behind is not this one's
    if not why:
        played = play_in_sim(scenarios, shape.make, tell)
        if not played.unobserved or world == "sim":
            return played
        why = "its requests do not go over the event loop"
    played = PlayedScenes("wall", why)
    trial = WallTrial(shape)
    for scenario, journal in trial.play(scenarios, tell):
        played.add(scenario, journal)
    played.left_out = trial.left_out
    return played


def play_in_sim(
    scenarios: Iterable[Scenario],
    make_client: Callable[[], TrialClient],
    tell: Callable[[str], None] = lambda step: None,
) -> PlayedScenes:
    """Play all scenarios for which the client takes what they need, each with a client of its
    own."""
    played = PlayedScenes()
    takes = make_client().takes
    for scenario in scenarios:
        assert scenario.load is not None
        lacking = set(scenario.load.needs) - takes
        if lacking:
            played.left_out[scenario.scenario] = f"needs {', '.join(sorted(lacking))}"
            continue
        tell(scenario.scenario)
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
    broken = [verdict for verdict in result.verdicts if verdict.state == "broken"]
    data = {
        "baseline": 1,
        "accepted": [verdict.how.as_dict() | {"details": {}} for verdict in broken],
        "wordings": {end: list(texts) for end, texts in result.wordings.items()},
    }
    write_file(file, json.dumps(data, indent=2) + "\n")


@dataclass(frozen=True)
class Baseline:
    """What somebody has accepted of a client."""

    findings: frozenset[How]
    wordings: Mapping[str, AcceptedTexts]
    """The wordings of each end that were read and found true."""

    @classmethod
    def read(cls, file: Path) -> Baseline:
        """Read what ``write_baseline`` wrote; raise BadOption for anything else."""
        try:
            data = json.loads(file.read_text(encoding="utf-8"))
            if not isinstance(data, dict) or data.get("baseline") != 1:
                raise ValueError("expected a mapping with `baseline: 1`")
            findings = frozenset(map(How.from_dict, data["accepted"]))
            wordings = data.get("wordings") or {}
            return cls(findings, {end: AcceptedTexts(texts) for end, texts in wordings.items()})
        except FileNotFoundError:
            raise BadOption(
                f"--baseline {file}: there is no such file; write one with --update"
            ) from None
        except OSError as error:
            raise BadOption(f"--baseline {file}: cannot be read: {error.strerror}") from None
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise BadOption(
                f"--baseline {file}: is not a baseline: {error}; write one with --update"
            ) from None

    def parts_of_accepted(self, verdicts: Iterable[Verdict]) -> frozenset[How]:
        """Return the findings that are a part of an accepted one.

        With -k fewer ends are met, so fewer of them have the same wording.
        """
        broken = [verdict.how for verdict in verdicts if verdict.state == "broken"]
        return frozenset(how for how in broken if any(_is_part(how, of) for of in self.findings))

    def gone(self, verdicts: Sequence[Verdict]) -> list[str]:
        """Return what is accepted and was not found in a whole trial."""
        found = {verdict.how for verdict in verdicts if verdict.state == "broken"}
        return [
            f"{how.promise} {how.kind}: accepted, but not found any more; --update removes it"
            for how in sorted(self.findings - found, key=str)
        ]


def _is_part(how: How, whole: How) -> bool:
    """Does it say of some ends what the other says of these and more?"""
    ends = _ends_of(how)
    same_kind = (how.promise, how.kind) == (whole.promise, whole.kind)
    return same_kind and len(ends) > 0 and ends <= _ends_of(whole)


def _ends_of(how: How) -> frozenset[str]:
    """Return the ends that identify a way to fail, which their list names."""
    return frozenset(re.findall(r"\w+", dict(how.identity).get("ends", ""))) - {"and"}


class AcceptedTexts(frozenset[str]):
    """Wordings of one end; what differs from run to run does not count."""

    def __contains__(self, wording: object) -> bool:
        return super().__contains__(_VARIES.sub("·", str(wording)))
