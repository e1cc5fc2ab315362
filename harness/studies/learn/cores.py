"""How many cores programs share: the number that makes the times that they ran likeliest.

With n programs on C cores each runs at speed C/n. A number of cores says how much work each program
got, and how likely such a program is among the others. Programs that were stopped are known to be
longer, or to never end.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from .attempts import SHORTEST, InFlight

_NARROWEST = 0.02
"""The least spread of the logarithms of programs: no clock is better."""
_OUTLIER = 3.0
"""Deviations from which on a program says no more about the cores (chosen)."""
_HALF_LOG = math.log(2 * math.pi) / 2
_ROUNDS = 6
"""Rounds of a fit in which two unknowns are estimated in turn (chosen)."""
_MOST = 2000
"""Programs that decide about the number of cores (chosen)."""
_FINE = 1.03
"""The factor between numbers of cores that are tried near the best (chosen)."""
_COARSE = 1.2
"""The factor between numbers of cores that are tried first (chosen)."""
SURE = 4.0
"""By how much likelier, as a logarithm, shared cores must be than none (chosen)."""
_POSSIBLE = 2.0
"""The same, within which another number of cores is possible (chosen)."""
_NOISE = 0.03
"""The same for each program, where the likeliest is that none are shared (chosen: 10 of 385 were
seen of a real server whose two cores were always full)."""
_FEWEST_TELLING = 20
"""Programs under another load from which on they tell about cores (chosen)."""
_OTHER_LOAD = 0.8
"""By how much the load of a program must differ from the usual one to tell about the cores
(chosen)."""


@dataclass(frozen=True, slots=True)
class ProgramRun:
    """One program: when it began and stopped to run, and whether it was stopped before its end."""

    began: float
    ended: float
    is_cut: bool = False


@dataclass(frozen=True, slots=True)
class Law:
    """How long programs run alone: lognormal, or Weibull's law, of which the exponential one is
    a case."""

    shape: Literal["lognormal", "weibull"]
    middle: float
    """Of the logarithms: the mean, or the logarithm of the scale."""
    sigma: float
    """Of the logarithms: the deviation, or one by Weibull's exponent."""

    def longer(self, log: float) -> float:
        """The share of programs that run longer."""
        z = (log - self.middle) / self.sigma
        if self.shape == "lognormal":
            return math.erfc(z / math.sqrt(2)) / 2
        return math.exp(-math.exp(min(z, 500.0)))

    def likelihood(self, log: float) -> float:
        """The logarithm of the density of a logarithm; that of an outlier has a bound."""
        z = (log - self.middle) / self.sigma
        if self.shape == "lognormal":
            return -min(z * z, _OUTLIER**2) / 2 - math.log(self.sigma) - _HALF_LOG
        return max(z - math.exp(min(z, 500.0)), -2 * _OUTLIER) - math.log(self.sigma)

    def at(self, longer: float) -> float:
        """The seconds that this share of programs exceeds."""
        if self.shape == "lognormal":
            return math.exp(self.middle - self.sigma * statistics.NormalDist().inv_cdf(longer))
        return math.exp(self.middle + self.sigma * math.log(-math.log(longer)))


@dataclass(frozen=True, slots=True)
class CoresFit:
    """How many cores programs seem to share."""

    cores: float
    """Infinite: each has its own."""
    least: float
    most: float
    """Between which numbers the log does not decide."""
    peak: int
    """The most that ran at once."""
    gain: float
    """How much likelier it is than no sharing, as a logarithm."""
    work: tuple[float, ...]
    """Seconds that each program would have run alone."""
    endless: float
    """The share of all programs that no speed explains: those that never end."""
    law: Law
    """Of the seconds that programs run alone, those that were stopped included."""
    telling: int
    """Programs that ran with clearly fewer or more others than most."""

    @property
    def is_shared(self) -> bool:
        if self.cores >= 0.95 * self.peak:
            return False
        return self.gain >= (SURE if self.telling >= _FEWEST_TELLING else 2 * SURE)

    @property
    def is_unsure(self) -> bool:
        """True if the log fits both: programs that share cores, and programs that have their
        own."""
        return self.least < 0.75 * self.peak and (self.most >= self.peak or not self.is_shared)


@dataclass(frozen=True, slots=True)
class _Judged:
    """What a number of cores makes of the log."""

    law: Law
    endless: float
    likelihood: float
    work: tuple[float, ...]


def fit_cores(programs: Sequence[ProgramRun], others: Sequence[ProgramRun] = ()) -> CoresFit:
    """Find the number of cores that makes the log likeliest; ``others`` ran too, but their end
    says nothing."""
    busy = InFlight((program.began, program.ended) for program in (*programs, *others))
    peak = busy.peak
    every = -(-len(programs) // _MOST)
    sample = programs[::every]
    alone = _judged(sample, busy, math.inf)

    def gain(cores: float) -> float:
        return _judged(sample, busy, cores).likelihood - alone.likelihood

    tried = {float(peak): 0.0}
    cores = 1.0
    while cores < peak:
        tried[cores] = gain(cores)
        cores *= _COARSE
    best = max(tried, key=lambda cores: tried[cores])
    if best < peak:
        for step in range(-5, 6):
            tried.setdefault(best * _FINE**step, gain(best * _FINE**step))
        for whole in {math.floor(best), math.ceil(best)} - {0}:
            tried.setdefault(float(whole), gain(float(whole)))
        best = max(tried, key=lambda cores: tried[cores])
        near = [
            cores
            for cores in tried
            if cores == round(cores) and cores < peak and tried[cores] > tried[best] - _POSSIBLE
        ]
        best = max(near, key=lambda cores: tried[cores], default=best)
    margin = _POSSIBLE if best < peak else max(_POSSIBLE, _NOISE * len(sample))
    possible = [cores for cores, found in tried.items() if found > max(tried.values()) - margin]
    found = _judged(programs, busy, best if best < peak else math.inf)
    return CoresFit(
        cores=best if best < peak else math.inf,
        least=min(possible),
        most=max(possible),
        peak=peak,
        gain=tried[best],
        work=found.work,
        endless=found.endless,
        law=found.law,
        telling=every * _telling(sample, busy),
    )


def _telling(programs: Sequence[ProgramRun], busy: InFlight) -> int:
    loads = [busy.mean(program.began, program.ended) for program in programs]
    usual = statistics.median(loads)
    return sum(not _OTHER_LOAD * usual <= load <= usual / _OTHER_LOAD for load in loads)


def _judged(programs: Sequence[ProgramRun], busy: InFlight, cores: float) -> _Judged:
    def speed(count: int) -> float:
        return min(1.0, cores / count) if count > 0 else 1.0

    given = busy.integral(speed)
    work = tuple(max(given(program.began, program.ended), SHORTEST) for program in programs)
    ended: list[float] = []
    cut: list[float] = []
    took: list[float] = []
    speeds: list[float] = []
    for program, seconds in zip(programs, work, strict=True):
        if program.is_cut:
            cut.append(math.log(seconds))
            continue
        ended.append(math.log(seconds))
        took.append(math.log(max(program.ended - program.began, SHORTEST)))
        speeds.append(math.log(speed(busy.at(program.ended))))
    if not ended:
        return _Judged(Law("lognormal", 0.0, 1.0), 1.0, -math.inf, work)
    # Of a program that ended: the density of its work, by how fast work was done when it ended.
    by_work = sum(speeds) - sum(ended)
    by_clock = -sum(took)
    laws = [(_lognormal, True), (_weibull, True)]
    if cut:
        # That some programs never end is believed only if that explains clearly more of those that
        # were stopped.
        laws += [(_lognormal, False), (_weibull, False)]
    best: _Judged | None = None
    for fit, ends in laws:
        law, endless = _fitted(fit, ended, cut, ends=ends)
        likelihood = sum(map(law.likelihood, ended))
        likelihood += len(ended) * math.log1p(-min(endless, 0.999))
        likelihood += sum(math.log(endless + (1 - endless) * law.longer(log) + 1e-9) for log in cut)
        if not ends:
            likelihood -= _POSSIBLE
        # Where all programs are equal, what differs is the clock, not the work.
        likelihood += by_work if law.sigma > _NARROWEST else by_clock
        if best is None or likelihood > best.likelihood:
            best = _Judged(law, endless, likelihood, work)
    assert best is not None
    return best


_Fit = Callable[[Sequence[float], Sequence[tuple[float, float]]], Law]


def _fitted(
    fit: _Fit, ended: Sequence[float], cut: Sequence[float], *, ends: bool
) -> tuple[Law, float]:
    """Fit a law to what ended, and to what was stopped: that would have taken longer, or perhaps
    never ``ends``."""
    size = len(ended) + len(cut)
    law = fit(ended, ())
    endless = 0.0 if ends else 0.5 * len(cut) / size
    for _ in range(_ROUNDS if cut else 0):
        beyond = [(1 - endless) * law.longer(log) + 1e-12 for log in cut]
        parts = [rest / (rest + endless) if rest + endless > 0 else 0.0 for rest in beyond]
        endless = sum(1 - part for part in parts) / size
        law = fit(ended, list(zip(cut, parts, strict=True)))
    return law, endless


def _lognormal(ended: Sequence[float], cut: Sequence[tuple[float, float]]) -> Law:
    middle = statistics.fmean(ended)
    sigma = _spread(ended)
    for _ in range(_ROUNDS if cut else 0):
        total = sum(ended)
        weight = float(len(ended))
        squares = sum(log**2 for log in ended)
        for log, part in cut:
            z = (log - middle) / sigma
            ratio = z
            if z < 6:
                ratio = (
                    math.exp(-z * z / 2)
                    / math.sqrt(2 * math.pi)
                    / max(math.erfc(z / math.sqrt(2)) / 2, 1e-12)
                )
            mean = middle + sigma * ratio
            total = total + part * mean
            weight = weight + part
            squares += part * (sigma**2 * (1 + z * ratio - ratio**2) + mean**2)
        middle = total / weight
        sigma = math.sqrt(max(squares / weight - middle**2, _NARROWEST**2))
    return Law("lognormal", middle, sigma)


def _weibull(ended: Sequence[float], cut: Sequence[tuple[float, float]]) -> Law:
    mean = statistics.fmean(ended)
    top = max(ended)
    k = 1.28 / _spread(ended)
    weighted = [*((log, 1.0) for log in ended), *cut]
    powers = 1.0
    for _ in range(_ROUNDS):
        powers = logs = squares = 0.0
        for log, part in weighted:
            raised = part * math.exp(min(k * (log - top), 50.0))
            powers = powers + raised
            logs = logs + log * raised
            squares = squares + log * log * raised
        first = logs / powers
        step = (first - 1 / k - mean) / (squares / powers - first**2 + 1 / k**2)
        k = min(max(k - step, k / 2), 2 * k, 1 / _NARROWEST)
    return Law("weibull", top + math.log(powers / len(ended)) / k, 1 / k)


def _spread(logs: Sequence[float]) -> float:
    """Return the standard deviation; that of ``statistics`` counts in fractions, which takes ten
    times as long."""
    mean = statistics.fmean(logs)
    return max(math.sqrt(statistics.fmean((log - mean) ** 2 for log in logs)), _NARROWEST)
