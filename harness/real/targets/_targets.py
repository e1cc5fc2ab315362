"""``--sandbox``: from what the user typed to real sandboxes."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, TypeGuard

import typer

if TYPE_CHECKING:
    from sfusion.harness.real.targets import RealSandbox, Target

SANDBOX = "fake|URL|docker[:IMAGE]"
"""What ``--sandbox`` takes, as the help shows it."""


def is_real(texts: Sequence[str] | None) -> TypeGuard[Sequence[str]]:
    """Was anything but the fake requested?"""
    return bool(texts) and list(texts or ()) != ["fake"]


def read_targets(texts: Sequence[str]) -> list[Target]:
    """Raises BadTarget."""
    from sfusion.harness.real.targets import read_target

    return [read_target(text) for text in texts]


def real_sandboxes(
    texts: Sequence[str], *, at_least: int = 1, check: bool = True
) -> AbstractContextManager[list[RealSandbox]]:
    """Open the sandboxes, with progress on stderr; see ``open_targets``."""
    from sfusion.harness.real.targets import open_targets

    targets = read_targets(texts)
    return open_targets(targets, at_least=at_least, say=lambda line: typer.echo(line, err=True), check=check)
