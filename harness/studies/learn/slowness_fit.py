"""Why did programs take longer at one time than at another: contention, a queue, or a server that got slower?"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from sfusion.harness.studies.learn.attempts import LoggedRequest
from sfusion.harness.studies.learn.contention import find_contention
from sfusion.harness.studies.learn.degradation import find_degradation
from sfusion.harness.studies.learn.in_flight import InFlight
from sfusion.harness.studies.learn.slow_spell import find_slow_spell
from sfusion.harness.studies.learn.slowness import SHORTEST, Slowness, rank_correlation
from sfusion.harness.studies.learn.waiting_line import find_waiting_line

_FEWEST = 40
_GAIN = 0.93
"""A cause is named if it leaves at most this share of the spread of the durations."""
_GAIN_OF_A_SPELL = 0.9
"""The same, of a stretch of time, of which there are many to choose from."""
_EVEN = 0.02


def find_slowness(
    answered: Sequence[LoggedRequest], everything: Sequence[LoggedRequest], timed_out: Sequence[LoggedRequest]
) -> Slowness:
    """Compare the explanations by the spread of durations that each leaves, and return the best one."""
    durations = [max(one.seconds, SHORTEST) for one in answered]
    plain = Slowness("none", tuple(durations), tuple(range(len(answered))), tuple(map(math.log, durations)))
    if len(answered) < _FEWEST or plain.spread < _EVEN:
        return plain
    line = find_waiting_line(answered, everything)
    if line is not None:
        return line
    by_time = find_degradation(answered, durations, timed_out)
    if by_time is not None and by_time.spread >= _GAIN * plain.spread:
        by_time = None
    spell = find_slow_spell(answered, durations)
    if spell is not None and spell.spread < (_GAIN_OF_A_SPELL * plain.spread if by_time is None else by_time.spread):
        by_time = spell
    by_load = find_contention(answered, everything, durations)
    if by_load is None or by_load.spread >= _GAIN * plain.spread:
        return by_time or plain
    return by_load if by_time is None else _load_or_time(answered, everything, by_load, by_time)


def _load_or_time(
    answered: Sequence[LoggedRequest], everything: Sequence[LoggedRequest], by_load: Slowness, by_time: Slowness
) -> Slowness:
    """Where answers are slow, more requests are in flight, and the other way round: which one was first?

    If load is the cause, durations depend on it also at times that are equally slow. If time is, they depend on time
    also where the load is the same.
    """
    busy = InFlight((one.began, one.ended) for one in everything)
    clear = max(0.15, 3 / math.sqrt(len(answered)))
    load_matters = rank_correlation([busy.at(one.began) for one in answered], by_time.left) > clear
    durations = (max(one.seconds, SHORTEST) for one in answered)
    expected = [math.log(took) - left for took, left in zip(durations, by_time.left, strict=True)]
    time_matters = rank_correlation(expected, by_load.left) > clear
    if load_matters != time_matters:
        return by_load if load_matters else by_time
    best, other = sorted((by_load, by_time), key=lambda one: one.spread)
    return replace(best, evidence=f"{best.evidence}; this log does not tell it from {other.kind.replace('_', ' ')}")
