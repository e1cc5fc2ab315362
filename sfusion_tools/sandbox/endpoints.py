"""The sandboxes that calls go to: they share the load, and a failing one is set aside for a while."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from urllib.parse import SplitResult, unquote, urlsplit, urlunsplit

from sfusion_tools.errors import ConfigError

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 30.0
"""Seconds that an endpoint is set aside: after its first failure, doubled with each failure in a row, and at most."""

_PLACEHOLDER = re.compile(r"^x{3,}|\*{2,}|^<|^your[-_.]|\$\{|(^|\.)example(\.(com|org|net))?$", re.IGNORECASE)


def normalise_url(url: object) -> str:
    """Return the base URL of a sandbox, given with or without ``/run_code``; raise ConfigError for anything else."""
    wanted = "sandbox_fusion_url must be the address of a Sandbox Fusion server, such as http://127.0.0.1:8080/run_code"
    if not isinstance(url, str) or not url.strip():
        raise ConfigError(f"{wanted}; found {url!r}")
    try:
        parts = urlsplit(url.strip())
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        raise ConfigError(f"{wanted}; found {redact(url)!r}: {error}") from None
    if parts.scheme not in ("http", "https") or not host or " " in host:
        raise ConfigError(f"{wanted}; found {redact(url)!r}")
    path = parts.path.rstrip("/").removesuffix("/run_code").removesuffix("/run_jupyter").rstrip("/")
    return urlunsplit((parts.scheme, parts.netloc, path, parts.query, ""))


def is_placeholder(url: str) -> bool:
    """True if the host looks like a placeholder of a copied example."""
    return bool(_PLACEHOLDER.search(urlsplit(url).hostname or ""))


def redact(url: str) -> str:
    """Remove user, password and query, so that the URL is safe for logs, journals and the model."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        return "<unreadable URL>"
    if not parts.scheme or not host:
        return url.partition("?")[0].rpartition("@")[2]
    host = f"[{host}]" if ":" in host else host
    return urlunsplit((parts.scheme, host + port, parts.path, "", ""))


def basic_auth(parts: SplitResult) -> str | None:
    """Return the Authorization header for the user and password of a URL; None if it has neither."""
    if parts.username is None:
        return None
    login = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return f"Basic {base64.b64encode(login.encode()).decode()}"


@dataclass(slots=True)
class Endpoint:
    """One sandbox and its recent health."""

    url: str
    label: str = ""
    """The redacted URL."""
    in_flight: int = 0
    failures: int = 0
    failed_at: float = float("-inf")
    set_aside_until: float = float("-inf")
    last_used: int = 0

    def path(self, name: str) -> str:
        """Return the full URL of a route."""
        base, mark, query = self.url.partition("?")
        return f"{base}/{name}{mark}{query}"


class Endpoints:
    """Chooses the endpoint of the next attempt: the least busy that is not set aside, round-robin on a tie."""

    def __init__(self, urls: Sequence[str]) -> None:
        if not urls:
            raise ConfigError("sandbox_fusion_url is an empty list; give at least one address")
        unique = list(dict.fromkeys(normalise_url(url) for url in urls))
        self._all = [Endpoint(url, redact(url)) for url in unique]
        self._turn = 0

    def take(self, now: float) -> Endpoint:
        """Choose an endpoint and count an attempt on it; if all are set aside, the one that returns first."""
        if len(self._all) == 1:
            chosen = self._all[0]
        elif awake := [e for e in self._all if e.set_aside_until <= now]:
            # An endpoint that failed gets a single attempt at a time until one succeeds.
            fit = [e for e in awake if not (e.failures and e.in_flight)] or awake
            chosen = min(fit, key=lambda e: (e.in_flight, e.last_used))
        else:
            chosen = min(self._all, key=lambda e: (e.set_aside_until, e.last_used))
        self._turn += 1
        chosen.last_used = self._turn
        chosen.in_flight += 1
        return chosen

    def give(self, endpoint: Endpoint, now: float, *, began: float, healthy: bool | None) -> None:
        """Record the end of an attempt; ``healthy`` is None if it says nothing about the endpoint."""
        endpoint.in_flight -= 1
        if healthy:
            endpoint.failures = 0
            endpoint.set_aside_until = float("-inf")
        elif healthy is False and began > endpoint.failed_at:
            # A crash fails every attempt in flight at once: count it as one failure, not as many in a row.
            endpoint.failed_at = now
            endpoint.set_aside_until = now + min(LONGEST_PAUSE, FIRST_PAUSE * 2.0**endpoint.failures)
            endpoint.failures = min(endpoint.failures + 1, 16)

    def __iter__(self) -> Iterator[Endpoint]:
        return iter(self._all)
