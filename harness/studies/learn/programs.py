"""What the programs of calls do: how they end, and how long they run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sfusion.harness.studies.learn.attempts import PROGRAM, outcome_of
from sfusion.harness.studies.learn.distributions import Fit, fit
from sfusion.harness.studies.learn.sandbox_fit import ENDED_EARLY, SandboxFit
from sfusion.harness.studies.look.record import LoggedCall
from sfusion_tools.wording import counted

_ENOUGH = 20


@dataclass(frozen=True, slots=True)
class ProgramFit:
    """Programs that end alike."""

    outcome: str
    calls: int
    of: int
    seconds: Fit | None
    """None if the log does not say, or if programs took longer than any timeout."""
    keys: dict[str, Any]
    why: str
    share: int
    """How many calls would end like this if nothing else went wrong."""


_PROGRAM_KEYS: dict[str, dict[str, Any]] = {
    "ok": {},
    "program_error": {"exit": 1, "errors": "Traceback (most recent call last): ..."},
    "compile_error": {"language": "cpp", "compile_exit": 1, "compile_errors": "error: expected ';'"},
    "program_timeout": {},
}


def find_programs(calls: Sequence[LoggedCall], sandboxes: Sequence[SandboxFit]) -> tuple[ProgramFit, ...]:
    outcomes = Counter(outcome for call in calls if (outcome := outcome_of(call)) in PROGRAM)
    malformed = Counter(_problem(call) for call in calls if outcome_of(call) == "bad_arguments")
    known = sum(outcome_of(call) is not None for call in calls)
    # What would have become of the calls that failed otherwise?
    unseen = (known - sum(malformed.values())) / sum(outcomes.values()) if outcomes else 1.0
    base = [one for sandbox in sandboxes if sandbox.slower is None for one in sandbox.base]
    everything = [seconds for outcome, seconds in base if outcome not in ENDED_EARLY]
    usual = fit(everything) if everything else None
    if not outcomes and not malformed:
        why = "no call got the result of its program; assumed: programs that take no time"
        return (ProgramFit("ok", 0, 0, usual, {}, why, 1),)
    programs: list[ProgramFit] = []
    for outcome, count in outcomes.most_common():
        own = [seconds for ended, seconds in base if ended == outcome]
        why = f"{count:,} of {counted(known, 'call')} ended {outcome}"
        keys = dict(_PROGRAM_KEYS[outcome])
        if outcome == "program_timeout":
            why = f"{why}; longer than any timeout"
            programs.append(ProgramFit(outcome, count, known, None, keys, why, round(count * unseen)))
            continue
        is_alone = outcome in ENDED_EARLY or len(own) >= _ENOUGH or not everything
        seconds = fit(own) if own and is_alone else usual
        unknown = "not in the log, so programs are assumed to take no time"
        why = f"{why}; seconds: {unknown if seconds is None else seconds}"
        programs.append(ProgramFit(outcome, count, known, seconds, keys, why, round(count * unseen)))
    for problem, count in malformed.most_common(3):
        share = round(count * sum(malformed.values()) / sum(one for _, one in malformed.most_common(3)))
        why = f"{count:,} of {counted(known, 'call')} had arguments that cannot be used: {problem}"
        keys = {"arguments": {"malformed": problem}}
        programs.append(ProgramFit("bad_arguments", count, known, None, keys, why, share))
    return tuple(programs)


def _problem(call: LoggedCall) -> str:
    text = " ".join((call.problem or "").split())
    return "".join(one for one in text if one.isprintable())[:80] or "the log does not say why"
