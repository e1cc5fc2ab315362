"""What the fakes share: an HTTP server with uvicorn's bytes, a ledger, and faults at the socket."""

from typing import TYPE_CHECKING

from sfusion_tools._lazy import on_first_use as _on_first_use

if TYPE_CHECKING:
    from .app import Request, WireApp
    from .fake_server import FakeServer
    from .message import Answer
    from .server import WireServer

__all__ = ["Answer", "FakeServer", "Request", "WireApp", "WireServer"]

__getattr__ = _on_first_use(
    __name__,
    {
        "sfusion.fakes.wire.app": ["Request", "WireApp"],
        "sfusion.fakes.wire.message": ["Answer"],
        "sfusion.fakes.wire.fake_server": ["FakeServer"],
        "sfusion.fakes.wire.server": ["WireServer"],
    },
)
