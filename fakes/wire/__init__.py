"""The wire that the fakes share: an HTTP server with uvicorn's bytes, a ledger, and faults at the socket."""

from __future__ import annotations

from sfusion.fakes.errors import BrokenStream, PortTaken, WireError
from sfusion.fakes.wire.app import MARK, App, Execution, Request, Subject, WireApp, digest_of
from sfusion.fakes.wire.doors import PREFIX, Doors
from sfusion.fakes.wire.exchange import Words
from sfusion.fakes.wire.ledger import CallRecord, Ledger
from sfusion.fakes.wire.message import Answer, dump_json
from sfusion.fakes.wire.routes import Routes
from sfusion.fakes.wire.served import Faulted, Served, is_loopback
from sfusion.fakes.wire.server import Journal, WireServer

__all__ = [
    "MARK",
    "PREFIX",
    "Answer",
    "App",
    "BrokenStream",
    "CallRecord",
    "Doors",
    "Execution",
    "Faulted",
    "Journal",
    "Ledger",
    "PortTaken",
    "Request",
    "Routes",
    "Served",
    "Subject",
    "WireApp",
    "WireError",
    "WireServer",
    "Words",
    "digest_of",
    "dump_json",
    "is_loopback",
]
