"""What E2B sends: a sandbox as JSON, and the frames of a command's stream (Connect with JSON)."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from ..lifecycle.sandbox import Sandbox
from ..sandbox.protocol import CommandResult
from ..wire.message import Answer

_ENVD = "0.5.7"
"""The version of envd that is told to clients: the one that was recorded."""
_END = 2
"""The flag of the last frame of a stream."""
_HEAD = 5
"""Bytes before the JSON of a frame: its flags and its length."""
CONNECT = "application/connect+json"


def created(sandbox: Sandbox) -> dict[str, Any]:
    """The answer to a create."""
    return {
        "sandboxID": sandbox.id,
        "templateID": str(sandbox.settings.get("templateID") or "base"),
        "clientID": "sfusion",
        "envdVersion": _ENVD,
        "envdAccessToken": "sfusion",
        "domain": None,
    }


def described(sandbox: Sandbox, now: float) -> dict[str, Any]:
    """A sandbox as a list and an info show it."""
    today = datetime.now(UTC)
    ends = today + timedelta(seconds=(sandbox.expires or now + 3600) - now)
    started = today - timedelta(seconds=now - sandbox.created)
    return {
        **created(sandbox),
        "metadata": dict(sandbox.labels),
        "startedAt": _timestamp(started),
        "endAt": _timestamp(ends),
        "cpuCount": 2,
        "memoryMB": 512,
        "diskSizeMB": 1024,
        "state": "running",
    }


def _timestamp(moment: datetime) -> str:
    return moment.isoformat().replace("+00:00", "Z")


def read_command(body: bytes) -> tuple[str, dict[str, Any]] | None:
    """The command of a request to start a process; None if it is not one."""
    try:
        fields = json.loads(body[_HEAD:])
        process = fields["process"]
        arguments = process.get("args", [])
        return str(arguments[-1] if arguments else process["cmd"]), fields
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def envelope(content: dict[str, Any], flags: int = 0) -> bytes:
    """One frame of a stream."""
    data = json.dumps(content).encode()
    return bytes([flags]) + len(data).to_bytes(4, "big") + data


class Pieces:
    """The pieces of a stream, and how many of them have been sent."""

    def __init__(
        self, first: bytes, rest: Callable[[], AsyncIterator[list[bytes]]], *, known: int = 0
    ) -> None:
        """``known`` is how many pieces there are, if that is known from the beginning."""
        self._first = first
        self._rest = rest
        self._sent = 0
        self._known = known

    def share(self) -> float:
        """How much of the stream has been sent."""
        return self._sent / self._known if self._known else 0.0

    async def __aiter__(self) -> AsyncIterator[bytes]:
        self._sent = 1
        yield self._first
        async for pieces in self._rest():
            self._known = len(pieces) + 1
            for piece in pieces:
                self._sent += 1
                yield piece


def process_frames(result: CommandResult) -> list[bytes]:
    """The frames after the first one: what the command printed, and how it ended."""
    frames = []
    for stream, text in (("stdout", result.stdout), ("stderr", result.stderr)):
        if text:
            data = base64.b64encode(text.encode("utf-8", "replace")).decode()
            frames.append(envelope({"event": {"data": {stream: data}}}))
    code = result.return_code or 0
    ended = {"exitCode": code, "exited": True, "status": f"exit status {code}"}
    frames.append(envelope({"event": {"end": ended}}))
    frames.append(envelope({}, flags=_END))
    return frames


def started_frame(pid: int) -> bytes:
    return envelope({"event": {"start": {"pid": pid}}})


def stopped_frames() -> list[bytes]:
    """The end of a stream whose command was stopped at its limit."""
    error = {"code": "deadline_exceeded", "message": "context deadline exceeded"}
    return [envelope({"error": error}, flags=_END)]


def execution_lines(result: CommandResult) -> list[bytes]:
    """What the code interpreter says about one execution, a line each."""
    lines: list[dict[str, Any]] = []
    if result.stdout:
        lines.append({"type": "stdout", "text": result.stdout})
    if result.stderr and not result.return_code:
        lines.append({"type": "stderr", "text": result.stderr})
    elif result.return_code:
        last = (result.stderr or "").strip().rpartition("\n")[2]
        name, _, value = last.partition(": ")
        error = {"name": name or "Error", "value": value, "traceback": result.stderr or ""}
        lines.append({"type": "error", **error})
    lines.append({"type": "number_of_executions", "execution_count": 1})
    return [json.dumps(line).encode() + b"\n" for line in lines]


def streamed(content_type: str, pieces: list[bytes]) -> Answer:
    """A stream whose pieces are all known."""

    async def rest() -> AsyncIterator[list[bytes]]:
        yield pieces[1:]

    whole = Pieces(pieces[0], rest, known=len(pieces))
    return Answer(content_type=content_type, stream=aiter_of(whole), share=whole.share)


async def aiter_of(pieces: Pieces) -> AsyncIterator[bytes]:
    async for piece in pieces:
        yield piece
