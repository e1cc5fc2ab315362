"""Real sandboxes: an address, or containers that are started for a run and removed afterwards."""

from __future__ import annotations

from sfusion.harness.errors import BadTarget, MissingTarget, TargetError
from sfusion.harness.real.targets.target import (
    DEFAULT_IMAGE,
    DockerTarget,
    FakeTarget,
    RealSandbox,
    Target,
    UrlTarget,
    open_targets,
    read_target,
    silent,
)

__all__ = [
    "DEFAULT_IMAGE",
    "BadTarget",
    "DockerTarget",
    "FakeTarget",
    "MissingTarget",
    "RealSandbox",
    "Target",
    "TargetError",
    "UrlTarget",
    "open_targets",
    "read_target",
    "silent",
]
