"""What every promise is: a name, parameters, an explanation, and a pure judgement over a story."""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict

from sfusion.harness.journal import Event
from sfusion.harness.promises.story import CallStory, Story
from sfusion.harness.promises.verdict import Verdict

SHOWN = 6
"""Events that are given as evidence."""


class Promise(BaseModel):
    """A named property of a run. The docstring of each subclass is its explanation."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: ClassVar[str]
    of_rollouts: ClassVar[bool] = False
    """Can only be judged when the scenario runs rollouts."""

    @classmethod
    def from_scalar(cls, value: Any) -> dict[str, Any]:
        """The parameters of a promise written with a single value."""
        raise ValueError(f"{cls.name} takes a mapping of parameters, found {value!r}")

    def judge(self, story: Story) -> Verdict:
        """Look at a run."""
        raise NotImplementedError

    def held(self, sentence: str) -> Verdict:
        """It held."""
        return Verdict(self.name, "held", sentence)

    def unknown(self, sentence: str) -> Verdict:
        """The run does not show whether it held."""
        return Verdict(self.name, "unknown", sentence)

    def broken(self, sentence: str, evidence: list[Event], count: int = 1) -> Verdict:
        """It did not hold: the sentence is about the first time."""
        more = f" (and {count - 1} more)" if count > 1 else ""
        return Verdict(self.name, "broken", sentence + more, evidence[:SHOWN], count)


def whole(call: CallStory) -> list[Event]:
    """All events of a call in their order, shortened to what can be shown."""
    events = [*([call.called] if call.called else []), *call.client, *call.server, *call.endings]
    return sorted(events, key=lambda event: event["at"])[-SHOWN:]
