"""What a transport is given and what it returns or raises; it knows aiohttp, these do not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from sfusion_tools.outcome import Outcome


class TransportError(Exception):
    """Raised instead of an answer."""

    def __init__(self, outcome: Outcome, text: str, *, may_have_run: bool = True, transient: bool = True) -> None:
        super().__init__(text)
        self.outcome = outcome
        self.may_have_run = may_have_run
        """False if nothing was sent."""
        self.transient = transient
        """True if another attempt may help."""


class Address(NamedTuple):
    """Where requests go, and how."""

    url: str
    label: str
    """The redacted URL."""
    proxy: str | None = None
    headers: tuple[tuple[str, str], ...] = ()


class Response(NamedTuple):
    """An answer of HTTP."""

    status: int
    headers: Mapping[str, str]
    """Their names in any case."""
    body: bytes
    whole: bool
    """False if the body broke off, or is longer than was wanted."""
