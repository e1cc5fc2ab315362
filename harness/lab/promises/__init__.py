"""Promises: what must hold in a run. Each is checked by a pure function of the journal."""

from ...core.run_events import CallEvents, RunEvents
from ...core.verdict import How, State, Verdict
from .base import PROMISES, Promise
from .registry import check_promises, read_promise

__all__ = [
    "PROMISES",
    "CallEvents",
    "How",
    "Promise",
    "RunEvents",
    "State",
    "Verdict",
    "check_promises",
    "read_promise",
]
