"""The base of promises about episodes in sandboxes that live and die."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from ...core.run_events import RunEvents
from ...core.sandbox_lives import SandboxLives
from ...core.verdict import Verdict
from .base import Promise


class _OfEpisodes(Promise):
    """A promise that only episodes show."""

    of_episodes: ClassVar[bool] = True

    def check(self, run: RunEvents) -> Verdict:
        if not run.of_world("episode_started"):
            return self.not_applicable("only_episodes")
        return self.check_episodes(lives_of(run))


def lives_of(run: RunEvents) -> SandboxLives:
    """Return the sandboxes and episodes of a run, which all promises share."""
    found = run.cache.get("lives")
    if found is None:
        found = run.cache["lives"] = SandboxLives(run.journal)
    assert isinstance(found, SandboxLives)
    return found


Found = Iterator[Verdict | None]
"""For each thing that can be judged what is wrong with it, or None."""
