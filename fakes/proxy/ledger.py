"""The ledger of a proxy: what it forwarded and what came back. What ran, only the server behind it knows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sfusion.fakes.wire import CallRecord, Ledger


@dataclass(slots=True)
class ForwardRecord(CallRecord):
    """What the proxy knows about one call."""

    forwarded: int = 0
    """Attempts that were sent on."""
    replied: int = 0
    """Attempts that the server behind answered, whether or not the client was told."""

    def as_dict(self) -> dict[str, Any]:
        """Plain data; null is what only the server knows."""
        return {
            "arrived": self.arrived,
            "forwarded": self.forwarded,
            "replied": self.replied,
            "started": None,
            "finished": None,
            "statuses": list(self.statuses),
        }


class ProxyLedger(Ledger):
    """Counts over all requests for work that came to a proxy."""

    record = ForwardRecord
    calls: dict[str, ForwardRecord]  # type: ignore[assignment] # ``record`` makes them

    def clear(self) -> None:
        """Forget the past; requests being handled stay in flight."""
        super().clear()
        self.forwarded = 0
        self.replied = 0
        self.upstream_failed = 0
        # No number would be true for these: only the server behind the proxy knows.
        self.started = self.finished = self.executing = self.peak_executing = None  # type: ignore[assignment]

    def start(self, call: str) -> None:
        """An attempt is sent on."""
        self.forwarded += 1
        self._kept(call).forwarded += 1

    def finish(self, call: str, *, completed: bool) -> None:
        """An attempt was answered by the server behind, or never will be."""
        if completed:
            self.replied += 1
            self._kept(call).replied += 1

    def executions(self, call: str) -> None:  # type: ignore[override] # no number would be true
        """Unknown: a request may have been executed without an answer, or be answered without execution."""

    def snapshot(self, *, calls: bool = True) -> dict[str, Any]:
        """Everything as plain data; null is what only the server knows."""
        data = super().snapshot(calls=calls)
        counted = {"forwarded": self.forwarded, "replied": self.replied, "upstream_failed": self.upstream_failed}
        return {"arrived": data.pop("arrived"), **counted, **data}

    def _kept(self, call: str) -> ForwardRecord:
        record = self._record(call)
        assert isinstance(record, ForwardRecord)
        return record
