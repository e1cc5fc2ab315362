"""Scenarios with a real sandbox: which ones can run there, and with real programs."""

from __future__ import annotations

from collections.abc import Iterator

from sfusion.harness.lab.scenarios.model import Scenario
from sfusion.harness.lab.scenarios.program import ProgramPart


def needs_fake(scenario: Scenario) -> str | None:
    """Return why this scenario needs the fake sandbox; None if a real one will do."""
    models = [scenario.sandbox.instance(number).model for number in range(1, scenario.sandbox.instances + 1)]
    own = [name for name in ("cores", "spawn_cost") if any(getattr(model, name) for model in models)]
    if own:
        return f"a real server cannot be told how to slow down ({', '.join(own)})"
    language = scenario.settings.default_language if scenario.settings is not None else "python"
    reasons = (part.needs_fake(language) for part in programs_of(scenario))
    return next((reason for reason in reasons if reason is not None), None)


def with_real_programs(scenario: Scenario) -> Scenario:
    """Return the scenario with programs that really run."""
    if scenario.load is not None:
        load = scenario.load.model_copy(update={"program": [_real(part) for part in scenario.load.program]})
        return scenario.model_copy(update={"load": load})
    rollouts = scenario.rollouts
    assert rollouts is not None
    turns = [turn.model_copy(update={"programs": [_real(part) for part in turn.programs]}) for turn in rollouts.turns]
    return scenario.model_copy(update={"rollouts": rollouts.model_copy(update={"turns": turns})})


def programs_of(scenario: Scenario) -> Iterator[ProgramPart]:
    """Yield every program that the load or a rollout may run."""
    if scenario.load is not None:
        yield from scenario.load.program
    if scenario.rollouts is not None:
        for turn in scenario.rollouts.turns:
            yield from turn.programs


def _real(part: ProgramPart) -> ProgramPart:
    return part.model_copy(update={"real": True})
