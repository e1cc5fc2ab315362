"""The errors of worlds.

WorldError
├── NothingLeft    the run waits for something that can never happen (a deadlock, shown by virtual time)
├── NoProgress     the run spins: it is always busy and time never passes
└── MissingWorld   something outside is needed and not there (Ray, a sandbox)
"""

from __future__ import annotations


class WorldError(Exception):
    """Base of what a world raises when a run cannot go on."""


class NothingLeft(WorldError):
    """Raised by the virtual loop when everybody waits and no timer is set."""


class NoProgress(WorldError):
    """Raised by the virtual loop when something keeps it busy without ever waiting."""


class MissingWorld(WorldError):
    """Raised when a world cannot be had on this machine."""
