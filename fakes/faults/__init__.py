"""Faults: rules of when x what x phase, and the pure plan that decides which attempt they strike."""

from sfusion.fakes.errors import FaultError
from sfusion.fakes.faults.action import KINDS, PHASES, Action, ContentFault, Phase, Spoilage
from sfusion.fakes.faults.chance import uniform
from sfusion.fakes.faults.duration import Distribution, Seconds, seconds
from sfusion.fakes.faults.kinds import Output, SandboxError, Status, Timeout
from sfusion.fakes.faults.plan import Fate, FaultPlan
from sfusion.fakes.faults.rule import Arrival, Rule, load_rules, parse_rules, read_rule, read_rules

__all__ = [
    "KINDS",
    "PHASES",
    "Action",
    "Arrival",
    "ContentFault",
    "Distribution",
    "Fate",
    "FaultError",
    "FaultPlan",
    "Output",
    "Phase",
    "Rule",
    "SandboxError",
    "Seconds",
    "Spoilage",
    "Status",
    "Timeout",
    "load_rules",
    "parse_rules",
    "read_rule",
    "read_rules",
    "seconds",
    "uniform",
]
