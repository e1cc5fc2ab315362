"""What can go wrong when a fake is started or serves.

WireError (RuntimeError)
├── PortTaken      the address is in use by somebody else
└── BrokenStream   what is behind an answer ended before the answer did
"""

from __future__ import annotations


class WireError(RuntimeError):
    """The server could not be started or used as asked."""


class PortTaken(WireError):
    """Somebody else listens on the address."""


class BrokenStream(WireError):
    """An answer that is being sent cannot be completed; the client must see that it ends too early."""
