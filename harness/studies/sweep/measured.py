"""A scenario with a model of the server that was measured: nothing is counted twice, and what
neither the log nor the measurement tells stays said."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sfusion_tools.errors import YamlError
from sfusion_tools.marked_yaml import read_marked

from ...errors import ScenarioError
from ...lab.scenarios import Scenario
from ...lab.scenarios.base import Data
from ...lab.scenarios.parts import ObservedPart
from ...lab.scenarios.reading import vary

ENDLESS = 100_000
"""Seconds of programs that never end by themselves (chosen): longer than any timeout."""


def with_measured(scenario: Scenario, file: Path) -> Scenario:
    """Return the scenario with the model of a file that `sfusion doctor --model-out` wrote."""
    found = _read_model(file)
    changes: Data = {"sandbox.model": found["sandbox"]["model"]}
    observed = scenario.observed
    if observed is not None:
        changes |= _without_log(scenario, observed, found)
    measured = vary(scenario, changes, f"--model {file}")
    return measured.changed(observed=_observed(observed, found.get("observed")))


def _without_log(scenario: Scenario, observed: ObservedPart, found: Data) -> Data:
    """Return what takes the place of that which a log told of the server: the model has its time in
    it, and the file may have the seconds that the programs take alone."""
    changes: Data = {}
    if observed.server_time:
        changes["sandbox.faults"] = [
            rule.as_data()
            for rule in scenario.sandbox.faults
            if rule.name not in observed.server_time
        ]
    alone = found.get("load", {}).get("program", {}).get("seconds")
    programs = scenario.plain.get("load", {}).get("program")
    if alone is not None and isinstance(programs, list):
        changes["load.program"] = [_alone(program, alone) for program in programs]
    return changes


def _alone(program: Data, seconds: Any) -> Data:
    if program.get("seconds", ENDLESS) == ENDLESS:
        return program
    return {**program, "seconds": seconds}


def _observed(learned: ObservedPart | None, measured: Data | None) -> Data | None:
    """Return what is not known with the measured model.

    A measurement with the user's own programs tells what the log does not; one with programs that
    sleep says itself what it leaves open, and then the log's doubts stay.
    """
    if learned is None or not learned.unknown:
        return measured
    if measured is None:
        return {"rate_limit": [1, None], "unknown": learned.unknown}
    left_open = measured.get("unknown")
    if not left_open:
        return measured
    return {
        "rate_limit": list(learned.rate_limit),
        "unknown": f"{learned.unknown}; the model of --model: {left_open}",
    }


def _read_model(file: Path) -> Data:
    try:
        data = read_marked(file).data
    except YamlError as error:
        raise ScenarioError(error.problems) from None
    sandbox = data.get("sandbox") if isinstance(data, dict) else None
    if not isinstance(data, dict) or not isinstance(sandbox, dict) or "model" not in sandbox:
        raise ScenarioError(
            [
                (
                    f"{file}:1: expected `sandbox: {{model: ...}}`, as `sfusion doctor URL "
                    "--model-out FILE` writes it"
                )
            ]
        )
    return data
