"""The executor that answers from a cassette.

That is a file of JSON lines with requests and the answers of a real server.
"""

from __future__ import annotations

import base64
import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from pydantic import BaseModel

from sfusion_tools.bounded_input import parse_json, read_lines
from sfusion_tools.errors import InputError
from sfusion_tools.wording import counted

from ...errors import CassetteError
from ...wire.app import Refused
from ..body import check_body
from ..protocol import (
    CellResult,
    CommandResult,
    Executor,
    RunCode,
    RunCodeAnswer,
    RunCodeRequest,
    RunJupyter,
    RunJupyterAnswer,
    RunJupyterRequest,
)

_MODELS: dict[str, type[BaseModel]] = {
    "/run_code": RunCodeRequest,
    "/run_jupyter": RunJupyterRequest,
}


Take = dict[str, Any] | str
"""The body of a recorded answer; of a server that crashed, the detail of its 500."""


class Crashed(Exception):
    """Raised to answer with the 500 of a server that crashed over the same request."""


@dataclass(slots=True)
class Cassette:
    """Recorded answers by request.

    A request that was recorded several times gets its answers in that order.
    """

    takes: dict[str, list[Take]] = field(default_factory=dict)
    requests: dict[str, dict[str, Any]] = field(default_factory=dict)
    skips: Counter[str] = field(default_factory=Counter)
    """How many records are not used, by reason.

    The fake answers those requests without the cassette.
    """
    meta: dict[str, Any] = field(default_factory=dict)
    """The origin of the recording, if its first line states it."""

    @property
    def skipped(self) -> int:
        """How many records are not used."""
        return self.skips.total()

    def describe(self) -> str:
        """Return one line with the number of records, and why others are not used."""
        served = counted(sum(map(len, self.takes.values())), "recorded answer")
        if not self.skips:
            return served
        why = ", ".join(f"{count} {reason}" for reason, count in self.skips.most_common())
        verb = "is" if self.skipped == 1 else "are"
        skipped = counted(self.skipped, "request")
        return f"{served}; {skipped} {verb} answered without the cassette: {why}"

    @classmethod
    def load(cls, path: str | Path) -> Cassette:
        """Read a file of JSON lines, each with ``request`` and ``response``."""
        path = Path(path)
        cassette = cls()
        try:
            for number, line in read_lines(path):
                if line.strip():
                    cassette._add_line(line, f"{path}, line {number}")
        except InputError as error:
            raise CassetteError(f"cassette {error}") from None
        return cassette

    def _add_line(self, line: bytes, place: str) -> None:
        try:
            self.add(parse_json(line, "this line"))
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
            raise CassetteError(
                f"cassette {place}: expected an object with request and response, "
                f"as 'sfusion drift --record' writes them ({type(error).__name__}: {error})"
            ) from error

    def add(self, record: dict[str, Any]) -> None:
        """Add one record, or the line that states the origin of the recording."""
        if "cassette" in record:
            self.meta = dict(record["cassette"])
            return
        request = record["request"]
        response = record["response"]
        path = unquote(str(request.get("path", "")).partition("?")[0])
        model = _MODELS.get(path) if request.get("method", "POST") == "POST" else None
        if model is None:
            self.skips["not for an endpoint that runs code"] += 1
            return
        take = _take_of(response)
        if take is None:
            self.skips["refused"] += 1
            return
        if "$elided" in json.dumps(response["json"]):
            self.skips["with parts left out"] += 1
            return
        try:
            fields = check_body(_sent(request), _content_type(request), model)
        except Refused:
            self.skips["with a request that the fake refuses"] += 1
            return

        key = key_of(path, fields)
        self.takes.setdefault(key, []).append(take)
        self.requests[key] = {"path": path, **fields}

    def closest(self, path: str, fields: dict[str, Any]) -> str:
        """Return a sentence on the fields in which the nearest recorded request differs."""
        differences = [
            [name for name, value in fields.items() if recorded.get(name) != value]
            for recorded in self.requests.values()
            if recorded["path"] == path
        ]
        if not differences:
            return f"nothing is recorded for {path}"
        fewest = min(differences, key=len)
        return f"the closest recording differs in {', '.join(fewest)}"


def _take_of(response: Mapping[str, Any]) -> Take | None:
    """Return what is replayed of a response; None for one that refused the request."""
    body = response.get("json")
    if not isinstance(body, dict):
        return None
    status = response.get("status")
    if status == 200:
        return body
    detail = body.get("detail")
    return detail if status == 500 and isinstance(detail, str) else None


def _sent(request: Mapping[str, Any]) -> bytes:
    if "json" in request:
        return json.dumps(request["json"]).encode()
    if "raw_body_b64" in request:
        return base64.b64decode(request["raw_body_b64"])
    return str(request.get("raw_body", "")).encode("utf-8", "surrogatepass")


def _content_type(request: Mapping[str, Any]) -> str | None:
    headers: Mapping[str, str] = request.get("headers") or {}
    for name, value in headers.items():
        if name.lower() == "content-type":
            return value
    return None


def key_of(path: str, fields: dict[str, Any]) -> str:
    """Return the identity of a request: its path and its validated fields.

    How the fields were spelt makes no difference.
    """
    return path + json.dumps(fields, sort_keys=True)


class RecordedExecutor(Executor):
    """Replays a cassette, without the time that the recording took."""

    runs_code = False

    def __init__(self, cassette: Cassette | str | Path) -> None:
        self.cassette = cassette if isinstance(cassette, Cassette) else Cassette.load(cassette)
        self._played: dict[str, int] = {}

    async def run_code(self, request: RunCode) -> RunCodeAnswer:
        """Return the recorded answer, or a SandboxError that names what is missing."""
        body = await self._play("/run_code", asdict(request))
        if isinstance(body, str):
            return RunCodeAnswer("SandboxError", body)
        results = {name: _result(body[name]) for name in ("compile_result", "run_result")}
        return RunCodeAnswer(**body | results)

    async def run_jupyter(self, request: RunJupyter) -> RunJupyterAnswer:
        """Return the recorded answer, or a SandboxError that names what is missing."""
        body = await self._play("/run_jupyter", asdict(request))
        if isinstance(body, str):
            return RunJupyterAnswer("SandboxError", body)
        cells = [CellResult(**cell) for cell in body["cells"]]
        return RunJupyterAnswer(**body | {"driver": _result(body["driver"]), "cells": cells})

    async def _play(self, path: str, fields: dict[str, Any]) -> dict[str, Any] | str:
        key = key_of(path, fields)
        takes = self.cassette.takes.get(key)
        if takes is None:
            closest = self.cassette.closest(path, fields)
            return f"no recording of this request in the cassette: {closest}"
        number = self._played.get(key, 0)
        self._played[key] = number + 1
        take = takes[min(number, len(takes) - 1)]
        if isinstance(take, str):
            raise Crashed(take)
        return take


def _result(body: dict[str, Any] | None) -> CommandResult | None:
    return None if body is None else CommandResult(**body)
