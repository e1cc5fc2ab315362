"""What can go wrong when a fake is started.

WireError (RuntimeError)
└── PortTaken   the address is in use by somebody else
"""

from __future__ import annotations


class WireError(RuntimeError):
    """The server could not be started or used as asked."""


class PortTaken(WireError):
    """Somebody else listens on the address."""
