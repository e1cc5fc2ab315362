"""Remove from answers what must not be written down: secrets, hosts and addresses, users, paths, process ids."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import parse_qsl, quote, quote_plus, unquote, urlsplit

from sfusion.harness.real.probes.model import Probe
from sfusion.harness.real.probes.patterns import SECRETS, mask
from sfusion.harness.real.probes.raw_http import ProbeAnswer
from sfusion_tools.bounded_input import parse_json

SHORTEST = 4
"""Shorter secrets are not masked in texts: they would match everywhere."""

_SECRET_VARIABLE = re.compile(r"(?i)token|secret|passw|credential|api_?key|access_?key|private_?key|cookie")
_SECRET_HEADER = re.compile(r"(?i)auth|token|secret|passw|credential|key|cookie")
_LONG_ENOUGH = 8
"""Minimum length of an environment variable's value that counts as a secret."""
_HARMLESS = frozenset(
    {
        *("true", "false", "none", "null", "root", "user", "home", "test", "admin", "localhost", "application/json"),
        *("python", "pytest", "node", "bash", "java", "perl", "ruby", "julia", "sandbox"),
    }
)
"""Words that appear in answers anyway, so they reveal nothing."""
_PLAIN_HEADERS = frozenset({"content-type", "accept", "content-length", "user-agent", "host", "accept-encoding"})


@dataclass(frozen=True)
class Scrubber:
    """Masks what is known to be secret, and what the patterns recognise."""

    known: tuple[tuple[str, str], ...] = ()
    """Texts and the marks that replace them, the longest first."""

    @classmethod
    def of(
        cls,
        *,
        url: str = "",
        headers: Mapping[str, str] | None = None,
        hosts: Iterable[str] = (),
        users: Iterable[str] = (),
        paths: Iterable[str] = (),
        environ: Mapping[str, str] | None = None,
        also_secret: Iterable[str] = (),
    ) -> Scrubber:
        """Build from what is sent to the server and the names of this machine."""
        known: dict[str, str] = {}
        parts = urlsplit(url)
        secrets = [part for part in (parts.username, parts.password) if part]
        secrets += [unquote(part) for part in secrets]
        secrets += [one for value in also_secret for one in _of_header(value)]
        if parts.username:
            secrets.append(f"{unquote(parts.username)}:{unquote(parts.password or '')}")
        secrets += [value for _, value in parse_qsl(parts.query, keep_blank_values=True)]
        for name, value in (headers or {}).items():
            if name.lower() not in _PLAIN_HEADERS:
                secrets += _of_header(value)
        for name, value in (environ or {}).items():
            if _SECRET_VARIABLE.search(name) and len(value) >= _LONG_ENOUGH:
                secrets.append(value)
        if parts.path.strip("/"):
            known[parts.path.rstrip("/")] = ""  # a gateway's prefix, which redirects contain
        for path in paths:
            if len(path) > SHORTEST:
                known[path] = "<PATH>"
        for user in users:
            known[user] = "<USER>"
        for host in (parts.hostname or "", *hosts):
            known[host] = "<HOST>"
        for secret in secrets:
            known |= dict.fromkeys(_encodings(secret), "<SECRET>")
        kept = {text: mark for text, mark in known.items() if len(text) >= SHORTEST and text.lower() not in _HARMLESS}
        return cls(tuple(sorted(kept.items(), key=lambda one: (-len(one[0]), one[0]))))

    def text(self, text: str) -> str:
        for known, mark in self.known:
            if mark == "<SECRET>":
                text = text.replace(known, mark)
            else:
                # A single word must not be masked inside other words.
                edges = ("(?<![\\w-])", "(?![\\w-])") if known.isalnum() else ("", "")
                text = re.sub(f"(?i){edges[0]}{re.escape(known)}{edges[1]}", mark, text)
        return mask(text)

    def request(self, value: Any) -> Any:
        """Mask only secrets: the paths and hosts in a request were written by its author."""
        if isinstance(value, str):
            for known, mark in self.known:
                if mark == "<SECRET>":
                    value = value.replace(known, mark)
            return mask(value, SECRETS)
        if isinstance(value, list):
            return [self.request(one) for one in value]
        if isinstance(value, dict):
            return {self.request(name): self.request(one) for name, one in value.items()}
        return value

    def value(self, value: Any) -> Any:
        """Mask everything inside a JSON value, including keys and base64 files."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, list):
            return [self.value(one) for one in value]
        if isinstance(value, dict):
            return {self.text(name): self._member(name, one) for name, one in value.items()}
        return value

    def _member(self, name: str, value: Any) -> Any:
        if name == "files" and isinstance(value, dict):
            return self._files(value)
        if name == "$ref" and isinstance(value, str) and value.startswith("#/"):
            return self.request(value)  # it looks like a path but leads to a place in the same document
        return self.value(value)

    def answer(self, answer: ProbeAnswer) -> ProbeAnswer:
        return replace(
            answer,
            headers=tuple((name, self.text(value)) for name, value in answer.headers),
            body=self._body(answer.body),
            failure=self.text(answer.failure),
        )

    def _body(self, body: bytes) -> bytes:
        text = body.decode("utf-8", "backslashreplace")
        try:
            value = parse_json(text, "answer")
        except ValueError:
            return self.text(text).encode()
        if not isinstance(value, dict | list | str):
            return body
        clean = self.value(value)
        # Rewriting loses the exact form of numbers, whitespace and escapes, so do it only if something was masked.
        return body if clean == value else _like(text, clean).encode("utf-8", "backslashreplace")

    def _files(self, files: dict[str, Any]) -> dict[str, Any]:
        return {self.text(name): self._file(content) for name, content in files.items()}

    def _file(self, content: Any) -> Any:
        if not isinstance(content, str):
            return self.value(content)
        try:
            text = base64.b64decode(content, validate=True).decode()
        except ValueError:
            return self.text(content)
        clean = self.text(text)
        return content if clean == text else base64.b64encode(clean.encode()).decode()


def secrets_of(probes: Iterable[Probe]) -> list[str]:
    """Values of the probes' headers whose names sound like secrets."""
    sent = [probe.request.sent_headers for probe in probes if probe.request is not None]
    return [value for headers in sent for name, value in headers.items() if _SECRET_HEADER.search(name)]


def _of_header(value: str) -> list[str]:
    """The value, the token after its scheme, and the login inside a Basic one."""
    scheme, _, rest = value.partition(" ")
    found = [value]
    if rest:
        found.append(rest.strip())
        if scheme.lower() == "basic":
            try:
                login = base64.b64decode(rest.strip(), validate=True).decode()
            except ValueError:
                return found
            found += [login, *login.split(":", 1)]
    return found


def _encodings(secret: str) -> set[str]:
    """The encodings in which a secret may be echoed."""
    return {
        secret,
        quote(secret, safe=""),
        quote(secret),
        quote_plus(secret),
        json.dumps(secret)[1:-1],
        json.dumps(secret, ensure_ascii=False)[1:-1],
        repr(secret)[1:-1],
        base64.b64encode(secret.encode("utf-8", "surrogatepass")).decode(),
    }


def _like(text: str, value: Any) -> str:
    """Write the value with the whitespace and escaping style of the text."""
    compact = not re.search(r'^\s|(?<!\\)"\s*:\s', text)
    ascii_only = text.isascii() and bool(re.search(r"\\u(?!00[01])", text))
    return json.dumps(value, ensure_ascii=ascii_only, separators=(",", ":") if compact else (", ", ": "))
