"""A trial of a client that plays whole episodes: its scenes, and what they show together."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache

from ..commandline.keyword import read_keyword
from ..core.run_events import RunEvents
from ..core.verdict import Verdict
from ..errors import BadOption
from ..lab.client import Shape
from ..lab.promises import Promise
from ..lab.promises.episodes import lives_of
from ..lab.promises.registry import OF_EPISODES, check_run
from ..lab.promises.sandboxes import CreatesWithinLimit
from ..lab.runs.faces import with_face
from ..lab.runs.runner import RunResult
from ..lab.runs.tasks import Task
from ..lab.scenarios.episodes import FACES, Face
from ..lab.scenarios.model import Scenario
from ..lab.scenarios.reading import JUDGED, bundled_folder, read_scenarios
from ..lab.shapes.episode import EpisodeClient
from ..lab.worlds.episodes import has_kill, play_episodes
from .meaning import meanings_of_findings
from .result import TrialResult, TrialWorld

_NAMES = "judge-episode-*.yaml"
_ORDER = (
    "plain", "lost-create", "vanishes", "unavailable", "lost-delete", "cancelled-command",
    "cancelled-boot", "paced", "leftovers", "ran-and-lost", "late", "dies", "cut-create",
    "early-end", "slow-boot", "cancelled-create", "done-delete", "slow-create", "crash",
    "killed",
)  # fmt: skip
"""The most telling first: on a wall clock there may be no time for the last ones."""
LONGEST = 180.0
"""Real seconds after which no further scene begins. Measured: all scenes take 80 to 95 s with plain
requests or E2B's SDK, and 120 to 160 s with Daytona's, four trials at a time on two busy cores."""
_LATE = "no time was left: a trial takes two to three minutes, and this client is slower"
_JUDGED = [promise for promise in OF_EPISODES if not isinstance(promise, CreatesWithinLimit)]
"""All of them, but for the limit that a scenario has to name."""
_NO_PROCESS = "only a client that is named as module:name or file.py:name runs in a process"
_UNBEGUN = (
    "the client had sent nothing when its episodes were cancelled; play again when this machine is "
    "idle"
)


@cache
def episode_scenes() -> list[Scenario]:
    """Return the scenarios that every client of episodes is judged by, in their order."""
    files = (bundled_folder() / JUDGED).glob(_NAMES)
    found = {file.stem.removeprefix("judge-episode-"): read_scenarios(file)[0] for file in files}
    return [found[name] for name in (*_ORDER, *sorted(found.keys() - set(_ORDER)))]


def judge_episodes(
    shape: Shape,
    *,
    face: Face | None = None,
    world: TrialWorld | None = None,
    seed: int = 0,
    scenes: str = "",
    tell: Callable[[str], None] = lambda step: None,
) -> TrialResult:
    """Play the scenes of episodes with a client and return what they show, before any baseline."""
    spoken = spoken_face(shape, face)
    if world == "sim" and not shape.sim_if_asked:
        raise BadOption(f"--world sim: {shape.name} cannot be played there: {shape.wall}")
    chosen = [with_face(scene, spoken).changed(seed=seed) for scene in _chosen(scenes)]
    client = shape.make()
    assert isinstance(client, EpisodeClient)
    played_in: TrialWorld = world or "wall"
    began = time.monotonic()
    runs, left_out = _play_all(chosen, played_in, client, tell)
    seconds = time.monotonic() - began
    verdicts = [verdict for promise in _JUDGED for verdict in _together(promise, runs)]
    facts = [lives_of(RunEvents(run.journal)) for run in runs]
    return TrialResult(
        name=shape.name,
        about=f"{shape.about}; service: {spoken}",
        world=played_in,
        why=shape.wall if world is None else "asked for",
        seed=seed,
        seconds=seconds,
        calls=sum(len(found.episodes) for found in facts),
        unit="episode",
        requests=sum(len(found.requests) for found in facts),
        verdicts=verdicts,
        meanings=meanings_of_findings(
            [verdict for verdict in verdicts if verdict.state == "broken"]
        ),
        wordings={},
        left_out=left_out,
        runs=runs,
        place=shape.place,
    )


def _play_all(
    scenes: Sequence[Scenario],
    world: TrialWorld,
    client: EpisodeClient,
    tell: Callable[[str], None],
) -> tuple[list[RunResult], dict[str, str]]:
    """Play the scenes; return them, and why others were left out or show nothing."""
    began = time.monotonic()
    runs: list[RunResult] = []
    left_out: dict[str, str] = {}
    for scene in scenes:
        if world == "wall" and time.monotonic() - began > LONGEST:
            left_out[scene.scenario] = _LATE
            continue
        if world == "wall" and not client.source and has_kill(scene):
            left_out[scene.scenario] = _NO_PROCESS
            continue
        tell(scene.scenario)
        run = _played(scene, world, client)
        runs.append(run)
        if _was_cancelled_unbegun(run):
            left_out[scene.scenario] = _UNBEGUN
    return runs, left_out


def _was_cancelled_unbegun(run: RunResult) -> bool:
    """Were episodes cancelled before any of their requests came, so that nothing is shown?"""
    events = run.journal.events
    return any(event["event"] == "cancelled" for event in events) and not any(
        event["event"] == "arrived" for event in events
    )


def spoken_face(shape: Shape, given: Face | None = None) -> Face:
    """Return the given service, else the one that the file of a client names."""
    for face in FACES:
        if face == (given or shape.face):
            return face  # type: ignore[return-value] # FACES are the values of Face
    raise BadOption(
        f"{shape.name} plays whole episodes, and its file names none or several of "
        f"{', '.join(FACES)}; say which service it speaks to with --face"
    )


def _chosen(keyword: str) -> list[Scenario]:
    matches = read_keyword(keyword)
    kept = [scene for scene in episode_scenes() if matches(scene.scenario)]
    if not kept:
        names = ", ".join(scene.scenario for scene in episode_scenes())
        raise BadOption(f"-k: no scene matches; there are {names}")
    return kept


def _played(scene: Scenario, world: TrialWorld, client: EpisodeClient) -> RunResult:
    """Play one scene and judge it alone."""
    began = time.monotonic()
    journal = play_episodes(scene, world, client.target, source=client.source)
    verdicts, implied = check_run(RunEvents(journal), _JUDGED)
    took = time.monotonic() - began
    return RunResult(Task(scene, world), journal, verdicts, took, implied=implied)


def _together(promise: Promise, runs: Sequence[RunResult]) -> list[Verdict]:
    """Return what all scenes show of a promise: a broken verdict for each way to fail, else one
    that it held, else why that is not known."""
    found = [
        (run.task.scenario.scenario, verdict)
        for run in runs
        for verdict in run.verdicts
        if verdict.promise == promise.name
    ]
    broken = [(scene, verdict) for scene, verdict in found if verdict.state == "broken"]
    if broken:
        hows = dict.fromkeys(verdict.how for _, verdict in broken)
        return [_all_of([pair for pair in broken if pair[1].how == how]) for how in hows]
    held = [verdict for _, verdict in found if verdict.state == "held"]
    if held:
        judged = sum(int(verdict.how.details.get("judged", 1)) for verdict in held)
        details = {**held[0].how.details, "judged": judged}
        return [promise.held(held[0].how.kind, **details)]
    return [verdict for _, verdict in found][:1]


def _all_of(found: Sequence[tuple[str, Verdict]]) -> Verdict:
    """Return one verdict for all times that a promise was broken in one way; its sentence is about
    the first, and names the scenes."""
    first = found[0][1]
    names = [scene.removeprefix("judge-episode-") for scene, _ in found]
    evidence = [{"scenario": found[0][0], **event} for event in first.evidence]
    return replace(
        first,
        sentence=f"{', '.join(dict.fromkeys(names))}: {first.sentence}",
        evidence=evidence,
        count=sum(verdict.count for _, verdict in found),
    )
