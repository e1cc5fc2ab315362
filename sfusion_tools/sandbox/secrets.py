"""What of a sandbox's address and headers must never be shown, also where a server quotes it in its answer. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from urllib.parse import parse_qsl, unquote, urlsplit

from sfusion_tools.sandbox.endpoints import basic_auth

SHORTEST_PASSWORD, SHORTEST_TOKEN = 4, 8
"""Shorter ones are not masked in texts: they would hide half of every sentence."""

_PLAIN_HEADERS = frozenset({"accept", "content-type", "user-agent"})
_WORD = re.compile(r"[a-z_-]+")
"""A part of a path that may be a plain word is not masked in texts either."""


def secrets_of(url: str, headers: Mapping[str, str]) -> list[str]:
    """Return passwords and tokens of a URL that can be read, and header values; the longest first."""
    parts = urlsplit(url.strip())
    values = [value for name, value in headers.items() if name.lower() not in _PLAIN_HEADERS]
    tokens = {*values, *(value for _, value in parse_qsl(parts.query))}
    tokens |= {part.partition("=")[2] for part in parts.query.split("&")}
    tokens |= {part for part in parts.path.split("/") if not _WORD.fullmatch(part)}
    # "Bearer abc": the second word alone is as secret as the whole value.
    tokens |= {word for value in values for word in value.split()[1:]}
    if not parts.password:
        tokens.add(parts.username or "")  # a token instead of a user name
    found = {word for word in tokens if len(word) >= SHORTEST_TOKEN}
    if len(parts.password or "") >= SHORTEST_PASSWORD:
        found.add(parts.password or "")
        found.add((basic_auth(parts) or "").removeprefix("Basic "))
    return sorted(found | {unquote(word) for word in found}, key=len, reverse=True)


def hide(text: str, secrets: Sequence[str]) -> str:
    """Replace secrets in a text."""
    for secret in secrets:
        text = text.replace(secret, "***")
    return text
