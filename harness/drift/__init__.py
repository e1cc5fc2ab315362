"""Drift: where two sandboxes, the fake and a real one as a rule, answer the same request differently."""

from __future__ import annotations

from sfusion.harness.drift.accepting import Acceptance, read_acceptances
from sfusion.harness.drift.comparing import compare
from sfusion.harness.drift.difference import Difference
from sfusion.harness.drift.grading import GRADES, RULES, Grade, Rule, rule_for
from sfusion.harness.drift.judging import Finding, Report, Side, judge
from sfusion.harness.drift.reporting import as_json, as_markdown, headline, print_report
from sfusion.harness.drift.sides import fake_side, live_side, profile_of, recorded_side

__all__ = [
    "GRADES",
    "RULES",
    "Acceptance",
    "Difference",
    "Finding",
    "Grade",
    "Report",
    "Rule",
    "Side",
    "as_json",
    "as_markdown",
    "compare",
    "fake_side",
    "headline",
    "judge",
    "live_side",
    "print_report",
    "profile_of",
    "read_acceptances",
    "recorded_side",
    "rule_for",
]
