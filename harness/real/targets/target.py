"""The target of ``--sandbox``: ``fake``, an address, ``docker`` or ``docker:IMAGE``; and whether
one answers."""

from __future__ import annotations

import os
import re
import urllib.request
from dataclasses import dataclass, field
from http.client import HTTPException
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit, urlunsplit

from sfusion_tools.errors import ConfigError, near
from sfusion_tools.sandbox.endpoints import (
    basic_auth,
    is_placeholder,
    normalise_url,
    proxy_for,
    redact,
)

from ...errors import BadTarget

DEFAULT_IMAGE = "volcengine/sandbox-fusion:server-20250609"
"""The published image of Sandbox Fusion."""

KINDS = "fake, an address such as http://127.0.0.1:8080, docker, or docker:IMAGE"

_WORD = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_NAME = r"[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?"
_HOST = rf"(?:localhost|{_NAME}(?:\.{_NAME})+|(?:{_NAME}|\[[0-9A-Fa-f:]+\])(?=:))(?::\d{{1,5}})?"
_TAG = r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}"
_IMAGE = re.compile(rf"(?:{_HOST}/)?{_WORD}(?:/{_WORD})*(?::{_TAG})?(?:@sha256:[0-9a-f]{{64}})?")
_ID = re.compile(r"(?:sha256:)?[0-9a-f]{64}")


@dataclass(frozen=True)
class FakeTarget:
    """The fake, which the command itself starts."""

    def __str__(self) -> str:
        return "fake"


@dataclass(frozen=True)
class UrlTarget:
    """A server that already runs somewhere."""

    url: str = field(repr=False)
    """The base URL without ``/run_code``; may contain a password, so show ``str(target)``
    instead."""

    def __str__(self) -> str:
        return redact(self.url)


@dataclass(frozen=True)
class DockerTarget:
    """A container that is started for the run and removed afterwards."""

    image: str = DEFAULT_IMAGE

    def __str__(self) -> str:
        return "docker" if self.image == DEFAULT_IMAGE else f"docker:{self.image}"


Target = FakeTarget | UrlTarget | DockerTarget


class RealSandbox:
    """What a run can do with a sandbox; one that sfusion did not start is never killed.

    ``name`` is for messages and reports and contains no secrets. ``url`` may change when it is
    revived. ``kill`` and ``revive`` block, sometimes for seconds.
    """

    killable = False

    def __init__(self, name: str, url: str) -> None:
        self.name = name
        self.url = url

    def kill(self) -> None:
        """End it with SIGKILL, like the kernel when memory runs out."""
        raise BadTarget(
            f"{self.name} is an address; only a container that sfusion started can be killed"
        )

    def revive(self) -> None:
        """Start it again, and wait until it answers."""
        raise BadTarget(
            f"{self.name} is an address; only a container that sfusion started can be started again"
        )


def read_target(text: str) -> Target:
    """Raises BadTarget with what was found and what was probably meant."""
    text = text.strip()
    kind, colon, rest = text.partition(":")
    if text == "fake":
        return FakeTarget()
    if kind == "docker" and not rest.startswith("//"):
        if not colon:
            return DockerTarget()
        return DockerTarget(_image(rest))
    if "://" in text:
        return UrlTarget(_url(text))
    if not text:
        raise BadTarget(f"no sandbox given; use {KINDS}")
    if re.fullmatch(r"(?:[\w.-]+|\[[0-9A-Fa-f:]+\]):\d+(?:/.*)?|localhost(?:/.*)?", text):
        raise BadTarget(
            f"{redact(text)!r} is not a sandbox: an address begins with its scheme, as in "
            f"http://{redact(text)}"
        )
    meant = near(kind, ("docker", "fake"))
    hint = f"{meant} Use" if "?" in meant else "use"
    raise BadTarget(f"{redact(text)!r} is not a sandbox; {hint} {KINDS}")


def _url(text: str) -> str:
    try:
        url = normalise_url(text)
    except ConfigError:
        raise BadTarget(
            f"{redact(text)!r} is not the address of a sandbox; it looks like http://127.0.0.1:8080"
        ) from None
    if is_placeholder(url):
        raise BadTarget(
            f"{redact(url)!r} is a placeholder that was never filled in; enter the address "
            "of your own sandbox"
        )
    return url


def _image(name: str) -> str:
    if not name:
        raise BadTarget(
            f"docker: lacks an image; write docker for {DEFAULT_IMAGE}, or docker:IMAGE"
        )
    if not (_IMAGE.fullmatch(name) or _ID.fullmatch(name)):
        hint = "; image names are in lower case" if _IMAGE.fullmatch(name.lower()) else ""
        raise BadTarget(
            f"{name!r} is not the name of an image, such as {DEFAULT_IMAGE} or "
            f"HOST:5000/sandbox@sha256:DIGEST{hint}"
        )
    return name


PING = "/v1/ping"


def why_unreachable(url: str, timeout: float) -> str | None:
    """Return None if the address gives any HTTP answer, otherwise the reason in a few words."""
    try:
        _status(url, timeout)
    except (HTTPException, OSError) as error:
        return _reason(error)
    return None


def is_ready(url: str, timeout: float) -> bool:
    """Does the ping return 200?"""
    try:
        return _status(url, timeout) == 200
    except (HTTPException, OSError):
        return False


def _status(url: str, timeout: float) -> int:
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    address = urlunsplit((parts.scheme, host, parts.path.rstrip("/") + PING, parts.query, ""))
    request = urllib.request.Request(address, headers={"Accept": "application/json"})
    if login := basic_auth(parts):
        request.add_header("Authorization", login)
    proxy = proxy_for(address, os.environ)
    opener = urllib.request.build_opener(
        urllib.request.ProxyHandler({parts.scheme: proxy} if proxy else {})
    )
    try:
        with opener.open(request, timeout=timeout) as answer:
            return int(answer.status)
    except HTTPError as refused:
        with refused:
            return refused.code


def _reason(error: BaseException) -> str:
    while isinstance(error, URLError) and isinstance(error.reason, BaseException):
        error = error.reason
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror[0].lower() + error.strerror[1:]
    return str(error) or type(error).__name__
