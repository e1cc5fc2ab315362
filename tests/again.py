"""Trials on a real clock that are played again if this machine stood still in them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

Played = TypeVar("Played")

TRIES = 5


def again(play: Callable[[], Played], until: Callable[[Played], bool]) -> Played:
    """Play until the machine did not disturb it, or for the last time; return what came last.

    ``until`` must not be true of a wrong result: the test still asserts what it is about.
    """
    for _ in range(TRIES - 1):
        played = play()
        if until(played):
            return played
    return play()
