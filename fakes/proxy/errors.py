"""What can be wrong when a fault proxy is set up.

SandboxSetupError (of sfusion.fakes.sandbox)   also raised for a server model that cannot be read
├── UnsafeBindError                    forwarding code for strangers was not allowed explicitly
└── ProxySetupError                    the proxy cannot be set up as asked
    └── BadUpstream                    there is nothing that could be forwarded to
"""

from __future__ import annotations

from sfusion.fakes.sandbox.errors import SandboxSetupError


class ProxySetupError(SandboxSetupError):
    """The proxy cannot be set up as asked."""


class BadUpstream(ProxySetupError):
    """The upstream is no HTTP server's address, or the proxy's own."""
