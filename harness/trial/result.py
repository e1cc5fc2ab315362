"""What a trial found about a client, as data and as text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from sfusion_tools.wording import counted

from ..core.place import Place
from ..core.verdict import How, Verdict
from ..lab.runs.runner import RunResult
from ..lab.single_calls.in_words import shortened
from .lessons import lesson_of
from .meaning import SHOWN, Grade, Meaning

TrialWorld = Literal["sim", "wall"]
_ORDER = ("broken", "accepted", "held", "unknown", "not_applicable")
_IN_ONE_LINE = ("calls_unseen", "not_of_single_calls", "not_taken", "")
"""The kinds of what does not apply because the client lacks it. Others have something to say."""
_CAUSES = ("sent_as_asked", "programs_waited_for")
"""What they find explains what others find, so they come first."""
_LONGEST = 70
"""Characters of an example in the text. Chosen: the JSON has all of it."""
_LONGEST_WORDING = 120
"""Characters of a wording in the text. Chosen: the JSON has all of it."""


@dataclass(frozen=True)
class TrialResult:
    """What a trial found about a client."""

    name: str
    about: str
    """What it is, in a few words."""
    world: TrialWorld
    why: str
    """Why it was not played in virtual time; empty if it was."""
    seed: int
    seconds: float
    """Real seconds that it took."""
    calls: int
    requests: int
    verdicts: Sequence[Verdict]
    wordings: Mapping[str, Sequence[str]]
    meanings: Sequence[Meaning] = ()
    """What the findings mean for a training, the worst first."""
    grade: Grade | None = None
    """How many ends the client tells apart, where it returns texts."""
    left_out: Mapping[str, str] = field(default_factory=dict)
    """Scenes that were not played, or not to their end, with the reason."""
    accepted: frozenset[How] = frozenset()
    """Findings that a baseline accepts."""
    unit: str = "call"
    """What `calls` counts: a call, or an episode."""
    changes: Sequence[str] = ()
    """What the baseline accepts and this trial did not find."""
    runs: Sequence[RunResult] = ()
    """Each scene as a run of its own."""
    place: Place | None = None
    """Where the client is defined, if that is known."""

    def state_of(self, verdict: Verdict) -> str:
        if verdict.state == "broken" and verdict.how in self.accepted:
            return "accepted"
        return verdict.state

    @property
    def counts(self) -> Counter[str]:
        return Counter(map(self.state_of, self.verdicts))

    @property
    def ok(self) -> bool:
        """Is nothing broken but what is accepted, and was anything judged at all?"""
        counts = self.counts
        was_judged = counts["held"] + counts["accepted"] > 0
        return was_judged and not counts["broken"] and not self.changes

    @property
    def headline(self) -> str:
        """Return the result in one line, for a slide."""
        counts = self.counts
        found = [f"{counts[state]} {_in_words(state)}" for state in _ORDER if counts[state]]
        told = [] if self.grade is None else [str(self.grade)]
        return "; ".join([*told, ", ".join(found)])

    @property
    def title(self) -> str:
        """Return the headline of a page."""
        counts = self.counts
        if self.grade is None:
            return self.headline
        broken = f"{counts['broken']} broken" if counts["broken"] else "nothing broken"
        return f"Tells {self.grade.told} of {self.grade.of} ends apart; {broken}"

    @property
    def played(self) -> str:
        """Return where and how it was played, as a sentence."""
        where = f"on the wall clock ({self.why})" if self.world == "wall" else "in virtual time"
        calls = counted(self.calls, self.unit)
        requests = counted(self.requests, "request")
        return f"Played {where}: {calls}, {requests}, {self.seconds:.1f} s, seed {self.seed}."

    def sorted_verdicts(self) -> list[Verdict]:
        """Return the verdicts, broken ones first."""
        return sorted(self.verdicts, key=lambda verdict: _rank(self.state_of(verdict), verdict))

    def folded(self, state: str) -> list[Verdict]:
        """Return the verdicts with a state that have no line of their own."""
        return [
            verdict
            for verdict in self.verdicts
            if self.state_of(verdict) == state and not self.has_line(verdict)
        ]

    def remedy_of(self, verdict: Verdict) -> str:
        """Return what a right client does, as a sentence; empty if nothing is broken."""
        if verdict.state != "broken":
            return ""
        for meaning in self.meanings:
            if verdict.how in meaning.findings:
                return f"A right client {meaning.remedy}"
        return f"A right client {lesson_of(verdict.promise, verdict.how.kind).remedy}"

    def table(self, *, all_wordings: bool = False) -> str:
        """Return everything as text: what it means, the verdicts, the wordings."""
        paragraphs = [
            [f"{self.name}: {self.about}", self.played],
            self._meaning_lines(),
            self._verdict_lines(),
            self._left_out_lines(),
            self._wording_lines(None if all_wordings else 1),
            [f"{self.name} {self.headline}." if self.grade else f"{self.headline}."],
        ]
        return "\n\n".join("\n".join(lines) for lines in paragraphs if lines)

    def _meaning_lines(self) -> list[str]:
        """Return what the findings mean: three lines for each of the worst."""
        if not self.meanings:
            return []
        told = "" if self.grade is None else f"It {self.grade}. "
        who = "a training" if self.unit == "episode" else "the model and the reward"
        lines = [f"{told}What {who} would see, the worst first:"]
        for number, meaning in enumerate(self.meanings[:SHOWN], 1):
            lines.append(f"  {number}. {meaning.headline}")
            if meaning.example is not None:
                example = meaning.example
                told = meaning.instead or f"your client {shortened(example.returned, _LONGEST)}"
                lines.append(f"     played: {example.played}; {example.sent}; {told}")
            lines.append(f"     A right client {meaning.remedy}")
        if len(self.meanings) > SHOWN:
            more = counted(len(self.meanings) - SHOWN, "thing")
            lines.append(f"  and {more} more: see the table, --html or --json")
        return lines

    def _verdict_lines(self) -> list[str]:
        """Return a line for each verdict that is not held, and one for all that are."""
        listed = [
            (_in_words(self.state_of(verdict)), verdict.promise, self.line_of(verdict))
            for verdict in self.sorted_verdicts()
            if self.has_line(verdict)
        ]
        rows = list(dict.fromkeys(listed))
        widest = max((len(promise) for _, promise, _ in rows), default=0)
        wide = max((len(state) for state, _, _ in rows), default=0)
        lines = [
            f"  {state:<{wide}}  {promise:<{widest}}  {words}" for state, promise, words in rows
        ]
        lines += [f"  {'changed':<{wide}}  {text}" for text in self.changes]
        for state, title in (("held", "Held"), ("not_applicable", "Does not apply")):
            if names := [verdict.promise for verdict in self.folded(state)]:
                lines.append(f"{title} ({len(names)}): {', '.join(names)}")
        return lines

    def has_line(self, verdict: Verdict) -> bool:
        """Does a verdict have a line of its own?"""
        state = self.state_of(verdict)
        if state == "not_applicable":
            return verdict.how.kind not in _IN_ONE_LINE
        return state != "held"

    def line_of(self, verdict: Verdict, *, short: bool = False) -> str:
        """Return the sentence, without the example if a meaning that is shown has one, or if it is
        to be short."""
        explained = any(verdict.how in meaning.findings for meaning in self.meanings[:SHOWN])
        if not (short or explained):
            return verdict.sentence
        plain: str = verdict.how.details.get("plain", verdict.sentence)
        return plain

    def _left_out_lines(self) -> list[str]:
        if not self.left_out:
            return []
        lines = ["Not played:"]
        return lines + [f"  {', '.join(names)}: {why}" for why, names in self._reasons().items()]

    def _reasons(self) -> dict[str, list[str]]:
        """Return what was not played by the reason."""
        found: dict[str, list[str]] = {}
        for name, why in self.left_out.items():
            found.setdefault(why, []).append(name)
        return found

    def _wording_lines(self, most: int | None) -> list[str]:
        """Return the wordings of each end, or the first ones."""
        if not self.wordings:
            return []
        lines = ["Wordings to read once (without the output of programs):"]
        for end, texts in self.wordings.items():
            lines += _wordings_of(end, texts[:most], len(texts))
        return lines

    def as_dict(self) -> dict[str, Any]:
        return {
            "trial": 1,
            "target": self.name,
            "about": self.about,
            "world": self.world,
            "why": self.why,
            "seed": self.seed,
            "calls": self.calls,
            "unit": self.unit,
            "requests": self.requests,
            "ok": self.ok,
            "headline": self.headline,
            "ends": None if self.grade is None else {"told": self.grade.told, "of": self.grade.of},
            "seconds": round(self.seconds, 3),
            "meanings": [meaning.as_dict() for meaning in self.meanings],
            "verdicts": [self._verdict_data(verdict) for verdict in self.verdicts],
            "wordings": {end: list(texts) for end, texts in self.wordings.items()},
            "left_out": dict(self.left_out),
            "changes": list(self.changes),
        }

    def _verdict_data(self, verdict: Verdict) -> dict[str, Any]:
        data = {**verdict.as_dict(), "state": self.state_of(verdict)}
        remedy = self.remedy_of(verdict)
        return {**data, "remedy": remedy} if remedy else data


def _in_words(state: str) -> str:
    """Return a state as people read it."""
    return state.replace("_", " ")


def _rank(state: str, verdict: Verdict) -> tuple[int, bool]:
    """Order verdicts by their state, and broken ones by whether they explain others."""
    return _ORDER.index(state), state == "broken" and verdict.promise not in _CAUSES


def _wordings_of(end: str, texts: Iterable[str], count: int) -> list[str]:
    """Return a line for each wording, the first with the name of its end."""
    lines = []
    for number, text in enumerate(texts):
        name = "" if number else end
        lines.append(f"  {name:<16}  {shortened(repr(text), _LONGEST_WORDING)}")
    if count > len(lines):
        lines[-1] += f" (and {count - len(lines)} more)"
    return lines
