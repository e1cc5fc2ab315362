"""What the fakes share: an HTTP server with uvicorn's bytes, a ledger, and faults at the socket."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sfusion_tools._lazy import on_first_use as _on_first_use

if TYPE_CHECKING:
    from sfusion.fakes.errors import BrokenStream, PortTaken, WireError
    from sfusion.fakes.wire.access import Access, is_admin
    from sfusion.fakes.wire.app import (
        MARK,
        App,
        Execution,
        PlainVisit,
        Request,
        Routes,
        Subject,
        Visit,
        WireApp,
        call_of,
        digest_of,
    )
    from sfusion.fakes.wire.core import EventSink, WorkEvents
    from sfusion.fakes.wire.ledger import CallRecord, Ledger
    from sfusion.fakes.wire.message import Answer, dump_json
    from sfusion.fakes.wire.served import AdminRoutes, Served, ServerOptions
    from sfusion.fakes.wire.server import WireServer

__all__ = [
    "MARK",
    "Access",
    "AdminRoutes",
    "Answer",
    "App",
    "BrokenStream",
    "CallRecord",
    "EventSink",
    "Execution",
    "Ledger",
    "PlainVisit",
    "PortTaken",
    "Request",
    "Routes",
    "Served",
    "ServerOptions",
    "Subject",
    "Visit",
    "WireApp",
    "WireError",
    "WireServer",
    "WorkEvents",
    "call_of",
    "digest_of",
    "dump_json",
    "is_admin",
]

__getattr__ = _on_first_use(
    __name__,
    {
        "sfusion.fakes.errors": ["BrokenStream", "PortTaken", "WireError"],
        "sfusion.fakes.wire.access": ["Access", "is_admin"],
        "sfusion.fakes.wire.app": [
            "MARK",
            "App",
            "Execution",
            "PlainVisit",
            "Request",
            "Routes",
            "Subject",
            "Visit",
            "WireApp",
            "call_of",
            "digest_of",
        ],
        "sfusion.fakes.wire.core": ["EventSink", "WorkEvents"],
        "sfusion.fakes.wire.ledger": ["CallRecord", "Ledger"],
        "sfusion.fakes.wire.message": ["Answer", "dump_json"],
        "sfusion.fakes.wire.served": ["AdminRoutes", "Served", "ServerOptions"],
        "sfusion.fakes.wire.server": ["WireServer"],
    },
)
