"""Faults: rules of when x what x phase, and the pure plan that applies them.

The plan decides which attempts a rule strikes.
"""

from ..errors import FaultError
from .action import KINDS, PHASES, Action, BodyDamage, ContentFault, Phase
from .chance import uniform
from .duration import Distribution, Seconds, seconds
from .kinds import Output, SandboxError, Status, Timeout
from .plan import Fate, FaultPlan
from .rule import Arrival, Rule, load_rules, parse_rules, read_rule, read_rules

__all__ = [
    "KINDS",
    "PHASES",
    "Action",
    "Arrival",
    "BodyDamage",
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
    "Status",
    "Timeout",
    "load_rules",
    "parse_rules",
    "read_rule",
    "read_rules",
    "seconds",
    "uniform",
]
