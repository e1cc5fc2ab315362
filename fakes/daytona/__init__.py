"""A fake Daytona: sandboxes that live and die, for the vendor's own SDK."""

from typing import TYPE_CHECKING

from sfusion_tools._lazy import on_first_use as _on_first_use

if TYPE_CHECKING:
    from .server import FakeDaytona

__all__ = ["FakeDaytona"]

__getattr__ = _on_first_use(__name__, {"sfusion.fakes.daytona.server": ["FakeDaytona"]})
