"""Checks of what is told: texts, exit codes, ends, outcomes, rewards and metrics, against what
happened."""

from __future__ import annotations

import itertools
import math
import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from sfusion_tools.outcome import OUTCOMES

from ..lab.facts.read import durations, exits, integers
from .calls import FAILED_ENDS, PROGRAM_ENDS, CallFacts, TrialFacts
from .checks import Findings, Wrong, check, played_ends, shown, unless
from .client import Told

_READ = {
    "missing": "{call}: {stream} of the program is not in the text",
    "changed": "{call}: {stream} is not shown as the program wrote it; lost: {lost}",
    "cut_silently": "{call}: {missing} characters of {stream} are missing, and nothing says so",
    "cut_unnumbered": (
        "{call}: {missing} characters of {stream} are missing, and no number says how much"
    ),
    "cut_twice": (
        "{call}: {missing} characters of {stream} are missing in several places, "
        "not all of which are told"
    ),
    "cut_untrue": (
        "{call}: {missing} characters of {stream} are missing, and no number in "
        "the text is that: {told}"
    ),
    "repeated": "{call}: output is shown more than once",
    "foreign": "{call}: the text holds output that this program never printed",
    "scrambled": "{call}: parts of the output are in another place",
    "limit": "{call} were stopped after {limits} s, and each text says {told} s",
    "stderr_first": "{call}: stderr comes before stdout, and nothing says which is which",
}


@check(
    "kind",
    "stream",
    needs=("text",),
    **_READ,
    unseen="no program ended and returned a text; the scene `programs` plays some",
)
def read_as_happened(facts: TrialFacts) -> Findings:
    """The text contains the program's output once and in order; a truncated text says how much is
    missing.

    Blanks at the end may be left out, and so may the stderr of a program that succeeded.
    """
    for call in played_ends(facts):
        if call.reading is None or call.planned.ask.tests or call.refused:
            continue
        for one in call.reading.wrong:
            lost = shown(one.details.get("lost", ""))
            yield Wrong(
                one.kind,
                {
                    "missing": 0,
                    **one.details,
                    "call": call.name,
                    "stream": one.stream,
                    "lost": lost,
                },
            )
        if not call.reading.wrong:
            yield None
    yield from _limits_told(facts)


def _limits_told(facts: TrialFacts) -> Findings:
    """Find time limits that are told alike though they differ: numbers of seconds are left out of
    wordings."""
    told: dict[float, dict[float, str]] = defaultdict(dict)
    for call in played_ends(facts):
        limit = call.requests[-1].fields.get("run_timeout") if call.requests else None
        if call.end == "timeout" and call.reading is not None and isinstance(limit, int | float):
            found = durations(call.reading.wording)
            if not any(
                math.isclose(seconds, limit, rel_tol=0.1) for seconds in found
            ):  # it may be what it took
                for seconds in found:
                    told[seconds][limit] = call.name
    for seconds, limits in told.items():
        if len(limits) > 1:
            about = {
                "call": " and ".join(limits.values()),
                "limits": " and ".join(f"{limit:g}" for limit in limits),
            }
            yield Wrong("limit", {**about, "stream": "", "told": f"{seconds:g}"})


@check(
    "place",
    text="{call}: the program exited with {code}, the text says {told}",
    field="{call}: the program exited with {code}, the field says {told}",
    signal=(
        "{call} was ended by signal {code}, {other} exited with that code, and the text "
        "is the same: {told}"
    ),
    none="{call} ({end}): there was no exit code, and the {place} says {told}",
    unseen="no result has an exit code, as a field (exit_code, return_code) or in its text",
)
def exit_code_told(facts: TrialFacts) -> Findings:
    """Any exit code in the text or in a field is the real one."""
    usual = {
        number for call in facts if call.end in ("ok", "ok_empty", "timeout") and call.wording is not None
        for number in integers(call.wording)
    }  # fmt: skip
    for call in played_ends(facts):
        truth = call.truth
        if truth is None or call.told is None or truth.ending != "exited":
            continue
        for name in _EXIT_FIELDS:
            told = call.told.fields.get(name)
            if isinstance(told, int) and not isinstance(told, bool):
                right = told in exits(truth.exit)
                yield unless(right, "field", call=call.name, code=truth.exit, told=told, place=name)
        if truth.exit and call.reading is not None and not (call.reading.cut or call.reading.wrong):
            told_numbers = integers(call.wording or "") - usual
            if told_numbers:
                about = {
                    "call": call.name,
                    "code": truth.exit,
                    "told": sorted(told_numbers),
                    "place": "text",
                }
                yield unless(told_numbers & exits(truth.exit), "text", **about)
    before = _before_codes(facts)
    for call in played_ends(facts):
        stopped = call.truth is not None and call.truth.ending in ("stopped", "compiler_stopped")
        if call.told is None or call.planned.ask.tests or not (stopped or call.end in FAILED_ENDS):
            continue
        about = {"call": call.name, "end": call.end}
        fields = [
            name
            for name in _EXIT_FIELDS
            if call.told.fields.get(name) == 0 and not call.told.raised
        ]
        yield from (
            Wrong("none", {**about, "place": f"field {name}", "told": 0}) for name in fields
        )
        for number, word in () if fields else _numbers_after(call.wording or ""):
            # Other numbers of a failure, such as a status of HTTP, may follow the same word.
            if word in before and (stopped or call.wording in _with_code(before[word], number)):
                yield Wrong("none", {**about, "place": "text", "told": number})
    silent = [
        call
        for call in played_ends(facts)
        if call.truth and not (call.truth.stdout or call.truth.stderr)
    ]
    for one, other in itertools.permutations(silent, 2):
        assert one.truth is not None
        assert other.truth is not None
        code, words = other.truth.exit, one.wording
        if one.truth.exit == -code < 0 and words is not None and code in integers(words):
            about = {
                "call": one.name,
                "other": other.name,
                "code": code,
                "told": shown(words),
                "place": "signal",
            }
            yield unless(words != other.wording, "signal", **about)


_EXIT_FIELDS = ("exit_code", "return_code", "returncode", "exit")
_NUMBER = re.compile(r"([^\W\d]+\W*?)(-?\d+)\b")


def _numbers_after(wording: str) -> list[tuple[int, str]]:
    """Return the numbers of a wording, each with the word before it."""
    return [(int(number), words) for words, number in _NUMBER.findall(wording)]


def _before_codes(facts: TrialFacts) -> dict[str, set[tuple[str, int]]]:
    """Return the words that a client writes before exit codes and before nothing else, each with
    whole wordings."""
    found: dict[str, set[tuple[str, int]]] = defaultdict(set)
    others = set[str]()
    for call in played_ends(facts):
        if call.end == "program_error" and call.truth is not None and call.wording is not None:
            for number, words in _numbers_after(call.wording):
                if number in exits(call.truth.exit):
                    found[words].add((call.wording, number))
                else:
                    others.add(words)
    return {
        words: all_
        for words, all_ in found.items()
        if words not in others and len({n for _, n in all_}) > 1
    }


def _with_code(known: set[tuple[str, int]], number: int) -> set[str]:
    """Return wordings with another exit code."""
    return {
        re.sub(rf"(?<!\d){re.escape(str(code))}\b", str(number), wording) for wording, code in known
    }


# -- the ends --


def wordings(facts: TrialFacts) -> dict[str, dict[str, str]]:
    """Return for each end the wordings that were met, each with the first call that had it.

    A program whose result the client never got did not come to its end: another check says why.
    """
    met: dict[str, dict[str, str]] = defaultdict(dict)
    for call in played_ends(facts):
        if call.end in PROGRAM_ENDS and call.answered is None:
            continue
        clear = call.refused or call.reading is None or not (call.reading.cut or call.reading.wrong)
        end = "sandbox_failed" if call.refused else call.end
        if (
            clear
            and call.wording is not None
            and end not in ("failed", "cancelled")
            and not call.planned.ask.tests
        ):
            met[end].setdefault(call.wording, call.name)
    return dict(met)


def wordings_to_read(facts: TrialFacts) -> dict[str, dict[str, str]]:
    """Return the wordings for each end, and for outputs that are cut: a number that is true may
    mislead there."""
    met = wordings(facts)
    for call in facts.of("programs"):
        reading, truth = call.reading, call.truth
        if reading is not None and truth is not None and reading.cut and not reading.wrong:
            end = f"{len(truth.stdout or truth.stderr)} cut"
            met.setdefault(end, {})[call.wording or ""] = call.name
    return met


@check(
    "ends",
    needs=("text",),
    same="{ends} have the same wording: {wording} ({calls})",
    all_same="{ends} cannot be told apart: they are always {wording}",
    silent=(
        "{call} printed to stderr only, and is told as a program that printed nothing: {wording}"
    ),
    believed="{call}: an answer that contradicts itself is told as success: {wording}",
    unseen=(
        "fewer than two ways to end were played; the scenes `programs` and `failures` have them all"
    ),
)
def ends_told_apart(facts: TrialFacts) -> Findings:
    """Outcomes that the caller must be able to distinguish never have the same wording.

    Of failures too: a throttled call wants patience, and one that may have run is not repeated
    lightly.
    """
    met = wordings(facts)
    alike: dict[tuple[str, str], dict[str, str]] = defaultdict(dict)
    for one, other in itertools.combinations(met, 2):
        if {one, other} in (
            {"ok", "ok_empty"},
            {"timeout", "compiler_timeout"},
            {"compile_error", "compiler_timeout"},
        ):
            continue  # these differ by what is printed, or may be called the same
        shared, kind = sorted(met[one].keys() & met[other].keys()), "same"
        if one in FAILED_ENDS and other in FAILED_ENDS:
            # Each is met in several ways, some of which look alike to a client.
            always = len(met[one].keys() | met[other].keys()) == 1 and "sandbox_failed" not in (
                one,
                other,
            )
            shared, kind = shared if always else [], "all_same"
        if shared:
            alike[kind, shared[0]] |= {end: met[end][shared[0]] for end in (one, other)}
        else:
            yield None
    for (kind, wording), calls in alike.items():
        *others, last = calls
        ends = {"ends": f"{', '.join(others)} and {last}", "calls": ", ".join(calls.values())}
        yield Wrong(kind, {**ends, "wording": shown(wording)})
    well = [call for call in played_ends(facts) if call.end in ("ok", "ok_empty") and call.truth]
    printed = {call.wording for call in well if call.truth and call.truth.stdout}
    nothing = met.get("ok_empty", {}).keys() - printed
    for call in well:
        if call.truth and call.truth.stderr and not call.truth.stdout:
            told = {"call": call.name, "wording": shown(call.wording)}
            yield unless(call.wording not in nothing, "silent", ends="silent", **told)
    success = met.get("ok", {}).keys() | nothing
    for call in facts:
        if (
            call.planned.end == "any"
            and call.told is not None
            and any(one.faults for one in call.requests)
        ):
            told = {"call": call.name, "wording": shown(call.wording)}
            yield unless(call.wording not in success, "believed", ends="contradictory", **told)


@check(
    "end",
    needs=("text",),
    new="{end}: nobody has read this wording yet: {wording} ({call})",
    unseen=(
        "no wordings were accepted yet; --baseline FILE --update keeps these, "
        "--baseline FILE compares"
    ),
)
def wordings_accepted(facts: TrialFacts) -> Findings:
    """Every wording is in the accepted baseline."""
    if facts.accepted is not None:
        for end, met in wordings_to_read(facts).items():
            for wording, call in met.items():
                known = wording in facts.accepted.get(end, ())
                yield unless(known, "new", end=end, wording=shown(wording, 160), call=call)


_STATED: Mapping[str, Collection[str]] = {
    "ok": ("ok",), "ok_empty": ("ok",), "program_error": ("program_error",), "timeout": ("program_timeout",),
    "compile_error": ("compile_error",), "compiler_timeout": ("compile_error", "program_timeout"),
    "bad_arguments": ("bad_arguments",), "throttled": ("throttled",), "not_run": ("sandbox_error", "unreachable"),
    "may_have_run": ("sandbox_error", "unreachable", "transport_timeout", "bad_response"),
    "sandbox_failed": ("sandbox_error", "bad_response"),
}  # fmt: skip
"""The outcomes of sfusion's vocabulary that fit each end."""
_OF_SERVER: Mapping[str, Collection[str]] = {
    "ok": ("Success", "Finished"), "ok_empty": ("Success", "Finished"), "program_error": ("Failed", "Finished"),
    "compile_error": ("Failed", "Finished"), "timeout": ("Failed", "TimeLimitExceeded"),
    "compiler_timeout": ("Failed", "TimeLimitExceeded"),
}  # fmt: skip
"""The words of the server for the ends of programs, as a client passes them on: they tell few ends
apart by design."""
_SERVER_WORDS = frozenset(word for words in _OF_SERVER.values() for word in words)
_STATED_FAILURES = frozenset(one for end in FAILED_ENDS for one in _STATED[end])


@check(
    "end",
    "field",
    wrong="{call} ({end}): {field} says {told}",
    unstated="{call} ({end}): {field} is missing, which other calls have",
    same="{end} and {other}: {field} says {told} for both",
    infrastructure="{call} ({end}): infrastructure says {told}",
    unseen="no result has a field `outcome`, `stated`, `status` or `infrastructure`",
)
def outcome_stated(facts: TrialFacts) -> Findings:
    """A stated outcome fits what happened, and two outcomes that must be distinguishable are stated
    differently."""
    for name in ("outcome", "stated", "status"):
        told = [
            (call, call.told.fields[name])
            for call in played_ends(facts)
            if call.told and name in call.told.fields
        ]
        if not told:
            continue
        ours = all(value in OUTCOMES for _, value in told)
        passed_on = all(value in _SERVER_WORDS for call, value in told if call.end in _OF_SERVER)
        values: dict[Any, str] = {}
        for call in played_ends(facts):
            if (
                call.told is None
                or call.told.raised
                or call.end == "failed"
                or call.planned.ask.tests
            ):
                continue
            value, end = call.told.fields.get(name), call.end
            about = {"call": call.name, "end": end, "field": name, "told": shown(value)}
            if name not in call.told.fields:
                yield Wrong("unstated", about)
            elif ours:
                coarse = end == "throttled" and all(one != "throttled" for _, one in told)
                fits = _STATED_FAILURES if call.set_aside or coarse else _STATED.get(end, OUTCOMES)
                yield unless(value in fits, "wrong", **about)
            elif passed_on:
                yield unless(value in _OF_SERVER.get(end, (value,)), "wrong", **about)
            else:
                group = "ok" if end == "ok_empty" else "failed" if end in FAILED_ENDS else end
                known = values.setdefault(shown(value), group)
                apart = known != group and "compiler_timeout" not in (known, group)
                yield unless(not apart, "same", **about, other=known)
    for call in played_ends(facts):
        flag = (
            None
            if call.told is None or call.planned.ask.tests
            else call.told.fields.get("infrastructure")
        )
        if isinstance(flag, bool):
            about = {
                "call": call.name,
                "end": call.end,
                "field": "infrastructure",
                "told": str(flag),
            }
            yield unless(flag == call.failed, "infrastructure", **about)


@check(
    "end",
    raised="{call} ({end}): raised {error}",
    unseen="no call ended",
)
def returns(facts: TrialFacts) -> Findings:
    """The client returns a result. Only a shape that reports failures as exceptions may raise."""
    for call in played_ends(facts):
        if call.told is None or call.planned.ask.tests:
            continue
        allowed = "raises" in facts.takes and (call.failed or call.end == "bad_arguments")
        error = shown(call.told.raised, 160)
        yield unless(
            allowed or not call.told.raised, "raised", call=call.name, end=call.end, error=error
        )
    for name, scene in facts.record.scenes.items():
        if scene.raised_at_end:
            yield Wrong(
                "raised",
                {"call": name, "end": "begin and end", "error": shown(scene.raised_at_end, 160)},
            )


# -- rewards and metrics --


def _number(reward: Any) -> float | None:
    return float(reward) if isinstance(reward, int | float) and not math.isnan(reward) else None


@check(
    "end",
    "kind",
    scored="{call} ({end}): the sandbox failed, and the reward is {reward:g}",
    varies="{call} ({end}): the reward is {reward}, of {other} with the same end it is {usual}",
    whatever="the reward is {reward} whether or not the program prints the ground truth",
    unearned="{call} ({end}): the reward is {reward}, as for a right answer",
    unscored="{call} ({end}): there is no reward",
    unseen="no result has a reward: calc_reward() of a tool, or a field `reward` or `score`",
)
def reward_follows_the_end(facts: TrialFacts) -> Findings:
    """Right and wrong answers get different rewards, and a sandbox failure gets no reward."""
    for name in ("reward", "step_reward"):
        usual: dict[str, tuple[float | None, str]] = {}
        if name == "reward" and "reward" not in facts.takes:
            continue
        for call, told in _scored(facts):
            if (
                call.planned.ask.tests
                or told.raised
                or (name == "step_reward" and name not in told.fields)
            ):
                continue
            reward = _number(told.reward if name == "reward" else told.fields[name])
            if call.failed:
                yield unless(reward is None, "scored", call=call.name, end=call.end, reward=reward)
                continue
            if call.planned.ask.instance and name == "step_reward":
                continue
            kind = _kind(call)
            if kind is None:
                continue
            known, other = usual.setdefault(kind, (reward, call.name))
            scored = reward is not None or kind not in ("right", "wrong") or name == "step_reward"
            about = {"call": call.name, "end": kind}
            if known != reward:
                yield Wrong("varies", {**about, "reward": reward, "usual": known, "other": other})
            else:
                yield unless(scored, "unscored", **about)
        if name == "step_reward" or "right" not in usual or usual["right"][0] is None:
            continue
        for kind, (reward, first) in usual.items():
            if kind == "wrong" and reward == usual["right"][0]:
                yield Wrong("whatever", {"end": kind, "reward": reward})
            elif (
                kind not in ("right", "wrong")
                and reward is not None
                and reward >= usual["right"][0]
            ):
                yield Wrong("unearned", {"call": first, "end": kind, "reward": reward})


def _scored(facts: TrialFacts) -> Iterator[tuple[CallFacts, Told]]:
    """Yield the last call of each trajectory with what was told when it was scored, at once or
    later."""
    for call in played_ends(facts):
        if call.told is not None and call.planned.ask.last:
            yield call, call.told
    executed: dict[str, CallFacts] = {}
    for call in facts.of("instances"):
        if call.planned.ask.executes:
            executed[call.planned.ask.instance] = call
        elif call.told is not None and call.planned.end != "any":
            yield executed[call.planned.ask.instance], call.told


def _kind(call: CallFacts) -> str | None:
    """Return what a reward is a function of: right or wrong for a program that succeeded, else the
    end."""
    if call.end in ("ok", "ok_empty"):
        return None if call.right is None else "right" if call.right else "wrong"
    return call.end


@check(
    "field",
    shared="{call}: the fields that it returned were changed later: {before} became {after}",
    attempts="{call}: {field} says {told}, but {sent:request} came",
    executions="{call}: {field} says {told}, but its program was run {sent:time}",
    status="{call}: {field} says {told}, but the last answer had {sent}",
    time="{call}: {field} says {told:.3f} s, but on the wire it was {true:.3f} s",
    unseen="no result has fields beside its text, such as `attempts`, `total_s` or `permit_wait_s`",
)
def metrics_true(facts: TrialFacts) -> Findings:
    """The metrics of a call are its own and match what was sent and received."""
    for call in played_ends(facts):
        if call.told is None or not call.told.fields:
            continue
        if call.played.later is not None:
            before, after = shown(dict(call.told.fields)), shown(dict(call.played.later))
            yield Wrong(
                "shared", {"call": call.name, "field": "", "before": before, "after": after}
            )
            continue
        fields, ended = call.told.fields, call.played.ended_at or 0.0
        seen = not call.scene.scene.events  # what a sandbox that was down refused is not seen
        attempts = fields.get("attempts")
        if seen and isinstance(attempts, int) and not call.planned.ask.tests:
            sent = len(call.requests)
            yield unless(
                attempts == sent,
                "attempts",
                call=call.name,
                field="attempts",
                told=attempts,
                sent=sent,
            )
        status, last = fields.get("http_status"), call.requests[-1].status if call.requests else 0
        if seen and isinstance(status, int) and last:
            yield unless(
                status == last,
                "status",
                call=call.name,
                field="http_status",
                told=status,
                sent=last,
            )
        possible, ran = (
            fields.get("possible_executions"),
            sum(one.execution is not None for one in call.requests),
        )
        if isinstance(possible, int) and possible < ran:
            about = {
                "call": call.name,
                "field": "possible_executions",
                "told": possible,
                "sent": ran,
            }
            yield Wrong("executions", about)
        true = {"total_s": ended - call.played.asked_at}
        if seen and len(call.requests) == 1:
            true["permit_wait_s"] = call.requests[0].at - call.played.asked_at
        for name, seconds in true.items():
            told = _number(fields.get(name))
            if told is not None:
                right = abs(told - seconds) <= 0.01 + facts.tolerance
                yield unless(right, "time", call=call.name, field=name, told=told, true=seconds)
        yield None


@check(
    "kind",
    needs=("tests",),
    varies=(
        "{call}: the score is {score}, of another solution that passes as many tests it was {usual}"
    ),
    flat=(
        "the score of a solution that passes all tests is {score}, of one that passes none {other}"
    ),
    falls="{call}: a solution that passes more tests has a lower score: {score} after {usual}",
    unearned=(
        "{call}: {failed} of 4 tests failed, and the score {score} is that of all "
        "passed; elsewhere it is {usual}"
    ),
    lost="{call}: {lost} of 4 tests were lost, and the score {score} is that of {lost} failed ones",
    all_lost="{call}: all tests were lost, and the score {score} is that of all passed",
    unscored="{call}: no answer was lost, and there is no score",
    hidden=(
        "{call}: {lost} of 4 tests were lost, and nothing tells the result from that of all passed"
    ),
    miscounted="{call}: {lost} of 4 tests were lost, and {field} says {told}",
    unseen="no solution was scored; the scene `tests` plays some",
)
def score_follows_the_tests(facts: TrialFacts) -> Findings:
    """Scores follow the tests that pass; a lost test counts neither as failed nor as passed, and is
    told."""
    calls = [
        (call, call.told, call.lost, re.sub(r"\d", "+", call.planned.end.split()[1]))
        for call in facts.of("tests")
        if call.told is not None and not call.starved
    ]
    scores: dict[str, float | None] = {}
    whole: Told | None = None
    for call, told, lost, solution in calls:
        if not lost:
            score = _number(told.reward)
            usual = scores.setdefault(solution, score)
            yield unless(usual == score, "varies", call=call.name, score=score, usual=usual)
            whole = whole or (told if solution == _ALL else None)
    best, alike = scores.get(_ALL), defaultdict[int, list[float | None]](list)
    for solution, score in scores.items():
        alike[solution.count("+")].append(score)
    for call, told, lost, solution in calls:
        score = _number(told.reward)
        about = {"call": call.name, "lost": lost, "score": score}
        others = [one for one in alike[solution.count("+")] if one not in (best, None)]
        if not lost and score is None and others:
            yield Wrong("unscored", about)
        elif not lost and score is not None and score == best and others:
            yield Wrong(
                "unearned", {**about, "failed": 4 - solution.count("+"), "usual": others[0]}
            )
        elif lost and score is not None and score in alike[4 - lost]:
            yield Wrong("lost", about)
        elif lost and score is not None and score == best and lost == 4:
            yield Wrong("all_lost", about)
        elif (
            lost
            and whole is not None
            and (told.reward, told.text, told.fields) == (best, whole.text, whole.fields)
        ):
            yield Wrong("hidden", about)
        else:
            yield None
    yield from _miscounted(
        [(call, told.fields, lost) for call, told, lost, _ in calls if not told.raised]
    )
    ordered = [
        (one, score)
        for one in ("----", "++--", "+++-", _ALL)
        if (score := scores.get(one)) is not None
    ]
    for (_, lower), (solution, higher) in itertools.pairwise(ordered):
        if higher < lower:
            yield Wrong(
                "falls", {"call": f"{solution.count('+')} of 4", "score": higher, "usual": lower}
            )
    if _ALL in scores and best == scores.get("----"):
        yield Wrong("flat", {"score": best, "other": best})


_ALL = "++++"


def _miscounted(calls: list[tuple[CallFacts, Mapping[str, Any], int]]) -> Findings:
    """Judge fields that count lost tests: 0 where none was lost, and 4 where all were."""
    for name in dict.fromkeys(name for _, fields, _ in calls for name in fields):
        sure = {(fields.get(name), lost) for _, fields, lost in calls if lost in (0, 4)}
        if sure == {(0, 0), (4, 4)}:
            for call, fields, lost in calls:
                right = fields.get(name) == lost
                yield unless(
                    right,
                    "miscounted",
                    call=call.name,
                    lost=lost,
                    field=name,
                    told=fields.get(name),
                )
