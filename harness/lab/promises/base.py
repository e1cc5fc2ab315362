"""The base class of promises. Subclasses register themselves under their name."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict

from sfusion.harness.lab.journal import Event
from sfusion.harness.lab.promises.story import CallStory, Story
from sfusion.harness.lab.promises.verdict import Verdict

SHOWN = 6
"""How many events are given as evidence."""


Need = Literal["result", "ending"]
"""A result: some call got a result of its program. An ending: some call ended, well or badly, by what the tool did."""

PROMISES: dict[str, type[Promise]] = {}
"""Every promise by the name it is written with."""


class Promise(BaseModel, ABC):
    """A named property of a run. `sfusion explain` and the docs show the docstring of each subclass."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    name: ClassVar[str]
    """How scenarios write it: the name of the class in snake_case."""
    of_rollouts: ClassVar[bool] = False
    """Can only be judged when the scenario runs rollouts."""
    of_permits: ClassVar[bool] = False
    """Is about our limiter, so it does not apply to a tool without it."""
    always: ClassVar[bool] = False
    """Is judged in every run, and reported where it did not hold also if the scenario does not name it."""
    needs: ClassVar[Need] = "result"
    """What must have happened in a run before this can be held; otherwise the run shows nothing and it is unknown."""

    @classmethod
    def __pydantic_init_subclass__(cls, **_: Any) -> None:
        cls.name = re.sub(r"(?<!^)(?=[A-Z])", "_", cls.__name__).lower()
        PROMISES[cls.name] = cls

    @classmethod
    def from_scalar(cls, value: Any) -> dict[str, Any]:
        """Return the parameters of a promise written with a single value."""
        raise ValueError(f"{cls.name} takes a mapping of parameters, found {value!r}")

    @abstractmethod
    def judge(self, story: Story) -> Verdict:
        """Decide from the events of a run whether the promise held."""

    def held(self, sentence: str) -> Verdict:
        return Verdict(self.name, "held", sentence)

    def unknown(self, sentence: str) -> Verdict:
        return Verdict(self.name, "unknown", sentence)

    def not_applicable(self, sentence: str) -> Verdict:
        return Verdict(self.name, "not_applicable", sentence)

    def broken(self, sentence: str, evidence: list[Event], count: int = 1) -> Verdict:
        """Return a verdict; the sentence and the evidence are about the first of ``count`` times."""
        more = f" (and {count - 1} more)" if count > 1 else ""
        return Verdict(self.name, "broken", sentence + more, evidence[:SHOWN], count)


def evidence(call: CallStory) -> list[Event]:
    """Return the last events of a call in order, as evidence."""
    events = [*([call.called] if call.called else []), *call.client, *call.server, *call.endings]
    return sorted(events, key=lambda event: event["at"])[-SHOWN:]
