"""Recorded answers of the real server, and the comparison with an answer of the fake."""

from __future__ import annotations

import base64
import hashlib
import http.client
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from sfusion.harness.real.drift import comparing

HERE = Path(__file__).parent / "data" / "recordings"
HEADERS = ("server", "content-type", "allow", "location")


@dataclass(frozen=True, slots=True)
class Recording:
    """One request and the real answer."""

    id: str
    group: str
    request: dict[str, Any]
    response: dict[str, Any]

    @property
    def name(self) -> str:
        """Unique across all files."""
        return f"{self.group}/{self.id}"


def recordings(*files: str) -> Iterator[Recording]:
    """The records of these files, named without their extension."""
    for file in files:
        for line in (HERE / f"{file}.jsonl").read_text(encoding="utf-8").splitlines():
            record = json.loads(line)
            yield Recording(record["id"], record["group"], record["request"], record["response"])


def replay(url: str, recording: Recording, timeout: float = 60.0) -> dict[str, Any]:
    """Send the recorded request and return the answer in the recorded form."""
    request = recording.request
    body: bytes | None = None
    if "json" in request:
        body = json.dumps(request["json"]).encode()
    elif "raw_body" in request:
        body = request["raw_body"].encode()
    elif "raw_body_b64" in request:
        body = base64.b64decode(request["raw_body_b64"])
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=timeout)
    try:
        connection.request(request["method"], request["path"], body, request.get("headers", {}))
        answer = connection.getresponse()
        data = answer.read()
    finally:
        connection.close()
    try:
        content = json.loads(data) if data else ""
    except ValueError:
        content = data.decode("utf-8", "replace")
    return {
        "status": answer.status,
        "headers": [list(pair) for pair in answer.getheaders()],
        "json": content,
    }


def differences(recording: Recording, answer: dict[str, Any]) -> list[str]:
    """The differences between the recorded answer and this one, one line each."""
    wanted, got = recording.response, answer
    found = []
    if wanted["status"] != got["status"]:
        found.append(f"status: {wanted['status']} became {got['status']}")
    was, now = ({name.lower(): value for name, value in one["headers"]} for one in (wanted, got))
    found += [
        f"header {name}: {was.get(name)!r} became {now.get(name)!r}"
        for name in HEADERS
        if stable(was.get(name)) != stable(now.get(name))
    ]
    found += _compare(
        "body", stable(wanted.get("json", wanted.get("text", ""))), stable(got["json"])
    )
    return found


def stable(value: Any) -> Any:
    """The value without what varies between runs; long texts as length and digest, as recorded."""
    return _steady(_elided(value))


def _steady(value: Any, key: str = "") -> Any:
    if comparing.is_measured(key, value):
        return "<SECONDS>"
    if comparing.is_drawn(key, value):
        return "<TRACEBACK>"
    if isinstance(value, dict):
        return {name: _steady(one, name) for name, one in value.items()}
    if isinstance(value, list):
        return [_steady(one) for one in value]
    return comparing.steady(value) if isinstance(value, str) else value


def _elided(value: Any) -> Any:
    if isinstance(value, dict):
        if set(value) == {"$elided"}:
            return ("long text", value["$elided"]["len_chars"], value["$elided"]["sha256_utf8"])
        return {name: _elided(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_elided(one) for one in value]
    if isinstance(value, str) and len(value) > 6000:
        return (
            "long text",
            len(value),
            hashlib.sha256(value.encode("utf-8", "surrogatepass")).hexdigest(),
        )
    return value


def _compare(place: str, was: Any, now: Any) -> list[str]:
    if isinstance(was, dict) and isinstance(now, dict):
        if list(was) != list(now):
            return [f"{place}: keys {list(was)} became {list(now)}"]
        return [line for name in was for line in _compare(f"{place}.{name}", was[name], now[name])]
    if isinstance(was, list) and isinstance(now, list) and len(was) == len(now):
        return [
            line
            for i, (a, b) in enumerate(zip(was, now, strict=True))
            for line in _compare(f"{place}[{i}]", a, b)
        ]
    return [] if was == now and type(was) is type(now) else [f"{place}: {was!r} became {now!r}"]
