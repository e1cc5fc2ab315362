"""Which hosts mean this machine, and which processes of it are alive."""

from __future__ import annotations

import ipaddress
import subprocess
from pathlib import Path


def is_loopback(host: str) -> bool:
    """True when only this machine can reach a server that listens on ``host``."""
    host = host.strip("[]").rstrip(".").lower()
    if host == "localhost" or host.endswith(".localhost"):
        return True
    address = address_of(host)
    return address is not None and address.is_loopback


def is_this_machine(host: str) -> bool:
    """True when a request to ``host`` stays on this machine.

    0.0.0.0 does as a destination, but not for listening.
    """
    address = address_of(host.strip("[]").rstrip("."))
    return is_loopback(host) or (address is not None and address.is_unspecified)


def address_of(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Return the IP address that a host is written as, None for a name."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address


def start_of(pid: int) -> str | None:
    """Return the start time of a living process; None if it is gone or a zombie.

    The time is in the format of the system.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return None if Path("/proc/self/stat").exists() else _start_by_ps(pid)
    except ProcessLookupError:
        return None
    # The name before the bracket may contain anything, even spaces.
    _, _, rest = stat.rpartition(")")
    state, *fields = rest.split()
    return None if state in ("Z", "X") else fields[18]


def _start_by_ps(pid: int) -> str | None:
    """For systems without /proc."""
    ps = subprocess.run(
        ["ps", "-o", "stat=,lstart=", "-p", str(pid)], capture_output=True, text=True, check=False
    )
    state, _, when = ps.stdout.strip().partition(" ")
    return when.strip() if when and not state.startswith("Z") else None
