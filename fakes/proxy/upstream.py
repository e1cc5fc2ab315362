"""The server that a proxy forwards to, with the secrets of its URL kept apart, and the headers that pass."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from multidict import CIMultiDict

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


HOP_BY_HOP = frozenset(
    {
        "connection",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
# The length follows from the body, expectations are answered here, and the token is for the proxy.
_NOT_SENT = HOP_BY_HOP | {"host", "content-length", "expect", "x-sfusion-token", "via"}
_LINKS = frozenset({"location", "content-location"})


def forwarded(headers: Mapping[str, str], *, via: str, ours: Mapping[str, str], drop: str = "") -> CIMultiDict[str]:
    """The headers of a forwarded request: end-to-end ones in their order, then ``ours``, replacing equal names."""
    named = headers.get("Connection")
    skip: frozenset[str] | set[str] = _NOT_SENT
    if named is not None or drop or ours:
        skip = _NOT_SENT | _words(named or "") | {name.lower() for name in ours} | {drop}
    sent: CIMultiDict[str] = CIMultiDict()
    spelt: dict[str, str] = {}
    for name, value in headers.items():
        lower = name.lower()
        if lower not in skip:
            # aiohttp drops all but the last of equal names that differ in case.
            sent.add(spelt.setdefault(lower, name), value)
    for name, value in ours.items():
        sent.add(name, value)
    before = headers.get("Via")
    sent.add("via", f"{before}, {via}" if before else via)
    return sent


def relayed(
    raw: Iterable[tuple[bytes, bytes]], upstream: Upstream, here: str
) -> tuple[list[tuple[str, str]], int | None, bool]:
    """The headers of a relayed answer in their order, the length of its body, and whether it is chunked.

    Headers about the framing of the body stay in place; links to the upstream are changed to lead ``here``.
    """
    passed: list[tuple[str, str]] = []
    named: set[str] = set()
    length: int | None = None
    chunked = False
    for raw_name, raw_value in raw:
        name, value = raw_name.decode("latin-1"), raw_value.decode("latin-1")
        lower = name.lower()
        if lower == "content-length":
            length = int(value) if value.isdecimal() else None
        elif lower == "transfer-encoding":
            chunked = True
        elif lower == "connection":
            named |= _words(value)
            continue
        elif lower in HOP_BY_HOP:
            continue
        elif lower in _LINKS:
            value = _through_proxy(value, upstream, here)
        passed.append((name, value))
    if named:
        passed = [pair for pair in passed if pair[0].lower() not in named]
    if chunked and length is not None:
        length = None
        passed = [pair for pair in passed if pair[0].lower() != "content-length"]
    return passed, length, chunked


def _words(value: str) -> set[str]:
    return {word.strip().lower() for word in value.split(",")} - {"", "close", "content-length", "transfer-encoding"}


def _through_proxy(link: str, upstream: Upstream, here: str) -> str:
    """Turn a link to the upstream into one through the proxy: a redirect would bypass it otherwise."""
    for start in (upstream.origin + upstream.base, upstream.base):
        rest = link.removeprefix(start)
        if start and rest != link and rest[:1] in ("", "/", "?", "#"):
            return (f"http://{here}" if start.startswith(upstream.origin) else "") + (rest or "/")
    return link
