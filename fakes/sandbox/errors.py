"""What can be wrong when a fake sandbox is set up.

SandboxSetupError (ValueError)
├── CassetteError      a cassette cannot be read or served
└── UnsafeBindError    running code for strangers was not allowed explicitly
"""

from __future__ import annotations


class SandboxSetupError(ValueError):
    """The fake sandbox cannot be set up as asked."""


class CassetteError(SandboxSetupError):
    """A cassette cannot be used."""


class UnsafeBindError(SandboxSetupError):
    """The fake would run code for whoever reaches it, and nobody said it may."""
