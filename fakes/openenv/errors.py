"""The errors of an OpenEnv server: on a WebSocket they are messages, which leave it open."""

from __future__ import annotations

from typing import Any

from ..wire.message import Answer


def error(message: str, code: str, *, close: bool = False, **more: Any) -> Answer:
    """An error as the server words it."""
    answer = Answer.json({"type": "error", "data": {"message": message, "code": code, **more}})
    answer.close = close
    return answer


def at_capacity(live: int, most: int) -> Answer:
    """What a client reads whose connection was accepted and whose session was not."""
    message = f"Server at capacity: {live}/{most} sessions active. Cannot accept new connections."
    return error(message, "CAPACITY_REACHED", close=True, active_sessions=live, max_sessions=most)


def execution_failed(message: str) -> Answer:
    """The environment raised."""
    return error(message, "EXECUTION_ERROR")


def invalid_json(why: str) -> Answer:
    return error(f"Invalid JSON: {why}", "INVALID_JSON")


def invalid_message(problems: list[dict[str, Any]]) -> Answer:
    return error("Invalid message", "VALIDATION_ERROR", errors=problems)


def unknown_type(kind: object) -> Answer:
    return error(f"Unknown message type: {kind}", "UNKNOWN_TYPE")
