"""A fake OpenEnv server: each WebSocket is an environment that lives and dies."""

from typing import TYPE_CHECKING

from sfusion_tools._lazy import on_first_use as _on_first_use

if TYPE_CHECKING:
    from .server import FakeOpenEnv

__all__ = ["FakeOpenEnv"]

__getattr__ = _on_first_use(__name__, {"sfusion.fakes.openenv.server": ["FakeOpenEnv"]})
