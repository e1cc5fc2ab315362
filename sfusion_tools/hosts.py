"""Which hosts mean this machine."""

from __future__ import annotations

import ipaddress


def is_loopback(host: str) -> bool:
    """True when only this machine can reach a server that listens on ``host``."""
    host = host.strip("[]").rstrip(".").lower()
    if host == "localhost" or host.endswith(".localhost"):
        return True
    address = _address(host)
    return address is not None and address.is_loopback


def is_this_machine(host: str) -> bool:
    """True when a request to ``host`` stays on this machine: 0.0.0.0 does as a destination, but not for listening."""
    address = _address(host.strip("[]").rstrip("."))
    return is_loopback(host) or (address is not None and address.is_unspecified)


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address
