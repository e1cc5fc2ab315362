"""Checks: each is a function of the facts that yields what is wrong, or None for each thing that it
found right."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..core.verdict import How, Verdict, sentence_of
from .calls import CallFacts, TrialFacts
from .client import TAKES


@dataclass(frozen=True)
class Wrong:
    """Something that a check found wrong, with the parameters of its sentence."""

    kind: str
    parameters: dict[str, Any] = field(default_factory=dict)


Findings = Iterator[Wrong | None]


@dataclass(frozen=True)
class TrialCheck:
    """A named property of a client."""

    name: str
    about: str
    find: Callable[[TrialFacts], Iterable[Wrong | None]]
    sentences: Mapping[str, str]
    identity: tuple[str, ...]
    needs: frozenset[str]
    """What a client must take to be judged; otherwise the verdict is unknown."""
    unseen: str
    """What the trial did not see if there was nothing to judge, and what would show it."""

    def judge(self, facts: TrialFacts) -> list[Verdict]:
        """Return a broken verdict for each way in which it fails; else one that it held, or why
        that is unknown."""
        if lacking := self.needs - facts.takes:
            wanted = " and ".join(f"{TAKES[one]} ({one})" for one in sorted(lacking))
            return [self._verdict("unknown", "not_taken", {"wanted": wanted})]
        found = list(self.find(facts))
        wrong: dict[How, list[Wrong]] = {}
        for one in found:
            if one is not None:
                wrong.setdefault(
                    How.of(self.name, one.kind, one.parameters, self.identity), []
                ).append(one)
        if wrong:
            return [self._broken(how, ones) for how, ones in wrong.items()]
        if found:
            return [self._verdict("held", "held", {"judged": len(found)})]
        return [self._verdict("unknown", "unseen", {"unseen": self.unseen})]

    def _broken(self, how: How, ones: list[Wrong]) -> Verdict:
        sentence = sentence_of(self.sentences[how.kind], ones[0].parameters)
        more = f" (and {len(ones) - 1} more)" if len(ones) > 1 else ""
        return Verdict(self.name, "broken", sentence + more, count=len(ones), how=how)

    def _verdict(self, state: Any, kind: str, parameters: dict[str, Any]) -> Verdict:
        how = How.of(self.name, kind, parameters, self.identity)
        return Verdict(self.name, state, sentence_of(_COMMON[kind], parameters), how=how)


_COMMON = {
    "held": "{judged:thing} judged",
    "not_taken": "only for a client that {wanted}",
    "unseen": "{unseen}",
}
CHECKS: dict[str, TrialCheck] = {}
"""Every check by name, in the order of the report."""


def check(
    *identity: str, unseen: str, needs: Iterable[str] = (), **sentences: str
) -> Callable[[Callable[[TrialFacts], Findings]], TrialCheck]:
    """Register a function as a check under its name; ``sentences`` has one for each kind of
    finding.

    ``unseen`` says what a trial lacked in which it found nothing to judge, and what would show it.
    """

    def register(find: Callable[[TrialFacts], Findings]) -> TrialCheck:
        about = " ".join((find.__doc__ or "").split())
        made = TrialCheck(find.__name__, about, find, sentences, identity, frozenset(needs), unseen)
        CHECKS[made.name] = made
        return made

    return register


def unless(fine: object, kind: str, /, **parameters: Any) -> Wrong | None:
    """Return None for something that is right, else what is wrong with it."""
    return None if fine else Wrong(kind, parameters)


def shown(value: Any, most: int = 80) -> str:
    """Return a value as it is shown in a sentence."""
    text = repr(value)
    return text if len(text) <= most else f"{text[: most // 2]} … {text[-most // 2 :]}"


def played_ends(facts: TrialFacts) -> Iterator[CallFacts]:
    """Yield the calls that were made in earnest: not cancelled, broken off or starved, nor free to
    end in any way."""
    for call in facts:
        free = call.played.cancelled or call.planned.end == "any" or not call.planned.ask.executes
        if call.told is not None and not free and not call.starved:
            yield call
