"""Sandboxes that live and die: what the fakes of Daytona, OpenEnv and E2B have in common.

The core is pure: ``SandboxLedger`` (settings: ``Lifecycle``) is given the time with every call and
writes events. A face keeps one ledger, and lets it ``advance`` when ``next_at`` has come.

    ledger = SandboxLedger(read_lifecycle({"boot": "2s", "live": 16}), seed=7, note=events.append)
    made = ledger.create(0.0, episode="e1", by=EventCause("create-e1", 1))  # or a CreateRefusal
    ledger.advance(2.0)  # now it is running
    ledger.delete(made.id, 3.0)

A sandbox is ``pending``, ``running``, ``dead`` (its time was up, it idled, or it died),
``deleting`` or ``deleted``. Pending, running and deleting ones are live.

Events have ``at``, ``source`` (server), ``event``, ``instance`` (the sandbox) and ``episode`` (the
tag under which it was created, perhaps empty); an event that a request caused also has that
request's ``call`` and ``attempt``, by which ``arrived`` and ``answered`` of the same request are
found:

    sandbox_created   name, ttl, idle: it exists from now on, whatever the client is answered
    sandbox_adopted   a create with the idempotency key of one that is there
    sandbox_refused   why (live, rate), retry_after; no instance
    sandbox_ready     it can be used
    sandbox_renewed   ttl: its time begins again
    sandbox_left      its client closed its connection while a message was being served
    sandbox_died      why (ttl, idle, death, fault), state (before: pending, running)
    sandbox_deleting  state (before): a delete was asked for and accepted
    sandbox_deleted   it is gone
    file_written      path (a digest), writer (the mark in the file, else the episode)
    file_read         path, writer

The wire's own events say the rest: a request to a sandbox has ``sent.on`` (create, ready, exec,
file, renew, delete) and ``sent.instance`` in its event ``arrived``; ``started`` and ``finished``
say that it had its effect, ``answered`` and ``unanswered`` what the client received. The call of a
command, or of a file, is the mark inside it (``sfusion:call=ID``), else a digest.
"""

from typing import TYPE_CHECKING

from sfusion_tools._lazy import on_first_use as _on_first_use

if TYPE_CHECKING:
    from ..errors import SandboxFull
    from .events import EventCause, LifecycleEvent
    from .ledger import CreateRefusal, SandboxLedger
    from .model import Lifecycle, read_lifecycle
    from .sandbox import Sandbox

__all__ = [
    "CreateRefusal",
    "EventCause",
    "Lifecycle",
    "LifecycleEvent",
    "Sandbox",
    "SandboxFull",
    "SandboxLedger",
    "read_lifecycle",
]

__getattr__ = _on_first_use(
    __name__,
    {
        "sfusion.fakes.errors": ["SandboxFull"],
        "sfusion.fakes.lifecycle.events": ["EventCause", "LifecycleEvent"],
        "sfusion.fakes.lifecycle.ledger": ["CreateRefusal", "SandboxLedger"],
        "sfusion.fakes.lifecycle.model": ["Lifecycle", "read_lifecycle"],
        "sfusion.fakes.lifecycle.sandbox": ["Sandbox"],
    },
)
