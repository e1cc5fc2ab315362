"""What the fakes share: an HTTP server with uvicorn's bytes, a ledger, and faults at the socket."""

from typing import TYPE_CHECKING

from sfusion_tools._lazy import on_first_use as _on_first_use

if TYPE_CHECKING:
    from sfusion.fakes.wire.app import Request, WireApp
    from sfusion.fakes.wire.message import Answer
    from sfusion.fakes.wire.served import Served
    from sfusion.fakes.wire.server import WireServer

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
