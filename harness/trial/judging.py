"""Judges a record: every check, in the order of the report."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from importlib import import_module

from sfusion.harness.lab.promises.verdict import Verdict
from sfusion.harness.trial.calls import TrialFacts
from sfusion.harness.trial.checks import CHECKS
from sfusion.harness.trial.record import Record
from sfusion.harness.trial.told_checks import wordings

for _module in ("wire_checks", "state_checks"):
    import_module(f"sfusion.harness.trial.{_module}")


def judge_record(record: Record, accepted: Mapping[str, Collection[str]] | None = None) -> list[Verdict]:
    """Return the verdicts of all checks: a broken one for each way to fail, else held or unknown.

    ``accepted`` are the wordings per end that somebody has read and found true.
    """
    if record.unplayable:
        return [Verdict(name, "unknown", record.unplayable) for name in CHECKS]
    facts = TrialFacts(record)
    facts.accepted = accepted
    return [verdict for check in CHECKS.values() for verdict in check.judge(facts)]


def wording_table(record: Record) -> dict[str, list[str]]:
    """Return the wordings per end, for a person to read once: no check can see that plain words lie."""
    return {end: sorted(met) for end, met in sorted(wordings(TrialFacts(record)).items())}
