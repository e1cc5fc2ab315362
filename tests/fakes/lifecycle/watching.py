"""What a fake of sandboxes with a life cycle was asked for, by its journal."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

Event = Mapping[str, Any]
Check = Callable[[Any], None]


async def done(value: Any) -> Any:
    """What a client returns, of an asynchronous one or not."""
    return await value if inspect.isawaitable(value) else value


def requests(events: list[Event], on: str) -> int:
    """How many requests did this to a sandbox."""
    return len(arrivals(events, on))


def arrivals(events: list[Event], on: str) -> list[Event]:
    return [
        event
        for event in events
        if event["event"] == "arrived" and event.get("sent", {}).get("on") == on
    ]


def executed(events: list[Event], call: str) -> int:
    """How often the command with this mark began to run."""
    return sum(event["event"] == "started" and event["call"] == call for event in events)
