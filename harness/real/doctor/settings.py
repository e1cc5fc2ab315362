"""The sandbox to examine: its address, and what the tool config expects of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from sfusion_tools.errors import ConfigError
from sfusion_tools.hosts import is_this_machine
from sfusion_tools.sandbox.config import SandboxToolConfig
from sfusion_tools.sandbox.endpoints import normalise_url, redact, route, secrets_of
from sfusion_tools.tool_registry import read_entries

from .mix import Mix

_URL_KEY = "sandbox_fusion_url"
_EXAMINED = (
    "default_language",
    "default_timeout",
    "headers",
    "languages",
    "memory_limit_mb",
    "trust_proxy_env",
)
"""Fields of a tool config, beside its URL and limit, that decide what an examination finds."""


class Client(StrEnum):
    """The code that sends the calls; it decides how a URL is used."""

    SFUSION = "sfusion"
    """Appends /run_code itself, connects to loopback without a proxy, retries on 429."""
    VERL = "verl"
    """Posts to the URL unchanged, through the proxies that `requests` finds, and retries on 504
    only."""
    OTHER = "other"
    """Another class of a tool config."""
    UNKNOWN = "unknown"
    """Only a URL was given."""


@dataclass(frozen=True, slots=True)
class SandboxSettings:
    """One sandbox, and what training expects of it."""

    url: str
    """As given."""
    config: SandboxToolConfig
    """Without a tool config, verl's defaults."""
    client: Client = Client.UNKNOWN
    source: str = ""
    """Where the URL comes from: a file and an entry in it."""
    rate_limit: int | None = None
    """This sandbox's share of the limit; None if there is none or it is unknown."""
    sharing: int = 1
    """How many sandboxes share the limit of the config."""
    started_here: bool = False
    """It was started for this examination, so its address is not judged."""

    @property
    def base(self) -> str:
        """The URL without the route, even if that was appended more than once."""
        base = normalise_url(self.url)
        while (shorter := normalise_url(base)) != base:
            base = shorter
        return base

    @property
    def label(self) -> str:
        """The URL without secrets."""
        return redact(self.url.strip())

    @property
    def host(self) -> str:
        return urlsplit(self.base).hostname or ""

    @property
    def port(self) -> int:
        parts = urlsplit(self.base)
        return parts.port or (443 if parts.scheme == "https" else 80)

    @property
    def scheme(self) -> str:
        return urlsplit(self.base).scheme

    @property
    def is_local(self) -> bool:
        return is_this_machine(self.host)

    @property
    def own_limit(self) -> str:
        """The ``rate_limit`` in words, with its part of it."""
        if self.sharing == 1:
            return f"rate_limit {self.rate_limit}"
        return f"rate_limit {self.config.rate_limit} ({self.rate_limit} for this sandbox)"

    def for_all(self, limit: int) -> str:
        """Return the ``rate_limit`` of the config that gives this sandbox so many."""
        if self.sharing == 1:
            return str(limit)
        return f"{limit * self.sharing} ({limit} for each of {self.sharing} sandboxes)"

    def at(self, name: str) -> str:
        return route(self.base, name)

    def secrets(self) -> list[str]:
        return secrets_of(self.url, self.config.headers)

    def is_like(self, other: SandboxSettings) -> bool:
        """Would an examination find the same? What else a config says does not concern it."""
        same_config = all(
            getattr(self.config, name) == getattr(other.config, name) for name in _EXAMINED
        )
        mine = (self.url, self.client, self.rate_limit)
        return same_config and mine == (other.url, other.client, other.rate_limit)


def settings_of_url(url: str) -> SandboxSettings:
    """Settings with verl's defaults; raises ConfigError unless ``url`` is an address."""
    normalise_url(url)
    return SandboxSettings(url, SandboxToolConfig(sandbox_fusion_url=url))


def settings_of_tools(path: Path, *, url: str | None = None) -> list[SandboxSettings]:
    """The sandboxes of a tool config file, or its settings applied to another ``url``; raises
    ConfigError."""
    sandboxes: list[SandboxSettings] = []
    for number, entry in enumerate(read_entries(path)):
        config = entry.get("config") or {}
        if not isinstance(config, dict) or _URL_KEY not in config:
            continue
        if url is not None:
            config = {**config, _URL_KEY: url}
        owner = f"{path}: tools[{number}] ({entry['class_name']})"
        sandboxes += _of_config(config, entry["class_name"], owner, f"{path.name}, tools[{number}]")
    if not sandboxes:
        raise ConfigError(
            f"{path}: no tool has a {_URL_KEY} in its config, so there is nothing to examine"
        )
    return [
        sandbox
        for place, sandbox in enumerate(sandboxes)
        if not any(sandbox.is_like(earlier) for earlier in sandboxes[:place])
    ]


def _of_config(
    config: dict[str, Any], class_name: str, owner: str, source: str
) -> list[SandboxSettings]:
    clients = {"sfusion_tools": Client.SFUSION, "verl": Client.VERL}
    client = clients.get(class_name.partition(".")[0], Client.OTHER)
    if client is not Client.SFUSION:
        # Other classes may have keys of their own; those that we know are checked like ours.
        config = {
            key: value for key, value in config.items() if key in SandboxToolConfig.model_fields
        }
    read = SandboxToolConfig.read(config, owner)
    if isinstance(read.sandbox_fusion_url, str):
        urls = [read.sandbox_fusion_url]
    else:
        urls = read.sandbox_fusion_url
    limit = math.ceil(read.rate_limit / len(urls)) if read.enable_global_rate_limit else None
    return [
        SandboxSettings(
            url=url,
            config=read,
            client=client,
            source=source,
            rate_limit=limit,
            sharing=len(urls),
        )
        for url in dict.fromkeys(urls)
    ]


PACKAGES = (
    "numpy",
    "scipy",
    "sympy",
    "pandas",
    "matplotlib",
    "sklearn",
    "networkx",
    "requests",
    "tqdm",
)
"""Packages that code written by a model commonly imports."""
LANGUAGES = ("python", "bash", "cpp", "nodejs", "java", "go")
"""Languages that tool configs commonly offer."""
SWEEP_SECONDS = 5.0
"""Seconds after which a sweep starts no further level (chosen: people wait for it)."""
LEVELS_LOCAL = 32
LEVELS_REMOTE = 8
LEVELS_ASKED = 64
"""Highest concurrency of the sweep: on this machine, on another one, and with --sweep (chosen)."""
BURST_LOCAL = 64
BURST_REMOTE = 16
"""Requests of the burst: on this machine, and on another one (chosen)."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What an examination may do. Every request has a deadline, and the load is a bounded number of
    requests."""

    patience: float = 8.0
    """Seconds that an answer may take beyond the program's own limit."""
    connect: float = 5.0
    """Seconds that connecting may take."""
    seconds: float = 10.0
    """Time limit of an ordinary program."""
    pause: float = 0.2
    """Seconds before a program without an answer is sent again; twice that before the third
    attempt."""
    per_check: float = 40.0
    """Seconds after which a check is abandoned."""
    quick: bool = False
    """Skip the burst and the sweep."""
    sweep: bool | None = None
    """True: the full sweep, also on other machines; False: none; None: short on other machines."""
    from_container: bool = False
    """Training runs in a container, even if this process does not."""
    packages: Sequence[str] | None = None
    """Packages that training requires; None: look for the usual ones, none of them required."""
    languages: Sequence[str] | None = None
    """Languages that training requires besides the config's; None: try the usual ones, none of them
    required."""
    burst: int | None = None
    """Programs sent at once; None: fewer on other machines."""
    levels: int | None = None
    """Highest concurrency of the sweep; None: lower on other machines."""
    sweep_sleep: float = 0.1
    """Seconds that each program of the sweep sleeps."""
    sweep_seconds: float = SWEEP_SECONDS
    """Seconds after which the sweep starts no further level."""
    mix: Mix | None = None
    """The Python programs of the sweep; None: one that sleeps ``sweep_sleep`` seconds."""
    timed_out_after: float = 1.0
    """The run_timeout of programs that exceed it on purpose."""

    def burst_for(self, *, local: bool) -> int:
        if self.burst is not None:
            return self.burst
        return BURST_LOCAL if local else BURST_REMOTE

    def levels_for(self, *, local: bool, rate_limit: int | None) -> int:
        if self.levels is not None:
            return self.levels
        if self.sweep:
            return max(LEVELS_ASKED, min(rate_limit or 0, 4 * LEVELS_ASKED))
        return LEVELS_LOCAL if local else LEVELS_REMOTE
