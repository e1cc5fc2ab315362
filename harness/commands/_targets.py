"""``--sandbox`` of every command: what was typed becomes sandboxes, or a sentence and an exit code."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeGuard

import typer

from sfusion.harness.commands._exit import fail

if TYPE_CHECKING:
    from sfusion.harness.targets import RealSandbox, Target

SANDBOX = "fake|URL|docker[:IMAGE]"
"""What ``--sandbox`` takes, as the help shows it."""


def is_real(texts: Sequence[str] | None) -> TypeGuard[Sequence[str]]:
    """Was anything but the fake asked for?"""
    return bool(texts) and list(texts or ()) != ["fake"]


def read_targets(texts: Sequence[str], *, option: str = "--sandbox") -> list[Target]:
    """Understand every ``--sandbox``, or what else an option names; ends the command with 2 when one means nothing."""
    from sfusion.harness.targets import BadTarget, read_target

    try:
        return [read_target(text) for text in texts]
    except BadTarget as error:
        fail(f"{option}: {error}", 2)


@contextmanager
def real_sandboxes(texts: Sequence[str], *, at_least: int = 1, check: bool = True) -> Iterator[list[RealSandbox]]:
    """The sandboxes behind ``--sandbox``, progress on stderr; ends the command with 2 (wrong) or 3 (not there).

    ``check=False`` hands out an address without asking whether anything answers there.
    """
    from sfusion.harness.targets import BadTarget, MissingTarget, open_targets

    targets = read_targets(texts)
    try:
        with open_targets(targets, at_least=at_least, say=lambda line: typer.echo(line, err=True), check=check) as all_:
            yield all_
    except BadTarget as error:
        fail(f"--sandbox: {error}", 2)
    except MissingTarget as error:
        fail(f"--sandbox: {error}", 3)
