"""Where calls are to go, as a person types it: ``fake``, an address, ``docker`` or ``docker:IMAGE``."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from sfusion.harness.errors import BadTarget
from sfusion_tools.errors import ConfigError, near
from sfusion_tools.sandbox.endpoints import is_placeholder, normalise_url, redact

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
    """The fake, started by whoever asked."""

    def __str__(self) -> str:
        return "fake"


@dataclass(frozen=True)
class UrlTarget:
    """A server that already runs somewhere."""

    url: str = field(repr=False)
    """Its base URL, without ``/run_code``; it may hold a password, so show ``str(target)`` instead."""

    def __str__(self) -> str:
        return redact(self.url)


@dataclass(frozen=True)
class DockerTarget:
    """A container that is started for the run and removed after it."""

    image: str = DEFAULT_IMAGE

    def __str__(self) -> str:
        return "docker" if self.image == DEFAULT_IMAGE else f"docker:{self.image}"


Target = FakeTarget | UrlTarget | DockerTarget


def read_target(text: str) -> Target:
    """Understand a target; anything else is refused with what was found and what was meant."""
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
        raise BadTarget(f"no sandbox was named; give {KINDS}")
    if re.fullmatch(r"(?:[\w.-]+|\[[0-9A-Fa-f:]+\]):\d+(?:/.*)?|localhost(?:/.*)?", text):
        raise BadTarget(
            f"{redact(text)!r} is no sandbox: an address begins with its scheme, as in http://{redact(text)}"
        )
    meant = near(kind, ("docker", "fake"))
    raise BadTarget(f"{redact(text)!r} is no sandbox; {f'{meant} Known are' if '?' in meant else 'known are'} {KINDS}")


def _url(text: str) -> str:
    try:
        url = normalise_url(text)
    except ConfigError:
        raise BadTarget(
            f"{redact(text)!r} is not the address of a sandbox; it looks like http://127.0.0.1:8080"
        ) from None
    if is_placeholder(url):
        raise BadTarget(
            f"{redact(url)!r} is a placeholder that was never filled in; put the address of your own sandbox there"
        )
    return url


def _image(name: str) -> str:
    if not name:
        raise BadTarget(f"docker: names no image; write docker for {DEFAULT_IMAGE}, or docker:IMAGE")
    if not (_IMAGE.fullmatch(name) or _ID.fullmatch(name)):
        hint = "; the name is written in lower case" if _IMAGE.fullmatch(name.lower()) else ""
        raise BadTarget(
            f"{name!r} is no name of an image, such as {DEFAULT_IMAGE} or HOST:5000/sandbox@sha256:DIGEST{hint}"
        )
    return name
