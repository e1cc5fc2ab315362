"""Remove from answers what must not be written down: secrets, hosts and addresses, users, paths,
process ids."""

from __future__ import annotations

import base64
import ipaddress
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import SplitResult, parse_qsl, quote, quote_plus, unquote, urlsplit

from sfusion_tools.bounded_input import parse_json

from .model import Probe
from .raw_http import ProbeAnswer

Replace = str | Callable[[re.Match[str]], str]

SYSTEM = re.compile(
    r"/(?:bin|dev|lib|lib64|proc|sbin|sys|usr(?:/local)?/(?:bin|include|lib|lib64|sbin|share))(?:/.*)?"
    r"|/(?:tmp|usr|usr/local|etc|etc/passwd|etc/hosts)/?"
)
"""Paths that every machine has, and what is below them; they reveal nothing."""
ROUTES = frozenset(
    {
        *(
            "docs",
            "favicon.ico",
            "metrics",
            "openapi.json",
            "redoc",
            "run_code",
            "run_jupyter",
            "v1",
        ),
        *(
            "get_metrics",
            "get_metrics_function",
            "get_prompt_by_id",
            "get_prompts",
            "list_datasets",
            "list_ids",
        ),
        "submit",
    }
)
"""First segments of the paths that the sandbox itself serves."""
PUBLIC = frozenset({"errors.pydantic.dev"})
"""Hosts in answers that are not the server itself."""

_TMP = r"tmp[a-z0-9_]{8}"
_STEP = r"[^\s/'\"`<>|:;,()\[\]{}\\]+"
# Repetitions are bounded so that no answer can make matching take exponential time.
_DEEP = "{1,40}"
_SECRET_WORD = "TOKEN|SECRET|PASSW(?:OR)?D|PASSWD|API_?KEY|ACCESS_?KEY|CREDENTIALS?|PRIVATE_?KEY"
_SECRET_NAME = rf"[\w-]{{0,40}}(?:{_SECRET_WORD})[\w-]{{0,40}}"

_PASSES = 5
"""A mark may make the text next to it recognisable; in practice never more often than this
(chosen)."""


def _path(found: re.Match[str]) -> str:
    if SYSTEM.fullmatch(found[0]) or found[0].split("/")[1] in ROUTES:
        return found[0]
    return "<PATH>"


def _host(found: re.Match[str]) -> str:
    if found["host"].lower() in PUBLIC:
        return found[0]
    return f"{found['scheme']}<HOST>"


def _address(found: re.Match[str]) -> str:
    address = found["address"].strip("[]")
    try:
        ipaddress.ip_address(address)
    except ValueError:
        return found[0]
    # `::` and `::b` are addresses too, but far more often names in C++ or pytest.
    vague = ":" in address and address != "::1" and sum(map(bool, address.split(":"))) < 2
    return found[0] if vague else "<HOST>"


Patterns = tuple[tuple[re.Pattern[str], Replace], ...]

SECRETS: Patterns = tuple(
    (re.compile(pattern), mark)
    for pattern, mark in (
        (
            r"-----BEGIN [A-Z ]*PRIVATE KEY-----[\s\S]*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)",
            "<SECRET>",
        ),
        (r"\beyJ[\w-]{8,}\.[\w-]{4,}\.[\w-]*", "<SECRET>"),
        (r"\b(?:sk|pk|rk|ghp|gho|ghs|ghu|glpat|hf|xox[abprs])[-_][A-Za-z0-9_-]{16,}", "<SECRET>"),
        (r"\bgithub_pat_\w{16,}", "<SECRET>"),
        (r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b", "<SECRET>"),
        (r"(?i)\b(bearer|basic)[ ]+(?!auth\b)[\w.~+/=-]{8,}", r"\1 <SECRET>"),
        (rf"(?i)\b({_SECRET_NAME})(['\"]?[ \t]*[=:][ \t]*['\"]?)[^\s'\"&;,<>]+", r"\1\2<SECRET>"),
    )
)
"""Secrets that can be recognised by their form or their name."""

ALL: Patterns = SECRETS + tuple(
    (re.compile(pattern), mark)
    for pattern, mark in (
        # Addresses: with a scheme, with a user, as numbers.
        (
            r"(?P<scheme>\b[a-z][a-z0-9+.-]{0,20}://)(?:[^\s/@'\"<>]{0,400}@)?(?P<host>[\w.-]+|\[[0-9a-fA-F:.]+\])(?::\d+)?",
            _host,
        ),
        (
            r"\b[\w.+-]{1,64}@(?![\d.]+(?:\s|$|['\"]))(?:[A-Za-z0-9-]{1,63}\.){0,8}[A-Za-z0-9-]{1,63}\b(?::\d+)?",
            "<USER>@<HOST>",
        ),
        (r"(?<![\w.])(?P<address>\d{1,3}(?:\.\d{1,3}){3})(?![\w.]*\.\d)(?::\d+)?", _address),
        (r"(?P<address>\[[0-9a-fA-F:]*:[0-9a-fA-F:.]*\])(?::\d+)?", _address),
        (r"(?<![\w:])(?P<address>[0-9a-fA-F]{0,4}(?::[0-9a-fA-F]{0,4}){2,7})(?![\w:])", _address),
        (r"(?i)(?<![^\W\d])localhost\b(?::\d+)?|<HOST>:\d+", "<HOST>"),
        (
            r"(?i)\b(?:[a-z0-9-]{1,63}\.){1,8}(?:internal|local|lan|corp|intranet|home|svc|cluster)\b(?::\d+)?",
            "<HOST>",
        ),
        # Paths of the run.
        (
            rf"(?:/(?!{_TMP}\b)[\w.-]{{1,80}}){{0,40}}/{_TMP}(?![\w.])|(?:/[\w.-]{{1,80}}){{0,40}}/{_TMP}(?=\.?/|')",
            "<TMP>",
        ),
        (rf"\b{_TMP}(?=(?:\.test)?\.[A-Za-z]|_test\.go)", "<TMPFILE>"),
        (r"/tmp/ipykernel_\d+/\d+\.py", "<IPYKERNEL>.py"),
        (rf"(?:/[\w.+-]{{1,80}}){_DEEP}/lib/python3\.\d+(?:/(?:site|dist)-packages)*", "<PY>"),
        (rf"(?:/[\w.+-]{{1,80}}){_DEEP}/bin/python[\d.]*", "<PY>/bin/python"),
        # Numbers of the run.
        (r"0x[0-9a-f]{6,16}", "0x<ADDR>"),
        (r"line (\d+): +\d+ (?=Segmentation fault|Killed|Aborted|Terminated)", r"line \1: <PID> "),
        (r"(?i)\b(pid|process)([ =:#]+)\d+\b", r"\1\2<PID>"),
        # Any other path.
        (rf"(?<=<HOST>)/{_STEP}(?:/{_STEP})*/?", _path),
        (rf"(?<![\w.</:~-])(?<!<TMP>)(?<!<PY>)(?<!<HOST>)/{_STEP}(?:/{_STEP})*/?", _path),
        (rf"(?<![\w/])~(?:[\w.-]+)?/{_STEP}(?:/{_STEP})*/?", "<PATH>"),
    )
)
"""Secrets and machine-specific details."""


def mask(text: str, patterns: Patterns = ALL) -> str:
    """Replace everything that matches by its mark."""
    for _ in range(_PASSES):
        before = text
        for pattern, mark in patterns:
            text = pattern.sub(mark, text)
        if text == before:
            break
    return text


def with_texts(value: Any, change: Callable[[str], str]) -> Any:
    """Return a JSON value with every text in it changed, keys included."""
    match value:
        case str():
            return change(value)
        case list():
            return [with_texts(item, change) for item in value]
        case dict():
            return {change(key): with_texts(item, change) for key, item in value.items()}
    return value


SHORTEST = 4
"""Shorter secrets are not masked in texts: they would match everywhere."""

_SECRET_VARIABLE = re.compile(
    r"(?i)token|secret|passw|credential|api_?key|access_?key|private_?key|cookie"
)
_SECRET_HEADER = re.compile(r"(?i)auth|token|secret|passw|credential|key|cookie")
_LONG_ENOUGH = 8
"""Minimum length of an environment variable's value that counts as a secret (chosen)."""
_HARMLESS = frozenset(
    {
        *(
            "true",
            "false",
            "none",
            "null",
            "root",
            "user",
            "home",
            "test",
            "admin",
            "localhost",
            "application/json",
        ),
        *("python", "pytest", "node", "bash", "java", "perl", "ruby", "julia", "sandbox"),
    }
)
"""Words that appear in answers anyway, so they reveal nothing."""
_PLAIN_HEADERS = frozenset(
    {"content-type", "accept", "content-length", "user-agent", "host", "accept-encoding"}
)


def _secrets_of_address(parts: SplitResult) -> Iterator[str]:
    """Yield name and password of an address, as written and as sent, and its query's values."""
    for part in (parts.username, parts.password):
        if part:
            yield part
            yield unquote(part)
    if parts.username:
        yield f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    yield from (value for _, value in parse_qsl(parts.query, keep_blank_values=True))


def _secrets_of_headers(headers: Mapping[str, str]) -> Iterator[str]:
    for name, value in headers.items():
        if name.lower() not in _PLAIN_HEADERS:
            yield from _of_header(value)


def _secrets_of_environment(environ: Mapping[str, str]) -> Iterator[str]:
    for name, value in environ.items():
        if _SECRET_VARIABLE.search(name) and len(value) >= _LONG_ENOUGH:
            yield value


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
        parts = urlsplit(url)
        known: dict[str, str] = {}
        if parts.path.strip("/"):
            known[parts.path.rstrip("/")] = ""  # a gateway's prefix, which redirects contain
        known |= dict.fromkeys((path for path in paths if len(path) > SHORTEST), "<PATH>")
        known |= dict.fromkeys(users, "<USER>")
        known |= dict.fromkeys((parts.hostname or "", *hosts), "<HOST>")
        secrets = [
            *_secrets_of_address(parts),
            *(secret for value in also_secret for secret in _of_header(value)),
            *_secrets_of_headers(headers or {}),
            *_secrets_of_environment(environ or {}),
        ]
        for secret in secrets:
            known |= dict.fromkeys(_encodings(secret), "<SECRET>")
        kept = [
            (text, mark)
            for text, mark in known.items()
            if len(text) >= SHORTEST and text.lower() not in _HARMLESS
        ]
        return cls(tuple(sorted(kept, key=lambda item: (-len(item[0]), item[0]))))

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
        return with_texts(value, self._without_secrets)

    def _without_secrets(self, text: str) -> str:
        for known, mark in self.known:
            if mark == "<SECRET>":
                text = text.replace(known, mark)
        return mask(text, SECRETS)

    def value(self, value: Any, name: str = "") -> Any:
        """Mask everything inside a JSON value that has this name, including keys and base64
        files."""
        match value:
            case str() if name == "$ref" and value.startswith("#/"):
                return self._without_secrets(
                    value
                )  # it looks like a path but leads to a place in the same document
            case str():
                return self.text(value)
            case list():
                return [self.value(item) for item in value]
            case dict() if name == "files":
                return {self.text(path): self._file(content) for path, content in value.items()}
            case dict():
                return {self.text(key): self.value(item, key) for key, item in value.items()}
        return value

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
        # Rewriting loses the exact form of numbers, whitespace and escapes, so do it only if
        # something was masked.
        return body if clean == value else _like(text, clean).encode("utf-8", "backslashreplace")

    def _file(self, content: Any) -> Any:
        if not isinstance(content, str):
            return self.value(content)
        try:
            text = base64.b64decode(content, validate=True).decode()
        except ValueError:
            return self.text(content)
        clean = self.text(text)
        return content if clean == text else base64.b64encode(clean.encode()).decode()


def probe_secrets(probes: Iterable[Probe]) -> list[str]:
    """Values of the probes' headers whose names sound like secrets."""
    found: list[str] = []
    for probe in probes:
        if probe.request is None:
            continue
        for name, value in probe.request.sent_headers.items():
            if _SECRET_HEADER.search(name):
                found.append(value)
    return found


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
    return json.dumps(
        value, ensure_ascii=ascii_only, separators=(",", ":") if compact else (", ", ": ")
    )
