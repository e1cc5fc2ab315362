"""The promise about runs that stand still."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from sfusion.fakes.faults import Seconds
from sfusion.harness.lab.journal import Event
from sfusion.harness.lab.promises.base import Promise
from sfusion.harness.lab.promises.story import Story
from sfusion.harness.lab.promises.verdict import Verdict

_PROGRESS = {
    "called", "returned", "cancelled", "lost", "rollout_started", "rollout_ended", "rollout_lost", "arrived", "started",
    "finished", "forwarded", "replied", "answered", "spoke", "broken_off",
}  # fmt: skip


class NoStall(Promise):
    """The run never stands still: while calls are under way, some request arrives at the sandbox, some program starts
    or ends, or some call ends within `at_most`."""

    needs = "ending"

    at_most: Seconds = Field(60.0, description="longest time in which nothing may happen")

    @classmethod
    def from_scalar(cls, value: Any) -> dict[str, Any]:
        return {"at_most": value}

    def judge(self, story: Story) -> Verdict:
        under_way: dict[str, Event] = {}
        last: Event | None = None
        longest = 0.0
        stalls: list[tuple[str, list[Event]]] = []
        for event in story.journal.events:
            if event["event"] not in _PROGRESS or event["source"] in ("client", "limiter"):
                continue
            if last is not None and under_way:
                gap = event["at"] - last["at"]
                longest = max(longest, gap)
                if gap > self.at_most:
                    calls = ", ".join(list(under_way)[:3]) + (", …" if len(under_way) > 3 else "")
                    text = f"from {last['at']:g} s nothing happened for {gap:.4g} s, with {calls} under way"
                    stalls.append((f"{text}; promised {self.at_most:g} s", [last, event]))
            last = event
            if event["event"] == "called":
                under_way[event["call"]] = event
            elif event["event"] in ("returned", "cancelled", "lost"):
                under_way.pop(event["call"], None)
        if stalls:
            return self.broken(*stalls[0], len(stalls))
        if last is None:
            return self.unknown("no call was made")
        return self.held(f"with calls under way, something happened every {longest:.3g} s or sooner")
