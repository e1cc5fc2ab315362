"""The addresses of sandboxes."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Sequence
from urllib.parse import SplitResult, unquote, urlsplit, urlunsplit

from sfusion_tools.errors import ConfigError

_UNREADABLE = "<unreadable URL>"
_ROUTES = re.compile(r"(.*?)((?:/run_code|/run_jupyter|/v1/ping)*/*)", re.DOTALL)
_REDACTED = re.compile(r"/\*\*\*-[0-9a-f]{4}")
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
    """Return the label of a sandbox, safe for logs, journals and the model: scheme, host, port and known routes.

    Gateways take tokens in any other part. Of a longer path four digits of a hash stay, which tell two sandboxes behind
    one host apart.
    """
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        return _UNREADABLE
    if not parts.scheme or not host:
        host, slash, path = re.split("[?#]", url, maxsplit=1)[0].rpartition("@")[2].partition("/")
        is_address = "." in host or ":" in host
        return host + (redact_path(slash + path) if is_address else slash + path)
    if "@" in parts.path:
        return _UNREADABLE  # a password with a slash: what looks like the host is the user
    host = f"[{host}]" if ":" in host else host
    return urlunsplit((parts.scheme, host + port, redact_path(parts.path), "", ""))


def redact_path(path: str) -> str:
    """Return a path with nothing but the routes of a sandbox, and a hash of what is before them."""
    prefix, routes = _ROUTES.fullmatch(path).groups()  # type: ignore[union-attr]
    if not prefix or _REDACTED.fullmatch(prefix):
        return path
    return f"/***-{hashlib.blake2s(prefix.encode(), digest_size=2).hexdigest()}{routes}"


def basic_auth(parts: SplitResult) -> str | None:
    """Return the Authorization header for the user and password of a URL; None if it has neither."""
    if parts.username is None:
        return None
    login = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return f"Basic {base64.b64encode(login.encode()).decode()}"


def route(base: str, name: str) -> str:
    """Return the full URL of a route."""
    start, mark, query = base.partition("?")
    return f"{start}/{name}{mark}{query}"


def base_urls(urls: str | Sequence[str]) -> tuple[str, ...]:
    """Return the base URL of each sandbox, without repetitions."""
    if not urls:
        raise ConfigError("sandbox_fusion_url is an empty list; give at least one address")
    return tuple(dict.fromkeys(normalise_url(url) for url in ([urls] if isinstance(urls, str) else urls)))
