"""Who may use a server: by which names, from which web pages, and what needs the token. No I/O."""

from __future__ import annotations

import base64
import binascii
import hmac
import secrets
import socket
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Final
from urllib.parse import urlsplit

from sfusion_tools.hosts import address_of, is_loopback, is_this_machine

from ..errors import UnsafeBindError
from .app import Request
from .message import Answer

ADMIN: Final = "/__sfusion/"
LONGEST_BODY: Final = 100_000
"""Bytes of an admin request.

Chosen: reading YAML takes about 10 s for each megabyte, in which nothing else is served.
"""
PINGS = frozenset({"/v1/ping", "/health"})
"""Routes that never need the token, so that anything can ask whether the server is up."""
_MOST_KNOWN = 100
"""Accepted Host headers that are remembered (chosen: clients could fill more memory)."""
_PRIVATE_SUFFIXES = (".local", ".internal")
"""Ends of names that public DNS does not have, so that nobody can make them lead here."""
_NO_TOKEN = (
    "this request needs the token of the server: in the header x-sfusion-token, as a bearer token, "
    "or as the password in the URL (http://x:TOKEN@host). A server gets its token from "
    "SFUSION_TOKEN or --token-file when it is started; a fake in Python has it as .token"
)


def is_admin(path: str) -> bool:
    """True for the fake's own routes, which faults never strike and a proxy never forwards."""
    return path.startswith(ADMIN) or path == ADMIN[:-1]


_TOKEN_BYTES = 16
"""Random bytes of a token that is drawn (chosen: 128 bits cannot be guessed)."""


class Access:
    """Refuses requests from foreign web pages, and those without the token where it is needed.

    Browsers send requests to any address that a page names, also to loopback; they name the page's
    origin. A page can also let its own name lead to loopback (DNS rebinding); then the Host is not
    a name of this machine.
    """

    def __init__(
        self,
        host: str = "127.0.0.1",
        *,
        token: str | None = None,
        require_token: bool = False,
        runs_code: bool = False,
        allow_remote: bool = False,
        allow_hosts: Iterable[str] = (),
        allow_origins: Iterable[str] = (),
        realm: str = "sfusion",
    ) -> None:
        """Raise UnsafeBindError when it would run code for anyone who can reach ``host``.

        ``require_token``: every request but the ping needs the token. Where code runs for other
        machines that is always so. Admin routes need it if one was given, where code runs (programs
        can reach their server), and for other machines; if none was given, it is drawn at random.
        """
        self._local = is_loopback(host)
        if runs_code and not self._local and not (allow_remote and token):
            raise UnsafeBindError(
                f"listening on {host} would run code for anyone who can reach this machine; "
                "give both allow_remote (--allow-remote) and a token (SFUSION_TOKEN or "
                "--token-file), or listen on 127.0.0.1"
            )
        self._guards_all = require_token or (runs_code and not self._local)
        """Every request but the ping needs the token."""
        self.token = token or None
        """The token that admin routes need, None if they need none."""
        if self.token is None and (self._guards_all or runs_code or not self._local):
            self.token = secrets.token_urlsafe(_TOKEN_BYTES)
        self._realm = realm
        self._hosts = _patterns(allow_hosts)
        self._origins = _patterns(allow_origins)
        self._names = frozenset({host.strip("[]").lower(), socket.gethostname().lower()})
        self._known: set[str] = {""}
        """Host headers that were accepted; HTTP/1.0 has none, but browsers always send one."""

    def refusal(self, request: Request) -> Answer | None:
        """The answer to a request that is not let in."""
        headers = request.headers
        host = headers.get("Host", "")
        if host not in self._known and not self._is_ours(host) and not self.has_token(headers):
            return _forbidden(
                f"{_shown(host)} is not a name of this server",
                option="--allow-host",
                parameter="allow_hosts",
            )
        whose = self._foreign_page(request, host)
        if whose is not None:
            return _forbidden(
                f"the request comes from a web page of {whose}",
                option="--allow-origin",
                parameter="allow_origins",
            )
        return self._token_refusal(request, host)

    def _foreign_page(self, request: Request, host: str) -> str | None:
        """Say whose web page sent a request, if it is one that is not let in."""
        origin = request.headers.get("Origin")
        if origin is not None:
            if self._is_own_page(origin.lower(), host.lower(), request.address):
                return None
            return f"the origin {_shown(origin)}"
        if request.headers.get("Sec-Fetch-Site") == "cross-site" and "*" not in self._origins:
            return "another origin"
        return None

    def _token_refusal(self, request: Request, host: str) -> Answer | None:
        """The answer to a request that lacks the token which it needs."""
        admin = is_admin(request.path)
        if self.token is None:
            if admin and not host:
                # A page can make a browser speak other protocols to this port, which may be read
                # as HTTP/0.9, without any header.
                return Answer.json({"detail": "sfusion: admin routes need a Host header"}, 403)
            return None

        needed = admin or (self._guards_all and request.path not in PINGS)
        if not needed or self.has_token(request.headers):
            return None
        asking = (("www-authenticate", f'Basic realm="{self._realm}"'),)
        return Answer.json({"detail": _NO_TOKEN}, 401, asking)

    def has_token(self, headers: Mapping[str, str]) -> bool:
        """True when a request carries the token.

        It may be in ``x-sfusion-token``, a bearer token, or the password of the URL.
        """
        return self._matches(headers.get("X-Sfusion-Token", "")) or self.is_authorized(headers)

    def is_authorized(self, headers: Mapping[str, str]) -> bool:
        """True when the token is in the Authorization header."""
        scheme, _, value = headers.get("Authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            return self._matches(value.strip())
        if scheme.lower() != "basic":
            return False
        try:
            _user, _, password = base64.b64decode(value).decode().partition(":")
        except (binascii.Error, ValueError):
            return False
        return self._matches(password)

    def _matches(self, given: str) -> bool:
        if self.token is None or not given:
            return False
        return hmac.compare_digest(given.encode("utf-8", "replace"), self.token.encode())

    def _is_ours(self, host: str) -> bool:
        """True for a Host of this machine or one that is allowed.

        The port may be one that is forwarded here.
        """
        name = _without_port(host)
        is_known = is_this_machine(name) or name in self._names or _fits(name, self._hosts)
        # Other machines may reach this one by a name that only their network knows.
        is_trusted = not self._local and not _is_public(name)
        if not is_known and not is_trusted:
            return False
        if len(self._known) < _MOST_KNOWN:
            self._known.add(host)
        return True

    def _is_own_page(self, origin: str, host: str, address: str) -> bool:
        if origin == f"http://{host}" or _fits(origin, self._origins):
            return True
        try:
            page = urlsplit(origin)
            port = page.port or 80
        except ValueError:
            return False
        own = page.scheme == "http" and page.hostname is not None and is_loopback(page.hostname)
        return own and address.endswith(f":{port}")


def _is_public(name: str) -> bool:
    """Could a web page choose this name, and let it lead to a server that serves other machines?

    It can choose neither an address nor a name that public DNS does not have.
    """
    return "." in name and not name.endswith(_PRIVATE_SUFFIXES) and address_of(name) is None


def _patterns(given: Iterable[str]) -> tuple[str, ...]:
    """Read patterns; a single text stands for itself."""
    patterns = [given] if isinstance(given, str) else given
    return tuple(pattern.lower() for pattern in patterns)


def _fits(text: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(text, pattern) for pattern in patterns)


def _without_port(host: str) -> str:
    name, _, port = host.rpartition(":")
    if not name or not port.isdigit():
        name = host
    return name.strip("[]").rstrip(".").lower()


_LONGEST_SHOWN = 100
"""Characters of a header that a refusal repeats (chosen: longer than any name that is used)."""


def _shown(text: str) -> str:
    if len(text) > _LONGEST_SHOWN:
        text = text[:_LONGEST_SHOWN] + "..."
    return repr(text)


def _forbidden(why: str, *, option: str, parameter: str) -> Answer:
    detail = f"sfusion: {why}; if it should be served, start with {option} ({parameter})"
    return Answer.json({"detail": detail}, 403)
