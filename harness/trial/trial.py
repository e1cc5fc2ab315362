"""A trial from a target to its result: which stage plays it, what was found, and what of that is
accepted."""

from __future__ import annotations

import gc
import json
import re
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

from sfusion_tools.wording import counted

from ..atomic_files import write_file
from ..commandline.keyword import read_keyword
from ..core.verdict import How, Verdict
from ..errors import BadOption
from .calls import TrialFacts
from .checks import CHECKS
from .client import PARAMETERS
from .plan import Scene, TrialPlan
from .playing import far_from_greenwich
from .record import Record
from .scenes import make_plan
from .shapes import Shape, shape_of
from .told_checks import wordings_to_read
from .virtual import play_virtually
from .wall import CHILD_SCALE, WallStage

for _module in ("wire_checks", "state_checks"):  # importing a module registers its checks
    import_module(f"sfusion.harness.trial.{_module}")

Stage = Literal["virtual", "wall"]
_VARIES = re.compile(r"\b0x[0-9a-f]+|\b[1-6]\d{4}\b")
"""Addresses of objects and ports of sandboxes, which differ from run to run."""
_WIRE_ALONE = ("ends_in_time", "retry_after_respected", "secrets_kept")
"""The checks that need no more than requests."""
_ORDER = ("broken", "accepted", "held", "unknown")
_CAUSES = ("sent_as_asked", "programs_waited_for")
"""What they find explains what others find, so they come first."""


@dataclass(frozen=True)
class TrialResult:
    """What a trial found about a client."""

    name: str
    about: str
    """What it is, in a few words."""
    stage: str
    """``virtual`` or ``wall``."""
    why: str
    """Why it was not played in virtual time; empty if it was."""
    seed: int
    seconds: float
    """Real seconds that it took."""
    calls: int
    requests: int
    verdicts: Sequence[Verdict]
    wordings: Mapping[str, Sequence[str]]
    left_out: Mapping[str, str] = field(default_factory=dict)
    """Scenes that were not played, or not to their end, with the reason."""
    accepted: frozenset[How] = frozenset()
    """Findings that a baseline accepts."""
    changes: Sequence[str] = ()
    """What the baseline accepts and this trial did not find."""

    def state_of(self, one: Verdict) -> str:
        return "accepted" if one.state == "broken" and one.how in self.accepted else one.state

    @property
    def counts(self) -> Counter[str]:
        return Counter(map(self.state_of, self.verdicts))

    @property
    def ok(self) -> bool:
        """Is nothing broken but what is accepted, and was anything judged at all?"""
        return (
            not self.counts["broken"]
            and not self.changes
            and bool(self.counts["held"] + self.counts["accepted"])
        )

    @property
    def headline(self) -> str:
        counts = self.counts
        return ", ".join(f"{counts[state]} {state}" for state in _ORDER if counts[state])

    @property
    def played(self) -> str:
        """Return where and how it was played, as a sentence."""
        where = f"on the wall clock ({self.why})" if self.stage == "wall" else "in virtual time"
        sizes = (
            f"{counted(self.calls, 'call')}, {counted(self.requests, 'request')}, "
            f"{self.seconds:.1f} s"
        )
        return f"Played {where}: {sizes}, seed {self.seed}."

    def rows(self) -> list[tuple[str, str, str]]:
        """Return state, check and sentence of every verdict, broken ones first."""
        found = list(
            dict.fromkeys((self.state_of(one), one.promise, one.sentence) for one in self.verdicts)
        )
        return sorted(
            found,
            key=lambda row: (_ORDER.index(row[0]), row[0] == "broken" and row[1] not in _CAUSES),
        )

    def table(self) -> str:
        """Return everything as text: what was judged, the verdicts, the wordings."""
        wide = max((len(check) for _, check, _ in self.rows()), default=0)
        lines = [f"{self.name}: {self.about}", self.played, ""]
        lines += [
            f"  {state:<8}  {check:<{wide}}  {sentence}" for state, check, sentence in self.rows()
        ]
        lines += [f"  changed   {text}" for text in self.changes]
        if self.left_out:
            lines += [
                "",
                "Not played:",
                *(f"  {name}: {why}" for name, why in self.left_out.items()),
            ]
        if self.wordings:
            lines += ["", "Wordings to read once (without the output of programs):"]
            for end, texts in self.wordings.items():
                lines += [
                    f"  {end if not number else '':<16}  {text!r:.160}"
                    for number, text in enumerate(texts[:6])
                ]
        return "\n".join([*lines, "", f"{self.headline}."])

    def as_dict(self) -> dict[str, Any]:
        return {
            "trial": 1,
            "target": self.name,
            **{
                key: getattr(self, key)
                for key in ("about", "stage", "why", "seed", "calls", "requests", "ok")
            },
            "seconds": round(self.seconds, 3),
            "verdicts": [{**one.as_dict(), "state": self.state_of(one)} for one in self.verdicts],
            "wordings": {end: list(texts) for end, texts in self.wordings.items()},
            "left_out": dict(self.left_out),
            "changes": list(self.changes),
        }


def judge(
    target: Any = None,
    *,
    command: Sequence[str] = (),
    env: str | None = None,
    attribute: str | None = None,
    world: Stage | None = None,
    seed: int = 0,
    scenes: str = "",
    baseline: Path | None = None,
) -> TrialResult:
    """Try a client and return what was found.

    ``target`` is a function, a class, ``module:name``, ``file.py:name`` or a tool config;
    ``command`` runs another program instead. ``env`` and ``attribute`` name the environment
    variable, or the attribute of the target's module, that holds the address. ``world`` overrides
    the choice of the clock, ``scenes`` (an expression of names, as pytest's -k) plays a part of the
    plan. Raises BadOption for what cannot be judged.
    """
    known = None if baseline is None else _read_baseline(baseline)
    shape = shape_of(target, env=env, attribute=attribute, command=tuple(command))
    began = time.monotonic()
    chosen = read_keyword(scenes)
    record, why = play_plan(shape, world, lambda scale: _plan(seed, scale, shape.takes, chosen))
    verdicts = judge_record(
        record, None if known is None else {end: _Read(texts) for end, texts in known[1].items()}
    )
    if not record.takes:
        verdicts = [one if one.promise in _WIRE_ALONE else _unseen(one) for one in verdicts]
    wordings = {
        end: sorted({_VARIES.sub("·", text) for text in texts})
        for end, texts in wording_table(record).items()
    }
    left_out = dict(record.left_out)
    left_out |= {
        name: played.broken_off for name, played in record.scenes.items() if played.broken_off
    }
    if record.takes and (lacking := sorted(PARAMETERS - record.takes)):
        left_out["parameters"] = (
            f"this client has no parameter for, or never sends, {', '.join(lacking)}"
        )
    return TrialResult(
        shape.name,
        shape.about,
        record.stage,
        why,
        seed,
        time.monotonic() - began,
        sum(len(played.calls) for played in record.scenes.values()),
        sum(len(played.requests) for played in record.scenes.values()),
        verdicts,
        wordings,
        left_out,
        frozenset() if known is None else known[0],
        () if known is None else _gone(known[0], verdicts),
    )


def judge_record(
    record: Record, accepted: Mapping[str, Collection[str]] | None = None
) -> list[Verdict]:
    """Return the verdicts of all checks: a broken one for each way to fail, else held or unknown.

    ``accepted`` are the wordings per end that somebody has read and found true.
    """
    if record.unplayable:
        return [Verdict(name, "unknown", record.unplayable) for name in CHECKS]
    facts = TrialFacts(record)
    facts.accepted = accepted
    return [verdict for check in CHECKS.values() for verdict in check.judge(facts)]


def wording_table(record: Record) -> dict[str, list[str]]:
    """Return the wordings per end, for a person to read once: no check can see that plain words
    lie."""
    return {end: sorted(met) for end, met in sorted(wordings_to_read(TrialFacts(record)).items())}


def _unseen(one: Verdict) -> Verdict:
    return Verdict(
        one.promise,
        "unknown",
        "the command does not speak the protocol: only its requests are judged",
    )


def _plan(
    seed: int, scale: float, takes: frozenset[str], chosen: Callable[[str], bool]
) -> TrialPlan:
    """Return the scenes that were chosen; of a reward function those with tests."""
    plan = make_plan(seed, scale)
    if "tests" in takes:
        plan = replace(
            plan,
            scenes=tuple(
                one for one in plan.scenes if isinstance(one, Scene) and "tests" in one.needs
            ),
        )
    named = [
        (one.name if isinstance(one, Scene) else getattr(one, "__name__", ""), one)
        for one in plan.scenes
    ]
    kept = tuple(
        one for name, one in named if chosen(name if isinstance(one, Scene) else "programs")
    )
    if not kept:
        raise BadOption(f"-k: no scene matches; there are {', '.join(name for name, _ in named)}")
    return replace(plan, scenes=kept)


def play_plan(
    shape: Shape, world: Stage | None, plan: Callable[[float], TrialPlan]
) -> tuple[Record, str]:
    """Play a client where it can be played; return also why that is not virtual time. ``plan`` gets
    its scale."""
    why = shape.wall or ("asked for" if world == "wall" else "")
    if world == "virtual" and shape.wall:
        raise BadOption(f"--world virtual: {shape.name} cannot be played there: {shape.wall}")
    gc.collect()  # what other clients of this process left behind is not this one's
    with far_from_greenwich():
        if not why:
            record = play_virtually(plan(1.0), shape.make)
            if not record.unplayable or world == "virtual":
                return record, ""
            why = "its requests do not go over the event loop"
        scaled = plan(CHILD_SCALE if shape.child else 1.0)
        return WallStage(scaled, shape.make, child=shape.child, divide=shape.divide).play(), why


# -- the baseline --


def write_baseline(file: Path, result: TrialResult) -> None:
    """Accept everything that a trial found."""
    accepted = [
        one.how.as_dict() | {"details": {}} for one in result.verdicts if one.state == "broken"
    ]
    wordings = {end: list(texts) for end, texts in result.wordings.items()}
    write_file(
        file,
        json.dumps({"baseline": 1, "accepted": accepted, "wordings": wordings}, indent=2) + "\n",
    )


def _read_baseline(file: Path) -> tuple[frozenset[How], dict[str, list[str]]]:
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
        if not isinstance(data, dict) or data.get("baseline") != 1:
            raise ValueError("expected a mapping with `baseline: 1`")
        return frozenset(map(How.from_dict, data["accepted"])), dict(data.get("wordings") or {})
    except FileNotFoundError:
        raise BadOption(
            f"--baseline {file}: there is no such file; write one with --update"
        ) from None
    except (KeyError, ValueError) as error:
        raise BadOption(
            f"--baseline {file}: is not a baseline: {error}; write one with --update"
        ) from None


def _gone(accepted: frozenset[How], verdicts: Sequence[Verdict]) -> list[str]:
    """Return what the baseline accepts and this trial did not find."""
    gone = accepted - {one.how for one in verdicts if one.state == "broken"}
    return [
        f"{one.promise} {one.kind}: accepted, but not found any more; --update removes it"
        for one in sorted(gone, key=str)
    ]


class _Read(frozenset[str]):
    """Wordings that somebody has read; what differs from run to run does not count."""

    def __contains__(self, wording: object) -> bool:
        return super().__contains__(_VARIES.sub("·", str(wording)))
