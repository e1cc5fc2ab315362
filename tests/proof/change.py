"""One change to our own stack, and the promise that it breaks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any
from unittest import mock

Replace = Callable[[Any, str, Any], None]
"""Replaces an attribute of a class or module until the change is taken back."""


@dataclass(frozen=True)
class Change:
    """A change to ``sfusion_tools``, and the promise that it breaks."""

    make: Callable[[Replace], None]
    promise: str
    shown_in: tuple[str, ...]
    also: frozenset[str]

    @property
    def name(self) -> str:
        return self.make.__name__.replace("_", "-")

    @property
    def about(self) -> str:
        return " ".join((self.make.__doc__ or "").split())

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Apply it in this process, and take it back at the end."""
        with ExitStack() as stack:
            self.make(
                lambda owner, name, new: (
                    stack.enter_context(mock.patch.object(owner, name, new)) and None
                )
            )
            yield


CHANGES: dict[str, Change] = {}
"""Every change by name, in the order of the table."""


def change(
    promise: str, *shown_in: str, also: tuple[str, ...] = ()
) -> Callable[[Callable[[Replace], None]], Any]:
    def register(make: Callable[[Replace], None]) -> Change:
        made = Change(make, promise, shown_in, frozenset(also))
        CHANGES[made.name] = made
        return made

    return register
