"""The errors of E2B's API, of envd, and of the proxy in front of the sandboxes."""

from __future__ import annotations

from ..wire.message import Answer


def error(status: int, message: str) -> Answer:
    """An error as the API words it."""
    return Answer.json({"code": status, "message": message}, status=status)


def no_sandbox(name: str) -> Answer:
    """The API's answer about a sandbox that there is not."""
    return error(404, f"Sandbox {name[:100]} not found")


def not_running(name: str) -> Answer:
    """The proxy's answer when a request is for a sandbox that is gone."""
    content = {"sandboxId": name[:100], "message": "The sandbox was not found", "code": 502}
    return Answer.json(content, status=502)
