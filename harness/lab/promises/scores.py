"""Promises about the rewards and scores of single calls."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from ..client import SCORES_IN_LIST, Returned
from ..single_calls.calls import CallFacts
from ..single_calls.suite import SuiteFacts, played_ends
from .base import Promise
from .findings import Findings, Wrong, shown, unless, wrong, wrong_run
from .single_call_results import number_of

_TESTS = 4
"""How many tests each solution of judge-tests has."""
_ALL = "++++"
"""A solution that passes all of them; a minus is one that it fails."""
_NONE = "----"
_VERDICTS = {"+": "passed", "-": "failed"}
"""What a sample of judge-batches did at its only test."""
_RISING = (_NONE, "++--", "+++-", _ALL)


_REWARDS = ("reward", "step_reward")


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
    """Yield the rewards of calls: of trajectories (``reward``) or of steps (``step_reward``).

    A tool that gives every end 0.0, as verl's ``BaseTool`` does, has none: that teaches nothing.
    """
    if _has_rewards(facts):
        yield from _told_rewards(facts, name)


def _has_rewards(facts: SuiteFacts) -> bool:
    """Does any end get a reward other than 0.0, or is it not known because none was right?"""
    told: list[tuple[CallFacts, float | None]] = []
    for name in _REWARDS:
        told += _told_rewards(facts, name)
    right = [reward for call, reward in told if _kind(call) == "right"]
    return not right or any(reward for _, reward in told)


def _told_rewards(facts: SuiteFacts, name: str) -> Iterator[tuple[CallFacts, float | None]]:
    if name == "reward" and "reward" not in facts.takes:
        return
    for call, returned in scored_calls(facts):
        if call.ask.tests or returned.raised:
            continue
        if name == "reward":
            yield call, number_of(returned.reward)
        elif name in returned.fields:
            yield call, number_of(returned.fields[name])


def find_scored_failures(facts: SuiteFacts) -> Findings:
    """Find rewards of calls that the sandbox failed."""
    for name in _REWARDS:
        for call, reward in rewards(facts, name):
            if call.failed:
                yield unless(reward is None, "failure_scored", call, end=call.end, reward=reward)


class RewardFollowsTheEnd(Promise):
    """Right and wrong answers of single calls get different rewards, the same for the same end. A
    tool that gives every end 0.0 has no reward."""

    sentences: ClassVar = {
        "varies": "{call} ({end}): the reward is {reward}, of {other} with the same end it is "
        "{usual}",
        "whatever": "the reward is {reward} whether or not the program prints the ground truth",
        "unearned": "{call} ({end}): the reward is {reward}, as for a right answer",
        "unscored": "{call} ({end}): there is no reward",
    }
    identity = ("end",)
    unseen = (
        "no result has a reward, or each has 0.0: calc_reward() of a tool, or a field `reward` or "
        "`score`"
    )

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


_BAD_ENDS = {"exits": "exited with an error", "stopped": "was stopped by the time limit"}
"""How a solution can fail a test of which it printed what was expected."""


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
        "mistaken": "{call}: the solution printed {printed}, expected was {expected}, and the "
        "score {score} is not that of a wrong answer, which is {usual}",
        "excused": "{call}: the solution printed {printed}, as expected, but {end}, and the score "
        "{score} is not that of a wrong answer, which is {usual}",
        "unrecognised": "{call}: the solution printed {printed}, as expected, and the score "
        "{score} is not that of a right answer, which is {usual}",
        "misplaced": "{call}: of {among} samples of a batch this one {did} its test, and the "
        "score in its place is {score}; alone it is {usual}",
        "numbered": "{call}: {lost} of {tests} tests were lost, and the score is {score}, which no "
        "result of the others gives: a training takes every number for a result",
        "lost": "{call}: {lost} of 4 tests were lost, and the score {score} is that of {lost} "
        "failed ones",
        "all_lost": "{call}: all tests were lost, and the score {score} is that of all passed",
        "unscored": "{call}: no answer was lost, and there is no score",
        "hidden": "{call}: {lost} of 4 tests were lost, and nothing tells the result from that of "
        "all passed",
        "uncounted": "{call}: {came:score} came back for {among:sample}",
        "miscounted": "{call}: {lost} of 4 tests were lost, and {field} says {told}",
    }
    unseen = "no solution was scored; judge-tests plays some"

    def find(self, facts: SuiteFacts) -> Findings:
        solutions = []
        for solution in _solutions(facts):
            came = solution.returned.fields.get(SCORES_IN_LIST)
            if came is None:
                solutions.append(solution)
            else:
                yield wrong("uncounted", solution.call, came=came, among=solution.call.ask.among)
        yield from _of_one_test([each for each in solutions if len(each.does) == 1])
        yield from _of_all_tests([each for each in solutions if len(each.does) == _TESTS])


def _solutions(facts: SuiteFacts) -> Iterator[_Solution]:
    """Yield what was scored: calls with tests that returned, and that this machine did not slow
    down."""
    for call in facts:
        if call.ask.tests and call.returned is not None and not call.starved:
            yield _Solution(call, call.returned, call.lost, call.planned.solution)


def _of_one_test(solutions: list[_Solution]) -> Findings:
    """Judge solutions with a single test: those that were scored alone, and those of a batch."""
    alone = [solution for solution in solutions if solution.call.ask.among == 1]
    yield from _mistaken(alone)
    yield from _misplaced([each for each in solutions if each.call.ask.among > 1], alone)


def _of_all_tests(solutions: list[_Solution]) -> Findings:
    """Judge solutions with four tests, of which some pass and some may be lost."""
    healthy = [solution for solution in solutions if not solution.lost]
    scores: dict[str, float | None] = {}
    for solution in healthy:
        usual = scores.setdefault(solution.does, solution.score)
        fine = usual == solution.score
        yield unless(fine, "varies", solution.call, score=solution.score, usual=usual)
    alike: dict[int, list[float | None]] = defaultdict(list)
    for does, score in scores.items():
        alike[does.count("+")].append(score)
    whole = next((solution for solution in healthy if solution.does == _ALL), None)
    for solution in solutions:
        yield _score_finding(solution, scores, alike, whole)
    yield from _miscounted([each for each in solutions if not each.returned.raised])
    yield from _falling(scores)


def _mistaken(solutions: list[_Solution]) -> Findings:
    """Judge answers to a single test, of which the first two are plainly right and plainly wrong:
    every right one has the score of the first, every wrong one that of the second."""
    plain = {solution.does: solution for solution in reversed(solutions) if not solution.lost}
    right = plain.get("+")
    wrong_one = plain.get("-")
    if right is None or wrong_one is None or right.score == wrong_one.score:
        return
    for solution in solutions:
        is_right = solution.does == "+"
        usual = right.score if is_right else wrong_one.score
        test = solution.call.ask.tests[0]
        about = {
            "printed": shown(solution.call.printed_at_test(0)),
            "expected": shown(test[1]),
            "score": solution.score,
            "usual": usual,
        }
        end = _BAD_ENDS.get(solution.call.planned.part.tests[0].does)
        if solution.lost:
            continue
        if is_right:
            yield unless(solution.score == usual, "unrecognised", solution.call, **about)
        elif end is None:
            yield unless(solution.score == usual, "mistaken", solution.call, **about)
        else:
            yield unless(solution.score == usual, "excused", solution.call, end=end, **about)


def _misplaced(samples: list[_Solution], alone: list[_Solution]) -> Findings:
    """Judge samples that were scored in a batch: each has the score that it would have alone.

    A function may raise for a whole batch if one of its tests was lost.
    """
    usual = {each.does: each.score for each in reversed(alone) if not each.lost}
    if len(set(usual.values())) < len(_VERDICTS):
        return
    raised_for = {each.call.planned.part.at for each in samples if each.lost}
    for sample in samples:
        if sample.returned.raised and sample.call.planned.part.at in raised_for:
            continue
        score = sample.score
        if sample.lost:
            about = {"lost": sample.lost, "tests": len(sample.does), "score": score}
            yield unless(score is None, "numbered", sample.call, **about)
            continue
        expected = usual[sample.does]
        yield unless(
            score == expected,
            "misplaced",
            sample.call,
            among=sample.call.ask.among,
            did=_VERDICTS[sample.does],
            score=score,
            usual=expected,
        )


def _score_finding(
    solution: _Solution,
    scores: Mapping[str, float | None],
    alike: Mapping[int, list[float | None]],
    whole: _Solution | None,
) -> Wrong | None:
    best = scores.get(_ALL)
    worst = scores.get(_NONE)
    if solution.lost:
        return _lost_finding(solution, best, alike, whole)
    about = {"lost": 0, "score": solution.score}
    if best is None or best == worst:
        return None
    if solution.score is None:
        return wrong("unscored", solution.call, **about)
    failed = _TESTS - solution.passed
    others = [score for score in alike[solution.passed] if score not in (best, None)]
    fine = not failed or solution.score != best
    usual = others[0] if others else worst
    return unless(fine, "unearned", solution.call, **about, failed=failed, usual=usual)


def _lost_finding(
    solution: _Solution,
    best: float | None,
    alike: Mapping[int, list[float | None]],
    whole: _Solution | None,
) -> Wrong | None:
    """Judge a solution some of whose tests were lost, and that passed the others."""
    score = solution.score
    lost = solution.lost
    about = {"lost": lost, "score": score}
    if score is not None and score in alike.get(_TESTS - lost, ()):
        return wrong("lost", solution.call, **about)
    if score is not None and score == best and lost == _TESTS:
        return wrong("all_lost", solution.call, **about)
    # What a trainer of batches gets beside a list of scores: nothing. A number is a result there.
    if score not in (None, best) or (score is not None and "batch" in solution.call.takes):
        return wrong("numbered", solution.call, **about, tests=_TESTS)
    if whole is None:
        return None
    returned = solution.returned
    same_score = returned.reward == best
    same_words = returned.text == whole.returned.text
    same_fields = returned.fields == whole.returned.fields
    told_apart = not (same_score and same_words and same_fields)
    return unless(told_apart, "hidden", solution.call, **about)


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
    names: dict[str, None] = {}
    for solution in solutions:
        names |= dict.fromkeys(solution.returned.fields)
    for name in names:
        if not _counts_lost_tests(name, solutions):
            continue
        for solution in solutions:
            told = solution.returned.fields.get(name)
            about = {"lost": solution.lost, "field": name, "told": told}
            yield unless(told == solution.lost, "miscounted", solution.call, **about)


def _counts_lost_tests(name: str, solutions: list[_Solution]) -> bool:
    """Is a field always 0 where no test was lost, and 4 where all were?"""
    clear = [solution for solution in solutions if solution.lost in (0, _TESTS)]
    told = {(_hashable(each.returned.fields.get(name)), each.lost) for each in clear}
    return told == {(0, 0), (_TESTS, _TESTS)}


def _hashable(value: Any) -> Any:
    return value if isinstance(value, int | float | str) else repr(value)
