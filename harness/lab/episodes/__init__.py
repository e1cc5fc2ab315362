"""Episodes: what a client is given for one, and the client that plays them if no other is named."""

from .task import EpisodeStep, EpisodeTask

__all__ = ["EpisodeStep", "EpisodeTask"]
