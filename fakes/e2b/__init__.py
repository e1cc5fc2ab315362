"""A fake E2B: sandboxes that live and die, for the vendor's own SDKs."""

from typing import TYPE_CHECKING

from sfusion_tools._lazy import on_first_use as _on_first_use

if TYPE_CHECKING:
    from .server import FakeE2B

__all__ = ["FakeE2B"]

__getattr__ = _on_first_use(__name__, {"sfusion.fakes.e2b.server": ["FakeE2B"]})
