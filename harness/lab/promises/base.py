"""The base class of promises. Subclasses register themselves under their name."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, cast

from pydantic import BaseModel, ConfigDict

from ...core.events import AnyEvent
from ...core.journal import Event
from ...core.run_events import CallEvents, RunEvents
from ...core.sandbox_lives import SandboxLives
from ...core.verdict import How, State, Verdict, sentence_of
from ..client import TAKES
from ..single_calls.suite import SuiteFacts
from .findings import Findings, Wrong

if TYPE_CHECKING:
    from ..scenarios.training import TrainingPart

SHOWN = 6
"""How many events are given as evidence."""


Need = Literal["result", "ending"]
"""A result: some call got a result of its program. An ending: some call ended, well or badly, by
what the tool did."""

PROMISES: dict[str, type[Promise]] = {}
"""Every promise by the name it is written with."""

COMMON = {
    "stuck": "the run could not go on: {why}",
    "broken_off": (
        "the run was broken off after {after:g} s (`horizon`), with {made} of {planned:call} made"
    ),
    "not_our_limiter": "this tool does not use the limiter of sfusion",
    "limiter_unseen": "the limiter of this tool cannot be observed",
    "engine_silent": "the engine never answered",
    "no_call": "no call was made",
    "all_raised": "the tool raised in {raised} of {calls:call} and finished none",
    "unobserved": "no request of this tool reached the sandbox: it sends none, or does its "
    "I/O outside the event loop "
    "(threads, processes), which virtual time does not cover; try --world wall",
    "none_ended": "none of {calls:call} was sent to a sandbox and ended",
    "no_result": "none of {calls:call} got a result of its program",
    "calls_held": "{judged:thing} judged",
    "calls_held_but": "{judged:thing} judged; {caveat}",
    "not_taken": "only for a client that {wanted}",
    "calls_unseen": "{unseen}",
    "no_call_made": (
        "no call was made: the client does not take what the calls need (such as stdin or files)"
    ),
    "only_single_calls": "only single calls (`load.each`) show this",
    "only_episodes": "only `episodes` show this",
    "not_of_episodes": "`episodes` do not show this",
    "no_create": "no request of this client reached the service",
    "episodes_held": "{judged:episode} judged",
    "episodes_unseen": "no episode showed this",
    "not_of_single_calls": "single calls (`load.each`) do not show this",
}
"""The sentences of verdicts that any promise may have."""
ROUNDED = 1e-5
"""Seconds that do not count: the times of journals are rounded to microseconds."""


class Promise(BaseModel):
    """A named property of a run. `sfusion explain` and the docs show the docstring of each
    subclass."""

    model_config = ConfigDict(defer_build=True, extra="forbid", frozen=True, allow_inf_nan=False)

    name: ClassVar[str]
    """How scenarios write it: the name of the class in snake_case."""
    sentences: ClassVar[Mapping[str, str]] = {}
    """For each kind of verdict the sentence, with the parameters of ``how`` in braces."""
    identity: ClassVar[tuple[str, ...]] = ()
    """Parameters that make two failures of one kind different ones, such as `outcome`."""
    scalar: ClassVar[str] = ""
    """The parameter that a single value in place of a mapping stands for."""
    of_rollouts: ClassVar[bool] = False
    """Can only be judged when the scenario runs rollouts."""
    of_episodes: ClassVar[bool] = False
    """Is about episodes in sandboxes that live and die, and about nothing else."""
    of_training: ClassVar[bool] = False
    """Can only be judged when the scenario runs a training."""
    of_permits: ClassVar[bool] = False
    """Is about our limiter, so it does not apply to a tool without it."""
    implied: ClassVar[bool] = True
    """Is judged in every run, and reported where it is broken also if the scenario does not name
    it."""
    exact: ClassVar[bool] = False
    """Is about moments that only virtual time keeps apart, so that it is implied in world sim
    only."""
    needs: ClassVar[Need] = "result"
    """What must have happened in a run before this can be held; otherwise the run shows nothing
    and it is unknown."""

    takes: ClassVar[frozenset[str]] = frozenset()
    """What a client must take for this to apply to its single calls."""
    of_single_calls: ClassVar[str] = ""
    """What it says of single calls, where that is more or less than its docstring."""
    unseen: ClassVar[str] = ""
    """What was not seen if there was nothing to judge, and what would show it.

    Empty if single calls show nothing about this."""

    @classmethod
    def __pydantic_init_subclass__(cls, **_: Any) -> None:
        cls.name = re.sub(r"(?<!^)(?=[A-Z])", "_", cls.__name__).lower()
        if not cls.__name__.startswith("_"):  # the base of several promises is none itself
            PROMISES[cls.name] = cls

    @classmethod
    def from_scalar(cls, value: Any) -> dict[str, Any]:
        """Return the parameters of a promise written with a single value."""
        if not cls.scalar:
            raise ValueError(f"{cls.name} takes a mapping of parameters, found {value!r}")
        return {cls.scalar: value}

    def cannot_fail(self, training: TrainingPart) -> str:
        """Return why the promise could not be broken in this training; empty if it can."""
        return ""

    def check(self, run: RunEvents) -> Verdict:
        """Decide from the events of a run whether the promise held; by default each of
        ``findings`` must be None."""
        found = list(self.findings(run))
        wrong = [verdict for verdict in found if verdict is not None]
        return self.concluded(wrong, len(found))

    def findings(self, run: RunEvents) -> Iterator[Verdict | None]:
        """Yield for each thing that can be judged what is wrong with it, or None."""
        raise NotImplementedError

    def judge_episodes(self, facts: SandboxLives) -> Iterator[Verdict | None]:
        """Yield for each thing that episodes show what is wrong with it, or None."""
        raise NotImplementedError

    @property
    def judges_episodes(self) -> bool:
        return type(self).judge_episodes is not Promise.judge_episodes

    def of_findings(
        self, found: Iterable[tuple[str, Sequence[Event], dict[str, Any]] | None]
    ) -> Iterator[Verdict | None]:
        """Make verdicts of what was found: kind, evidence and parameters."""
        for finding in found:
            yield None if finding is None else self.broken(finding[0], finding[1], **finding[2])

    def check_episodes(self, facts: SandboxLives) -> Verdict:
        """Judge episodes."""
        found = list(self.judge_episodes(facts))
        wrong = [verdict for verdict in found if verdict is not None]
        if wrong or self.of_episodes:
            return self.concluded(wrong, len(found))
        if found:
            return self.held("episodes_held", judged=len(found))
        return self.unknown("episodes_unseen")

    @property
    def only_single_calls(self) -> bool:
        """Can it be judged by single calls alone?"""
        kind = type(self)
        return kind.check is Promise.check and kind.findings is Promise.findings

    def find(self, facts: SuiteFacts) -> Findings:
        """Yield for each thing that single calls show what is wrong with it, or None."""
        raise NotImplementedError

    def check_calls(self, facts: SuiteFacts) -> list[Verdict]:
        """Judge single calls: a broken verdict for each way to fail, else one that it held, or why
        that is unknown."""
        if not self.unseen:
            return [self.not_applicable("not_of_single_calls")]
        if facts.unobserved:
            return [self.unknown("unobserved")]
        lacking = self.takes - facts.takes
        if lacking:
            wanted = " and ".join(f"{TAKES[name]} ({name})" for name in sorted(lacking))
            return [self.not_applicable("not_taken", wanted=wanted)]
        judged = list(self.find(facts))
        wrong = [finding for finding in judged if finding is not None]
        if wrong:
            return self._found_apart(wrong)
        return [self.doubt(facts) or self._nothing_wrong(facts, len(judged))]

    def _found_apart(self, findings: Iterable[Wrong]) -> list[Verdict]:
        """Return a verdict for each way to fail."""
        alike: dict[How, list[Wrong]] = {}
        for finding in findings:
            how = How.of(self.name, finding.kind, finding.parameters, self.identity)
            alike.setdefault(how, []).append(finding)
        return [self._found(several) for several in alike.values()]

    def _nothing_wrong(self, facts: SuiteFacts, judged: int) -> Verdict:
        """Return what calls show in which nothing is wrong."""
        if not facts.calls:
            return self.unknown("no_call_made")
        if not judged:
            return self.unknown("calls_unseen", unseen=self.unseen)
        caveat = self.caveat(facts)
        if caveat:
            return self.held("calls_held_but", judged=judged, caveat=caveat)
        return self.held("calls_held", judged=judged)

    def caveat(self, facts: SuiteFacts) -> str:
        """Return what was not played, though it would have been judged too."""
        return ""

    def doubt(self, facts: SuiteFacts) -> Verdict | None:
        """Return why nobody knows whether it held, though nothing was found that is wrong."""
        return None

    def _found(self, several: list[Wrong]) -> Verdict:
        """Return the first of several findings of one kind, with what was played."""
        first = several[0]
        verdict = self.broken(first.kind, first.evidence, len(several), **first.parameters)
        if first.case is None:
            return verdict
        # A report that shows the case elsewhere shows the plain sentence.
        shown = {"case": first.case.as_dict(), "plain": verdict.sentence}
        how = replace(verdict.how, details={**verdict.how.details, **shown})
        told = f" [{first.case.short}]" if first.in_sentence else ""
        return replace(verdict, how=how, sentence=f"{verdict.sentence}{told}")

    def held(self, kind: str = "held", /, **parameters: Any) -> Verdict:
        return self._verdict("held", kind, parameters)

    def unknown(self, kind: str, /, **parameters: Any) -> Verdict:
        return self._verdict("unknown", kind, parameters)

    def not_applicable(self, kind: str, /, **parameters: Any) -> Verdict:
        return self._verdict("not_applicable", kind, parameters)

    def not_shown(self, run: RunEvents, kind: str, /, **parameters: Any) -> Verdict:
        """Return unknown for our tool, not applicable for one of another class, which need not
        show it."""
        return self._verdict("not_applicable" if run.foreign else "unknown", kind, parameters)

    def broken(
        self, kind: str, evidence: Sequence[AnyEvent], count: int = 1, /, **parameters: Any
    ) -> Verdict:
        """Return a verdict; the parameters and the evidence are about the first of ``count``
        times."""
        return _counted(self._verdict("broken", kind, parameters, evidence[:SHOWN]), count)

    def broken_by(self, call: CallEvents, kind: str, /, **parameters: Any) -> Verdict:
        """Return a verdict about one call, whose last events are the evidence."""
        return self.broken(kind, evidence(call), call=call.call, **parameters)

    def first(self, wrong: list[Verdict]) -> Verdict:
        """Return the first of several, with how many there are."""
        return _counted(wrong[0], len(wrong))

    def concluded(self, wrong: list[Verdict], judged: int, /, **parameters: Any) -> Verdict:
        """Return the first that is broken; if there is none `held`, or unknown (`nothing`) if
        nothing was judged."""
        if wrong:
            return self.first(wrong)
        return self.held(judged=judged, **parameters) if judged else self.unknown("nothing")

    def _verdict(
        self, state: State, kind: str, parameters: dict[str, Any], evidence: Sequence[AnyEvent] = ()
    ) -> Verdict:
        sentence = sentence_of(self.sentences.get(kind) or COMMON[kind], parameters)
        how = How.of(self.name, kind, parameters, self.identity)
        events = cast(list[Event], list(evidence))
        return Verdict(self.name, state, sentence, events, how=how)


def _counted(verdict: Verdict, count: int) -> Verdict:
    more = f" (and {count - 1} more)" if count > 1 else ""
    return replace(verdict, sentence=verdict.sentence + more, count=count)


def evidence(call: CallEvents) -> list[AnyEvent]:
    """Return the last events of a call in order, as evidence."""
    events: list[AnyEvent] = [*call.client, *call.server, *call.endings]
    if call.called:
        events.insert(0, call.called)
    return sorted(events, key=lambda event: event["at"])[-SHOWN:]
