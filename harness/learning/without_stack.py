"""Trainings that need no stack: each call is lost by itself, with a chance that is known.

Limiter, server and rollouts then decide nothing, so the same draws without them give the same
curves, hundreds of times as fast. Where they might decide something, the stack plays.
"""

from __future__ import annotations

import math
from typing import Any

from ...fakes.faults import Rule
from ...fakes.faults.chance import uniform
from ...fakes.faults.kinds import Status
from ...fakes.sandbox.models import Unbounded
from ..core.journal import Journal
from ..lab.promises import RunEvents, Verdict
from ..lab.runs.effect import unknown
from ..lab.runs.tasks import Task
from ..lab.scenarios.model import Scenario
from ..lab.scenarios.training import TrainingPart
from ..lab.toy import simulate

_RULE_KEYS = {"name", "probability", "what"}
_ERRORS = (500, 502, 503, 504)
"""Answers after which a call that is not retried is lost."""
_TOOL_KEYS = {"max_attempts", "rate_limit", "default_timeout"}
_USUAL_LIMIT = 10
_USUAL_TIMEOUT = 30.0
"""What the tool has where the scenario says nothing."""
_SLACK = 0.5
"""A call that may take more than this part of its time goes through the stack (chosen)."""


def why_stack(task: Task) -> str:
    """Return why a training must be played through the stack; empty if that adds nothing."""
    scenario = task.scenario
    part = scenario.training
    assert part is not None
    if task.world != "sim" or task.tools_given or not isinstance(scenario.tools, dict):
        return "the tool is not ours"
    if scenario.tools.get("max_attempts") != 1:
        return "calls are retried"
    if other := sorted(set(scenario.tools) - _TOOL_KEYS):
        return f"the tool has `{other[0]}`"
    return _why_scenario(scenario) or _why_time(scenario, part)


def _why_scenario(scenario: Scenario) -> str:
    """Say what in a scenario is more than calls that are lost by themselves."""
    sandbox = scenario.sandbox
    part = scenario.training
    assert part is not None
    if scenario.events or scenario.schedule is not None:
        return "things happen at given times"
    if sandbox.instances > 1 or sandbox.each or sandbox.executor != "scripted":
        return "the sandbox is more than one, or really runs code"
    if sandbox.model != Unbounded():
        return "the server has a model of its own"
    if not all(map(_by_itself, sandbox.faults)):
        return "faults depend on more than a probability"
    if any(behaviour.provokes for behaviour in part.behaviours):
        return "programs never end"
    if others := [promise.name for promise in scenario.promises if not promise.of_training]:
        return f"{others[0]} is about calls"
    return ""


def _by_itself(rule: Rule) -> bool:
    """Does a rule answer each request with an error, by chance alone?"""
    if rule.model_fields_set != _RULE_KEYS or len(rule.what) != 1:
        return False
    action = rule.what[0]
    if not isinstance(action, Status) or action.model_fields_set != {"status"}:
        return False
    return action.status in _ERRORS


def _why_time(scenario: Scenario, part: TrainingPart) -> str:
    """Say whether a call, or the whole training, could run out of time."""
    tools: Any = scenario.tools
    longest = part.seconds.longest * max(behaviour.length for behaviour in part.behaviours)
    turns = math.ceil(part.prompts * part.group / tools.get("rate_limit", _USUAL_LIMIT))
    if longest * turns > _SLACK * tools.get("default_timeout", _USUAL_TIMEOUT):
        return "calls may wait for the limiter, or run out of time"
    calls = max(behaviour.calls + behaviour.again for behaviour in part.behaviours)
    step = part.update_time + (calls + 1) * (part.think + longest * turns + 1)
    if part.steps * step > scenario.horizon:
        return "it may not end before the horizon"
    return ""


def train_without_stack(task: Task) -> tuple[Journal, list[Verdict]]:
    """Train with the draws that the stack would make; return what was learned, and the verdicts."""
    scenario = task.scenario
    part = scenario.training
    assert part is not None
    struck: set[str] = set()

    def is_lost(call: str) -> bool:
        for rule in scenario.sandbox.faults:
            if uniform(scenario.seed, "strike", rule.name, call, 1) < (rule.probability or 0.0):
                struck.add(rule.name)
                return True
        return False

    journal = Journal.begin(
        scenario=scenario.scenario, cell=scenario.cell, seed=scenario.seed, world=task.world
    )
    steps = simulate(part, scenario.seed, is_lost)
    for step, twin in zip(steps, simulate(part, scenario.seed), strict=True):
        facts = {**step.as_data(part), "twin": twin.as_data(part)}
        journal.note(0.0, "world", "trained", **facts)
    run = RunEvents(journal)
    verdicts = [promise.check(run) for promise in scenario.promises]
    idle = [
        f"fault {rule.name} never struck"
        for rule in scenario.sandbox.faults
        if rule.name not in struck
    ]
    if idle:
        verdicts.append(unknown(idle))
    return journal, verdicts
