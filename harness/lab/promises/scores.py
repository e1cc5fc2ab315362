"""Promises about the rewards and scores of single calls."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from ..client import Returned
from ..single_calls.calls import CallFacts, SuiteFacts, played_ends
from .base import Promise
from .findings import Findings, Wrong, unless, wrong, wrong_run
from .single_told import number_of

_ALL, _NONE = "++++", "----"
_RISING = (_NONE, "++--", "+++-", _ALL)
_TESTS = 4


def scored_calls(facts: SuiteFacts) -> Iterator[tuple[CallFacts, Returned]]:
    """Yield the last call of each trajectory with what was told when it was scored, at once or
    later."""
    for call in played_ends(facts):
        if call.returned is not None and call.ask.last:
            yield call, call.returned
    for run in facts.runs:
        executed: dict[str, CallFacts] = {}
        for call in facts.of(run):
            if call.ask.executes:
                executed[call.ask.instance] = call
            elif call.returned is not None and call.planned.end != "any":
                yield executed[call.ask.instance], call.returned


def rewards(facts: SuiteFacts, name: str) -> Iterator[tuple[CallFacts, float | None]]:
    """Yield the rewards of calls: of trajectories (``reward``) or of steps (``step_reward``)."""
    if name == "reward" and "reward" not in facts.takes:
        return
    for call, returned in scored_calls(facts):
        if call.ask.tests or returned.raised:
            continue
        if name == "reward":
            yield call, number_of(returned.reward)
        elif name in returned.fields:
            yield call, number_of(returned.fields[name])


_REWARDS = ("reward", "step_reward")


def find_scored_failures(facts: SuiteFacts) -> Findings:
    """Find rewards of calls that the sandbox failed."""
    for name in _REWARDS:
        for call, reward in rewards(facts, name):
            if call.failed:
                yield unless(reward is None, "failure_scored", call, end=call.end, reward=reward)


class RewardFollowsTheEnd(Promise):
    """Right and wrong answers of single calls get different rewards, the same for the same end."""

    sentences: ClassVar = {
        "varies": "{call} ({end}): the reward is {reward}, of {other} with the same end it is "
        "{usual}",
        "whatever": "the reward is {reward} whether or not the program prints the ground truth",
        "unearned": "{call} ({end}): the reward is {reward}, as for a right answer",
        "unscored": "{call} ({end}): there is no reward",
    }
    identity = ("end",)
    unseen = "no result has a reward: calc_reward() of a tool, or a field `reward` or `score`"

    def find(self, facts: SuiteFacts) -> Findings:
        for name in _REWARDS:
            usual: dict[str, tuple[float | None, CallFacts]] = {}
            for call, reward in rewards(facts, name):
                kind = _kind(call)
                partial = bool(call.ask.instance) and name == "step_reward"
                if not call.failed and not partial and kind is not None:
                    yield _reward_finding(call, reward, kind, name, usual)
            if name == "reward":
                yield from _unearned(usual)


def _reward_finding(
    call: CallFacts,
    reward: float | None,
    kind: str,
    name: str,
    usual: dict[str, tuple[float | None, CallFacts]],
) -> Wrong | None:
    known, other = usual.setdefault(kind, (reward, call))
    if known != reward:
        about = {"end": kind, "reward": reward, "usual": known, "other": other.name}
        return wrong("varies", call, **about)
    scored = reward is not None or kind not in ("right", "wrong") or name == "step_reward"
    return unless(scored, "unscored", call, end=kind)


def _unearned(usual: Mapping[str, tuple[float | None, CallFacts]]) -> Findings:
    """Find ends that are rewarded as a right answer is."""
    best = usual["right"][0] if "right" in usual else None
    if best is None:
        return
    for kind, (reward, first) in usual.items():
        if kind == "wrong" and reward == best:
            yield wrong("whatever", first, end=kind, reward=reward)
        elif kind not in ("right", "wrong") and reward is not None and reward >= best:
            yield wrong("unearned", first, end=kind, reward=reward)


def _kind(call: CallFacts) -> str | None:
    """Return what a reward is a function of: right or wrong for a program that succeeded, else the
    end."""
    if call.end not in ("ok", "ok_empty"):
        return call.end
    if call.right is None:
        return None
    return "right" if call.right else "wrong"


@dataclass(frozen=True)
class _Solution:
    """A call of a reward function with what it told."""

    call: CallFacts
    returned: Returned
    lost: int
    """How many of its tests the sandbox lost."""
    does: str
    """What it does at each test, a letter for each."""

    @property
    def passed(self) -> int:
        return self.does.count("+")

    @property
    def score(self) -> float | None:
        return number_of(self.returned.reward)


class ScoreFollowsTheTests(Promise):
    """Scores of a reward function follow the tests that pass; a lost test counts neither as failed
    nor as passed, and is told."""

    takes = frozenset({"tests"})
    sentences: ClassVar = {
        "varies": "{call}: the score is {score}, of another solution that passes as many tests it "
        "was {usual}",
        "flat": "the score of a solution that passes all tests is {score}, of one that passes "
        "none {other}",
        "falls": "{call}: a solution that passes more tests has a lower score: {score} after "
        "{usual}",
        "unearned": "{call}: {failed} of 4 tests failed, and the score {score} is that of all "
        "passed; elsewhere it is {usual}",
        "lost": "{call}: {lost} of 4 tests were lost, and the score {score} is that of {lost} "
        "failed ones",
        "all_lost": "{call}: all tests were lost, and the score {score} is that of all passed",
        "unscored": "{call}: no answer was lost, and there is no score",
        "hidden": "{call}: {lost} of 4 tests were lost, and nothing tells the result from that of "
        "all passed",
        "miscounted": "{call}: {lost} of 4 tests were lost, and {field} says {told}",
    }
    unseen = "no solution was scored; judge-tests plays some"

    def find(self, facts: SuiteFacts) -> Findings:
        solutions = [
            _Solution(call, call.returned, call.lost, call.planned.solution)
            for call in facts
            if call.ask.tests and call.returned is not None and not call.starved
        ]
        scores: dict[str, float | None] = {}
        for solution in solutions:
            if not solution.lost:
                usual = scores.setdefault(solution.does, solution.score)
                fine = usual == solution.score
                yield unless(fine, "varies", solution.call, score=solution.score, usual=usual)
        whole = next((one for one in solutions if one.does == _ALL and not one.lost), None)
        alike: dict[int, list[float | None]] = defaultdict(list)
        for does, score in scores.items():
            alike[does.count("+")].append(score)
        for solution in solutions:
            yield _score_finding(solution, scores.get(_ALL), alike, whole)
        yield from _miscounted([one for one in solutions if not one.returned.raised])
        yield from _falling(scores)


def _score_finding(
    solution: _Solution,
    best: float | None,
    alike: Mapping[int, list[float | None]],
    whole: _Solution | None,
) -> Wrong | None:
    if solution.lost:
        return _lost_finding(solution, best, alike, whole)
    about = {"lost": 0, "score": solution.score}
    others = [score for score in alike[solution.passed] if score not in (best, None)]
    if not others:
        return None
    if solution.score is None:
        return wrong("unscored", solution.call, **about)
    failed = _TESTS - solution.passed
    fine = solution.score != best
    return unless(fine, "unearned", solution.call, **about, failed=failed, usual=others[0])


def _lost_finding(
    solution: _Solution,
    best: float | None,
    alike: Mapping[int, list[float | None]],
    whole: _Solution | None,
) -> Wrong | None:
    """Judge a solution some of whose tests were lost."""
    score, lost, returned = solution.score, solution.lost, solution.returned
    about = {"lost": lost, "score": score}
    if score is not None and score in alike.get(_TESTS - lost, ()):
        return wrong("lost", solution.call, **about)
    if score is not None and score == best and lost == _TESTS:
        return wrong("all_lost", solution.call, **about)
    if whole is not None:
        result = returned.reward, returned.text, returned.fields
        same = result == (best, whole.returned.text, whole.returned.fields)
        return unless(not same, "hidden", solution.call, **about)
    return None


def _falling(scores: Mapping[str, float | None]) -> Findings:
    """Find scores that do not rise with the tests that pass."""
    ordered = [(does, scores[does]) for does in _RISING if scores.get(does) is not None]
    for (_, lower), (does, higher) in itertools.pairwise(ordered):
        if higher < lower:  # type: ignore[operator]
            about = {"call": f"{does.count('+')} of 4", "score": higher, "usual": lower}
            yield wrong_run("falls", [], **about)
    if _ALL in scores and scores[_ALL] == scores.get(_NONE):
        yield wrong_run("flat", [], score=scores[_ALL], other=scores[_ALL])


def _miscounted(solutions: list[_Solution]) -> Findings:
    """Judge fields that count lost tests: 0 where none was lost, and 4 where all were."""
    names = dict.fromkeys(name for one in solutions for name in one.returned.fields)
    for name in names:
        sure = {
            (_hashable(one.returned.fields.get(name)), one.lost)
            for one in solutions
            if one.lost in (0, _TESTS)
        }
        if sure != {(0, 0), (_TESTS, _TESTS)}:
            continue
        for one in solutions:
            returned = one.returned.fields.get(name)
            about = {"lost": one.lost, "field": name, "told": returned}
            yield unless(returned == one.lost, "miscounted", one.call, **about)


def _hashable(value: Any) -> Any:
    return value if isinstance(value, int | float | str) else repr(value)
