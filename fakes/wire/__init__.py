"""What the fakes share: an HTTP server with uvicorn's bytes, a ledger, and faults at the socket."""

from __future__ import annotations

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
