"""A probe: one request, with a sentence that says what it is for. The suite is in YAML files beside
this one."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from sfusion_tools.marked_yaml import read_marked

from ...commandline.keyword import read_keyword
from ...errors import BadProbes

Name = Annotated[
    str, StringConstraints(pattern=r"^[\w.-]+/[A-Za-z0-9][A-Za-z0-9_.-]*$", max_length=80)
]
Token = Annotated[str, StringConstraints(pattern=r"^[!#$%&'*+.^_`|~0-9A-Za-z-]+$")]
Line = Annotated[str, StringConstraints(pattern=r"^[^\r\n\x00]*$")]

JSON = "application/json"


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class ProbeRequest(_Strict):
    """An HTTP request without the address of the server."""

    method: Token = "POST"
    path: Annotated[str, StringConstraints(pattern=r"^/[!-~]*$")] = "/run_code"
    headers: dict[Token, Line | None] = Field(default_factory=dict)
    """Sent as they are; null removes the content type that `json` implies."""
    body: Any = Field(default=None, alias="json")
    text: str | None = None
    base64: str | None = None
    spaces: int = 0
    """Spaces after the body, which make a request large but not the file."""

    @property
    def content(self) -> bytes:
        if "body" in self.model_fields_set:
            content = json.dumps(self.body).encode()
        elif self.text is not None:
            content = self.text.encode("utf-8", "surrogatepass")
        elif self.base64 is not None:
            content = base64.b64decode(self.base64)
        else:
            content = b""
        return content + b" " * self.spaces

    @property
    def sent_headers(self) -> dict[str, str]:
        """The headers, including the content type of a JSON body."""
        own = {name: value for name, value in self.headers.items() if value is not None}
        if "body" in self.model_fields_set and "content-type" not in {
            name.lower() for name in self.headers
        }:
            own["content-type"] = JSON
        return own


class Probe(_Strict):
    id: Name
    """Group and name, such as ``stdin/empty``."""
    about: Annotated[str, StringConstraints(pattern=r"^[A-Z].*[.]$", min_length=15, max_length=160)]
    """One sentence."""
    request: ProbeRequest | None = None
    raw: str | None = None
    """Bytes to send instead of a request, one character each (latin-1)."""
    varies: tuple[str, ...] = ()
    """Parts of the answer that may differ between machines: ``body.run_result.stdout``,
    ``header.allow``, ``body``."""
    needs: tuple[str, ...] = ()
    """Commands or modules; answers from a machine that lacks one are not comparable."""
    slow: bool = False
    """Takes seconds; skipped by --quick."""
    alone: bool = False
    """Sent while nothing else is in flight."""
    racy: bool = False
    """The outcome depends on a race inside the server, so even one server answers differently from
    run to run."""
    burst: int = 1
    """How many copies are sent at once; the worst answer counts."""

    @property
    def group(self) -> str:
        return self.id.partition("/")[0]

    @property
    def method(self) -> str:
        if self.request is not None:
            return self.request.method
        return (self.raw or "").partition(" ")[0]

    @property
    def runs(self) -> bool:
        """May the request run code?"""
        path = self.request.path.partition("?")[0] if self.request is not None else None
        return self.method == "POST" and path in ("/run_code", "/run_jupyter")


SUITE_VERSION = 1
"""Incremented when a bundled probe changes its request."""

_BUNDLED = Path(__file__).with_name("suite")


@lru_cache(maxsize=1)
def bundled_probes() -> Sequence[Probe]:
    """In a fixed order."""
    return tuple(probe for file in sorted(_BUNDLED.glob("*.yaml")) for probe in _read(file))


def chosen(probes: Sequence[Probe], *, keyword: str = "", quick: bool = False) -> list[Probe]:
    """Keep the probes whose id matches the expression of ``-k``, and drop the slow ones if
    ``quick``."""
    matches = read_keyword(keyword)
    found = [probe for probe in probes if matches(probe.id)]
    if not found:
        groups = {probe.group for probe in probes}
        raise BadProbes([f"-k {keyword!r} matches no probe; groups: {', '.join(sorted(groups))}"])
    left = [probe for probe in found if not (quick and probe.slow)]
    if not left:
        raise BadProbes(["no probe is left: all of these are slow, and --quick skips slow ones"])
    return left


def _read(file: Path) -> Iterator[Probe]:
    content: Any = read_marked(file).data
    for fields in content["probes"]:
        values = {**fields, "id": f"{file.stem}/{fields['id']}"}
        values |= {name: tuple(fields[name]) for name in ("varies", "needs") if name in fields}
        if "raw" not in fields:
            values["request"] = ProbeRequest(
                **_merged(content.get("defaults", {}), fields.get("request", {}))
            )
        yield Probe(**values)


def _merged(defaults: dict[str, Any], request: dict[str, Any]) -> dict[str, Any]:
    """Merge a request into the file's defaults; JSON objects and headers are merged key by key."""
    merged = {**defaults, **request}
    if {"text", "base64"} & set(request) and "json" not in request:
        merged.pop("json", None)
    for name in ("json", "headers"):
        below = defaults.get(name)
        above = request.get(name)
        if isinstance(below, dict) and isinstance(above, dict):
            merged[name] = {**below, **above}
    return merged
