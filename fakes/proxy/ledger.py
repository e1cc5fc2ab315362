"""The ledger of a proxy: what it forwarded and what came back. Only the upstream knows what ran."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sfusion.fakes.wire import CallRecord, Ledger


@dataclass(slots=True)
class ForwardRecord(CallRecord):
    """What the proxy knows about one call; null is what only the upstream knows."""

    forwarded: int = 0
    """Attempts that were forwarded."""
    replied: int = 0
    """Attempts that the upstream answered, whether or not the answer reached the client."""

    def as_dict(self) -> dict[str, Any]:
        return {
            "arrived": self.arrived,
            "forwarded": self.forwarded,
            "replied": self.replied,
            "started": None,
            "finished": None,
            "statuses": list(self.statuses),
        }


class ProxyLedger(Ledger):
    """Counts over all requests for work that reached a proxy."""

    record = ForwardRecord
    calls: dict[str, ForwardRecord]  # type: ignore[assignment] # ``record`` makes them

    def clear(self) -> None:
        super().clear()
        self.forwarded = 0
        self.replied = 0
        self.upstream_failed = 0
        # Only the upstream knows these.
        self.started = self.finished = self.executing = self.peak_executing = None  # type: ignore[assignment]

    def start(self, call: str) -> None:
        """Count an attempt that is forwarded."""
        self.forwarded += 1
        self._kept(call).forwarded += 1

    def finish(self, call: str, *, completed: bool) -> None:
        """Count an attempt that the upstream answered, or never will."""
        if completed:
            self.replied += 1
            self._kept(call).replied += 1

    def executions(self, call: str) -> None:  # type: ignore[override] # a number would be a guess
        """Unknown: a request may have run without an answer, or been answered without running."""

    def snapshot(self, *, calls: bool = True) -> dict[str, Any]:
        data = super().snapshot(calls=calls)
        counted = {"forwarded": self.forwarded, "replied": self.replied, "upstream_failed": self.upstream_failed}
        return {"arrived": data.pop("arrived"), **counted, **data}

    def _kept(self, call: str) -> ForwardRecord:
        record = self._record(call)
        assert isinstance(record, ForwardRecord)
        return record
