"""The addresses of sandboxes: what must never be shown of them, and which proxy leads there.

No I/O: the environment comes in as a mapping.
"""

from __future__ import annotations

import base64
import hashlib
import ipaddress
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit, urlunsplit

from sfusion_tools.errors import ConfigError
from sfusion_tools.hosts import is_this_machine

_UNREADABLE = "<unreadable URL>"
_ROUTES = re.compile(r"(.*?)((?:/run_code|/run_jupyter|/v1/ping)*/*)", re.DOTALL)
_REDACTED = re.compile(r"/\*\*\*-[0-9a-f]{4}")
_PLACEHOLDER = re.compile(
    r"^x{3,}|\*{2,}|^<|^your[-_.]|\$\{|(^|\.)example(\.(com|org|net))?$", re.IGNORECASE
)
SHORTEST_PASSWORD = 4
SHORTEST_TOKEN = 8
"""Shorter ones are not masked in texts: they would hide half of every sentence. Chosen: no token of
a gateway is so short, and few passwords are."""

_PLAIN_HEADERS = frozenset({"accept", "content-type", "user-agent"})
_WORD = re.compile(r"[a-z_-]+")
"""A part of a path that may be a plain word is not masked in texts either."""


class Address(NamedTuple):
    """Where requests go, and how."""

    url: str
    label: str
    """The redacted URL."""
    proxy: str | None = None
    headers: tuple[tuple[str, str], ...] = ()


def normalise_url(url: object) -> str:
    """Return the base URL of a sandbox, given with or without ``/run_code``.

    Raise ConfigError for anything else.
    """
    wanted = (
        "sandbox_fusion_url must be the address of a Sandbox Fusion server, such as "
        "http://127.0.0.1:8080/run_code"
    )
    if not isinstance(url, str) or not url.strip():
        raise ConfigError(f"{wanted}; found {url!r}")
    try:
        parts = urlsplit(url.strip())
        host = parts.hostname
        _ = parts.port  # raises if it is none
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
    """Return the label of a sandbox, safe for logs, journals and the model.

    It has scheme, host, port and known routes. Gateways take tokens in any other part. Of a longer
    path four digits of a hash stay, which tell two sandboxes behind one host apart.
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
    """Return the Authorization header for the user and password of a URL; None without them."""
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
    several = [urls] if isinstance(urls, str) else urls
    return tuple(dict.fromkeys(normalise_url(url) for url in several))


def secrets_of(url: str, headers: Mapping[str, str]) -> list[str]:
    """Return what must be masked in texts, the longest first.

    These are the passwords and tokens of a URL that can be read, and the values of headers.
    """
    parts = urlsplit(url.strip())
    tokens = _tokens_in_headers(headers) | _tokens_in_url(parts)
    found = {token for token in tokens if len(token) >= SHORTEST_TOKEN}
    password = parts.password or ""
    if len(password) >= SHORTEST_PASSWORD:
        found.add(password)
        found.add((basic_auth(parts) or "").removeprefix("Basic "))
    found |= {unquote(token) for token in found}
    return sorted(found, key=len, reverse=True)


def _tokens_in_headers(headers: Mapping[str, str]) -> set[str]:
    tokens = set()
    for name, value in headers.items():
        if name.lower() not in _PLAIN_HEADERS:
            tokens.add(value)
            # "Bearer abc": the second word alone is as secret as the whole value.
            tokens.update(value.split()[1:])
    return tokens


def _tokens_in_url(parts: SplitResult) -> set[str]:
    tokens = {value for _, value in parse_qsl(parts.query)}
    tokens |= {part.partition("=")[2] for part in parts.query.split("&")}
    tokens |= {part for part in parts.path.split("/") if not _WORD.fullmatch(part)}
    if parts.username and not parts.password:
        tokens.add(parts.username)  # a token instead of a user name
    return tokens


def hide(text: str, secrets: Sequence[str]) -> str:
    """Replace secrets in a text."""
    for secret in secrets:
        text = text.replace(secret, "***")
    return text


def proxy_for(url: str, environ: Mapping[str, str]) -> str | None:
    """Return the proxy that the environment sets for this URL.

    None for loopback and for hosts in NO_PROXY.
    """
    parts = urlsplit(url)
    host = (parts.hostname or "").lower()
    port = parts.port or (443 if parts.scheme == "https" else 80)
    if is_this_machine(host) or _exempt(host, port, proxy_variable(environ, "no_proxy")):
        return None
    proxy = proxy_variable(environ, f"{parts.scheme}_proxy") or proxy_variable(environ, "all_proxy")
    if not proxy:
        return None
    return proxy if "://" in proxy else f"http://{proxy}"


def is_usable(proxy: str) -> bool:
    """True for HTTP and HTTPS proxies; False for SOCKS and for values that are not URLs."""
    try:
        parts = urlsplit(proxy)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def proxy_variable(environ: Mapping[str, str], name: str) -> str:
    """Look up a variable in lower case, then in upper case."""
    return (environ.get(name) or environ.get(name.upper()) or "").strip()


def _exempt(host: str, port: int, no_proxy: str) -> bool:
    for entry in re.split(r"[,\s]+", no_proxy.lower()):
        if not entry:
            continue
        if entry == "*":
            return True
        name = entry
        wanted_port = ""
        if entry.count(":") == 1:  # several are an IPv6 address
            name, _, wanted_port = entry.partition(":")
        if wanted_port and wanted_port != str(port):
            continue
        if _in_network(host, name):
            return True
        name = name.removeprefix("*").lstrip(".")
        if host == name or host.endswith(f".{name}"):
            return True
    return False


def _in_network(host: str, entry: str) -> bool:
    try:
        return ipaddress.ip_address(host) in ipaddress.ip_network(entry, strict=False)
    except ValueError:
        return False
