"""Ports that tests may count on."""

from __future__ import annotations

import socket


def closed_port() -> int:
    """Return a port of loopback that refuses connections. It stays bound while this process lives:
    of a port that is only free, another process could make one that answers."""
    taken = socket.socket()
    taken.bind(("127.0.0.1", 0))
    port: int = taken.getsockname()[1]
    taken.detach()
    return port
