"""What the answers of all routes share: events of a stream, and errors."""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import Any

from sfusion.fakes.sglang.protocol import JsonObject
from sfusion.fakes.wire import Answer
from sfusion.fakes.wire.message import dump_json

DONE = b"data: [DONE]\n\n"
EVENT_STREAM = "text/event-stream; charset=utf-8"


def event(body: Any) -> bytes:
    """One event of a stream, in compact JSON."""
    return b"data: " + dump_json(body) + b"\n\n"


def flat_error(message: str, type: str = "BadRequestError", code: int = 400) -> JsonObject:
    """The error object of the OpenAI routes."""
    return {"object": "error", "message": message, "type": type, "param": None, "code": code}


def error_answer(message: str, type: str = "BadRequestError", code: int = 400) -> Answer:
    return Answer.json(flat_error(message, type, code), status=code)


def error_event(message: str, type: str = "BadRequestError", code: int = 400) -> bytes:
    """An error inside a stream; sglang writes this one event with spaces."""
    return f"data: {json.dumps({'error': flat_error(message, type, code)}, ensure_ascii=False)}\n\n".encode()


def native_error(message: str) -> JsonObject:
    return {"error": {"message": message}}


def native_error_event(message: str, code: int = 400) -> bytes:
    """An error inside a stream of ``/generate``."""
    retryable = code >= 500
    kind = "server_error" if retryable else "invalid_request_error"
    return event({"error": {"message": message, "type": kind, "code": code, "retryable": retryable}})


class StreamAborted(Exception):
    """Raised when the engine aborts a streaming request with an error status."""

    def __init__(self, finish: JsonObject) -> None:
        super().__init__(finish["message"])
        self.finish = finish

    def event(self) -> bytes:
        """The error event for the client."""
        status = HTTPStatus(self.finish["status_code"])
        return error_event(self.finish["message"] or "Generation aborted.", status.name, status.value)


def is_error(finish: JsonObject) -> bool:
    """Return whether a finish reason is an abort with an error status."""
    return finish["type"] == "abort" and finish.get("status_code") is not None
