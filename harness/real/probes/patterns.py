"""Patterns for machine-specific details and secrets in answers, and the marks that replace them. Pure.

The order matters: specific patterns come first, so that a work directory is not masked as just any path.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable

Replace = str | Callable[[re.Match[str]], str]

SYSTEM = re.compile(
    r"/(?:bin|dev|lib|lib64|proc|sbin|sys|usr(?:/local)?/(?:bin|include|lib|lib64|sbin|share))(?:/.*)?"
    r"|/(?:tmp|usr|usr/local|etc|etc/passwd|etc/hosts)/?"
)
"""Paths that every machine has, and what is below them; they reveal nothing."""
ROUTES = frozenset(
    {
        *("docs", "favicon.ico", "metrics", "openapi.json", "redoc", "run_code", "run_jupyter", "v1"),
        *("get_metrics", "get_metrics_function", "get_prompt_by_id", "get_prompts", "list_datasets", "list_ids"),
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
"""A mark may make the text next to it recognisable; in practice never more often than this."""


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
        (r"-----BEGIN [A-Z ]*PRIVATE KEY-----[\s\S]*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", "<SECRET>"),
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
        (r"(?i)\b(?:[a-z0-9-]{1,63}\.){1,8}(?:internal|local|lan|corp|intranet|home|svc|cluster)\b(?::\d+)?", "<HOST>"),
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
