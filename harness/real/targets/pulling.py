"""The progress of an image pull, in a few lines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sfusion.harness.real.targets.options import size

EVERY = 5.0
"""Minimum seconds between two lines."""
_DONE = ("Pull complete", "Already exists")


@dataclass
class Layer:
    current: int = 0
    total: int = 0
    done: bool = False


@dataclass
class PullProgress:
    """Sums up the events of all layers into an occasional line."""

    image: str
    layers: dict[str, Layer] = field(default_factory=dict)
    last_line: str = ""
    _next: float = float("-inf")

    def update(self, event: Mapping[str, Any], now: float) -> str | None:
        """Add an event; return a line if there is news and the last line is old enough."""
        name, status = str(event.get("id", "")), str(event.get("status", ""))
        if not name or status.startswith("Pulling from"):
            return None
        layer = self.layers.setdefault(name, Layer())
        if status == "Downloading":
            detail = event.get("progressDetail") or {}
            layer.current, layer.total = int(detail.get("current", 0)), int(detail.get("total", layer.total))
        elif status in ("Verifying Checksum", "Download complete"):
            layer.current = layer.total
        layer.done = layer.done or status in _DONE
        if now < self._next or self.text == self.last_line:
            return None
        self._next, self.last_line = now + EVERY, self.text
        return self.last_line

    @property
    def text(self) -> str:
        done = sum(layer.done for layer in self.layers.values())
        line = f"pulling {self.image}: {done} of {len(self.layers)} layers"
        total = sum(layer.total for layer in self.layers.values())
        return (
            f"{line}, {size(sum(layer.current for layer in self.layers.values()))} of {size(total)}" if total else line
        )
