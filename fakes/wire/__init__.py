"""What the fakes share: an HTTP server with uvicorn's bytes, a ledger, and faults at the socket."""

from typing import TYPE_CHECKING

from sfusion_tools._lazy import on_first_use as _on_first_use

if TYPE_CHECKING:
    from .app import Request, WireApp
    from .message import Answer
    from .served import Served
    from .server import WireServer

__all__ = ["Answer", "Request", "Served", "WireApp", "WireServer"]

__getattr__ = _on_first_use(
    __name__,
    {
        "sfusion.fakes.wire.app": ["Request", "WireApp"],
        "sfusion.fakes.wire.message": ["Answer"],
        "sfusion.fakes.wire.served": ["Served"],
        "sfusion.fakes.wire.server": ["WireServer"],
    },
)
