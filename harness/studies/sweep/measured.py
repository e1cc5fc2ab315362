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
from ...lab.scenarios.program import ENDLESS
from ...lab.scenarios.reading import vary


def with_measured(scenario: Scenario, file: Path) -> Scenario:
    """Return the scenario with the model of a file that `sfusion doctor --model-out` wrote."""
    found = _read_model(file)
    changes: Data = {"sandbox.model": found["sandbox"]["model"]}
    changes |= _measured_programs(scenario, found)
    observed = scenario.observed
    if observed is not None and observed.server_time:
        # The measured model has that time in it.
        changes["sandbox.faults"] = [
            rule.as_data()
            for rule in scenario.sandbox.faults
            if rule.name not in observed.server_time
        ]
    measured = vary(scenario, changes, f"--model {file}")
    known = _observed(observed, found.get("observed"))
    if observed is not None and observed.processes > 1:
        known = {**(known or {}), "processes": observed.processes}  # the client's, not the server's
    return measured.changed(observed=known)


def _measured_programs(scenario: Scenario, found: Data) -> Data:
    """Return the programs with the seconds that they take alone, if the file has them."""
    alone = found.get("load", {}).get("program", {}).get("seconds")
    programs = scenario.plain.get("load", {}).get("program", {})
    if alone is None:
        return {}
    if isinstance(programs, list):
        return {"load.program": [_alone(program, alone) for program in programs]}
    return {"load.program": _alone(programs, alone)}


def _alone(program: Data, seconds: Any) -> Data:
    """Return a program that takes so long; one that never ends, or never begins, stays."""
    if program.get("seconds") == ENDLESS or "arguments" in program:
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
