"""The sandboxes to send calls to: one, or several that share the load and are set aside while they fail."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit, urlunsplit

from sfusion_tools.errors import ConfigError

FIRST_REST, LONGEST_REST = 1.0, 30.0
"""Seconds that an endpoint is set aside after its first failure, and at most; each failure in a row doubles it."""

_PLACEHOLDER = re.compile(r"^x{3,}|\*{2,}|^<|^your[-_.]|\$\{|(^|\.)example(\.(com|org|net))?$", re.IGNORECASE)


def normalise_url(url: object) -> str:
    """The base URL of a sandbox, given with or without ``/run_code``; anything else is refused with a reason."""
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
    """True when the host looks like one that was meant to be filled in, as in the examples people copy."""
    return bool(_PLACEHOLDER.search(urlsplit(url).hostname or ""))


def redact(url: str) -> str:
    """The URL without user, password and query values: fit for logs, journals and the model."""
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


@dataclass(slots=True)
class Endpoint:
    """One sandbox, and how it has been doing."""

    url: str
    label: str = ""
    """The URL as it may be shown."""
    in_flight: int = 0
    failures: int = 0
    failed_at: float = float("-inf")
    rests_until: float = float("-inf")
    last_used: int = 0

    def path(self, name: str) -> str:
        """The full URL of one of its routes."""
        base, mark, query = self.url.partition("?")
        return f"{base}/{name}{mark}{query}"


class Endpoints:
    """Chooses where the next attempt goes: the least busy that is not set aside, in turn when equal."""

    def __init__(self, urls: Sequence[str]) -> None:
        if not urls:
            raise ConfigError("sandbox_fusion_url is an empty list; give at least one address")
        unique = list(dict.fromkeys(normalise_url(url) for url in urls))
        self._all = [Endpoint(url, redact(url)) for url in unique]
        self._turn = 0

    def take(self, now: float) -> Endpoint:
        """Where to send the next attempt. When all are set aside, the one whose rest ends first is tried."""
        if len(self._all) == 1:
            chosen = self._all[0]
        elif awake := [e for e in self._all if e.rests_until <= now]:
            # One that failed before is tried with a single attempt until it has answered well.
            fit = [e for e in awake if not (e.failures and e.in_flight)] or awake
            chosen = min(fit, key=lambda e: (e.in_flight, e.last_used))
        else:
            chosen = min(self._all, key=lambda e: (e.rests_until, e.last_used))
        self._turn += 1
        chosen.last_used = self._turn
        chosen.in_flight += 1
        return chosen

    def give(self, endpoint: Endpoint, now: float, *, began: float, healthy: bool | None) -> None:
        """The attempt that began then ended: well, badly, or in a way that says nothing of the endpoint (None)."""
        endpoint.in_flight -= 1
        if healthy:
            endpoint.failures = 0
            endpoint.rests_until = float("-inf")
        elif healthy is False and began > endpoint.failed_at:
            # A crash fails all that are in flight at once; that is one failure, not as many in a row.
            endpoint.failed_at = now
            endpoint.rests_until = now + min(LONGEST_REST, FIRST_REST * 2.0**endpoint.failures)
            endpoint.failures = min(endpoint.failures + 1, 16)

    def __iter__(self) -> Iterator[Endpoint]:
        return iter(self._all)
