"""What a visit to the fake sandbox and one to the proxy have in common."""

from __future__ import annotations

from typing import Any

from sfusion.fakes.faults import ContentFault
from sfusion.fakes.sandbox.gate import Gate
from sfusion.fakes.sandbox.spoil import spoil
from sfusion.fakes.wire import Answer, Request, is_admin


class GatedVisit:
    """A request that a server model lets in."""

    __slots__ = ("admin", "fields", "gate", "ping", "reads_body", "refusal", "request")

    def __init__(self, request: Request, gate: Gate) -> None:
        self.request = request
        self.gate = gate
        self.admin = is_admin(request.path)
        self.refusal: Answer | None = None
        """The answer, where it is known before anything runs."""
        self.fields: dict[str, Any] = {}
        """The body of a request to run code."""
        self.ping = False
        self.reads_body = False

    async def admit(self) -> Answer | None:
        return None if self.gate.open else await self.gate.admit()

    def leave(self) -> None:
        if not self.gate.open:
            self.gate.leave()

    def spoil(self, answer: Answer | None, action: ContentFault) -> tuple[Answer, float]:
        return spoil(self.request.path, self.fields, answer, action)
