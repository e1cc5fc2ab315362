"""The errors of Daytona's API and of the proxy in front of its sandboxes."""

from __future__ import annotations

from ..wire.message import Answer, phrase_of
from .wire import timestamp


def error(status: int, message: str, path: str = "") -> Answer:
    """An error as the API words it."""
    content = {
        "path": path,
        "timestamp": timestamp(),
        "statusCode": status,
        "error": phrase_of(status),
        "message": message,
    }
    return Answer.json(content, status=status)


def no_sandbox(name: str) -> Answer:
    """The answer about a sandbox that there is not, or not any more."""
    return error(404, f"Sandbox with ID or name {name[:100]} not found")


def name_taken(name: str) -> Answer:
    """The answer to a create with the name of another sandbox."""
    return error(409, f"Sandbox with name {name[:100]} already exists")


def timed_out(seconds: float | None) -> Answer:
    """The answer about a command that was stopped at its limit."""
    return error(408, f"command execution timeout: exceeded {seconds or 0:g} seconds")
