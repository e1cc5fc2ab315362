"""What a client of episodes does under each fault, in a few words: a row of docs/clients.md."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..core.run_events import RunEvents
from ..core.sandbox_lives import SandboxLives
from ..lab.client import Shape
from ..lab.promises.episodes import lives_of
from ..lab.scenarios.episodes import Face
from ..lab.scenarios.model import Scenario
from ..lab.shapes.episode import EpisodeClient
from ..lab.worlds.episodes import play_episodes
from .episodes import spoken_face

EPISODE_FAULTS: dict[str, Mapping[str, Any]] = {
    "create 429": {"on": "create", "what": {"status": 429}},
    "create 504 once, made": {
        "on": "create",
        "phase": "after",
        "times": 1,
        "what": {"status": 504},
    },
    "create 504, made": {"on": "create", "phase": "after", "what": {"status": 504}},
    "create reset, made": {"on": "create", "phase": "after", "what": "reset"},
    "dies": {"on": "exec", "what": {"death": "gone"}},
    "exec 503": {"on": "exec", "what": {"status": 503}},
    "exec 504, ran": {"on": "exec", "phase": "after", "what": {"status": 504}},
    "exec closed once, ran": {"on": "exec", "phase": "after", "times": 1, "what": "close"},
    "delete 502": {"on": "delete", "what": {"status": 502}},
    "delete 504, done": {"on": "delete", "phase": "after", "times": 1, "what": {"status": 504}},
}
"""The columns: each fault strikes one episode of one command, every time unless it says once."""


def episode_row(shape: Shape, face: Face | None = None) -> dict[str, str]:
    """Play an episode with each fault and return the cells."""
    return {fault: episode_cell(shape, fault, face) for fault in EPISODE_FAULTS}


def episode_cell(shape: Shape, fault: str, face: Face | None = None) -> str:
    """Play an episode with one fault and return its cell."""
    client = shape.make()
    assert isinstance(client, EpisodeClient)
    rule = {"name": "fault", **EPISODE_FAULTS[fault]}
    scenario = Scenario.from_data(
        {
            "scenario": "episode-row",
            "about": "One episode meets one fault.",
            "sandbox": {"face": spoken_face(shape, face), "faults": [rule]},
            "episodes": {"count": 1, "deadline": "100s", "settle": "300ms"},
        }
    )
    journal = play_episodes(scenario, "wall", client.target, source=client.source)
    return _cell(lives_of(RunEvents(journal)))


def _cell(facts: SandboxLives) -> str:
    """Say how the episode ended, and what it took and left."""
    (episode,) = facts.episodes.values()
    ended = episode.ended or {}
    said = [_end(ended, [str(step["answer"]) for step in episode.steps])]
    creates = len(list(facts.of_kind("create")))
    commands = [request for request in facts.of_kind("exec") if facts.is_step(request.call)]
    ran = sum(request.started for request in commands)
    deletes = len(list(facts.of_kind("delete")))
    left = sum(not life.has_ended for life in facts.lives.values())
    said += [f"{creates} creates"] if creates > 1 else []
    said += [f"ran {ran}×"] if ran > 1 else []
    said += [f"{deletes} deletes"] if deletes > 1 else []
    said += [f"**{left} left**"] if left else []
    return ", ".join(said)


def _end(ended: Mapping[str, Any], expected: list[str]) -> str:
    """Return how an episode ended, in a word or two."""
    if ended.get("end") != "returned":
        return "raises" if ended.get("end") == "raised" else "never ends"
    score = ended.get("score")
    if score is None:
        return "no score"
    answers = [str(answer) for answer in ended.get("answers") or []]
    are_own = len(answers) == len(expected) and all(
        text in answer for text, answer in zip(expected, answers, strict=True)
    )
    return "✓" if score > 0 and are_own else f"score {score:g}"


def markdown_episode_row(name: str, cells: Mapping[str, str]) -> str:
    return f"| {name} | {' | '.join(cells[fault] for fault in EPISODE_FAULTS)} |"
