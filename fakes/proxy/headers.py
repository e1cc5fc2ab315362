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
# The length comes with the body; we have answered an expectation ourselves; the token was for us.
_NOT_SENT = HOP_BY_HOP | {"host", "content-length", "expect", "x-sfusion-token", "via"}
_PLACES = frozenset({"location", "content-location"})


def forwarded(headers: Mapping[str, str], *, via: str, ours: Mapping[str, str], drop: str = "") -> CIMultiDict[str]:
    """The headers of a request to send on: what is not hop-by-hop in its order, then ``ours`` in place of theirs."""
    named = headers.get("Connection")
    skip: frozenset[str] | set[str] = _NOT_SENT
    if named is not None or drop or ours:
        skip = _NOT_SENT | _words(named or "") | {name.lower() for name in ours} | {drop}
    sent: CIMultiDict[str] = CIMultiDict()
    spelt: dict[str, str] = {}
    for name, value in headers.items():
        lower = name.lower()
        if lower not in skip:
            # aiohttp loses all but the last of equal names that are spelt differently.
            sent.add(spelt.setdefault(lower, name), value)
    for name, value in ours.items():
        sent.add(name, value)
    before = headers.get("Via")
    sent.add("via", f"{before}, {via}" if before else via)
    return sent


def relayed(
    raw: Iterable[tuple[bytes, bytes]], upstream: Upstream, here: str
) -> tuple[list[tuple[str, str]], int | None, bool]:
    """The headers of an answer to pass on, in their order; with the length of its body, and whether it is chunked.

    How the body is framed stays visible where it was; links to the server behind lead ``here``.
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
        elif lower in _PLACES:
            value = _moved(value, upstream, here)
        passed.append((name, value))
    if named:
        passed = [pair for pair in passed if pair[0].lower() not in named]
    if chunked and length is not None:
        length = None
        passed = [pair for pair in passed if pair[0].lower() != "content-length"]
    return passed, length, chunked


def _words(value: str) -> set[str]:
    return {word.strip().lower() for word in value.split(",")} - {"", "close", "content-length", "transfer-encoding"}


def _moved(place: str, upstream: Upstream, here: str) -> str:
    """A link to the server behind, as a link through the proxy: otherwise a redirect would lead around it."""
    for start in (upstream.origin + upstream.base, upstream.base):
        rest = place.removeprefix(start)
        if start and rest != place and rest[:1] in ("", "/", "?", "#"):
            return (f"http://{here}" if start.startswith(upstream.origin) else "") + (rest or "/")
    return place
