"""Faults: rules of when x what x phase, and the pure plan that decides which attempt they strike."""

from __future__ import annotations

from sfusion.fakes.errors import FaultError
from sfusion.fakes.faults.action import (
    KINDS,
    PHASES,
    Action,
    Close,
    ContentType,
    Crash,
    Degrade,
    Delay,
    Drip,
    Hang,
    Malformed,
    Output,
    Phase,
    Reset,
    SandboxError,
    Status,
    Timeout,
    Truncate,
    Wedge,
)
from sfusion.fakes.faults.chance import uniform
from sfusion.fakes.faults.duration import Distribution, Seconds, seconds
from sfusion.fakes.faults.plan import Attempt, Fate, FaultPlan, Strike
from sfusion.fakes.faults.rule import Rule
from sfusion.fakes.faults.source import load_rules, parse_rules, read_rule, read_rules

__all__ = [
    "KINDS",
    "PHASES",
    "Action",
    "Attempt",
    "Close",
    "ContentType",
    "Crash",
    "Degrade",
    "Delay",
    "Distribution",
    "Drip",
    "Fate",
    "FaultError",
    "FaultPlan",
    "Hang",
    "Malformed",
    "Output",
    "Phase",
    "Reset",
    "Rule",
    "SandboxError",
    "Seconds",
    "Status",
    "Strike",
    "Timeout",
    "Truncate",
    "Wedge",
    "load_rules",
    "parse_rules",
    "read_rule",
    "read_rules",
    "seconds",
    "uniform",
]
