"""Drift: where two sandboxes, usually the fake and a real one, answer the same request differently."""

from __future__ import annotations

from sfusion.harness.real.drift.comparing import Difference, compare
from sfusion.harness.real.drift.grading import GRADES, RULES, Grade, GradingRule, rule_for
from sfusion.harness.real.drift.judging import (
    Acceptance,
    DriftFinding,
    DriftReport,
    ServerAnswers,
    compare_answers,
    read_acceptances,
)
from sfusion.harness.real.drift.reporting import as_json, as_markdown, drift_headline, print_report
from sfusion.harness.real.drift.sources import fake_answers, live_answers, profile_of, recorded_answers

__all__ = [
    "GRADES",
    "RULES",
    "Acceptance",
    "Difference",
    "DriftFinding",
    "DriftReport",
    "Grade",
    "GradingRule",
    "ServerAnswers",
    "as_json",
    "as_markdown",
    "compare",
    "compare_answers",
    "drift_headline",
    "fake_answers",
    "live_answers",
    "print_report",
    "profile_of",
    "read_acceptances",
    "recorded_answers",
    "rule_for",
]
