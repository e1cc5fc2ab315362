"""A fault proxy: the fakes' faults in front of a real sandbox, or of any other HTTP server."""

from __future__ import annotations

from fakes.proxy.errors import BadUpstream, ProxySetupError
from fakes.proxy.ledger import ForwardRecord, ProxyLedger
from fakes.proxy.proxy import FaultProxy

__all__ = [
    "BadUpstream",
    "FaultProxy",
    "ForwardRecord",
    "ProxyLedger",
    "ProxySetupError",
]
