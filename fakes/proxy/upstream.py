"""The server that a proxy forwards to, with the secrets of its URL kept apart from what may be shown."""

from __future__ import annotations

from dataclasses import dataclass, field
from urllib.parse import urlsplit

from sfusion.fakes.errors import BadUpstream
from sfusion_tools.hosts import is_this_machine
from sfusion_tools.sandbox.endpoints import basic_auth, redact

_MEANT = "an upstream is the address of an HTTP server, such as http://127.0.0.1:8080"
_ROUTES = ("/run_code", "/run_jupyter")
_EVERYWHERE = frozenset({"0.0.0.0", "::", "localhost"})
_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class Upstream:
    """A parsed upstream URL."""

    origin: str
    """``http://host:port``, without a user."""
    base: str = field(repr=False)
    """Prefix of every path, without a slash at the end."""
    query: str = field(repr=False)
    """Prefix of every query."""
    authorization: str | None = field(repr=False)
    """The Authorization header made from the URL's user and password."""
    shown: str
    """The URL without secrets."""
    host: str
    port: int

    def url(self, target: str) -> str:
        """The full URL for a request's target, which is kept as it was written."""
        path, mark, query = target.partition("?")
        if self.query:
            query = f"{self.query}&{query}" if query else self.query
            mark = "?"
        return f"{self.origin}{self.base}{path}{mark}{query}"

    def is_at(self, host: str, port: int) -> bool:
        """True if, going by names, this is the server that listens on this address of this machine."""
        if self.port != port:
            return False
        everywhere = host in _EVERYWHERE or self.host in _EVERYWHERE
        return self.host == host or (everywhere and is_this_machine(self.host))


def read_upstream(url: object) -> Upstream:
    """Read a URL, with or without the ``/run_code`` of tool configs."""
    if not isinstance(url, str) or not url.strip():
        raise BadUpstream(f"{_MEANT}; found {url!r}")
    try:
        parts = urlsplit(url.strip())
        host, port = parts.hostname, parts.port
    except ValueError:
        raise BadUpstream(f"{_MEANT}; found {redact(url)!r}, which is not a URL") from None
    if parts.scheme not in _PORTS or not host:
        raise BadUpstream(f"{_MEANT}; found {redact(url)!r}")
    base = parts.path.rstrip("/")
    for route in _ROUTES:
        base = base.removesuffix(route)
    base = base.rstrip("/")
    named = f"[{host}]" if ":" in host else host
    origin = f"{parts.scheme}://{named}" + (f":{port}" if port is not None else "")
    return Upstream(
        origin=origin,
        base=base,
        query=parts.query,
        authorization=basic_auth(parts),
        shown=redact(origin + base),
        host=host,
        port=port if port is not None else _PORTS[parts.scheme],
    )


def origin_form(target: str) -> str:
    """A request's target as path and query, even if the client sent a whole URL or just a star."""
    if not target.startswith("/"):
        _, found, rest = target.partition("://")
        slash = rest.find("/")
        target = rest[slash:] if found and slash >= 0 else "/"
    return target.partition("#")[0]
