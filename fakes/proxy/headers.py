"""Which headers pass a proxy, and which are for the next hop only (RFC 9110, 7.6.1). No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from multidict import CIMultiDict

from sfusion.fakes.proxy.upstream import Upstream

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
