"""What Daytona's API sends: a sandbox as JSON, and the names of its states."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from ..lifecycle.sandbox import Sandbox, SandboxState
from ..sandbox.protocol import CommandResult

STATES: dict[SandboxState, str] = {
    "pending": "creating",
    "running": "started",
    "dead": "error",
    "deleting": "destroying",
    "deleted": "destroyed",
}
_ENDED = {"ttl": "destroyed", "idle": "stopped"}
"""States of sandboxes that ended as their settings say, not by an error."""
_KEPT = ("user", "target", "snapshot", "autoStopInterval", "autoDeleteInterval", "ttlMinutes")
"""What a create asked for and the sandbox shows."""
_USER = "daytona"
HOME = f"/home/{_USER}"
_MINUTE = 60.0


def state_of(sandbox: Sandbox) -> str:
    """The state of a sandbox in Daytona's words."""
    if sandbox.state == "dead":
        return _ENDED.get(sandbox.why, STATES["dead"])
    return STATES[sandbox.state]


def sandbox_json(sandbox: Sandbox, host: str) -> dict[str, Any]:
    """A sandbox with every field that some version of the SDK requires."""
    shown: dict[str, Any] = {
        "id": sandbox.id,
        "organizationId": "sfusion",
        "name": sandbox.name or sandbox.id,
        "user": _USER,
        "env": {},
        "labels": dict(sandbox.labels),
        "public": False,
        "networkBlockAll": False,
        "kvm": False,
        "target": "local",
        "cpu": 1,
        "gpu": 0,
        "memory": 1,
        "disk": 3,
        "toolboxProxyUrl": f"http://{host}/toolbox",
        "state": state_of(sandbox),
    }
    for key in _KEPT:
        if sandbox.settings.get(key) is not None:
            shown[key] = sandbox.settings[key]
    if sandbox.state == "dead":
        shown["errorReason"] = f"sfusion: the sandbox died ({sandbox.why})"
    return shown


def minutes(value: Any) -> float | None:
    """Seconds of an interval in minutes; 0 and less switch it off."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return value * _MINUTE if is_number and value > 0 else None


def executed(result: CommandResult) -> dict[str, Any]:
    """The result of a command: both outputs in one text."""
    text = (result.stdout or "") + (result.stderr or "")
    return {"exitCode": result.return_code, "result": text, "artifacts": {"stdout": text}}


def timestamp() -> str:
    """Now, as the API writes it."""
    return datetime.now(UTC).isoformat().replace("+00:00", "Z")
