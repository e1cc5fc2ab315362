"""Which client plays the episodes of a scenario."""

from __future__ import annotations

from ...core.journal import Journal
from ...errors import WorldError
from ..client import EPISODE
from ..scenarios.model import Scenario, World
from ..shapes.as_tool import TARGET_TOOL, target_shape
from ..shapes.episode import EpisodeClient


def play(scenario: Scenario, world: World) -> Journal:
    """Play the episodes of a scenario with the client that its tools name, or with ours."""
    from ..worlds.episodes import play_episodes

    client = _client_of(scenario)
    return play_episodes(scenario, world, client.target, source=client.source)


def _client_of(scenario: Scenario) -> EpisodeClient:
    if isinstance(scenario.tools, dict):
        from ..episodes.own_client import episode

        return EpisodeClient(episode, source=f"{episode.__module__}:episode")
    entry = scenario.tools[0]
    if entry.get("class_name") == TARGET_TOOL:
        shape = target_shape(entry.get("config") or {})
        client = shape.make() if EPISODE in shape.takes else None
        if isinstance(client, EpisodeClient):
            return client
    raise WorldError(
        "episodes are played by a function of one `task`, named as --tools my_episode:run"
    )
